"""The course of an evacuation, pure: from what is wished, noted and judged to the one thing that is done next, and with whom.

The deadline needs no answer from anybody: a view whose verdict is Unknown and whose slot could not be read expires like any other. It runs
from the moment at which the node has a slot: a node that only waits for its turn loses no time. A slot is given back while only a person
can help, so that one node which nobody can empty does not keep all others waiting.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sidecar.drain.anew import Target, replicas_to_make
from sidecar.drain.assess import Verdict
from sidecar.drain.empty import Candidate, Hold, Memory, candidates
from sidecar.drain.marks import Marks, Record, State, Wish
from sidecar.drain.settings import Expiry, Settings
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.things import Thing
from sidecar.drain.words import LONGEST, Intent, Reason, Status
from sidecar.model import names, timestamps
from sidecar.model.objects import Json

# What is said of a Lease (`lease_io`).


@dataclass(frozen=True, slots=True)
class Held:
    """This process has it."""

    record: str  # the annotation in which its holder notes how far it is; empty: nothing


@dataclass(frozen=True, slots=True)
class TakenBy:
    """Another node has it."""

    node: str


@dataclass(frozen=True, slots=True)
class NotKnown:
    """It could not be read or written: whoever needs it does without."""

    why: str


Answer = Held | TakenBy | NotKnown


@dataclass(frozen=True, slots=True)
class Away:
    """A replica of this node is being made anew: nobody else is sent away until it is ready or late."""

    lease: str
    target: Target


Next = Away | Candidate | Target  # who the next step is about: a replica that is being made anew, a pod to evict, a replica to make anew


@dataclass(frozen=True, slots=True)
class View:
    wish: Wish | None
    record: Record
    verdict: Verdict  # the one of the wish's intent
    late: bool  # the deadline is over
    expiry: Expiry
    slot: Answer | None  # None: not asked for in this look
    has_slot: bool  # it has one since an earlier look
    next: Next | Hold | None  # a Hold: why nobody can be sent away; None: nothing is left to, or this sidecar evicts nobody
    stuck: bool = False  # nobody could be sent away for a quarter of an hour: the slot is not kept for a replica that is never Ready


# What is done next.


@dataclass(frozen=True, slots=True)
class Rest:
    """Change nothing now."""

    why: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Note this state on the Node, with this event."""

    state: State | None
    why: str
    event: str = ""
    begins: bool = False  # the deadline runs from now on
    gives_back: bool = False  # the slot is given back
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Take the slot, then decide again."""

    why: str


@dataclass(frozen=True, slots=True)
class SendAway:
    """Look once more at all that speaks against it, and take the next step with this one."""

    whom: Next
    why: str


Decision = Rest | Note | TakeSlot | SendAway


def decide(view: View) -> Decision:
    wish, state = view.wish, view.record.state
    if wish is None:
        why = "nobody asks for the node to be emptied"
        return Note(None, f"{why} any more", names.EVACUATION_UNDONE, gives_back=True) if state else Rest(why)
    if state is None:
        return Note(State.PENDING, wish.by, names.EVACUATION_STARTED)
    if state is State.SUCCESS:
        return _after_success(view, wish)
    if view.verdict.status is Status.TRUE and (not _goes_on(view) or wish.forced):
        return Note(State.SUCCESS, view.verdict.message, names.EVACUATION_SUCCEEDED, gives_back=True)
    if end := _end(view, wish):
        return Rest(end.why, end.reason) if end.state is state else end
    hold = view.next if isinstance(view.next, Hold) else None
    if not _goes_on(view) or (hold and view.stuck):
        # Only a person can help, or there is nothing that this sidecar sends away: the others may have the slot.
        why = hold.why if hold else view.verdict.message
        begins = view.record.started_at is None
        if state is State.IN_PROGRESS and not begins and not view.has_slot:
            return Rest(why, hold.reason if hold else None)
        return Note(State.IN_PROGRESS, why, begins=begins, gives_back=True, reason=hold.reason if hold else None)
    match view.slot:
        case None:
            return TakeSlot(view.verdict.message)
        case TakenBy(node):
            why = f"node {node} is being emptied, and its turn is first"
            waits = state is State.PENDING or view.stuck
            return Rest(why, Reason.WAITING_FOR_SLOT) if waits else Note(State.PENDING, why, reason=Reason.WAITING_FOR_SLOT)
        case NotKnown(why):
            return Rest(why, Reason.NOT_KNOWN)  # nobody is evicted while it is not known whose turn it is
        case Held():
            pass
    if state is not State.IN_PROGRESS or view.record.started_at is None:
        return Note(State.IN_PROGRESS, view.verdict.message, begins=view.record.started_at is None or state is State.PENDING)
    match view.next:
        case Away(_, target):
            return SendAway(view.next, f"{target.full_name} is being made anew")
        case Candidate(pod):
            return SendAway(view.next, f"{pod.full_name} is evicted: its volumes may leave with it")
        case Target() as target:
            return SendAway(target, f"{target.full_name} is to be made anew: its policy is Reprovision")
        case Hold(reason, _, why):
            return Rest(why, reason)
        case None:
            return Rest(view.verdict.message)


def following(
    snapshot: Snapshot, things: Sequence[Thing], marks: Marks, memory: Memory, settings: Settings, due: Set[str]
) -> Next | Hold | None:
    """Who could be sent away next, or why nobody is; None: nobody is left to, or this sidecar sends nobody away. `due`: uids of pods that
    leave now by the rules of the maintenances that drain the node."""
    if not settings.evicts or marks.wish is None or marks.wish.intent is Intent.REBOOT:
        return None
    found, holds = candidates(snapshot, things, memory, ours=settings.own_pods)
    targets: list[Target] = []
    if settings.reprovisions:
        targets, refused = replicas_to_make(snapshot, things)
        refused += [memory.held[each.pod_uid] for each in targets if each.pod_uid in memory.held]
        targets = [each for each in targets if each.pod_uid not in memory.held]
        # Which lock keeps a replica here says more than that it is to be made anew.
        holds = [*refused, *(hold for hold in holds if hold.pod not in {told.pod for told in refused})]
    if marks.maintenance is not None and marks.declared is None and not marks.evacuate:
        # Only maintenances ask: by their plan and everybody's rules they evict what may be lost themselves, and say who is next.
        found, targets = list[Candidate](), [each for each in targets if each.pod_uid in due]
    if targets or found:
        return targets[0] if targets else found[0]
    return min(holds, key=lambda hold: hold.lasting, default=None)


def is_under_way(record: Record, wish: Wish | None) -> bool:
    """What cannot be undone may be done: the Node itself says that its evacuation to be retired is in progress."""
    return wish is not None and wish.intent is Intent.RETIRE and not wish.forced and record.state is State.IN_PROGRESS


def lets_go(view: View) -> str:
    """Why the node is let go whatever blocks; empty: it is not. By the rule and not by the label, which anybody can write."""
    end = _end(view, view.wish) if view.wish is not None and view.record.state not in (None, State.SUCCESS) else None
    return end.why if end is not None and end.state is State.OVERRIDDEN else ""


def _goes_on(view: View) -> bool:
    """This sidecar has something to send away, or waits for what passes by itself."""
    return not view.next.lasting if isinstance(view.next, Hold) else view.next is not None


def _end(view: View, wish: Wish) -> Note | None:
    """How it ends although something blocks; None: it goes on."""
    if wish.forced:
        why = f"{wish.forced} ({view.verdict.message})"
        return Note(State.OVERRIDDEN, why, names.EVACUATION_OVERRIDDEN, gives_back=True)
    if not view.late or view.record.state is State.PENDING:
        return None  # the time of a node that waits for its turn begins with that
    late = f"the evacuation has taken longer than --evacuation-deadline allows: {view.verdict.message}"
    if view.expiry is Expiry.OVERRIDE:
        why = f"--evacuation-expiry={view.expiry}, and {late}"
        return Note(State.OVERRIDDEN, why, names.EVACUATION_OVERRIDDEN, gives_back=True)
    return Note(State.FAILED, late, names.EVACUATION_DEADLINE_EXCEEDED, gives_back=True, reason=Reason.DEADLINE_EXCEEDED)


def _after_success(view: View, wish: Wish) -> Rest | Note:
    """What blocks now starts another evacuation, and so does a pod that can be sent away now, as where the node is retired after a reboot.
    Only while time is left: whoever puts pods here for ever must not take back a success for ever."""
    status, message, now = view.verdict.status, view.verdict.message, ""
    if status is Status.FALSE:
        now = f"something blocks again: {message}"
    elif status is Status.TRUE and isinstance(view.next, Next) and not view.late and not wish.forced:
        now = "a pod can be evicted"
    return Note(State.PENDING, f"it had succeeded, and now {now}", names.EVACUATION_STARTED, begins=True) if now else Rest(message)


def as_json(record: Record, slot: Answer | None, told: str, *, allowed: float) -> Json:
    """For the report: how far it is, and what is done next or why nothing is."""
    if record.state is None and not told:
        return {}
    deadline = record.started_at + allowed if record.started_at is not None and allowed > 0 else None
    times = {"startedAt": record.started_at, "deadline": deadline}
    has = {Held: "held", TakenBy: "waits", NotKnown: "not known"}.get(type(slot), "")
    said: Json = {"state": str(record.state or "")} | {key: timestamps.to_text(at) for key, at in times.items() if at is not None}
    return said | {key: text for key, text in (("slot", has), ("next", told[:LONGEST])) if text}
