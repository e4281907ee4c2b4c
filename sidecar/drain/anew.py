"""Making a replica anew, as rules: which pods' claims may be made anew, the record of one replica, and its next step.

A replica whose claims have the policy Reprovision is evicted, its claims are deleted, and its StatefulSet makes both again on another node.
How far that is stands in the Lease of the workload, written before each step. Up to the deletion of its first claim it can be undone: the
marks go, the Lease goes, and the pod returns to its data. After that it is waited for. A time that has run out deletes nothing and gives
nothing up: it is told.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from sidecar.drain.empty import Hold
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.statefulset import MOST_CLAIMS, StatefulSet, is_of_statefulset
from sidecar.drain.things import Thing
from sidecar.drain.words import Reason, quoted
from sidecar.eviction.rules import MAY_ARRIVE_WITHIN
from sidecar.model import names
from sidecar.model.nodes import Budget, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Notes, Volume

_LONGEST: Final = 16 * 2**10
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,3}")


# --- the record -------------------------------------------------------------------------------------------------------


class Stage(StrEnum):
    """What may have been done. Values are stored."""

    TAKEN = "Taken"
    """The claims may have been marked; the pod was not evicted by us."""
    EVICTING = "Evicting"
    """The pod may have been evicted; no claim was deleted by us."""
    DELETING = "Deleting"
    """Claims may have been deleted: there is no way back for one that is gone."""


@dataclass(frozen=True, slots=True)
class Target:
    """The pod that is to leave, and the claims that are made anew for it, by name and uid."""

    namespace: str
    pod: str
    pod_uid: str
    workload: str
    workload_uid: str
    claims: tuple[tuple[str, str], ...]

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True)
class Record:
    target: Target
    stage: Stage
    at: float
    """When the stage was recorded, by the wall clock of this node."""
    begun_at: float

    def as_text(self) -> str:
        target = self.target
        said = {"stage": str(self.stage), "at": self.at, "begunAt": self.begun_at, "claims": target.claims}
        said |= {key: getattr(target, name) for key, name in _FIELDS.items()}
        return json.dumps(said, separators=(",", ":"))

    def is_overdue(self, *, now: float, timeout: float) -> bool:
        """A date in the far future is none that this node has written."""
        return not abs(now - self.at) < timeout


_FIELDS: Final = {"namespace": "namespace", "pod": "pod", "podUID": "pod_uid", "workload": "workload", "workloadUID": "workload_uid"}


def record_of(text: str, *, lease: str, driver: str) -> Record | None:
    """None: it makes no sense under the name of this Lease. Anybody may have edited it."""
    if not text or len(text) > _LONGEST:
        return None
    try:
        said = json.loads(text)
        claims = tuple((_text(name), _text(uid)) for name, uid in said["claims"])
        target = Target(**{name: _text(said[key]) for key, name in _FIELDS.items()}, claims=claims)
        record = Record(target, Stage(said["stage"]), _time(said["at"]), _time(said["begunAt"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    fits = 0 < len(claims) <= MOST_CLAIMS and names.reprovision(target.workload_uid, driver) == lease
    return record if fits else None


def _text(said: Any) -> str:
    if not isinstance(said, str) or not said:
        raise TypeError
    return said


def _time(said: Any) -> float:
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        raise TypeError
    return float(said)


# --- what the rules look at, read from the API server itself right before ---------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundClaim:
    """A claim that the pod uses, with its volume and what is written on it about making it anew."""

    claim: Claim
    finalizers: tuple[str, ...] = ()
    of_pod: bool = False
    """A pod owns it: it goes with that pod."""
    volume: Volume | None = None
    """None: it has none, or it is gone."""

    @property
    def may_be_deleted(self) -> bool:
        """Somebody says that the claim is made again after it is deleted."""
        return dict(self.claim.notes).get(names.ALLOW_CLAIM_DELETION) == "true"

    @property
    def peers(self) -> int | None:
        """How many other replicas have to be ready; None: nobody says, so all."""
        said = dict(self.claim.notes).get(names.REPROVISION_PEERS, "")
        return int(said) if _NUMBER.fullmatch(said) else None

    @property
    def mark(self) -> str:
        """By which machine's evacuation it is made anew, as `node/uid`; empty: by none."""
        return dict(self.claim.notes).get(names.REPROVISIONED_BY, "")

    def problem(self, machine: str) -> str:
        """What is written there that cannot be understood, or must not stand there; empty: nothing."""
        said = dict(self.claim.notes)
        wrong = [key for key, words in ((names.ALLOW_CLAIM_DELETION, ("true", "false")),) if key in said and said[key] not in words]
        wrong += [names.REPROVISION_PEERS] if names.REPROVISION_PEERS in said and self.peers is None else []
        wrong += [names.REPROVISIONED_BY] if self.mark not in ("", machine) else []
        wrong += [names.LOST_WITH] if names.LOST_WITH in said else []
        return "; ".join(f"its annotation {key} is {quoted(said[key])}" for key in wrong)

    @classmethod
    def of(cls, obj: Mapping[str, Any], volume: Volume | None) -> "FoundClaim":
        meta = obj["metadata"]
        owners = meta.get("ownerReferences") or ()
        return cls(Claim.of(obj), tuple(meta.get("finalizers") or ()), any(ref.get("kind") == names.POD for ref in owners), volume)


