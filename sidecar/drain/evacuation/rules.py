"""Decides the next step of an evacuation: one look, one decision. It is made from what is stored alone, so a restart changes nothing.

The deadline needs no answer from anybody: a view whose verdicts are Unknown and whose slots could not be read expires like any
other. So this rule is asked before anything that can fail, and again when more is known. `controller` carries the decision out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sidecar.drain import leases
from sidecar.drain.evacuation import slots
from sidecar.drain.evacuation.closing import asked_by_marks
from sidecar.drain.facts.node_marks import NodePolicy, Signals
from sidecar.drain.facts.own_notes import State
from sidecar.drain.judgement.assessment import Assessment, Verdict
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Intent, Reason, Status
from sidecar.model import names, timestamps

# States that may need a slot: in any other the node is ready, or its time is over.
_AT_WORK: Final = (State.PENDING, State.IN_PROGRESS, State.BLOCKED)
_NOT_LOOKED_AT: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "what blocks is not looked at for this")


class Expiry(StrEnum):
    """What happens when blockers are left at the deadline."""

    REPORT = "Report"
    OVERRIDE = "Override"


@dataclass(frozen=True, slots=True)
class EvacuationView:
    """All that the rule looks at."""

    now: float
    """Wall clock: starts are stored."""
    signals: Signals
    asked: str
    """Who asks for it, as `closing.asked` says; empty: nobody."""
    drain: Verdict
    retire: Verdict
    slot: slots.Decision | None = None
    """None: the leases have not been read."""
    allowed: float = 0.0
    """How many seconds it may take; 0: any number."""
    expiry: Expiry = Expiry.REPORT
    leaving: str = ""
    """What this sidecar has still to evict, where it evicts at all; empty: nothing, so that it ends when nothing blocks any more.

    After a success: the pod that could be evicted now.
    """
    stuck: bool = False
    """This sidecar empties the node, something blocks, and for some time nobody but a person could have changed that."""
    steady: float | None = None
    """The same by a clock that does not jump, as `steady_clock` has it; None: there is none."""

    @property
    def clocks(self) -> tuple[float, ...]:
        return (self.now,) if self.steady is None else (self.now, self.steady)

    @property
    def verdict(self) -> Verdict:
        """The one that has to become True: unless it is announced as a reboot, the stricter one.

        The evacuation opens nothing, so it goes by what it is asked for. The gate goes by what counts, a reboot only under a cordon.
        """
        return self.drain if self.signals.announced is Intent.REBOOT else self.retire


@dataclass(frozen=True, slots=True)
class Begin:
    """Note on the node when it starts, and that it waits for a slot."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The start that is noted cannot be used: note that it starts now."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class AskForSlot:
    """Read the leases, or take the one that `slots` names; then decide again."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Note that it waits for a slot, be it for the first time or again."""

    until: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Proceed:
    """Note that it is in progress, be it for the first time or again, and since when its time runs."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class StandAside:
    """Note that nobody but a person can help, and leave the slot to others. Its time runs."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """Nothing blocks any more: note that."""

    why: str


@dataclass(frozen=True, slots=True)
class Expire:
    """Blockers are left at the deadline: note that. The gate stays."""

    why: str


@dataclass(frozen=True, slots=True)
class Override:
    """The node is let go although something blocks: note that, and open the gate. No volume is deleted by this."""

    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Nobody asks for it any more: remove all its marks."""

    why: str


Decision = Rest | Begin | Restart | AskForSlot | Wait | Proceed | StandAside | Succeed | Expire | Override | Undo


def decide(view: EvacuationView) -> Decision:
    signals = view.signals
    if not view.asked:
        why = "nobody asks for the node to be emptied"
        return Undo(f"{why} any more") if signals.marked else Rest(why)
    if signals.started_at is None:
        return _begin(view)
    left = remaining(signals.started_at, allowed=view.allowed, clocks=view.clocks) if has_deadline(signals) else float("inf")
    return _end(view, left) or _next_step(view, None if left == float("inf") else view.now + left)


def has_deadline(signals: Signals) -> bool:
    """The time runs from the moment on in which the node has its slot, or needs none: others must not use it up."""
    return signals.started_at is not None and signals.state not in (None, State.PENDING)


