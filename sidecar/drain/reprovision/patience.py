"""What this process remembers so that nobody holds up others for ever: whose turn it is, and for how long pods have been leaving."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_MOST_AT_ONCE: Final = 3


class Turns:
    """Goes round. Whoever is looked at comes last from then on, also if the look comes to nothing."""

    def __init__(self) -> None:
        self._first = 0

    def of(self, items: Sequence[T], most: int) -> Iterator[T]:
        for _ in range(min(most, len(items))):
            at = self._first % len(items)
            self._first = at + 1
            yield items[at]

    def restart(self) -> None:
        """The order of the items counts again."""
        self._first = 0


class FairTurns:
    """As `Turns`, but namespaces have their turns, and in each its items have theirs: who has thousands waits for them alone."""

    def __init__(self) -> None:
        self._namespaces = Turns()
        self._within: dict[str, Turns] = {}

    def of(self, items: Sequence[T], most: int, *, namespace: Callable[[T], str]) -> Iterator[T]:
        groups: dict[str, list[T]] = {}
        for item in items:
            groups.setdefault(namespace(item), []).append(item)
        self._within = {name: turns for name, turns in self._within.items() if name in groups}
        left = {name: len(group) for name, group in groups.items()}
        for _ in range(min(most, len(items))):
            name = next(name for name in self._namespaces.of([*groups], len(groups)) if left[name])
            left[name] -= 1
            yield from self._within.setdefault(name, Turns()).of(groups[name], 1)

    def restart(self) -> None:
        """The order of the items counts again."""
        self._namespaces, self._within = Turns(), {}


class Leavers:
    """Pods that are leaving the node, by full name, and since when one or another of their namespace has been. Times are of the monotonic
    clock."""

    def __init__(self) -> None:
        self._leaving: frozenset[str] = frozenset()
        self._since: dict[str, float] = {}
        """By namespace."""

    def see(self, leaving: Iterable[str], *, now: float) -> None:
        """All of this moment."""
        self._leaving = frozenset(leaving)
        self._since = {namespace: self._since.get(namespace, now) for namespace in map(_namespace, self._leaving)}

    def slow(self, *, now: float, patience: float) -> frozenset[str]:
        """Those that hold up no other namespace any more."""
        return frozenset(pod for pod in self._leaving if now - self._since[_namespace(pod)] >= patience)


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]


class Conflicts:
    """Somebody who changes an object all the time must not have it read and written all the time."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def one_more(self) -> bool:
        """Whether what was judged is judged again at once."""
        self._in_a_row += 1
        return self._in_a_row <= _MOST_AT_ONCE

    def none(self) -> None:
        self._in_a_row = 0
