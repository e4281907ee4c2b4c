"""Keeps a few of what a long list has, others each time: groups take turns, and within a group chance decides."""

from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Final, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_NOTHING: Final = object()


class FewOfMany(Generic[T]):
    """`note` what the list has, then read what is `chosen`: all of it, if it is not more than `most`."""

    def __init__(self, most: int, rng: Callable[[], float]) -> None:
        self._most = most
        self._rng = rng
        self._kept: dict[str, list[T]] = {}
        self._noted: dict[str, int] = {}

    def note(self, group: str, item: T) -> None:
        kept, number = self._kept.setdefault(group, []), self._noted.get(group, 0)
        self._noted[group] = number + 1
        if len(kept) < self._most:
            kept.append(item)
        elif (place := int(self._rng() * (number + 1))) < self._most:
            kept[place] = item

    def chosen(self) -> list[T]:
        groups = [self._begun_anywhere(group) for group in self._begun_anywhere(list(self._kept.values()))]
        in_turn = [item for item in chain.from_iterable(zip_longest(*groups, fillvalue=_NOTHING)) if item is not _NOTHING]
        return in_turn[: self._most]  # type: ignore[return-value]

    def _begun_anywhere(self, items: list[U]) -> list[U]:
        begin = int(self._rng() * len(items)) if sum(self._noted.values()) > self._most else 0
        return items[begin:] + items[:begin]
