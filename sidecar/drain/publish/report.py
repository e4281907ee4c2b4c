"""The NodeDrainReport: an assessment as other programs find it on the API server, whether it has to be written, and the patches for it.

What is stored is the memory: since when things are as they are is taken from it, after a restart too. A report that was edited by
hand differs from what it should say, and is written anew. What stands on the Node itself: `on_node`.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish import validity
from sidecar.drain.publish.as_json import as_json
from sidecar.drain.publish.events import about_marks, announced
from sidecar.drain.publish.stored import (
    NOTHING_HELD,
    Held,
    acknowledgements,
    dated,
    mapping,
    of_this_node,
    remembered,
    seconds,
    shortened,
    status_of,
    text,
)
from sidecar.drain.publish.withdrawn import remembering, without_memory
from sidecar.drain.vocabulary import Intent
from sidecar.drain.wording import LOCK_SHUT
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Owner

SCHEMA: Final = 1
HEARTBEAT: Final = 300.0
WATCHFUL_HEARTBEAT: Final = 60.0
"""While an acknowledgement counts that a use would end: the API server does not remember for long what pods did after `podsSeen`."""
MOST: Final = 200
"""Entries of a list."""
MOST_WITHIN: Final = 20
"""Entries of a list within such an entry."""
MOST_HIDDEN: Final = 1000
"""Volumes that no other node can tell to be here, by name."""
LISTS_BYTES: Final = 1_000_000
"""Of all lists together: an API server stores no object above about 1.5 MiB."""
_TIMES: Final = ("observedAt", "validUntil", "podsSeen")


@dataclass(frozen=True, slots=True)
class GateStatus:
    """What is known of the gate that holds drainers back."""

    enabled: bool
    held: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """The slot that this node needs to be evacuated: only so many nodes are at a time."""

    lease: str
    """Empty while the node waits for one."""
    ahead: tuple[str, ...] = ()
    """Nodes that are before this one in the queue."""


@dataclass(frozen=True, slots=True)
class EvacuationStatus:
    """How far the evacuation is."""

    state: str
    started_at: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What the report says beside the assessment."""

    observed: bool = False
    """Somebody wants to drain the node: it is cordoned, tainted or marked."""
    intent: Intent | None = None
    intent_source: str = ""
    purpose: Intent | None = None
    """The intent, or that which is announced and does not count yet."""
    gate: GateStatus | None = None
    slot: SlotStatus | None = None
    evacuation: EvacuationStatus | None = None
    held: Held = NOTHING_HELD
    settling: bool = False
    """The process has just started: an Unknown may be over in a moment, and nobody is told of it yet."""


NORMAL_LIFE: Final = ReportContext()


# --- the report -------------------------------------------------------------------------------------------------------


def body(assessment: Assessment, *, previous: Json | None, agent: str, context: ReportContext = NORMAL_LIFE) -> Json:
    """The whole object. `previous` is the stored one, or the last one made if none can be stored.

    The API server takes the status from its subresource only: see `status_patch`.
    """
    before = of_this_node(status_of(previous), assessment.node_uid)
    whole = as_json(assessment)
    verdicts = {key: dated(said, mapping(mapping(before, "verdicts"), key), at=assessment.at) for key, said in whole["verdicts"].items()}
    if context.settling:
        verdicts = {key: remembering(said, mapping(mapping(before, "verdicts"), key)) for key, said in verdicts.items()}
    told = announced(before, assessment, observed=context.observed, intent=context.purpose or context.intent)
    status: Json = {
        "nodeUID": assessment.node_uid,
        "observedAt": whole["observedAt"],
        "validUntil": timestamps.to_text(validity.until(assessment.at)),
        "agentVersion": agent,
        "schemaVersion": SCHEMA,
        **_cut(_context(context), MOST_WITHIN),
        **context.held.as_json(),
        "verdicts": verdicts,
        **{key: whole[key] for key in ("counts", "bytes", "snapshots", "untracked", "releasing", "inFlight") if key in whole},
        **_lists(whole),
        "hidden": [asdict(item) for item in assessment.hidden[:MOST_HIDDEN]],
        "acknowledgements": acknowledgements(before, assessment),
        "podsSeen": assessment.pods_seen or text(before, "podsSeen"),
        "announced": [claim.as_json() for claim in told],
        "conditions": [_condition(names.DRAIN_READY, verdicts["drain"]), _condition(names.RETIRE_READY, verdicts["retire"])],
    }
    return _head(assessment) | {"status": status}


def _condition(kind: str, verdict: Json) -> Json:
    return {"type": kind, **without_memory(verdict)}


