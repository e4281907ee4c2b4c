"""Decides whether this program may evict a pod at all, and what an answer means. Whether it should is for the room that asks."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, TooManyRequests
from sidecar.model import names
from sidecar.model.nodes import Pod

QPS: Final = 5.0
BURST: Final = 5
# As kubectl drain, after a budget has refused.
BUDGET_PAUSE: Final = 5.0
# After what does not pass by itself within seconds. Jittered by whoever waits: nodes are emptied at the same moment.
NEXT_PASS: Final = 20.0
# For so long an eviction that got no answer may still be carried out.
MAY_ARRIVE_WITHIN: Final = 90.0
# The reasons of causes, as the API server names them.
_BUDGET: Final = "DisruptionBudget"
_ENDING: Final = "NamespaceTerminating"
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"
_OTHER_UID: Final = "UID in the precondition"


@dataclass(frozen=True, slots=True)
class May:
    """It may be evicted: this pod, with this uid, and no other one of its name."""

    namespace: str
    name: str
    uid: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class MayNot:
    why: str


Decision = May | MayNot


def may_evict(pod: Pod, *, node: str, ours: Set[str] = frozenset()) -> Decision:
    """`node` is this program's own, `ours` the full names of its own pods."""
    if not node or pod.node != node:
        return MayNot(f"it runs on {pod.node}, not on {node}" if pod.node else "it runs on no node")
    why = _why_not(pod, ours=ours)
    return MayNot(why) if why else May(pod.namespace, pod.name, pod.uid)


def _why_not(pod: Pod, *, ours: Set[str] = frozenset()) -> str:
    """Why it is not evicted wherever it is; empty: no reason."""
    if not pod.uid:
        return "it has no uid, so an eviction could hit another pod of its name"
    if _is_ours(pod, ours):
        return "it is one of our own"
    if pod.static:
        return "it is a static pod, which its kubelet would start again"
    if pod.of_daemon_set:
        return "a DaemonSet would create it again on this node"
    if pod.ended:
        return "it has ended"
    return "it is being deleted already" if pod.deleting_since else ""


def _is_ours(pod: Pod, ours: Set[str]) -> bool:
    """A guard is where this program runs. Anybody may give the label to a pod elsewhere, and to nobody's use but ours."""
    namespaces = {name.partition("/")[0] for name in ours}
    return pod.full_name in ours or (names.GUARDED_NODE in pod.labels and (not namespaces or pod.namespace in namespaces))


class Result(StrEnum):
    """How an attempt ended: the label of the metric, so that a value that is changed breaks alerts."""

    EVICTED = "evicted"
    GONE = "gone"  # there is no such pod any more
    REPLACED = "replaced"  # another pod has its name by now, and was not touched
    BUDGET = "budget"  # a disruption budget forbids it now, which is no error
    SERVER_BUSY = "server_busy"
    TWO_BUDGETS = "two_budgets"
    NAMESPACE_ENDS = "namespace_ends"  # its namespace is being deleted, and the pod with it
    FORBIDDEN = "forbidden"
    FAILED = "failed"  # any other answer, or none: whether the pod was evicted is not known


@dataclass(frozen=True, slots=True)
class Answer:
    result: Result
    why: str = ""  # what the server said, the cause first; empty after a success
    again: float = 0.0  # seconds until the same pod may be tried again

    @property
    def is_over(self) -> bool:
        """The pod leaves, or is gone: nothing is left to try."""
        return self.result in (Result.EVICTED, Result.GONE, Result.REPLACED)

    @property
    def is_expected(self) -> bool:
        """Nobody has to do anything about it."""
        return self.is_over or self.result in _PASSING


EVICTED: Final = Answer(Result.EVICTED)
_PASSING: Final = (Result.BUDGET, Result.SERVER_BUSY, Result.NAMESPACE_ENDS)


@dataclass(frozen=True, slots=True)
class Row:
    """Answers that this is true of have this result."""

    is_it: Callable[[ApiError], bool]
    result: Result
    again: float


# fmt: off
TABLE: Final = (
    Row(lambda error: isinstance(error, NotFound),                                     Result.GONE,           0.0),
    Row(lambda error: isinstance(error, Conflict) and _OTHER_UID in str(error),        Result.REPLACED,       0.0),
    Row(lambda error: isinstance(error, TooManyRequests) and _BUDGET in error.causes,  Result.BUDGET,         BUDGET_PAUSE),
    Row(lambda error: isinstance(error, TooManyRequests),                              Result.SERVER_BUSY,    0.0),
    Row(lambda error: error.status == 500 and _TWO_BUDGETS in str(error),              Result.TWO_BUDGETS,    NEXT_PASS),
    Row(lambda error: isinstance(error, Forbidden) and _ENDING in error.causes,        Result.NAMESPACE_ENDS, BUDGET_PAUSE),
    Row(lambda error: isinstance(error, Forbidden),                                    Result.FORBIDDEN,      NEXT_PASS),
    Row(lambda error: True,                                                            Result.FAILED,         NEXT_PASS),
)  # the first row that is true of it counts


def answer_to(error: ApiError) -> Answer:
    """For whatever is not a success."""
    row = next(row for row in TABLE if row.is_it(error))
    again = error.retry_after if row.result is Result.SERVER_BUSY and isinstance(error, TooManyRequests) else row.again
    cause = error.causes.get(_BUDGET) or error.causes.get(_ENDING)
    return Answer(row.result, f"{cause} ({error})" if cause else str(error), again)
