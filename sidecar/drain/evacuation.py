"""The course of emptying a node: one look, one decision. Every step can be told again from what is stored; nothing is only in memory.

The deadline needs no answer from anybody: a view whose verdicts are Unknown and whose slots could not be read expires like any
other. So this rule is asked before anything that can fail, and again when there is more to look at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sidecar.drain import instants, slots
from sidecar.drain.assessment import Assessment, Verdict
from sidecar.drain.signals import Signals, State
from sidecar.drain.words import Intent, Reason, Status
from sidecar.model import names

# States that need a slot: in any other the node is ready, or nobody waits for it any more.
_AT_WORK: Final = (State.PENDING, State.IN_PROGRESS)


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
    """Who asks for it, as `standing.asked` says; empty: nobody."""
    drain: Verdict
    retire: Verdict
    slot: slots.Decision | None = None
    """None: the leases have not been read."""
    allowed: float = 0.0
    """How many seconds it may take; 0: any number."""
    expiry: Expiry = Expiry.REPORT

    @property
    def verdict(self) -> Verdict:
        """The one that has to become True. What nobody has called a reboot is judged as retiring."""
        return self.drain if self.signals.intent is Intent.REBOOT else self.retire


@dataclass(frozen=True, slots=True)
class Rest:
    """All is as it is noted. Look again at that time (None: when something changes)."""

    until: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Note the start on the node, and that it waits."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The start that was noted is of no use: it is now."""

    started_at: float
    why: str


@dataclass(frozen=True, slots=True)
class AskForSlot:
    """Read the leases, or take the one that `slots` names; then decide again."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Note that it waits (again)."""

    until: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Proceed:
    """Note that it is in progress (again)."""

    why: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """Nothing blocks any more: note that, once."""

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
    """Nobody asks for it any more: take away all marks of it."""

    why: str


Decision = Rest | Begin | Restart | AskForSlot | Wait | Proceed | Succeed | Expire | Override | Undo


def decide(view: EvacuationView) -> Decision:
    signals = view.signals
    if not view.asked:
        why = "nobody asks for the node to be emptied"
        return Undo(f"{why} any more") if signals.marked else Rest(None, why)
    if signals.started_at is None:
        return _begin(view)
    left = remaining(signals.started_at, allowed=view.allowed, clocks=(view.now,))
    return _end(view, left) or _course(view, None if left == float("inf") else view.now + left)


def remaining(started_at: float, *, allowed: float, clocks: Iterable[float]) -> float:
    """Seconds until the deadline, negative after it; infinity where there is none.

    Whoever reckons for another node hands in that node's clock too, as far as it is known: the larger remaining time counts.
    """
    return started_at + allowed - min(clocks) if allowed > 0 else float("inf")


def wants_slot(view: EvacuationView) -> bool:
    return bool(view.asked) and view.signals.state in _AT_WORK


def lets_go(view: EvacuationView) -> bool:
    """Whether the rule overrides what blocks, be it noted already or not."""
    return isinstance(decide(replace(view, signals=_unlabelled(view.signals))), Override)


def believed(view: EvacuationView) -> Signals:
    """The label alone may be anybody's: a node is overridden only where the rule would do so again, and otherwise it waits."""
    return view.signals if lets_go(view) else _unlabelled(view.signals)


def _unlabelled(signals: Signals) -> Signals:
    return replace(signals, state=State.PENDING) if signals.state is State.OVERRIDDEN else signals


def state_after(decision: Decision, state: State | None) -> State | None:
    """What the label says when the decision has been carried out."""
    match decision:
        case Begin() | Wait():
            return State.PENDING
        case Restart():
            return state or State.PENDING
        case Proceed():
            return State.IN_PROGRESS
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
    """What is told on the Node when it has been carried out: type, reason and message."""
    match decision:
        case Begin(_, why):
            return "Normal", names.EVACUATION_STARTED, why
        case Restart(_, why):
            return "Warning", names.EVACUATION_START_REWRITTEN, why
        case Succeed(why):
            return "Normal", names.EVACUATION_SUCCEEDED, why
        case Expire(why):
            return "Warning", names.EVACUATION_DEADLINE_EXCEEDED, why
        case Override(why):
            return "Warning", names.EVACUATION_OVERRIDDEN, why
        case Undo(why):
            return "Normal", names.EVACUATION_UNDONE, why
        case Rest() | AskForSlot() | Wait() | Proceed():
            return None


