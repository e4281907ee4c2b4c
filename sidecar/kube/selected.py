"""What a room says of a kind whose label selectors change while it is watched (`changing_reflector`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected(Generic[R]):
    """What has to be known of a kind whose watches select by label."""

    selectors: tuple[str, ...]
    """At first. The empty one selects everything."""
    place_of: Callable[[R], tuple[str, str]]
    """Namespace and name."""
    version_of: Callable[[R], str]
    is_under_way: Callable[[str], bool]
    """Whether something would be decided wrongly if the object with that key were believed to be gone and is not. `project` has to keep
    each object of which it is true."""
    silent: frozenset[str] = frozenset()
    """Selectors that select nothing while all is well."""
