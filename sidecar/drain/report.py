"""An assessment as other programs find it on the API server: the NodeDrainReport, two conditions of the Node, one annotation.

What is stored is the memory: since when things are as they are is taken from it, after a restart too. A report that was edited by
hand differs from what it should say, and is written anew.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain import instants
from sidecar.drain.assessment import Assessment
from sidecar.drain.plain import as_json, named
from sidecar.drain.stored import mapping, of_this_node, seconds, status_of, text
from sidecar.drain.transitions import about_marks, announced
from sidecar.drain.words import Intent
from sidecar.model import names
from sidecar.model.objects import Json, Owner

SCHEMA: Final = 1
HEARTBEAT: Final = 300.0
MOST: Final = 200
"""Entries of a list."""
MOST_WITHIN: Final = 20
"""Entries of a list within such an entry."""
LONGEST: Final = 1024
LISTS_BYTES: Final = 1_000_000
"""Of all lists together: an API server stores no object above some 1.5 MiB."""
SUMMARY_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Gate:
    """What is known of the gate that holds drainers back."""

    enabled: bool
    held: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One of the few places for nodes that are evacuated at a time."""

    lease: str
    """Empty while the node waits for one."""
    ahead: tuple[str, ...] = ()
    """Nodes that come first."""


@dataclass(frozen=True, slots=True)
class Course:
    """How far the evacuation is."""

    state: str
    started_at: float | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Extra:
    """What the report tells beside the assessment."""

    observed: bool = False
    """Somebody wants to empty the node: it is cordoned, tainted or marked."""
    intent: Intent | None = None
    intent_source: str = ""
    gate: Gate | None = None
    slot: Slot | None = None
    evacuation: Course | None = None


NORMAL_LIFE: Final = Extra()


# --- the report -------------------------------------------------------------------------------------------------------


def body(assessment: Assessment, *, previous: Json | None, agent: str, extra: Extra = NORMAL_LIFE) -> Json:
    """The whole object. `previous` is the one that is stored, or the last one made where none can be stored.

    The server takes the status by its subresource only: see `status_patch`.
    """
    before = of_this_node(status_of(previous), assessment.node_uid)
    whole = as_json(assessment)
    verdicts = {key: _dated(said, mapping(mapping(before, "verdicts"), key), at=assessment.at) for key, said in whole["verdicts"].items()}
    told = announced(before, assessment, observed=extra.observed, intent=extra.intent)
    status: Json = {
        "nodeUID": assessment.node_uid,
        "observedAt": whole["observedAt"],
        "agentVersion": agent,
        "schemaVersion": SCHEMA,
        **_cut(_extra(extra), MOST_WITHIN),
        "verdicts": verdicts,
        **{key: whole[key] for key in ("counts", "bytes", "snapshots", "untracked", "releasing", "inFlight") if key in whole},
        **_lists(whole),
        "announced": [claim.as_json() for claim in told],
        "conditions": [{"type": names.DRAIN_READY, **verdicts["drain"]}, {"type": names.RETIRE_READY, **verdicts["retire"]}],
    }
    return _head(assessment) | {"status": status}


def _head(assessment: Assessment) -> Json:
    """Its owner is the Node, so that it goes when that goes, whoever is alive then."""
    node = Owner("v1", "Node", assessment.node, assessment.node_uid)
    return {
        "apiVersion": names.REPORT_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {"name": names.drain_report(assessment.node, assessment.driver), "ownerReferences": [node.as_json()]},
        "spec": {"nodeName": assessment.node, "driver": assessment.driver},
    }


def _dated(said: Json, before: Json, *, at: float) -> Json:
    """Since when the status is what it is: as noted, as long as it stays and somebody noted it."""
    noted = seconds(before, "lastTransitionTime") if text(before, "status") == said["status"] else None
    since = at if noted is None or noted > at else noted
    return {**said, "message": _cut(said["message"], LONGEST), "lastTransitionTime": instants.to_text(since)}


def _extra(extra: Extra) -> Json:
    told: Json = {"intent": str(extra.intent), "intentSource": extra.intent_source} if extra.intent else {}
    if extra.gate:
        told["gate"] = {"enabled": extra.gate.enabled, "held": extra.gate.held, "why": extra.gate.why}
    if extra.slot:
        told["slot"] = {**({"lease": extra.slot.lease} if extra.slot.lease else {}), "waitingBehind": list(extra.slot.ahead)}
    if extra.evacuation:
        times = {"startedAt": extra.evacuation.started_at, "deadline": extra.evacuation.deadline}
        told["evacuation"] = {"state": extra.evacuation.state} | {key: instants.to_text(at) for key, at in times.items() if at is not None}
    return told


