"""Decides which node goes first where several are emptied at once and have pods of the same workload.

Each looks at the other replicas and then evicts, so two nodes that look at the same moment would both find all of them ready. A disruption
budget that allows one eviction keeps them apart: the API server lets one of them through. Without such a budget the node whose evacuation
began first goes first, and the others wait for it.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.drain.evacuation.slots import contenders
from sidecar.frozen import frozen
from sidecar.model.nodes import Budget, Node, Pod

# By then every other node has looked again, and what it had sent before has arrived: a pass ends within 10 s, the next comes 24 s later.
SETTLED: Final = 40.0


@frozen
class Rivals:
    """The nodes that are being emptied now, by the API server's word."""

    order: tuple[str, ...] = ()
    """Names, whose evacuation began first, first. Clocks may differ: all that counts is that every node reads the same order."""
    settled: bool = True
    """This node has been among them for so long that all others have seen it there."""

    @classmethod
    def of(cls, nodes: Iterable[Node], driver: str, *, seconds: float) -> "Rivals":
        """`seconds`: for how long this process has seen its own evacuation in progress."""
        return cls(tuple(each.name for each in contenders(nodes, driver) if not each.later), seconds >= SETTLED)

    def objection(self, pod: Pod, others: Iterable[Pod], budgets: Iterable[Budget]) -> str:
        """Why this pod's node has to wait before it evicts the pod; empty: it need not."""
        places = {other.node for other in others if other.node != pod.node} & set(self.order)
        if not places or is_kept_apart(pod, budgets):
            return ""
        first = next(name for name in self.order if name in places or name == pod.node)
        if first != pod.node:
            return f"other replicas are on {first}, which is being emptied too and began earlier, and no budget keeps the two nodes apart"
        return "" if self.settled else f"{' and '.join(sorted(places))} may not have seen yet that this node goes first"


def is_kept_apart(pod: Pod, budgets: Iterable[Budget]) -> bool:
    """The API server lets at most one pod of its budget go, whoever asks."""
    covering = [budget for budget in budgets if budget.covers(pod)]
    return len(covering) == 1 and covering[0].observed and covering[0].allowed <= 1 and pod.ready