def remaining(started_at: float, *, allowed: float, clocks: Iterable[float]) -> float:
    """Seconds until the deadline, negative after it; infinity where there is none.

    Whoever reckons for its own node hands in a clock that does not jump too, for another node that node's clock if it is known: of two
    clocks the one that leaves more time counts.
    """
    return started_at + allowed - min(clocks) if allowed > 0 else float("inf")


def override_due(signals: Signals, *, policy: NodePolicy, allowed: float, expiry: Expiry, clocks: Iterable[float]) -> str:
    """Why the node is let go whatever blocks, by its marks alone: for whoever looks after the gate of another node. Empty: it is not.

    That is so where its own sidecar would override at this moment: by `force-drain` in an evacuation, or at the deadline. `policy`,
    `allowed` and `expiry` are the flags', `clocks` those that are known, as for `remaining`.
    """
    asked = asked_by_marks(signals, policy)
    view = EvacuationView(min(clocks), _unended(signals), asked, _NOT_LOOKED_AT, _NOT_LOOKED_AT, allowed=allowed, expiry=expiry)
    decision = decide(view)
    return decision.why if isinstance(decision, Override) else ""


def wants_slot(view: EvacuationView) -> bool:
    return bool(view.asked) and view.signals.state in _AT_WORK and not view.stuck


def lets_go(view: EvacuationView) -> bool:
    """Whether the rule overrides what blocks. The label does not count, because anybody can write it."""
    return isinstance(decide(replace(view, signals=_unended(view.signals))), Override)


def believed(view: EvacuationView) -> Signals:
    """The signals as far as they can be trusted: a label Overridden counts only if the rule would override again; else the node waits."""
    return view.signals if lets_go(view) else _unended(view.signals, State.PENDING)


def _unended(signals: Signals, state: State = State.IN_PROGRESS) -> Signals:
    return replace(signals, state=state) if signals.state is State.OVERRIDDEN else signals


def retires(signals: Signals) -> bool:
    """The node is emptied because it goes for good. For a reboot nobody is evicted by us: the disks come back."""
    return Intent.RETIRE in (signals.announced, signals.intent)


def state_after(decision: Decision, state: State | None) -> State | None:
    """The value of the label once the decision is carried out; None: no label."""
    match decision:
        case Begin() | Wait():
            return State.PENDING
        case Restart():
            return state or State.PENDING
        case Proceed():
            return State.IN_PROGRESS
        case StandAside():
            return State.BLOCKED
        case Succeed():
            return State.SUCCESS
        case Expire():
            return State.FAILED
        case Override():
            return State.OVERRIDDEN
        case Undo():
            return None
        case Rest() | AskForSlot():
            return state


def event(decision: Decision) -> tuple[str, str, str] | None:
    """The Event on the Node once the decision is carried out: type, reason and message. None: there is none."""
    match decision:
        case Begin(_, why):
            return names.NORMAL, names.EVACUATION_STARTED, why
        case Restart(_, why):
            return names.WARNING, names.EVACUATION_START_REWRITTEN, why
        case Succeed(why):
            return names.NORMAL, names.EVACUATION_SUCCEEDED, why
        case Expire(why):
            return names.WARNING, names.EVACUATION_DEADLINE_EXCEEDED, why
        case Override(why):
            return names.WARNING, names.EVACUATION_OVERRIDDEN, why
        case Undo(why):
            return names.NORMAL, names.EVACUATION_UNDONE, why
        case Rest() | AskForSlot() | Wait() | Proceed() | StandAside():
            return None


def told(assessment: Assessment, *, intent: Intent | None, state: State | None, slot: slots.Decision | None) -> Assessment:
    """The assessment with what the evacuation adds to it. Only a verdict that is False is changed, and it stays False: it says more."""
    of = Intent.REBOOT if intent is Intent.REBOOT else Intent.RETIRE
    verdict = assessment.verdict(of)
    if verdict.status is not Status.FALSE:
        return assessment
    if state is State.FAILED:
        late = "the evacuation has taken longer than --evacuation-deadline allows"
        verdict = replace(verdict, reason=Reason.DEADLINE_EXCEEDED, message=f"{late}: {verdict.message}")
    elif state is State.PENDING and isinstance(slot, slots.WaitFor):
        verdict = replace(verdict, reason=Reason.WAITING_FOR_SLOT, message=f"{slot.why}; then: {verdict.message}")
    return replace(assessment, drain=verdict) if of is Intent.REBOOT else replace(assessment, retire=verdict)


