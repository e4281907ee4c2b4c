"""Computes in which order the nodes may bid for a claim. Every node derives the same order from the same list, without any messages.

It is weighted rendezvous hashing: each contender has a score, drawn from the claim's uid and the node's name and divided by its weight;
the smallest score comes first. A node that is missing in one list does not change the order of the others. So lists that differ a little
cost a conflict for the few claims that the missing node would have taken, and nothing for the rest.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

# Free space is rounded down to steps, this many per doubling. Coarser steps would give nodes with 300 and 400 GiB equal shares. Finer
# steps gain nothing: two lists of different times differ by whatever was written between them, however fine the steps are.
_STEPS: Final = 8
# A node is only counted as far behind if this many times as many as asked for are expected before it. Then it is among the first few
# only once in millions of claims, and nothing has to be counted.
_SURELY: Final = 5


@dataclass(frozen=True, slots=True)
class Contender:
    """A node whose driver is registered."""

    node: str
    free: int | None = None
    """Bytes it publishes for the class in question; None if they are not known."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The contenders for claims of one class, as last listed. Equal lists give equal orders."""

    contenders: tuple[Contender, ...]
    chosen_from: int = 0
    """How many nodes there are, where these are the few that hear of a claim; 0: these are all."""
    _rows: dict[str, "_Row"] = field(init=False, repr=False, compare=False)
    _groups: Counter["_Row"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = [item.free for item in self.contenders if item.free]
        usual = sum(known) // len(known) if known else 1
        # Sorted by a hash, not by name: `rank` stops when it has counted enough, and it finds them early whatever the names are.
        ordered = sorted(self.contenders, key=lambda item: draw("", item.node))
        object.__setattr__(self, "_rows", {item.node: _row(item.free, usual) for item in ordered})
        object.__setattr__(self, "_groups", Counter(self._rows.values()))

    @staticmethod
    def of(nodes: Iterable[str], free: Mapping[str, int], *, chosen_from: int = 0) -> "Roster":
        return Roster(tuple(Contender(node, free.get(node)) for node in sorted(set(nodes))), chosen_from)

    @property
    def cluster(self) -> int:
        """How many nodes might hear of a claim that waits for long."""
        return self.chosen_from or len(self)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: str) -> bool:
        return node in self._rows

    def rank(self, node: str, uid: str, needed: int, *, exact: int, last: Collection[str] = ()) -> int:
        """How many contenders come before this node for a claim of `needed` bytes: counted below `exact`, estimated from there on.

        A contender that publishes less than is needed comes after all others, and those of `last` after these. A node that is not listed
        comes last. Counting costs a hash per contender. Most nodes are far behind, and for them their own score is enough to estimate how
        far.
        """
        mine = self._rows.get(node)
        if mine is None:
            return len(self._rows)
        key = _key(uid, node, needed, mine)
        late = {other: row for other in last if (row := self._rows.get(other)) is not None}
        late_before = sum(_key(uid, other, needed, row) < key for other, row in late.items())
        if node in late:
            return len(self._rows) - len(late) + late_before
        expected = int(sum(count * _share_before(key, row, needed) for row, count in self._groups.items())) - late_before
        if expected > _SURELY * exact:
            return expected
        before = 0
        for other, row in self._rows.items():
            before += other not in late and _key(uid, other, needed, row) < key
            if before >= exact:
                return max(expected, exact)
        return before

    def order(self, uid: str, needed: int, *, last: Collection[str] = ()) -> list[str]:
        """All contenders, first to last."""
        return sorted(self._rows, key=lambda node: (node in last, _key(uid, node, needed, self._rows[node])))


@dataclass(frozen=True, slots=True)
class _Row:
    """What the order depends on, besides the name. Many contenders are alike, so an estimate goes through the few kinds only."""

    weight: float
    room: int
    """Free bytes, rounded down to the same steps as the weight: this much is certainly there."""


def _row(free: int | None, usual: int) -> _Row:
    """A node that publishes nothing counts as one with room for any claim, and gets the share of an average node."""
    if free is None:
        return _Row(_in_steps(usual), 1 << 63)
    return _Row(_in_steps(free), free if free < 1 else int(_in_steps(free)))


def _in_steps(free: int) -> float:
    return float(2.0 ** (math.floor(math.log2(max(free, 1)) * _STEPS) / _STEPS))


def _key(uid: str, node: str, needed: int, row: _Row) -> tuple[bool, float, str]:
    return row.room < needed, -math.log(draw(uid, node)) / row.weight, node


def _share_before(key: tuple[bool, float, str], row: _Row, needed: int) -> float:
    """The probability that a contender of this kind comes before the one with this key."""
    late, score, _ = key
    lacks = row.room < needed
    return -math.expm1(-score * row.weight) if lacks == late else float(late)


def draw(uid: str, node: str) -> float:
    """A number in (0, 1), the same on every node and at every time. Python's own `hash` would differ from process to process."""
    digest = blake2b(f"{uid}/{node}".encode(), digest_size=7).digest()
    return (int.from_bytes(digest, "big") + 0.5) / (1 << 56)
