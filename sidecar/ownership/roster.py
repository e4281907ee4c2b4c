"""Who may bid for a claim, and in which order: every node derives the same order from the same list without talking to anyone.

Weighted rendezvous hashing: each contender draws a score from the claim's uid and its own name, divided by its weight; the
smallest score is first. A node that one list has and another has not changes the order of no others, so lists that differ
a little cost a conflict for the few claims in question and nothing for the rest.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

# Steps per doubling of free space. Coarser ones would leave nodes of 300 and 400 GiB with equal shares; finer ones gain nothing,
# because two lists taken at different times differ by as much as was written between them, in whatever steps it is counted.
_STEPS: Final = 8
# Somebody for whom five times as many are expected before it is not among the first few but once in millions of claims.
_SURELY: Final = 5


@dataclass(frozen=True, slots=True)
class Contender:
    """A node whose driver is registered."""

    node: str
    free: int | None = None
    """Bytes it publishes for the class in question; None when that is not known."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The contenders for claims of one class, as they were last listed. Lists that are equal by value give equal orders."""

    contenders: tuple[Contender, ...]
    _rows: dict[str, "_Row"] = field(init=False, repr=False, compare=False)
    _groups: Counter["_Row"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = [item.free for item in self.contenders if item.free]
        usual = sum(known) // len(known) if known else 1
        # In the order of a hash: who counts the ones before its own then finds them early, whatever the names are.
        ordered = sorted(self.contenders, key=lambda item: draw("", item.node))
        object.__setattr__(self, "_rows", {item.node: _row(item.free, usual) for item in ordered})
        object.__setattr__(self, "_groups", Counter(self._rows.values()))

    @staticmethod
    def of(nodes: Iterable[str], free: Mapping[str, int]) -> "Roster":
        return Roster(tuple(Contender(node, free.get(node)) for node in sorted(set(nodes))))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: str) -> bool:
        return node in self._rows

    def rank(self, node: str, uid: str, needed: int, *, exact: int) -> int:
        """How many contenders come before this node for a claim of that many bytes: counted below `exact`, estimated from there.

        Who publishes less than is needed comes after all others. A node that is not listed comes last. Counting costs a hash
        for each contender; for a node that comes far behind, which most are, its own score tells about how far.
        """
        mine = self._rows.get(node)
        if mine is None:
            return len(self._rows)
        key = _key(uid, node, needed, mine)
        expected = int(sum(count * _share_before(key, row, needed) for row, count in self._groups.items()))
        if expected > _SURELY * exact:
            return expected
        before = 0
        for other, row in self._rows.items():
            before += _key(uid, other, needed, row) < key
            if before >= exact:
                return max(expected, exact)
        return before

    def order(self, uid: str, needed: int) -> list[str]:
        """All of them, first to last."""
        return sorted(self._rows, key=lambda node: _key(uid, node, needed, self._rows[node]))


@dataclass(frozen=True, slots=True)
class _Row:
    """What counts about a contender. Many are alike, so that the few kinds of them can be reckoned with instead of all."""

    weight: float
    room: int
    """In the same steps as the weight: what is surely there."""


def _row(free: int | None, usual: int) -> _Row:
    """Without a figure it has room for anything, and the share of a usual one."""
    if free is None:
        return _Row(_in_steps(usual), 1 << 63)
    return _Row(_in_steps(free), free if free < 1 else int(_in_steps(free)))


def _in_steps(free: int) -> float:
    return float(2.0 ** (math.floor(math.log2(max(free, 1)) * _STEPS) / _STEPS))


def _key(uid: str, node: str, needed: int, row: _Row) -> tuple[bool, float, str]:
    return row.room < needed, -math.log(draw(uid, node)) / row.weight, node


def _share_before(key: tuple[bool, float, str], row: _Row, needed: int) -> float:
    """The chance that a contender of that kind comes before whoever has this key."""
    late, score, _ = key
    lacks = row.room < needed
    return -math.expm1(-score * row.weight) if lacks == late else float(late)


def draw(uid: str, node: str) -> float:
    """From (0, 1), the same everywhere and for ever."""
    digest = blake2b(f"{uid}/{node}".encode(), digest_size=7).digest()
    return (int.from_bytes(digest, "big") + 0.5) / (1 << 56)