@dataclass(frozen=True, slots=True)
class Facts:
    """All of one moment, as nearly as several requests can be."""

    pods: tuple[Pod, ...] = ()
    """All of the namespace."""
    leaving: tuple[str, ...] = ()
    """Full names of other pods of this node that are ending and have a volume of this driver."""
    workload: StatefulSet | None = None
    """Of the target's name; None: there is none."""
    claims: Mapping[str, FoundClaim] = field(default_factory=lambda: MappingProxyType({}))
    """By name: those that are made anew, and all others of the pod."""
    classes: Mapping[str, Class] = field(default_factory=lambda: MappingProxyType({}))
    default_class: str = ""
    namespace: Notes = ()
    namespace_ends: bool = False
    budgets: tuple[Budget, ...] = ()
    """Of the namespace."""
    contents: tuple[SnapshotContent, ...] = ()
    """Snapshots of this driver."""
    asked_at: float = 0.0
    """When the pods were asked for, by the clock of this process."""

    def pod(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.name == name), None)


# --- candidates -------------------------------------------------------------------------------------------------------


def candidates(snapshot: Snapshot, things: Iterable[Thing]) -> tuple[list[Target], list[Hold]]:
    """Those that may be, the ready ones with the fewest bytes first. A pod that waits for a node because its volume is here is one too."""
    held: dict[str, list[Thing]] = defaultdict(list)
    pods: dict[str, Pod] = {}
    for thing in things:
        for pod in thing.use.everybody if thing.in_use else ():
            if pod.node in ("", snapshot.node_name) and not pod.stays:
                held[pod.uid].append(thing)
                pods[pod.uid] = pod
    found: list[tuple[bool, int, Target]] = []
    refused: list[Hold] = []
    for uid, mine in held.items():
        pod = pods[uid]
        if not any(thing.is_made_anew for thing in mine):
            continue
        if why := _objection(pod, mine):
            refused.append(Hold(Reason.CLAIM_KEPT, pod.full_name, why, lasting=True))
            continue
        assert pod.owner is not None
        claims = tuple(sorted((thing.object.name, thing.object.uid) for thing in mine))
        target = Target(pod.namespace, pod.name, pod.uid, pod.owner.name, pod.owner.uid, claims)
        found.append((not pod.ready, sum(thing.bytes for thing in mine), target))
    ordered = sorted(found, key=lambda each: (each[0], each[1], each[2].full_name))
    return [target for _, _, target in ordered], sorted(refused, key=lambda hold: hold.pod)


def _objection(pod: Pod, held: Sequence[Thing]) -> str:
    if pod.owner is None or not is_of_statefulset(pod):
        return f"{pod.owner.kind if pod.owner else 'nobody'} controls the pod, so it is not known whether its claim is made again"
    if not pod.uid or not pod.owner.uid or any(thing.object.kind != names.CLAIM or not thing.object.uid for thing in held):
        return "one of its claims could not be read"
    if keeping := [thing.name for thing in held if not thing.is_made_anew]:
        return f"{keeping[0]}, which the pod uses too, has another policy and keeps it here"
    return f"it uses more than {MOST_CLAIMS} claims" if len({*pod.claims}) > MOST_CLAIMS else ""