def _begin(view: EvacuationView) -> Begin | Restart:
    signals = view.signals
    if signals.start_problem:
        return Restart(view.now, f"{signals.start_problem}: it starts at {timestamps.to_text(view.now)}")
    if signals.state is not None:
        return Restart(view.now, f"the note of when the evacuation began is gone: it starts at {timestamps.to_text(view.now)}")
    return Begin(view.now, view.asked)


def _end(view: EvacuationView, left: float) -> Rest | Begin | Succeed | Expire | Override | None:
    """What ends it; None: nothing does yet. Only success, and what follows it, needs more than the node's marks."""
    state, verdict = view.signals.state, view.verdict
    if state is State.SUCCESS:
        return _after_success(view, left)
    if verdict.status is Status.TRUE and not _waits_for_pods(view):
        return Succeed(verdict.message)
    if view.signals.override:
        return _once(state, State.OVERRIDDEN, Override(f"{names.FORCE_DRAIN}: {view.signals.override} ({verdict.message})"))
    if left > 0:
        return None
    late = f"the evacuation has taken longer than {view.allowed:g} s: {view.leaving or verdict.message}"
    if view.expiry is Expiry.OVERRIDE:
        return _once(state, State.OVERRIDDEN, Override(f"--evacuation-expiry={view.expiry}, and {late}"))
    return _once(state, State.FAILED, Expire(late))


def _waits_for_pods(view: EvacuationView) -> bool:
    """Nothing blocks, and yet it is not over before they have left, unless a person says that it is."""
    return bool(view.leaving) and not view.signals.override


def _once(state: State | None, wanted: State, decision: Expire | Override) -> Rest | Expire | Override:
    return Rest(decision.why) if state is wanted else decision


def _after_success(view: EvacuationView, left: float) -> Rest | Begin:
    """What blocks now starts another evacuation: neither the old start nor an old override may end it before it has begun.

    So does a pod that can be evicted now: the node is retired after a reboot, --evacuation-evict is new, or an undo was not seen. Only
    while time is left, though: whoever puts pods here for ever must not take back a success for ever.
    """
    match view.verdict.status:
        case Status.TRUE if _waits_for_pods(view) and left > 0:
            return Begin(view.now, f"it had succeeded, and now a pod can be evicted: {view.leaving}")
        case Status.TRUE:
            return Rest(view.verdict.message)
        case Status.UNKNOWN:
            return Rest(f"it has succeeded, and it is not known whether something blocks now: {view.verdict.message}")
        case Status.FALSE:
            return Begin(view.now, f"it had succeeded, and now something blocks again: {view.verdict.message}")


def _next_step(view: EvacuationView, deadline: float | None) -> Decision:
    state, verdict, slot, started_at = view.signals.state, view.verdict, view.slot, view.signals.started_at
    since = started_at if started_at is not None and has_deadline(view.signals) else view.now
    if view.stuck:
        return Rest(verdict.message, deadline) if state is State.BLOCKED else StandAside(since, verdict.message)
    match slot:
        case slots.NoLimit() | leases.Hold() | leases.Renew():
            return Rest(verdict.message, deadline) if state is State.IN_PROGRESS else Proceed(since, verdict.message)
        case leases.Release() if state in _AT_WORK:
            # Of two slots the second is given back: this node holds the first.
            return Rest(verdict.message, deadline) if state is State.IN_PROGRESS else Proceed(since, verdict.message)
        case slots.WaitFor(until=until, why=why):
            again = until if deadline is None else min(until, deadline)
            return Rest(why, again) if state is State.PENDING else Wait(again, why)
        case None | leases.Take() | leases.Leave() | leases.NotWanted() | leases.Release():
            return AskForSlot(verdict.message) if state in _AT_WORK else Wait(deadline, verdict.message)
