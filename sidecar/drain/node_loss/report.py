"""The report on a node that is gone, as a peer writes it: what was on it, what proves that it is lost, and what has been done.

Its name is that of the report of the node's own sidecar, whose owner is the Node and which is deleted with it. This one has no owner, and
goes when nothing is left to tell. What is stored is read with distrust: anybody may have edited it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.spoken import Nothing, Spoken, Yes, spoken
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, PodThere, ThingThere
from sidecar.drain.publish.report import SCHEMA
from sidecar.drain.publish.stored import entries, mapping, seconds, shortened, status_of, text
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

MOST: Final = 200
"""Entries of a list."""
MOST_CLAIMS: Final = 500
"""Of the list of claims, which remembers whose event is written."""
LONGEST_MESSAGE: Final = 256
"""Characters about one of so many things."""
UNPROVEN: Final = "Unproven"
"""The word for `evidence.Unproven`, where others have their evidence."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is told of one node."""

    volumes: tuple[LostVolume, ...]
    claims: tuple[ClaimThere, ...]
    pods: tuple[PodThere, ...] = ()
    attachments: tuple[AttachmentThere, ...] = ()
    unread: tuple[str, ...] = ()
    """What could not be read."""
    snapshots: tuple[ThingThere, ...] = ()
    """VolumeSnapshotContents: their data was on the node too."""
    untold: tuple[str, ...] = ()
    """What could not be read, and decides nothing."""


# --- reading ------------------------------------------------------------------------------------------------------------


def gone_of(report: Json | None) -> Json:
    """What a stored report says of a node that is gone; empty: it is another kind of report, or there is none."""
    return mapping(status_of(report), "gone")


def is_about(report: Json | None, suspect: Suspect) -> bool:
    """It is a peer's, on this very machine."""
    return bool(gone_of(report)) and text(status_of(report), "nodeUID") == suspect.uid


def suspect_of(report: Json) -> Suspect | None:
    """Which machine a peer's report is on; None: it is another kind of report."""
    return Suspect(text(mapping(report, "spec"), "nodeName"), text(status_of(report), "nodeUID")) if gone_of(report) else None


def whose(report: Json) -> tuple[str, str] | None:
    """Which node it is on and by which driver; None: it does not say."""
    spec = mapping(report, "spec")
    node, driver = text(spec, "nodeName"), text(spec, "driver")
    return (node, driver) if node and driver else None


def said(report: Json | None, suspect: Suspect, *, doubt: str = "") -> Spoken:
    """By a person, on the report on this very machine, after it was written. What was said before is taken off: `head_patch`.
    `doubt`: as `evidence.Gone.doubt`."""
    machine = suspect.machine
    if machine is None or report is None or not is_about(report, suspect) or has_owner(report) or _is_doubted(report, doubt):
        return Nothing()
    return spoken(text(_notes(report), names.ACKNOWLEDGED), machine)


def acknowledged(report: Json | None, suspect: Suspect, *, doubt: str = "") -> bool:
    return isinstance(said(report, suspect, doubt=doubt), Yes)


def _is_doubted(report: Json, doubt: str) -> bool:
    """It was written, or acknowledged, before the end of a time in which nobody looked."""
    return bool(doubt) and text(_notes(report), names.UNWATCHED_UNTIL) != doubt


def _notes(report: Json) -> Json:
    return mapping(mapping(report, "metadata"), "annotations")


def since(report: Json | None, suspect: Suspect, *, now: float) -> float:
    """Since when it is missed, as it was first written; a time in the future is not believed."""
    noted = seconds(gone_of(report), "since") if is_about(report, suspect) else None
    return now if noted is None or noted > now else noted


def told_claims(report: Json | None, suspect: Suspect) -> frozenset[str]:
    """Uids of the claims whose event is written."""
    return frozenset(text(entry, "uid") for entry in entries(gone_of(report), "claims")) if is_about(report, suspect) else frozenset()


def dropped(report: Json | None, suspect: Suspect) -> int:
    """How much was done that it does not list any more."""
    found = gone_of(report).get("doneTruncated") if is_about(report, suspect) else 0
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


# --- writing ------------------------------------------------------------------------------------------------------------


def evidence_of(loss: Gone | Unproven) -> str:
    return str(loss.evidence) if isinstance(loss, Gone) else UNPROVEN


def head(suspect: Suspect, driver: str, *, doubt: str = "") -> Json:
    """The object without its status, to be created."""
    notes: Json = {"annotations": {names.UNWATCHED_UNTIL: doubt}} if doubt else {}
    return {
        "apiVersion": names.REPORT_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {"name": names.drain_report(suspect.node, driver), "labels": {names.NODE_LOSS_FOR: driver}, **notes},
        "spec": {"nodeName": suspect.node, "driver": driver},
    }


def has_owner(report: Json) -> bool:
    return bool(mapping(report, "metadata").get("ownerReferences"))