def told(assessment: Assessment, *, intent: Intent | None, state: State | None, slot: slots.Decision | None) -> Assessment:
    """The judgement with what the evacuation's course adds to it. It only ever says more about a verdict that is False."""
    of = Intent.REBOOT if intent is Intent.REBOOT else Intent.RETIRE
    verdict = assessment.verdict(of)
    if verdict.status is not Status.FALSE:
        return assessment
    if state is State.FAILED:
        late = "the evacuation has taken longer than it may"
        verdict = replace(verdict, reason=Reason.DEADLINE_EXCEEDED, message=f"{late}: {verdict.message}")
    elif state is State.PENDING and isinstance(slot, slots.WaitFor):
        verdict = replace(verdict, reason=Reason.WAITING_FOR_SLOT, message=f"{slot.why}; then: {verdict.message}")
    return replace(assessment, drain=verdict) if of is Intent.REBOOT else replace(assessment, retire=verdict)


def _begin(view: EvacuationView) -> Begin | Restart:
    signals = view.signals
    if signals.start_problem:
        return Restart(view.now, f"{signals.start_problem}: it starts at {instants.to_text(view.now)}")
    if signals.state is not None:
        return Restart(view.now, f"when the evacuation began is not noted any more: it starts at {instants.to_text(view.now)}")
    return Begin(view.now, view.asked)


def _end(view: EvacuationView, left: float) -> Rest | Begin | Succeed | Expire | Override | None:
    """What ends it, if anything does. None of these needs more than the node's marks, but success and what comes after it."""
    state, verdict = view.signals.state, view.verdict
    if state is State.SUCCESS:
        return _after_success(view)
    if verdict.status is Status.TRUE:
        return Succeed(verdict.message)
    if view.signals.override:
        return _once(state, State.OVERRIDDEN, Override(f"{names.FORCE_DRAIN}: {view.signals.override} ({verdict.message})"))
    if left > 0:
        return None
    late = f"it has taken longer than {view.allowed:g} s: {verdict.message}"
    if view.expiry is Expiry.OVERRIDE:
        return _once(state, State.OVERRIDDEN, Override(f"--evacuation-expiry={view.expiry}, and {late}"))
    return _once(state, State.FAILED, Expire(late))


def _once(state: State | None, wanted: State, decision: Expire | Override) -> Rest | Expire | Override:
    return Rest(None, decision.why) if state is wanted else decision


def _after_success(view: EvacuationView) -> Rest | Begin:
    """What blocks now is another course: neither the old start nor an override ends it before it has begun."""
    match view.verdict.status:
        case Status.TRUE:
            return Rest(None, view.verdict.message)
        case Status.UNKNOWN:
            return Rest(None, f"it has succeeded, and what has come since is not known: {view.verdict.message}")
        case Status.FALSE:
            return Begin(view.now, f"it had succeeded, and now something blocks: {view.verdict.message}")


def _course(view: EvacuationView, deadline: float | None) -> Decision:
    state, verdict, slot = view.signals.state, view.verdict, view.slot
    match slot:
        case slots.NoLimit() | slots.Hold() | slots.Renew():
            return Rest(deadline, verdict.message) if state is State.IN_PROGRESS else Proceed(verdict.message)
        case slots.Release() if state in _AT_WORK:
            # One too many is given back; the other one is held.
            return Rest(deadline, verdict.message) if state is State.IN_PROGRESS else Proceed(verdict.message)
        case slots.WaitFor(until=until, why=why):
            again = until if deadline is None else min(until, deadline)
            return Rest(again, why) if state is State.PENDING else Wait(again, why)
        case None | slots.Take() | slots.NotWanted() | slots.Release():
            return AskForSlot(verdict.message) if state in _AT_WORK else Wait(deadline, verdict.message)
