"""How much is free in the pools of other nodes: what is published there, less what placement has given away, and where there is enough."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import CapacityRecord
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """The largest volume and the sum of all: what a group needs, or what a node has."""

    largest: float
    total: int

    def holds(self, other: "FreeSpace") -> bool:
        return self.largest >= other.largest and self.total >= other.total


@dataclass(frozen=True, slots=True)
class Figure:
    """What is published for one class, and the pool that it draws on."""

    number: int
    pool: int
    class_: str
    capacity: int
    limit: float
    """The largest volume that can be made; infinity if no limit is published."""


class Figures:
    """All that is published, found by the labels of a node, and what has been given away of each pool."""

    def __init__(self, capacities: Iterable[CapacityRecord]) -> None:
        self._by_keys: dict[tuple[str, ...], dict[tuple[str, ...], list[Figure]]] = defaultdict(lambda: defaultdict(list))
        pools: dict[tuple[Segment, str], int] = {}
        for number, (segment, pool, class_, capacity, limit) in enumerate(sorted(filter(None, map(_publication, capacities)))):
            figure = Figure(number, pools.setdefault((segment, pool), len(pools)), class_, capacity, limit)
            keys, values = tuple(key for key, _ in segment.pairs), tuple(value for _, value in segment.pairs)
            self._by_keys[keys][values].append(figure)
        self._given = [0] * len(pools)

    def of(self, node: Node) -> Mapping[str, tuple[Figure, ...]]:
        """The figures that hold for the node, by class."""
        by_class: dict[str, tuple[Figure, ...]] = {}
        for keys, by_values in self._by_keys.items():
            values = tuple(node.labels[key] for key in keys if key in node.labels)
            for figure in by_values.get(values, ()) if len(values) == len(keys) else ():
                by_class[figure.class_] = (*by_class.get(figure.class_, ()), figure)
        return by_class

    def left(self, figure: Figure) -> int:
        return max(figure.capacity - self._given[figure.pool], 0)

    def give(self, taken: Mapping[int, int]) -> None:
        """`taken` is in bytes by pool."""
        for pool, count in taken.items():
            self._given[pool] += count


def _publication(record: CapacityRecord) -> tuple[Segment, str, str, int, float] | None:
    """None for a record without a topology or a capacity: nothing follows from it."""
    if record.node_topology is None or record.capacity is None:
        return None
    limit = math.inf if record.maximum is None else record.maximum
    return Segment.of(record.node_topology), record.annotations.get(names.POOL, ""), record.class_name, record.capacity, limit


class FreeSpaceTree:
    """Finds the first of many free spaces, from a given one on, that holds what is asked, in logarithmic time."""

    def __init__(self, spaces: Sequence[FreeSpace]) -> None:
        self._size = 1 << len(spaces).bit_length()
        empty = FreeSpace(-1, -1)
        self._most = [empty] * self._size + list(spaces) + [empty] * (self._size - len(spaces))
        for node in range(self._size - 1, 0, -1):
            self._most[node] = self._higher(node)

    def __getitem__(self, index: int) -> FreeSpace:
        return self._most[self._size + index]

    def __setitem__(self, index: int, space: FreeSpace) -> None:
        node = self._size + index
        self._most[node] = space
        while node > 1:
            node //= 2
            self._most[node] = self._higher(node)

    def first(self, asked: FreeSpace, start: int) -> int | None:
        node = self._size + start
        while node:
            if not self._most[node].holds(asked):
                # Up as long as this is the right one of two, then over to the one on the right.
                while node & 1:
                    node //= 2
                node = node + 1 if node else 0
            elif node < self._size:
                node *= 2
            else:
                return node - self._size
        return None

    def _higher(self, node: int) -> FreeSpace:
        left, right = self._most[2 * node], self._most[2 * node + 1]
        return FreeSpace(max(left.largest, right.largest), max(left.total, right.total))
