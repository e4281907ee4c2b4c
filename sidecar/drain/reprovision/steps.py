"""Decides the next step of one replica that is made anew: one look, one decision, from what is stored and what was just read.

Up to the deletion of its first claim it can be undone: the marks go, the Lease goes, and the pod returns to its data. After that it is
waited for. A time that has run out deletes nothing and gives nothing up: it is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sidecar.drain.emptying.rivals import SETTLED, unguarded
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision.facts import Facts, FoundClaim
from sidecar.drain.reprovision.lock import Lock, Refusal
from sidecar.drain.reprovision.locks import shut
from sidecar.drain.reprovision.record import ClaimName, Record, Stage, Target
from sidecar.drain.vocabulary import HINDRANCES, Hindrance
from sidecar.eviction.answers import MAY_ARRIVE_WITHIN
from sidecar.eviction.rules import May, MayNot, may_evict
from sidecar.model.nodes import Pod

READY_TIMEOUT: Final = 1800.0


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
    """All that the rule looks at."""

    record: Record
    """As it is stored in the Lease, which this process holds."""
    facts: Facts
    locks: tuple[Lock, ...]
    machine: Machine
    """This one."""
    undone: str
    """Why nobody asks any more that the node is emptied to be retired; empty: somebody does."""
    now: float
    """Wall clock of this node."""
    ready_for: float = 0.0
    """For how many seconds the replacement has been seen Ready."""
    timeout: float = READY_TIMEOUT
    kept: Refusal | None = None
    """Why the API server does not let the pod or its claims go, where it has said so again and again."""
    ours: frozenset[str] = frozenset()
    """Full names of this program's own pods."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Note on these claims by which machine they are made anew, then look again."""

    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Try whether the claims could be deleted, record the step, look at the Node once more, and evict this pod."""

    pod: May
    claims: tuple[FoundClaim, ...]
    why: str


@dataclass(frozen=True, slots=True)
class DeleteClaims:
    """Record it, look at the Node once more, and delete these claims as they were read."""

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
    replacement: bool
    """It is the replacement that is waited for: there is no way back."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The Lease is given back: it is over."""

    result: Result
    why: str
    pod: Pod | None = None
    """The replacement, where it is Ready."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Take no step now: this is why, and it may pass. The Lease is kept."""

    hindrance: Hindrance
    pod: str
    why: str
    is_overdue: bool = False
    """It has lasted so long that this workload is left alone; others go on."""


Decision = Mark | Evict | DeleteClaims | TakeBack | Unmark | Await | Finish | Hold


def decide(view: StepView) -> Decision:
    record, facts = view.record, view.facts
    left = tuple(_unchanged(record.target, facts))
    gone = len(record.target.claims) - len(left)
    if record.stage is Stage.DELETING and gone:
        return _after_a_deletion(view, left)
    if view.undone:
        return _take_back(view, left, view.undone)
    if gone:
        # It was not us: before the record says Deleting nothing is deleted.
        why = f"{Hindrance.CLAIM_CHANGED}: a claim of {record.target.full_name} is not the one that was judged any more"
        return _take_back(view, left, why)
    pod = _with_a_node(view)
    return _before_the_end(view, pod, left) if pod is not None else _without_its_pod(view, left)


def is_overdue(record: Record, *, now: float, timeout: float) -> bool:
    """It keeps no others waiting any more, whatever is in its way. A date in the far future is none that this node has written."""
    return not abs(now - record.at) < timeout


def left_of(record: Record, facts: Facts) -> Target:
    """What is still to be made anew, and so to be judged: once deletions have begun, without the claims that are gone."""
    left = {found.claim.name for found in _unchanged(record.target, facts)}
    if record.stage is not Stage.DELETING or not left:
        return record.target
    return replace(record.target, claims=tuple(claim for claim in record.target.claims if claim.name in left))


def in_words(decision: Decision) -> str:
    """For people who ask what comes next."""
    match decision:
        case Hold(hindrance, pod, why):
            return f"nothing is made anew now: {hindrance} ({pod}): {why}. What to do: {HINDRANCES[hindrance].remedy}"
        case _:
            return f"{type(decision).__name__}: {decision.why}"


def _unchanged(target: Target, facts: Facts) -> Iterable[FoundClaim]:
    for wanted in target.claims:
        found = facts.claims.get(wanted.name)
        if found is not None and _is(found, wanted) and not found.claim.deleting:
            yield found


def _is(found: FoundClaim, wanted: ClaimName) -> bool:
    return found.claim.uid == wanted.uid


def _marked(claims: Iterable[FoundClaim], machine: Machine) -> tuple[FoundClaim, ...]:
    """By this one: what another machine has written, a policy may not let it take off."""
    return tuple(found for found in claims if found.words.marked_by == machine)


def _unmarked(claims: Iterable[FoundClaim]) -> tuple[FoundClaim, ...]:
    return tuple(found for found in claims if found.words.marked_by is None)


def _with_a_node(view: StepView) -> Pod | None:
    """The pod that was judged, as long as it is on a node. One that waits for a node uses nothing yet."""
    target = view.record.target
    return next((pod for pod in view.facts.pods if pod.uid == target.pod_uid and pod.node), None)


def _take_back(view: StepView, left: Iterable[FoundClaim], why: str) -> Decision:
    """Not while another node, which the Lease keeps away, would find this pod ready although it is about to be evicted."""
    pod, record = _with_a_node(view), view.record
    if pod is not None and not pod.deleting_since and record.stage is Stage.EVICTING and 0 <= view.now - record.at < MAY_ARRIVE_WITHIN:
        return Hold(Hindrance.POD_LEAVING, pod.full_name, f"{why}; its eviction was asked for and not answered, and may be carried out yet")
    return TakeBack(_marked(left, view.machine), why)