# --- the next step ----------------------------------------------------------------------------------------------------


class Result(StrEnum):
    """How it ended: the label of the metric, so that a value that is changed breaks alerts."""

    READY = "ready"
    UNDONE = "undone"
    """Before any claim was deleted."""
    NOT_READY = "replacement_not_ready"
    """Not in time: it may be ready later, and is then counted again."""
    GIVEN_UP = "not_awaited"
    """A claim was deleted, and nobody makes the replica any more."""


@dataclass(frozen=True, slots=True)
class StepView:
    record: Record
    """As it is stored in the Lease, which this process holds."""
    facts: Facts
    shut: Hold | None
    """The first lock that is shut; None: all are open."""
    machine: str
    """This one, as `node/uid`."""
    node: str
    undone: str
    """Why nobody wants any more that the node is emptied to be retired; empty: somebody does."""
    now: float
    timeout: float
    ready_for: float = 0.0
    """For how many seconds the replacement has been seen Ready."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Note on these claims by which machine they are made anew, then look again."""

    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class EvictReplica:
    """Try whether the claims could be deleted, record the step, look at everything once more, and evict this pod."""

    pod: Pod
    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeleteClaims:
    """Record it, look at everything once more, and delete these claims as they were read."""

    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Take the mark off these claims, and give the Lease back: nothing was deleted."""

    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Unmark:
    """Take the mark off these claims, which are not deleted any more; others are gone, and their replica is waited for."""

    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Await:
    """Wait for the pod to be gone, or for the replacement to be Ready."""

    why: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The Lease is given back: it is over."""

    result: Result
    why: str


AnewStep = Mark | EvictReplica | DeleteClaims | TakeBack | Unmark | Await | Finish | Hold


def left_of(record: Record, facts: Facts) -> Target:
    """What is still to be made anew, and so to be judged: once deletions have begun, without the claims that are gone."""
    if record.stage is not Stage.DELETING:
        return record.target
    left = {found.claim.name for found in _unchanged(record, facts)}
    return replace(record.target, claims=tuple(claim for claim in record.target.claims if claim[0] in left) or record.target.claims)


def step(view: StepView) -> AnewStep:
    record, facts = view.record, view.facts
    left = tuple(_unchanged(record, facts))
    gone = len(record.target.claims) - len(left)
    if record.stage is Stage.DELETING and gone:
        return _after_a_deletion(view, left)
    if view.undone:
        return _take_back(view, left, view.undone)
    if gone:
        # It was not us: before the record says Deleting nothing is deleted.
        return _take_back(view, left, f"a claim of {record.target.full_name} is not the one that was judged any more")
    pod = _with_a_node(view)
    return _while_the_pod_is_there(view, pod, left) if pod is not None else _without_the_pod(view, left)


def _unchanged(record: Record, facts: Facts) -> Iterable[FoundClaim]:
    for name, uid in record.target.claims:
        found = facts.claims.get(name)
        if found is not None and found.claim.uid == uid and not found.claim.deleting:
            yield found


def _with_a_node(view: StepView) -> Pod | None:
    """The pod that was judged, as long as it is on a node. One that waits for a node uses nothing yet."""
    return next((pod for pod in view.facts.pods if pod.uid == view.record.target.pod_uid and pod.node), None)


def _take_back(view: StepView, left: Iterable[FoundClaim], why: str) -> AnewStep:
    """Not while another node, which the Lease keeps away, would find this pod ready although it is about to be evicted."""
    pod, record = _with_a_node(view), view.record
    if pod is not None and not pod.deleting_since and record.stage is Stage.EVICTING and 0 <= view.now - record.at < MAY_ARRIVE_WITHIN:
        why = f"{why}; its eviction was asked for and not answered, and may be carried out yet"
        return Hold(Reason.POD_TERMINATING, pod.full_name, why)
    return TakeBack(_ours(view, left), why)


