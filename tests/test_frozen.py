"""What `@frozen` makes is what dataclasses make; only sooner."""

import inspect
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, TypeVar

import pytest

from sidecar.frozen import frozen

T = TypeVar("T")


def both(class_: Callable[[], type], **options: bool) -> tuple[type[Any], type[Any]]:
    """The class as each of the two makes it."""
    return frozen(**options)(class_()), dataclass(frozen=True, slots=True, **options)(class_())  # type: ignore[call-overload]


def nothing() -> type:
    class Nothing:
        """Has no field."""

    return Nothing


def one() -> type:
    class One:
        it: object

    return One


def many() -> type:
    class Many:
        name: str
        kind: ClassVar[str] = "kind"
        size: int = 3
        secret: str = field(default="", repr=False)
        seen: float = field(default=0.0, compare=False)
        more: tuple[str, ...] = field(default_factory=tuple)

        @property
        def twice(self) -> int:
            return 2 * self.size

    return Many


CASES = [
    pytest.param(nothing, {}, [((), {})], id="no field"),
    pytest.param(one, {}, [((1,), {}), ((), {"it": "x"}), ((math.nan,), {}), (((1, 2),), {})], id="one field"),
    pytest.param(many, {}, [(("a",), {}), (("a", 4, "s", 1.0, ("m",)), {}), ((), {"name": "b", "seen": 2.0})], id="many fields"),
    pytest.param(many, {"kw_only": True}, [((), {"name": "a"}), ((), {"name": "a", "size": 4, "more": ("m",)})], id="by name only"),
]


@pytest.mark.parametrize(("class_", "options", "calls"), CASES)
def test_it_is_made_and_shown_and_compared_as_dataclasses_do(
    class_: Callable[[], type], options: dict[str, bool], calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    ours, theirs = both(class_, **options)
    assert ours.__match_args__ == theirs.__match_args__ and ours.__slots__ == theirs.__slots__
    assert is_dataclass(ours) and [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    mine, others = ([make(*args, **more) for args, more in calls] for make in (ours, theirs))
    assert inspect.signature(ours).parameters.keys() == inspect.signature(theirs).parameters.keys()
    assert [*map(repr, mine)] == [*map(repr, others)]
    assert [*map(hash, mine)] == [*map(hash, others)]
    assert [[one == other for one in mine] for other in mine] == [[one == other for one in others] for other in others]
    for one, other in zip(mine, others, strict=True):
        assert [getattr(one, each.name) for each in fields(one)] == [getattr(other, each.name) for each in fields(other)]


def test_nothing_of_it_can_be_changed() -> None:
    value = both(many)[0]("a")
    for change in (lambda: setattr(value, "size", 4), lambda: setattr(value, "other", 4), lambda: delattr(value, "size")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert value.size == 3 and value.twice == 6 and not hasattr(value, "__dict__")