def _before_the_end(view: StepView, pod: Pod, left: tuple[FoundClaim, ...]) -> Decision:
    """The pod is still there."""
    if pod.deleting_since:
        why = f"{pod.full_name} was asked to end, and is still there"
        late = _overdue(view, why) if _was_evicted(view) else None
        return late or Await(why, replacement=False)
    refusal = shut(view.locks)
    if refusal is not None:
        return _take_back(view, left, f"{refusal.hindrance}: {refusal.why}")
    if view.kept:
        return _take_back(view, left, f"{view.kept.hindrance}: {view.kept.why}")
    if unmarked := _unmarked(left):
        return Mark(unmarked, f"all locks of {pod.full_name} are open")
    may = may_evict(pod, node=view.machine.node, ours=view.ours)
    if isinstance(may, MayNot):
        return _take_back(view, left, may.why)
    if nodes := _may_cross(view, pod):
        why = f"an eviction that {' or '.join(sorted(nodes))} asked for before this node had the Lease may be carried out yet"
        return Hold(Hindrance.ANOTHER_NODE_FIRST, pod.full_name, why)
    return Evict(may, left, "every other replica is ready, and its claims may be made anew")


def _may_cross(view: StepView, pod: Pod) -> frozenset[str]:
    """Nodes that are emptied too and have looked at the Leases, if at all, before this one was taken. Those that look later wait for it."""
    if view.now - view.record.begun_at >= SETTLED:
        return frozenset()
    replicas = [other for other in view.facts.pods if other.owner is not None and other.owner.uid == view.record.target.workload_uid]
    return unguarded(pod, replicas, view.facts.budgets, emptied=view.facts.emptied)


def _without_its_pod(view: StepView, left: tuple[FoundClaim, ...]) -> Decision:
    """Its pod is gone, or has not got a node yet. The data is still there."""
    target = view.record.target
    back = view.facts.pod(target.pod)
    if back is not None and back.node == view.machine.node:
        return TakeBack(_marked(left, view.machine), f"{back.full_name} has returned to its data")
    if why := _given_up(view):
        return TakeBack(_marked(left, view.machine), why)
    refusal = shut(view.locks)
    if refusal is not None:
        waits = _was_evicted(view) and refusal.hindrance not in _NEVER_AGAIN
        return _held(view, refusal) if waits else TakeBack(_marked(left, view.machine), f"{refusal.hindrance}: {refusal.why}")
    if unmarked := _unmarked(left):
        return Mark(unmarked, f"all locks of {target.full_name} are open")
    return DeleteClaims(left, f"{target.full_name} is gone, every other replica is ready, and no pod with a node has the claim")


def _was_evicted(view: StepView) -> bool:
    return view.record.stage in (Stage.EVICTING, Stage.DELETING)


# The workload that the pod was evicted for is another one by now, or has no such replica: nobody is helped by waiting.
_NEVER_AGAIN: Final = (Hindrance.NOBODY_MAKES_IT_AGAIN, Hindrance.REPLICA_CONDEMNED)


def _held(view: StepView, refusal: Refusal) -> Hold:
    late = _overdue(view, f"{refusal.hindrance}: {refusal.why}")
    return late or Hold(refusal.hindrance, view.record.target.full_name, refusal.why)


def _after_a_deletion(view: StepView, left: tuple[FoundClaim, ...]) -> Decision:
    """There is no way back for what is gone. The other claims of the pod are no use without it, unless nobody asks for that any more."""
    if left and (over := view.undone or _given_up(view)):
        if marked := _marked(left, view.machine):
            return Unmark(marked, over)
    elif left:
        refusal = shut(view.locks)
        if refusal is not None:
            return _held(view, refusal)
        if unmarked := _unmarked(left):
            return Mark(unmarked, "it was undone, and is asked for again")
        return DeleteClaims(left, "another claim of the pod was deleted already")
    return _awaiting(view)


def _awaiting(view: StepView) -> Decision:
    target, workload = view.record.target, view.facts.workload
    if (why := _given_up(view)) or workload is None:
        return Finish(Result.GIVEN_UP, why)
    pod = view.facts.pod(target.pod)
    if pod is not None and _is_ready(pod, workload.uid):
        if view.ready_for >= workload.ready_for:
            where = "" if pod.node != view.machine.node else ", which is this node again"
            return Finish(Result.READY, f"{pod.full_name} is ready on {pod.node}{where}", pod)
        why = f"{pod.full_name} is ready on {pod.node}, and has to be for {workload.ready_for:g} s"
    else:
        why = f"{target.full_name} is made anew"
    return _overdue(view, why) or Await(why, replacement=True)


def _given_up(view: StepView) -> str:
    """Why nobody makes the replica any more; empty: somebody does."""
    target, workload = view.record.target, view.facts.workload
    if workload is None or workload.uid != target.workload_uid or workload.deleting:
        return f"StatefulSet {target.workload} is gone, so nobody makes {target.full_name} again"
    if not workload.wants(target.pod):
        return f"StatefulSet {target.workload} has {workload.replicas} replicas by now, not {target.full_name}"
    return ""


def _overdue(view: StepView, why: str) -> Hold | None:
    if not is_overdue(view.record, now=view.now, timeout=view.timeout):
        return None
    name = view.record.target.full_name
    return Hold(Hindrance.REPLACEMENT_NOT_READY, name, f"{why}, and it is not ready after {view.timeout:g} s", is_overdue=True)


def _is_ready(pod: Pod, workload: str) -> bool:
    return pod.ready and bool(pod.node) and not pod.deleting_since and not pod.ended and pod.owner is not None and pod.owner.uid == workload
