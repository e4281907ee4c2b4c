"""Events about a change of the answers, on the node and on claims that block. Pure.

An event's name is the same for the same thing, so one that is written again is no second one: nothing has to be remembered of what was
told. A claim gets one only while somebody wants to drain its node: in normal life nearly every volume would block a retirement.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.assess import Assessment, Verdict
from sidecar.drain.marks import Marks
from sidecar.drain.words import WORDS, Intent, Status
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names

MOST_CLAIMS: Final = 50
"""That get an event for one drain."""
_DONE: Final = {Intent.REBOOT: "drained", Intent.RETIRE: "retired"}
_REASONS: Final = {
    (Intent.REBOOT, Status.TRUE): names.NODE_DRAIN_READY,
    (Intent.REBOOT, Status.FALSE): names.NODE_DRAIN_BLOCKED,
    (Intent.REBOOT, Status.UNKNOWN): names.NODE_DRAIN_UNKNOWN,
    (Intent.RETIRE, Status.TRUE): names.NODE_RETIRE_READY,
    (Intent.RETIRE, Status.FALSE): names.NODE_RETIRE_BLOCKED,
    (Intent.RETIRE, Status.UNKNOWN): names.NODE_RETIRE_UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class DrainEvent:
    """An event to write."""

    ref: ObjectRef
    type_: str
    reason: str
    message: str
    once: str = ""
    """Its name, if it is written once whoever writes it."""


def of_node(judged: Assessment, reason: str, message: str, *, warns: bool = False) -> DrainEvent:
    ref = ObjectRef("v1", names.NODE, "", judged.node, judged.node_uid)
    return DrainEvent(ref, names.WARNING if warns else names.NORMAL, reason, f"{judged.driver}: {message}")


def changes(
    stored: Mapping[str, Any] | None, judged: Assessment, marks: Marks, *, before: Marks | None, settling: bool
) -> Iterable[DrainEvent]:
    """`stored`: the report as it is stored, which says what was told of this node before. `settling`: the process has just started, so that
    an Unknown may be over in a moment, and is no news yet."""
    status = (stored or {}).get("status") or {}
    was = status.get("verdicts") or {} if status.get("nodeUID") == judged.node_uid else {}
    for intent, key in ((Intent.REBOOT, "drain"), (Intent.RETIRE, "retire")):
        verdict, earlier = judged.verdict(intent), (was.get(key) or {}).get("status")
        news = earlier and earlier != verdict.status and not (settling and Status.UNKNOWN in (verdict.status, earlier))
        if news:
            warns = marks.observed and verdict.status is not Status.TRUE
            yield of_node(judged, _REASONS[intent, verdict.status], _about(verdict), warns=warns)
    for problem in marks.problems if before is None or before.problems != marks.problems else ():
        yield of_node(judged, names.NODE_MARKS_WRONG, problem, warns=True)
    if marks.observed:
        yield from _of_claims(judged, marks)


def _of_claims(judged: Assessment, marks: Marks) -> Iterable[DrainEvent]:
    purpose = marks.announced or marks.intent
    concerned = [
        blocker for blocker in judged.blockers if blocker.object.kind == names.CLAIM and (not purpose or purpose in blocker.blocks)
    ]
    for blocker in concerned[:MOST_CLAIMS]:
        claim, done = blocker.object, " and ".join(_DONE[intent] for intent in blocker.blocks)
        says = blocker.message or WORDS[blocker.reason].says
        message = f"Keeps node {judged.node} from being {done}: {blocker.reason}: {says}. What to do: {blocker.remedy}."
        ref = ObjectRef("v1", names.CLAIM, claim.namespace, claim.name, claim.uid)
        once = names.shared_event(claim.name, claim.uid, f"{str(blocker.reason).lower()}.{judged.node_uid[:8]}")
        yield DrainEvent(ref, names.WARNING, names.BLOCKS_NODE_DRAIN, message, once)


def _about(verdict: Verdict) -> str:
    remedy = f" What to do: {WORDS[verdict.reason].remedy}." if verdict.reason in WORDS else ""
    return f"{verdict.reason}: {verdict.message}.{remedy}"
