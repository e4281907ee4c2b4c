"""Decides which node goes first where several are emptied at once and have pods of the same workload.

Each looks at the other replicas and then evicts, so two nodes that look at the same moment would both find all of them ready. A disruption
budget that allows one eviction keeps them apart: the API server lets one of them through. Without such a budget the node whose evacuation
began first goes first, and the others wait for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.drain.evacuation.slots import contenders
from sidecar.drain.facts.own_notes import State
from sidecar.eviction.answers import MAY_ARRIVE_WITHIN
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod

# By then every other node has looked again, and what it had sent before has arrived: a pass ends within 10 s, the next comes 24 s later.
SETTLED: Final = 34.0 + MAY_ARRIVE_WITHIN


@dataclass(frozen=True, slots=True)
class Rivals:
    """The nodes that are being emptied now, by the API server's word."""

    order: tuple[str, ...] = ()
    """Names, whose evacuation began first, first. Clocks may differ: all that counts is that every node reads the same order."""
    settled: bool = True
    """This node has been among them for so long that all others have seen it there."""
    taken: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By name of a Lease: the node that makes a replica of that workload anew."""

    def taken_by(self, pod: Pod, driver: str) -> str:
        """The node that makes another replica of the pod's workload anew; empty: none does."""
        return self.taken.get(names.reprovision(pod.owner.uid, driver), "") if pod.owner else ""

    @classmethod
    def of(cls, nodes: Iterable[Node], driver: str, *, seconds: float) -> "Rivals":
        """`seconds`: for how long this process has seen its own evacuation in progress."""
        return cls(tuple(each.name for each in contenders(nodes, driver) if not each.later), seconds >= SETTLED)

    def objection(self, pod: Pod, others: Iterable[Pod], budgets: Iterable[Budget]) -> str:
        """Why this pod's node has to wait before it evicts the pod; empty: it need not."""
        places = unguarded(pod, others, budgets, emptied=self.order)
        if not places:
            return ""
        first = next(name for name in self.order if name in places or name == pod.node)
        if first != pod.node:
            return f"other replicas are on {first}, which is being emptied too and began earlier, and no budget keeps the two nodes apart"
        return "" if self.settled else f"{' and '.join(sorted(places))} may not have seen yet that this node goes first"


def unguarded(pod: Pod, others: Iterable[Pod], budgets: Iterable[Budget], *, emptied: Iterable[str]) -> frozenset[str]:
    """Which of the other nodes that are `emptied` may send a replica away at the same moment, because no budget forbids it."""
    among = [other for other in others if other.node and other.node != pod.node and other.node in frozenset(emptied)]
    return frozenset() if among and is_kept_apart(pod, among, budgets) else frozenset(other.node for other in among)


def selector(driver: str) -> str:
    """The label selector that finds the nodes that are being emptied."""
    return f"{names.of_driver(driver, names.EVACUATION_STATE)}={State.IN_PROGRESS}"


def is_kept_apart(pod: Pod, others: Iterable[Pod], budgets: Iterable[Budget]) -> bool:
    """The API server lets at most one of them go, whoever asks: all have the same budget, and it has one to give."""
    covering = [budget for budget in budgets if budget.covers(pod)]
    one = len(covering) == 1 and covering[0].observed and covering[0].allowed <= 1 and pod.ready
    return one and all(covering[0].covers(other) for other in others)
