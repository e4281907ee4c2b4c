"""What people are told when an answer changes: once, on the node or the claim. The stored report is the memory: a restart repeats nothing.

Of claims only those are told of that stand in the way of somebody: in normal life nearly every volume would block a retirement, and nobody
wants to hear of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.drain.assessment import Assessment, Blocker, Verdict
from sidecar.drain.signals import OF_MARKS
from sidecar.drain.stored import entries, mapping, of_this_node, text
from sidecar.drain.words import MEANING, Intent, Status
from sidecar.kube.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.objects import Json

NORMAL, WARNING = "Normal", "Warning"
MOST_AT_ONCE: Final = 50
"""Claims of which it is said in one go that they block; the others come next."""
MOST: Final = 500
"""Claims that are told at all."""
_CLAIM: Final = "PersistentVolumeClaim"
_DONE: Final = {None: "drained or retired", Intent.REBOOT: "drained", Intent.RETIRE: "retired"}
_REASONS: Final = {
    (Intent.REBOOT, Status.TRUE): names.NODE_DRAIN_READY,
    (Intent.REBOOT, Status.FALSE): names.NODE_DRAIN_BLOCKED,
    (Intent.REBOOT, Status.UNKNOWN): names.NODE_DRAIN_UNKNOWN,
    (Intent.RETIRE, Status.TRUE): names.NODE_RETIRE_READY,
    (Intent.RETIRE, Status.FALSE): names.NODE_RETIRE_BLOCKED,
    (Intent.RETIRE, Status.UNKNOWN): names.NODE_RETIRE_UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Happening:
    """An Event to write."""

    ref: ObjectRef
    type_: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Told:
    """A claim of which it has been said that it blocks."""

    namespace: str
    name: str
    uid: str

    def as_json(self) -> Json:
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("v1", _CLAIM, self.namespace, self.name, self.uid)


def events(before: Json | None, after: Assessment, *, observed: bool, intent: Intent | None = None) -> tuple[Happening, ...]:
    """`before` is the status of the report as it was, None at the first look; `observed`: somebody wants to empty the node."""
    known = of_this_node(before or {}, after.node_uid)
    return (*_marks(known, after), *_verdicts(known, after, observed=observed), *_claims(known, after, observed=observed, intent=intent))


def announced(before: Json, after: Assessment, *, observed: bool, intent: Intent | None) -> tuple[Told, ...]:
    """The claims that stand as told of once the events of this look are written. Those told of before stay ahead of new ones.

    As long as something is not known, a claim that is not seen to block may do so all the same.
    """
    if not observed:
        return ()
    blocking = {_told(blocker): None for blocker in after.blockers if _concerns(blocker, intent)}
    earlier = _earlier(before)
    kept = [claim for claim in earlier if claim in blocking or not _all_known(after)]
    fresh = [claim for claim in blocking if claim not in earlier]
    return (*kept, *fresh[:MOST_AT_ONCE])[:MOST]


def about_marks(notes: object) -> tuple[str, ...]:
    """Those notes, as they are stored, that tell what is wrong with the node's marks."""
    stored = notes if isinstance(notes, list | tuple) else ()
    return tuple(note for note in stored if isinstance(note, str) and note.startswith(OF_MARKS))


def _concerns(blocker: Blocker, intent: Intent | None) -> bool:
    return blocker.kind == _CLAIM and (intent is None or intent in blocker.blocks)


def _told(blocker: Blocker) -> Told:
    return Told(blocker.namespace, blocker.name, blocker.uid)


def _earlier(before: Json) -> dict[Told, None]:
    return {Told(text(entry, "namespace"), text(entry, "name"), text(entry, "uid")): None for entry in entries(before, "announced")}


def _all_known(after: Assessment) -> bool:
    return after.complete and Status.UNKNOWN not in (after.drain.status, after.retire.status)


# --- of the node ------------------------------------------------------------------------------------------------------


def _marks(before: Json, after: Assessment) -> Iterable[Happening]:
    told = about_marks(before.get("notes"))
    for note in about_marks(after.notes):
        if note not in told:
            yield Happening(_node(after), WARNING, names.NODE_MARKS_WRONG, f"{after.driver}: {note.removeprefix(OF_MARKS)}")


def _verdicts(before: Json, after: Assessment, *, observed: bool) -> Iterable[Happening]:
    was = mapping(before, "verdicts")
    for intent, key in ((Intent.REBOOT, "drain"), (Intent.RETIRE, "retire")):
        verdict, earlier = after.verdict(intent), text(mapping(was, key), "status")
        if earlier and earlier != verdict.status:
            alarming = observed and verdict.status is not Status.TRUE
            type_ = WARNING if alarming else NORMAL
            yield Happening(_node(after), type_, _REASONS[intent, verdict.status], _sentence(verdict, after.driver))


def _node(after: Assessment) -> ObjectRef:
    return ObjectRef("v1", "Node", "", after.node, after.node_uid)


def _sentence(verdict: Verdict, driver: str) -> str:
    remedy = f" What to do: {MEANING[verdict.reason].remedy}." if verdict.reason in MEANING else ""
    return f"{driver}: {verdict.reason}: {verdict.message}.{remedy}"


# --- of claims --------------------------------------------------------------------------------------------------------


def _claims(before: Json, after: Assessment, *, observed: bool, intent: Intent | None) -> Iterable[Happening]:
    if not observed:
        return
    earlier, now = _earlier(before), announced(before, after, observed=observed, intent=intent)
    first = {_told(blocker): blocker for blocker in reversed(after.blockers) if _concerns(blocker, intent)}
    for claim in now:
        if claim not in earlier:
            yield Happening(claim.ref, WARNING, names.BLOCKS_NODE_DRAIN, _complaint(first[claim], after.node))
    still_there = {volume.claim for volume in after.volumes}
    standing = set(now)
    for claim in earlier:
        # Of a claim that is gone nobody reads.
        if claim not in standing and f"{claim.namespace}/{claim.name}" in still_there:
            relief = f"Keeps node {after.node} from being {_DONE[intent]} no more"
            yield Happening(claim.ref, NORMAL, names.NO_LONGER_BLOCKS_NODE_DRAIN, relief)


def _complaint(blocker: Blocker, node: str) -> str:
    done = " and ".join(_DONE[intent] for intent in blocker.blocks)
    says = blocker.message or (MEANING[blocker.reason].says if blocker.reason in MEANING else "")
    return f"Keeps node {node} from being {done}: {blocker.reason}: {says}. What to do: {blocker.remedy}."