def _ours(view: StepView, claims: Iterable[FoundClaim]) -> tuple[FoundClaim, ...]:
    """Those with the mark of this machine: what another one has written is left alone."""
    return tuple(found for found in claims if found.mark == view.machine)


def _while_the_pod_is_there(view: StepView, pod: Pod, left: tuple[FoundClaim, ...]) -> AnewStep:
    if pod.deleting_since:
        return _late(view, f"{pod.full_name} was asked to end, and is still there")
    if view.shut is not None:
        return _take_back(view, left, f"{view.shut.reason}: {view.shut.why}")
    if unmarked := tuple(found for found in left if not found.mark):
        return Mark(unmarked, f"nothing is in the way of making {pod.full_name} anew")
    return EvictReplica(pod, left, "every other replica is ready, and its claims may be made anew")


def _without_the_pod(view: StepView, left: tuple[FoundClaim, ...]) -> AnewStep:
    """Its pod is gone, or has not got a node yet. The data is still there."""
    target = view.record.target
    back = view.facts.pod(target.pod)
    if back is not None and back.node == view.node:
        return TakeBack(_ours(view, left), f"{back.full_name} has returned to its data")
    if why := _given_up(view):
        return TakeBack(_ours(view, left), why)
    if view.shut is not None:
        evicted = view.record.stage is not Stage.TAKEN
        why = f"{view.shut.reason}: {view.shut.why}"
        return _late(view, why, view.shut) if evicted else TakeBack(_ours(view, left), why)
    if unmarked := tuple(found for found in left if not found.mark):
        return Mark(unmarked, f"nothing is in the way of making {target.full_name} anew")
    return DeleteClaims(left, f"{target.full_name} is gone, every other replica is ready, and no pod with a node has the claim")


def _after_a_deletion(view: StepView, left: tuple[FoundClaim, ...]) -> AnewStep:
    """There is no way back for what is gone. The other claims of the pod are no use without it, unless nobody asks for that any more."""
    if left and (over := view.undone or _given_up(view)):
        if marked := _ours(view, left):
            return Unmark(marked, over)
    elif left:
        if view.shut is not None:
            return _late(view, f"{view.shut.reason}: {view.shut.why}", view.shut)
        if unmarked := tuple(found for found in left if not found.mark):
            return Mark(unmarked, "it was undone, and is asked for again")
        return DeleteClaims(left, "another claim of the pod was deleted already")
    return _await_replacement(view)


def _await_replacement(view: StepView) -> AnewStep:
    target, workload = view.record.target, view.facts.workload
    if (why := _given_up(view)) or workload is None:
        return Finish(Result.GIVEN_UP, why)
    pod = view.facts.pod(target.pod)
    ours = pod is not None and pod.owner is not None and pod.owner.uid == workload.uid
    if pod is None or not ours or not pod.ready or not pod.node or pod.deleting_since or pod.ended:
        return _late(view, f"{target.full_name} is being made anew")
    if view.ready_for < workload.ready_for:
        return _late(view, f"{pod.full_name} is ready on {pod.node}, and has to be for {workload.ready_for:g} s")
    return Finish(Result.READY, f"{pod.full_name} is ready on {pod.node}")


def _given_up(view: StepView) -> str:
    """Why nobody makes the replica any more; empty: somebody does."""
    target, workload = view.record.target, view.facts.workload
    if workload is None or workload.uid != target.workload_uid or workload.deleting:
        return f"StatefulSet {target.workload} is gone, so nobody makes {target.full_name} again"
    return "" if workload.wants(target.pod) else f"StatefulSet {target.workload} does not want {target.full_name} any more"


def _late(view: StepView, why: str, hold: Hold | None = None) -> Await | Hold:
    """Waits, and tells once that it takes too long: this workload is left alone then, and others go on."""
    if view.record.stage is not Stage.TAKEN and view.record.is_overdue(now=view.now, timeout=view.timeout):
        late = f"{why}, and the replica is not ready after {view.timeout:g} s"
        return Hold(Reason.REPLICA_NOT_READY, view.record.target.full_name, late, lasting=True)
    return hold or Await(why)