def _lists(whole: Json) -> Json:
    """As many entries as are allowed, or fewer where they are so long that the server would not store them."""
    lists: Json = {}
    for most in (MOST, MOST // 4, MOST // 20):
        lists = {key: _cut(whole[key], most) for key in ("blockers", "pods", "placement", "budgets", "notes")}
        if len(json.dumps(lists)) <= LISTS_BYTES:
            break
    return lists | {f"{key}Truncated": len(whole[key]) - len(lists[key]) for key in ("blockers", "pods")}


def _cut(value: Any, most: int) -> Any:
    match value:
        case str():
            return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
        case list():
            return [_cut(item, MOST_WITHIN) for item in value[:most]]
        case dict():
            return {key: _cut(item, MOST_WITHIN) for key, item in value.items()}
        case _:
            return value


# --- writing it -------------------------------------------------------------------------------------------------------


def differs(old: Json | None, new: Json) -> bool:
    """Whether anything but the time of the look would change, and what is only worth knowing, which goes with the next sign of life."""
    return old is None or owner_differs(old, new) or _timeless(status_of(old)) != _timeless(status_of(new))


def owner_differs(old: Json, new: Json) -> bool:
    """The stored one belongs to a former node of this name, with which it would be cleared away."""
    return bool(mapping(old, "metadata").get("ownerReferences") != new["metadata"]["ownerReferences"])


def is_stale(old: Json, *, now: float, heartbeat: float = HEARTBEAT) -> bool:
    """Time for a sign of life. A look that lies ahead, or that nobody can read, is none."""
    seen = seconds(status_of(old), "observedAt")
    return seen is None or not 0 <= now - seen < heartbeat


def status_patch(new: Json) -> list[Json]:
    """A JSON patch for the status subresource. It leaves nothing of what was there before."""
    return [{"op": "add", "path": "/status", "value": new["status"]}]


def owner_patch(new: Json) -> Json:
    """A merge patch for the object itself."""
    return {"metadata": {"ownerReferences": new["metadata"]["ownerReferences"]}}


def _timeless(status: Json) -> Json:
    # What has been told of marks has to be remembered at once.
    told = {"notes": about_marks(status.get("notes"))}
    return {key: value for key, value in status.items() if key not in ("observedAt", "notes")} | told


# --- on the node ------------------------------------------------------------------------------------------------------


def conditions(assessment: Assessment, previous: Iterable[Json]) -> list[Json]:
    """The two conditions of this driver, as they should be. `previous` are all that the Node has."""
    before = {text(condition, "type"): condition for condition in previous}
    kinds = ((names.DRAIN_READY, assessment.drain), (names.RETIRE_READY, assessment.retire))
    wanted = []
    for kind, verdict in kinds:
        type_ = names.condition(assessment.driver, kind)
        said = {"status": str(verdict.status), "reason": str(verdict.reason), "message": verdict.message}
        dated = _dated(said, before.get(type_, {}), at=assessment.at)
        wanted.append({"type": type_, **dated, "lastHeartbeatTime": instants.to_text(assessment.at)})
    return wanted


def conditions_differ(previous: Iterable[Json], wanted: Iterable[Json]) -> bool:
    """Whether anything but the heartbeat would change."""
    before = {text(condition, "type"): _still(condition) for condition in previous}
    return any(before.get(condition["type"]) != _still(condition) for condition in wanted)


def conditions_patch(wanted: list[Json], *, node_uid: str) -> Json:
    """A strategic merge patch for nodes/status: conditions are merged by type, so others' stay. Another machine of that name refuses it."""
    return {"metadata": {"uid": node_uid}, "status": {"conditions": wanted}}


def _still(condition: Json) -> Json:
    return {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}


def summary(assessment: Assessment) -> str:
    """For the annotation of the Node: both answers, and as many of the blockers as 2 KiB hold."""
    said: Json = {
        "drain": {"status": str(assessment.drain.status), "reason": str(assessment.drain.reason)},
        "retire": {"status": str(assessment.retire.status), "reason": str(assessment.retire.reason)},
        "counts": as_json(assessment)["counts"]["reasons"],
    }
    blockers = [f"{named(blocker)}: {blocker.reason}" for blocker in assessment.blockers[:MOST]]
    while True:
        left_out = len(assessment.blockers) - len(blockers)
        whole = {**said, "blockers": blockers, **({"more": left_out} if left_out else {})}
        written = json.dumps(whole, separators=(",", ":"))
        if len(written) <= SUMMARY_BYTES or not blockers:
            return written
        blockers = blockers[: -max(1, len(blockers) // 8)]