def _head(assessment: Assessment) -> Json:
    """Its owner is the Node, so that the API server removes it with the Node when no sidecar is there any more."""
    node = Owner("v1", names.NODE, assessment.node, assessment.node_uid)
    return {
        "apiVersion": names.REPORT_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {"name": names.drain_report(assessment.node, assessment.driver), "ownerReferences": [node.as_json()]},
        "spec": {"nodeName": assessment.node, "driver": assessment.driver},
    }


def _context(context: ReportContext) -> Json:
    told: Json = {"intent": str(context.intent), "intentSource": context.intent_source} if context.intent else {}
    if context.gate:
        told["gate"] = {"enabled": context.gate.enabled, "held": context.gate.held, "why": context.gate.why}
    if context.slot:
        told["slot"] = {**({"lease": context.slot.lease} if context.slot.lease else {}), "waitingBehind": list(context.slot.ahead)}
    if context.evacuation:
        times = {"startedAt": context.evacuation.started_at, "deadline": context.evacuation.deadline}
        told["evacuation"] = {"state": context.evacuation.state} | {
            key: timestamps.to_text(at) for key, at in times.items() if at is not None
        }
    return told


def _lists(whole: Json) -> Json:
    """As many entries as are allowed, or fewer if they are so long that the API server would not store them."""
    lists: Json = {}
    for most in (MOST, MOST // 4, MOST // 20):
        lists = {key: _cut(whole[key], most) for key in ("blockers", "pods", "placement", "budgets", "notes")}
        if len(json.dumps(lists)) <= LISTS_BYTES:
            break
    return lists | {f"{key}Truncated": len(whole[key]) - len(lists[key]) for key in ("blockers", "pods")}


def _cut(value: Any, most: int) -> Any:
    match value:
        case str():
            return shortened(value)
        case list():
            return [_cut(item, MOST_WITHIN) for item in value[:most]]
        case dict():
            return {key: _cut(item, MOST_WITHIN) for key, item in value.items()}
        case _:
            return value


# --- writing it -------------------------------------------------------------------------------------------------------


def differs(old: Json | None, new: Json) -> bool:
    """Whether it has to be written now. A new time and most new notes can wait for the next heartbeat."""
    return old is None or owner_differs(old, new) or _timeless(status_of(old)) != _timeless(status_of(new))


def heartbeat_of(report: Json) -> float:
    standing = any(item.may_be_used for item in remembered(report, node_uid=text(status_of(report), "nodeUID")))
    return WATCHFUL_HEARTBEAT if standing else HEARTBEAT


def owner_differs(old: Json, new: Json) -> bool:
    """The stored report belongs to a former node of this name, and would be removed with it."""
    return bool(mapping(old, "metadata").get("ownerReferences") != new["metadata"]["ownerReferences"])


def is_stale(old: Json, *, now: float) -> bool:
    """Due for a heartbeat. A time in the future, or one that cannot be read, is no heartbeat."""
    seen = seconds(status_of(old), "observedAt")
    return seen is None or not 0 <= now - seen < heartbeat_of(old)


def status_patch(new: Json, *, resource_version: str = "") -> list[Json]:
    """A JSON patch for the status subresource: it replaces the whole status, where a merge patch would leave old fields.

    With a `resource_version` it replaces that one and no later one. Said in this way, and not as a `test`, a later one is a Conflict.
    """
    guard = [{"op": "add", "path": "/metadata/resourceVersion", "value": resource_version}] if resource_version else []
    return [*guard, {"op": "add", "path": "/status", "value": new["status"]}]


def held_patch(held: Held, *, resource_version: str) -> list[Json]:
    """Of nothing but what is held, for a report that has a status."""
    guard = {"op": "add", "path": "/metadata/resourceVersion", "value": resource_version}
    return [guard, *({"op": "add", "path": f"/status/{key}", "value": value} for key, value in held.as_json().items())]


def owner_patch(new: Json) -> Json:
    """A merge patch for the object itself."""
    return {"metadata": {"ownerReferences": new["metadata"]["ownerReferences"]}}


def _timeless(status: Json) -> Json:
    # Notes about marks have become events, and what was told has to be remembered at once. What keeps a replica from being made anew stands
    # nowhere else, and somebody waits for it.
    notes = status.get("notes")
    told = {"notes": (*about_marks(notes), *_about_locks(notes))}
    return {key: value for key, value in status.items() if key not in _TIMES and key != "notes"} | told


def _about_locks(notes: object) -> Iterable[str]:
    stored = notes if isinstance(notes, list | tuple) else ()
    return (note for note in stored if isinstance(note, str) and note.startswith(LOCK_SHUT))