def head_patch(stored: Json, suspect: Suspect, driver: str, *, doubt: str = "") -> Json | None:
    """A merge patch that makes a stored report this one, if it is not yet: without an owner, and without what people have acknowledged of
    another machine, or before they could know that nobody had looked. It holds for the version that was read."""
    meta = mapping(stored, "metadata")
    labelled = mapping(meta, "labels").get(names.NODE_LOSS_FOR) == driver
    doubted = _is_doubted(stored, doubt)
    if labelled and not has_owner(stored) and is_about(stored, suspect) and not doubted:
        return None
    other = not is_about(stored, suspect) or has_owner(stored) or doubted
    noted: Json = {names.ACKNOWLEDGED: None} if other else {}
    noted |= {names.UNWATCHED_UNTIL: doubt} if doubted else {}
    annotations = {"annotations": noted} if noted else {}
    changed = {"ownerReferences": None, "labels": {names.NODE_LOSS_FOR: driver}, **annotations}
    return {"metadata": {"resourceVersion": text(meta, "resourceVersion"), **changed}}


def status(
    suspect: Suspect,
    loss: Gone | Unproven,
    left: Left,
    *,
    agent: str,
    now: float,
    said: Mapping[str, str] = MappingProxyType({}),
    done: Sequence[Json] = (),
    dropped: int = 0,
    beside: int = 0,
) -> Json:
    """The whole status. It has no verdicts: nobody stands for them. `said`: by uid, what becomes of a claim or volume. `dropped`: how much
    was done before `done`. `beside`: how many of the volumes are not of this machine."""
    more = f"; {beside} of the volumes were on another machine of that name or do not say on which, and stay" if beside else ""
    volumes = [_volume(lost) | _message(said, lost.volume.uid) for lost in left.volumes]
    claims = [_claim(there) | _message(said, there.uid) for there in left.claims]
    pods, attachments = [_pod(pod) for pod in left.pods], [{"name": item.name, "volume": item.volume} for item in left.attachments]
    return {
        "nodeUID": suspect.uid,
        "observedAt": timestamps.to_text(now),
        "agentVersion": agent,
        "schemaVersion": SCHEMA,
        "gone": {
            "since": timestamps.to_text(loss.since),
            "evidence": evidence_of(loss),
            "message": shortened(f"{loss.why}{more}"),
            **_bounded("volumes", volumes, MOST),
            **_bounded("claims", claims, MOST_CLAIMS),
            **_bounded("pods", pods, MOST),
            **_bounded("attachments", attachments, MOST),
            "done": list(done[-MOST:]),
            "doneTruncated": dropped + max(0, len(done) - MOST),
            **_bounded("snapshots", [{"name": item.name, "uid": item.uid} for item in left.snapshots], MOST),
            "unread": [shortened(why) for why in (*left.unread, *left.untold)[:MOST]],
        },
    }


def differs(stored: Json | None, new: Json) -> bool:
    """Whether the status has to be written. When it was last looked at is no difference, nor is an empty list that was not stored."""
    return _said(status_of(stored)) != _said(new)


def _said(status: Json) -> Json:
    return {**status, "observedAt": "", "gone": {key: value for key, value in mapping(status, "gone").items() if value != []}}


def _bounded(key: str, found: Sequence[Json], most: int) -> Json:
    return {key: list(found[:most]), f"{key}Truncated": max(0, len(found) - most)}


def _volume(lost: LostVolume) -> Json:
    volume = lost.volume
    return {
        "name": volume.name,
        "claim": volume.claim_name,
        "phase": volume.phase,
        "reclaimPolicy": volume.reclaim_policy,
        "bytes": volume.size,
    }


def _claim(there: ClaimThere) -> Json:
    return {"namespace": there.claim.namespace, "name": there.claim.name, "uid": there.uid, "volume": there.volume}


def _message(said: Mapping[str, str], uid: str) -> Json:
    why = said.get(uid, "")
    return {"message": why if len(why) <= LONGEST_MESSAGE else f"{why[: LONGEST_MESSAGE - 1]}…"} if why else {}


def _pod(pod: PodThere) -> Json:
    return {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def event(suspect: Suspect, loss: Gone | Unproven, there: ClaimThere) -> str:
    """What the event of a claim says, with the ways out."""
    node = suspect.node
    if isinstance(loss, Unproven):
        return (
            f"The data of volume {there.volume} may be lost: {loss.why}. If it has, its own sidecar says so in its report. Else bring the"
            " machine back with its disks and its name, or, if the data may be lost, delete this claim and restore it"
        )
    said = {
        Evidence.NONE: "nobody has said that its disks do not come back",
        Evidence.ANNOUNCED: "it was announced to be retired",
        Evidence.ACKNOWLEDGED: "its loss is acknowledged",
    }[loss.evidence]
    return (
        f"The data of volume {there.volume} was on node {node}, which is gone; {said}. Bring the machine back with its disks and its"
        " name, or, if the data may be lost, delete this claim, so that it is made anew elsewhere, and restore the data"
    )
