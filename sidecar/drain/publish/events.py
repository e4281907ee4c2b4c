"""Events about a change of the answers: once, on the node or on the claim. The stored report is the memory, so a restart repeats nothing.

A claim gets an event only while somebody wants to drain its node: in normal life nearly every volume would block a retirement, and nobody
wants to hear of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.node_marks import OF_MARKS
from sidecar.drain.judgement.assessment import Assessment, Blocker, Verdict
from sidecar.drain.publish.stored import entries, mapping, of_this_node, text
from sidecar.drain.publish.withdrawn import told_status
from sidecar.drain.vocabulary import MEANING, Intent, Status
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.objects import Json

NORMAL, WARNING = names.NORMAL, names.WARNING
MOST_AT_ONCE: Final = 50
"""Claims that get an event in one look; the next look tells the others."""
MOST: Final = 500
"""Claims that get an event at all: they are remembered in the report, whose size is limited."""
_CLAIM: Final = names.CLAIM
_DONE: Final = {None: "drained or retired", Intent.REBOOT: "drained", Intent.RETIRE: "retired"}
_REASONS: Final = {
    (Intent.REBOOT, Status.TRUE): names.NODE_DRAIN_READY,
    (Intent.REBOOT, Status.FALSE): names.NODE_DRAIN_BLOCKED,
    (Intent.REBOOT, Status.UNKNOWN): names.NODE_DRAIN_UNKNOWN,
    (Intent.RETIRE, Status.TRUE): names.NODE_RETIRE_READY,
    (Intent.RETIRE, Status.FALSE): names.NODE_RETIRE_BLOCKED,
    (Intent.RETIRE, Status.UNKNOWN): names.NODE_RETIRE_UNKNOWN,
}


_OF_UNKNOWN: Final = tuple(reason for (_, status), reason in _REASONS.items() if status is Status.UNKNOWN)


@dataclass(frozen=True, slots=True)
class DrainEvent:
    """An event to write."""

    ref: ObjectRef
    type_: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AnnouncedClaim:
    """A claim whose event says that it blocks."""

    namespace: str
    name: str
    uid: str

    def as_json(self) -> Json:
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("v1", _CLAIM, self.namespace, self.name, self.uid)


def events(
    before: Json | None, after: Assessment, *, observed: bool, intent: Intent | None = None, settling: bool = False
) -> tuple[DrainEvent, ...]:
    """`before` is the status of the former report, None at the first look; `observed`: somebody wants to drain the node.

    `settling`: the process has just started, so that an Unknown is no news yet.
    """
    known = of_this_node(before or {}, after.node_uid)
    verdicts = (event for event in _verdicts(known, after, observed=observed) if not (settling and event.reason in _OF_UNKNOWN))
    return (*_marks(known, after), *verdicts, *_claims(known, after, observed=observed, intent=intent))


def announced(before: Json, after: Assessment, *, observed: bool, intent: Intent | None) -> tuple[AnnouncedClaim, ...]:
    """The claims that have an event once those of this look are written. Earlier ones stay ahead of new ones.

    While something is unknown, a claim that is not seen to block may still do so, and is not taken off the list.
    """
    if not observed:
        return ()
    blocking = {_claim_of(blocker): None for blocker in after.blockers if _concerns(blocker, intent)}
    earlier = _announced_before(before)
    kept = [claim for claim in earlier if claim in blocking or not _all_known(after)]
    fresh = [claim for claim in blocking if claim not in earlier]
    return (*kept, *fresh[:MOST_AT_ONCE])[:MOST]


def about_marks(notes: object) -> tuple[str, ...]:
    """Of stored notes, those that say what is wrong with the node's marks."""
    stored = notes if isinstance(notes, list | tuple) else ()
    return tuple(note for note in stored if isinstance(note, str) and note.startswith(OF_MARKS))


def _concerns(blocker: Blocker, intent: Intent | None) -> bool:
    return blocker.kind == _CLAIM and (intent is None or intent in blocker.blocks)


def _claim_of(blocker: Blocker) -> AnnouncedClaim:
    return AnnouncedClaim(blocker.namespace, blocker.name, blocker.uid)


def _announced_before(before: Json) -> dict[AnnouncedClaim, None]:
    return {
        AnnouncedClaim(text(entry, "namespace"), text(entry, "name"), text(entry, "uid")): None for entry in entries(before, "announced")
    }


def _all_known(after: Assessment) -> bool:
    return after.complete and Status.UNKNOWN not in (after.drain.status, after.retire.status)


# --- of the node ------------------------------------------------------------------------------------------------------


def _marks(before: Json, after: Assessment) -> Iterable[DrainEvent]:
    told = about_marks(before.get("notes"))
    for note in about_marks(after.notes):
        if note not in told:
            yield DrainEvent(_node(after), WARNING, names.NODE_MARKS_WRONG, f"{after.driver}: {note.removeprefix(OF_MARKS)}")


def _verdicts(before: Json, after: Assessment, *, observed: bool) -> Iterable[DrainEvent]:
    was = mapping(before, "verdicts")
    for intent, key in ((Intent.REBOOT, "drain"), (Intent.RETIRE, "retire")):
        verdict, earlier = after.verdict(intent), told_status(mapping(was, key))
        if earlier and earlier != verdict.status:
            alarming = observed and verdict.status is not Status.TRUE
            type_ = WARNING if alarming else NORMAL
            yield DrainEvent(_node(after), type_, _REASONS[intent, verdict.status], _verdict_message(verdict, after.driver))


def _node(after: Assessment) -> ObjectRef:
    return ObjectRef("v1", names.NODE, "", after.node, after.node_uid)


def _verdict_message(verdict: Verdict, driver: str) -> str:
    remedy = f" What to do: {MEANING[verdict.reason].remedy}." if verdict.reason in MEANING else ""
    return f"{driver}: {verdict.reason}: {verdict.message}.{remedy}"


# --- of claims --------------------------------------------------------------------------------------------------------


def _claims(before: Json, after: Assessment, *, observed: bool, intent: Intent | None) -> Iterable[DrainEvent]:
    if not observed:
        return
    earlier, now = _announced_before(before), announced(before, after, observed=observed, intent=intent)
    first = {_claim_of(blocker): blocker for blocker in reversed(after.blockers) if _concerns(blocker, intent)}
    for claim in now:
        if claim not in earlier:
            yield DrainEvent(claim.ref, WARNING, names.BLOCKS_NODE_DRAIN, _claim_message(first[claim], after.node))
    still_there = {volume.claim for volume in after.volumes}
    standing = set(now)
    for claim in earlier:
        # Nobody reads events of a claim that is gone.
        if claim not in standing and f"{claim.namespace}/{claim.name}" in still_there:
            relief = f"No longer keeps node {after.node} from being {_DONE[intent]}"
            yield DrainEvent(claim.ref, NORMAL, names.NO_LONGER_BLOCKS_NODE_DRAIN, relief)


def _claim_message(blocker: Blocker, node: str) -> str:
    done = " and ".join(_DONE[intent] for intent in blocker.blocks)
    says = blocker.message or (MEANING[blocker.reason].says if blocker.reason in MEANING else "")
    return f"Keeps node {node} from being {done}: {blocker.reason}: {says}. What to do: {blocker.remedy}."
