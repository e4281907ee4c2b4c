"""An assessment as people and programs find it on the API server: the NodeDrainReport of a node that is there, and Events. Pure.

The report is the Node's, so that it goes with it. Where the node is announced to go for good it is nobody's, and says which volumes were on
it: a sidecar of another node may find it when the Node is gone (`watch`). An undo gives it back to the Node.

An event's name is the same for the same thing, so one that is written again is no second one: nothing has to be remembered of what was
told. A claim gets one only while somebody wants to drain its node: in normal life nearly every volume would block a retirement.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.drain.assess import Assessment, PodFate, Verdict
from sidecar.drain.blockers import Blocker
from sidecar.drain.gate import HeldPods
from sidecar.drain.marks import Marks
from sidecar.drain.things import Thing
from sidecar.drain.words import LONGEST, Intent, Status
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names, timestamps
from sidecar.model.objects import Json, Owner

SCHEMA: Final = 1
MOST: Final = 200  # entries of a list
MOST_NOTES: Final = 50
LISTS_BYTES: Final = 1_000_000  # of all lists together: an API server stores no object above about 1.5 MiB
MOST_CLAIMS: Final = 50  # that get an event for one drain
DONE: Final = {Intent.REBOOT: "drained", Intent.RETIRE: "retired"}
_EVENTS: Final = {Status.TRUE: "Ready", Status.FALSE: "Blocked", Status.UNKNOWN: "Unknown"}


def body(
    judged: Assessment,
    marks: Marks,
    *,
    agent: str,
    course: Json,
    held: HeldPods,
    gate: Json | None,
    previous: Mapping[str, Any] | None,
) -> Json:
    """`course`: how far the evacuation is; empty: nobody asks for one. `gate`: what is known of it; None: there is none. `previous` is the
    stored one: since when verdicts are as they are. The API server takes the status from its subresource only: see `status_patch`."""
    before, told = status_of(previous, judged.node_uid), as_json(judged)
    status: Json = {
        "nodeUID": judged.node_uid,
        "observedAt": told["observedAt"],
        "agentVersion": agent,
        "schemaVersion": SCHEMA,
        **({"intent": str(marks.intent), "intentSource": str(marks.source)} if marks.intent else {}),
        **held.as_json(),
        **({"gate": gate} if gate is not None else {}),
        **({"evacuation": course} if course else {}),
        **verdicts(judged.drain, judged.retire, before=before, at=told["observedAt"]),
        "counts": told["counts"],
        "bytes": told["bytes"],
        **_lists(told),
        "notes": [note[:LONGEST] for note in (*marks.notes, *judged.notes)][:MOST_NOTES],
    }
    meta: Json = {"labels": {}, "ownerReferences": [Owner("v1", names.NODE, judged.node, judged.node_uid).as_json()]}
    if marks.leaving:
        volumes = sorted(thing.volume.uid for thing in judged.things if thing.volume is not None)
        status["leaving"] = {"nodeUID": judged.node_uid, "volumes": volumes}
        meta = {"labels": {names.NODE_LOSS_FOR: judged.driver}, "ownerReferences": []}
    return head(judged.node, judged.driver, **meta) | {"status": status}


def head(node: str, driver: str, **meta: object) -> Json:
    """The object without its status."""
    return {
        "apiVersion": names.REPORT_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {"name": names.drain_report(node, driver), **meta},
        "spec": {"nodeName": node, "driver": driver},
    }


def verdicts(drain: Verdict, retire: Verdict, *, before: Mapping[str, Any], at: str) -> Json:
    """In the status, by name and as conditions. `before`: the status as it is stored."""
    had = before.get("verdicts") or {}
    said = {key: dated(verdict, had.get(key) or {}, at=at) for key, verdict in (("drain", drain), ("retire", retire))}
    kinds = {names.DRAIN_READY: "drain", names.RETIRE_READY: "retire"}
    return {"verdicts": said, "conditions": [{"type": kind, **said[key]} for kind, key in kinds.items()]}


def dated(verdict: Verdict, before: Mapping[str, Any], *, at: str) -> Json:
    """With the time at which its status changed last, by what was said before."""
    since = before.get("lastTransitionTime") if before.get("status") == verdict.status else None
    return {**_verdict(verdict), "lastTransitionTime": str(since or at)}


def status_of(stored: Mapping[str, Any] | None, uid: str) -> Mapping[str, Any]:
    """As it is stored; empty: nothing is, or it is of another machine of the name."""
    status = (stored or {}).get("status") or {}
    return status if status.get("nodeUID") == uid else {}


def told_of(stored: Mapping[str, Any] | None, uid: str) -> str:
    """For what the stored report of that Node says that a drain is held; empty: that none is."""
    status = status_of(stored, uid)
    return str(status.get("drainFor") or "") if status.get("heldBecause") else ""


def differs(stored: Mapping[str, Any], status: Json) -> bool:
    """Whether it has to be written now. A new time can wait for the next heartbeat, and an empty list need not be stored."""

    def said(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {key: said(each) for key, each in value.items() if key != "observedAt" and each != []}

    return said(stored.get("status") or {}) != said(status)


def head_patch(stored: Mapping[str, Any], new: Json) -> Json | None:
    """A merge patch for whose it is; None: it is right. A report of an earlier Node of the name becomes ours."""
    meta, wanted = stored["metadata"], new["metadata"]
    label = (meta.get("labels") or {}).get(names.NODE_LOSS_FOR)
    if (meta.get("ownerReferences") or []) == wanted["ownerReferences"] and label == wanted["labels"].get(names.NODE_LOSS_FOR):
        return None
    changed = {"ownerReferences": wanted["ownerReferences"] or None, "labels": {names.NODE_LOSS_FOR: None, **wanted["labels"]}}
    return {"metadata": {"resourceVersion": meta["resourceVersion"], **changed}}


def status_patch(status: Json, *, version: str) -> list[Json]:
    """A JSON patch for the status subresource: it replaces the whole status, where a merge patch would leave old fields. Said in this way,
    and not as a `test`, a later version is a Conflict."""
    return [{"op": "add", "path": "/metadata/resourceVersion", "value": version}, {"op": "add", "path": "/status", "value": status}]


def _lists(told: Json) -> Json:
    """As many entries as are allowed, or fewer if they are so long that the API server would not store them."""
    lists: Json = {}
    for most in (MOST, MOST // 4, MOST // 20):
        lists = {key: told[key][:most] for key in ("blockers", "pods")}
        if len(json.dumps(lists)) <= LISTS_BYTES:
            break
    return lists | {f"{key}Truncated": len(told[key]) - len(lists[key]) for key in ("blockers", "pods")}


# --- as JSON ----------------------------------------------------------------------------------------------------------


def as_json(judged: Assessment) -> Json:
    """All of it, for the report and `explain -o json`. Empty texts are left out of the entries."""
    classes = Counter(str(thing.class_) for thing in judged.things)
    reasons = Counter(str(blocker.reason) for blocker in judged.blockers)
    return {
        "node": judged.node,
        "nodeUID": judged.node_uid,
        "driver": judged.driver,
        "observedAt": timestamps.to_text(judged.at),
        "verdicts": {"drain": _verdict(judged.drain), "retire": _verdict(judged.retire)},
        "counts": {"classes": dict(sorted(classes.items())), "reasons": dict(sorted(reasons.items()))},
        "bytes": {"total": sum(thing.bytes for thing in judged.things), "remaining": bytes_in_the_way(judged)},
        "blockers": [_blocker(blocker) for blocker in judged.blockers],
        "volumes": [_volume(thing) for thing in judged.things],
        "pods": [_pod(fate) for fate in judged.pods],
        "notes": list(judged.notes),
    }


def bytes_in_the_way(judged: Assessment, intent: Intent = Intent.RETIRE) -> int:
    """Of all volumes that block, themselves or by a pod that they keep here; each counts once."""
    blocking = [blocker for blocker in judged.blockers if intent in blocker.blocks]
    named, uids = {blocker.volume or blocker.named for blocker in blocking}, {blocker.object.uid for blocker in blocking}
    return sum(thing.bytes for thing in judged.things if thing.name in named or any(pod.uid in uids for pod in thing.use.pods))


def _verdict(verdict: Verdict) -> Json:
    return {"status": str(verdict.status), "reason": str(verdict.reason), "message": verdict.message[:LONGEST]}


def _blocker(blocker: Blocker) -> Json:
    named = blocker.object
    return {
        "kind": named.kind,
        **_non_empty(namespace=named.namespace),
        "name": named.name,
        **_non_empty(uid=named.uid, volume=blocker.volume),
        "bytes": blocker.bytes,
        **_non_empty(**{"class": blocker.class_}),
        "reason": str(blocker.reason),
        **_non_empty(policy=blocker.policy or "", policySource=blocker.policy_source),
        "blocks": [str(intent) for intent in blocker.blocks],
        **_non_empty(message=blocker.message[:LONGEST], remedy=blocker.remedy),
    }


def _volume(thing: Thing) -> Json:
    said = thing.policies
    one = len({resolved.policy for resolved in said.values()}) == 1
    policies = [{"intent": str(intent), "policy": str(item.policy), "source": item.source} for intent, item in said.items()]
    return {
        "name": thing.name,
        **_non_empty(claim=thing.claim),
        "class": str(thing.class_),
        "bytes": thing.bytes,
        **(_non_empty(policy=said[Intent.RETIRE].policy, policySource=said[Intent.RETIRE].source) if one else {}),
        **({"policies": policies} if said and not one else {}),
        "pods": [pod.full_name for pod in thing.use.everybody],
    }


def _pod(fate: PodFate) -> Json:
    pod = fate.pod
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        **_non_empty(uid=pod.uid),
        "reboot": str(fate.reboot),
        "retire": str(fate.retire),
        "volumes": list(fate.volumes),
        **_non_empty(why=fate.why),
    }


def _non_empty(**texts: str) -> Json:
    return {key: str(text) for key, text in texts.items() if text}


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DrainEvent:
    ref: ObjectRef
    type_: str
    reason: str
    message: str
    once: str = ""  # its name, if it is written once whoever writes it


def of_node(judged: Assessment, reason: str, message: str, *, warns: bool = False) -> DrainEvent:
    ref = ObjectRef("v1", names.NODE, "", judged.node, judged.node_uid)
    return DrainEvent(ref, names.WARNING if warns else names.NORMAL, reason, f"{judged.driver}: {message}")


def changes(
    stored: Mapping[str, Any] | None, judged: Assessment, marks: Marks, *, before: Marks | None, settling: bool
) -> Iterable[DrainEvent]:
    """`stored`: the report as it is stored, which says what was told of this node before. `settling`: the process has just started, so that
    an Unknown may be over in a moment, and is no news yet."""
    was = status_of(stored, judged.node_uid).get("verdicts") or {}
    for intent, key in ((Intent.REBOOT, "drain"), (Intent.RETIRE, "retire")):
        verdict, earlier = judged.verdict(intent), (was.get(key) or {}).get("status")
        news = earlier and earlier != verdict.status and not (settling and Status.UNKNOWN in (verdict.status, earlier))
        if news:
            warns = marks.drain_expected and verdict.status is not Status.TRUE
            remedy = f" What to do: {verdict.reason.remedy}." if verdict.reason.remedy else ""
            said = f"{verdict.reason}: {verdict.message}.{remedy}"
            yield of_node(judged, f"Node{key.capitalize()}{_EVENTS[verdict.status]}", said, warns=warns)
    for problem in marks.problems if before is None or before.problems != marks.problems else ():
        yield of_node(judged, names.NODE_MARKS_WRONG, problem, warns=True)
    if marks.drain_expected:
        yield from _of_claims(judged, marks)


def _of_claims(judged: Assessment, marks: Marks) -> Iterable[DrainEvent]:
    purpose = marks.announced or marks.intent
    concerned = [
        blocker for blocker in judged.blockers if blocker.object.kind == names.CLAIM and (not purpose or purpose in blocker.blocks)
    ]
    for blocker in concerned[:MOST_CLAIMS]:
        claim, done = blocker.object, " and ".join(DONE[intent] for intent in blocker.blocks)
        says = blocker.message or blocker.reason.says
        message = f"Keeps node {judged.node} from being {done}: {blocker.reason}: {says}. What to do: {blocker.remedy}."
        once = names.shared_event(claim.name, claim.uid, f"{str(blocker.reason).lower()}.{judged.node_uid[:8]}")
        yield DrainEvent(claim, names.WARNING, names.BLOCKS_NODE_DRAIN, message, once)
