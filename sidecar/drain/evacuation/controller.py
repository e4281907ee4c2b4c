"""Carries out what is decided about an evacuation; what is decided: `evacuation/rules`, and whose turn it is: `evacuation/slots`.

The deadline is a duty of its own, ahead of all that asks anybody: it needs no answer, and nothing that fails may put it off.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sidecar.drain import leases
from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.emptying.rules import evictable, unfinished
from sidecar.drain.evacuation import rules, slots
from sidecar.drain.evacuation.closing import asked
from sidecar.drain.evacuation.rules import AskForSlot, EvacuationView, Expire, Override, Undo, Wait, retires
from sidecar.drain.evacuation.slots_io import SlotController
from sidecar.drain.evacuation.steady_clock import SteadyClock
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.publish.on_node import wanted
from sidecar.drain.publish.own_node_io import OwnNode
from sidecar.drain.publish.report import EvacuationStatus, SlotStatus
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.rest import Rest
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node

_SLOT: Final = "the evacuation slot"
# Seconds for which nobody but a person can help before the slot is given back: what has left is on its way for a moment.
_STUCK: Final = 60.0
# Before anything is judged.
_UNSEEN: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the conditions of the node say what blocks")


class EvacuationEvents:
    """Events on the Node about its evacuation. An override is told once, whether it could be noted on the Node or not."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        self._recorder = recorder
        self._settings = settings
        self.override_told = False
        """Of the one that holds now, which may not be noted yet."""

    def tell(self, node: Node, decision: rules.Decision) -> None:
        event = rules.event(decision)
        if isinstance(decision, Override):
            if self.override_told:
                return
            self.override_told = True
        if event is not None and not self._settings.dry_run:
            type_, reason, message = event
            self._recorder.record(
                ObjectRef("v1", names.NODE, "", node.name, node.uid), type_, reason, f"{self._settings.driver}: {message}"
            )


def nothing_is_left(_: Snapshot, __: bool) -> str:
    """Where no replica is made anew."""
    return ""


class Views:
    """Makes the view that the rule decides on, with both clocks."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        left: Callable[[Snapshot, bool], str] = nothing_is_left,
    ) -> None:
        """`left`: which replica of this node is, or where something blocks can be, made anew on another one; empty: none."""
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._left = left
        self._steady = SteadyClock()
        self._stuck_since: float | None = None

    def view(self, picture: Picture) -> EvacuationView:
        signals, judged, settings, wall = picture.signals, picture.assessment, self._settings, self._wall()
        ended = signals.state is State.OVERRIDDEN
        steady = self._steady.now(signals.started_at, allowed=settings.allowed, overridden=ended, wall=wall, clock=self._clock())
        leaving = self._leaving(picture)
        return EvacuationView(
            now=wall,
            signals=signals,
            asked=asked(signals, policy=settings.policy, standing=picture.standing),
            drain=judged.drain if judged else _UNSEEN,
            retire=judged.retire if judged else _UNSEEN,
            allowed=settings.allowed,
            expiry=settings.expiry,
            leaving=leaving,
            stuck=self._is_stuck(picture, leaving),
            steady=steady,
        )

    def _leaving(self, picture: Picture) -> str:
        if not self._settings.evicts or picture.snapshot is None or not retires(picture.signals):
            return ""
        if picture.signals.state is State.SUCCESS:
            return evictable(picture.snapshot, ours=self._settings.own_pods)
        blocked = picture.assessment is not None and picture.assessment.retire.status is Status.FALSE
        return self._left(picture.snapshot, blocked) or unfinished(picture.snapshot, ours=self._settings.own_pods)

    def _is_stuck(self, picture: Picture, leaving: str) -> bool:
        if not self._settings.evicts or not retires(picture.signals):
            return False
        if picture.assessment is None or picture.assessment.retire.status is Status.UNKNOWN:
            return picture.signals.state is State.BLOCKED
        now = self._clock()
        self._stuck_since = None if leaving else now if self._stuck_since is None else self._stuck_since
        return self._stuck_since is not None and (picture.signals.state is State.BLOCKED or now - self._stuck_since >= _STUCK)

    def noted_deadline(self, signals: Signals) -> float | None:
        """As people reckon it, from what is noted: always the same."""
        at = signals.started_at if rules.has_deadline(signals) and self._settings.allowed > 0 else None
        return None if at is None else at + self._settings.allowed

    def next_look(self, signals: Signals, view: EvacuationView) -> float | None:
        """When the deadline will be over, on the wall clock as it is now."""
        if signals.started_at is None or not rules.has_deadline(signals) or self._settings.allowed <= 0:
            return None
        return view.now + rules.remaining(signals.started_at, allowed=self._settings.allowed, clocks=view.clocks)


class DeadlineDuty:
    """Ends an evacuation in time, before anything is asked that might fail or take its time."""

    def __init__(self, settings: Settings, own_node: OwnNode, events: EvacuationEvents, *, views: Views) -> None:
        self._settings = settings
        self._own_node = own_node
        self._events = events
        self._views = views

    async def perform(self, picture: Picture) -> Outcome:
        view = self._views.view(picture)
        decision, lets_go = rules.decide(view), rules.lets_go(view)
        # Let go by people, or by an end that is noted, or that was decided and could not be noted.
        overridden = lets_go or bool(picture.signals.override)
        self._events.override_told &= lets_go
        if isinstance(decision, Expire | Override):
            picture = await self._end(picture, decision)
        view = self._views.view(picture)
        signals = rules.believed(view)
        until = self._views.next_look(signals, view) if signals.state is not None else None
        return Outcome(replace(picture, signals=signals, overridden=overridden), until=until)

    async def _end(self, picture: Picture, decision: Expire | Override) -> Picture:
        marks = wanted(picture.signals, self._settings.driver, standing=picture.standing, decision=decision)
        after = await self._own_node.mark(picture.node, marks)
        # An override counts although it could not be noted: the gate opens in this look.
        if after is not None or isinstance(decision, Override):
            self._events.tell(picture.node, decision)
        return picture if after is None else replace(picture, node=after, signals=self._own_node.read(after))


class EvacuationDuty:
    """Takes the next step of the evacuation, and takes or gives back its slot. `MarksDuty` notes on the node what is decided here."""

    def __init__(self, settings: Settings, slot: SlotController, refusals: Refusals, *, views: Views) -> None:
        self._settings = settings
        self._slot = slot
        self._refusals = refusals
        self._views = views

    async def perform(self, picture: Picture) -> Outcome:
        assert picture.assessment is not None
        signals, view = picture.signals, self._views.view(picture)
        decision, slot, wants_slot = rules.decide(view), None, rules.wants_slot(view)
        needed = wants_slot and isinstance(decision, AskForSlot)
        if needed or self._slot.maybe_held:
            slot = await self._refusals.attempt(_SLOT, self._step(picture.node, wanted=wants_slot))
            if needed and slot is not None:
                decision = rules.decide(replace(view, slot=slot))
        due = self._views.noted_deadline(signals)
        evacuation = EvacuationStatus(str(signals.state), signals.started_at, due) if signals.state else None
        told = rules.told(picture.assessment, intent=signals.announced, state=signals.state, slot=slot)
        notes = replace(picture.notes, slot=_slot_status(slot), evacuation=evacuation)
        until = decision.until if isinstance(decision, Rest | Wait) else None
        return Outcome(replace(picture, assessment=told, evacuation=decision, notes=notes), decision, until=until)

    async def _step(self, node: Node, *, wanted: bool) -> slots.Decision:
        decision = await self._slot.step(node, wanted=wanted)
        if isinstance(decision, leases.Take) and not self._settings.dry_run:
            where = f"in namespace {self._settings.namespace}" if self._settings.namespace else "because NAMESPACE is not set"
            raise ApiError(f"the Lease {decision.name} could not be taken, {where}")
        return decision


class StandDownDuty:
    """Where nothing is judged nothing is evacuated: gives back the slot and undoes what an earlier process has begun."""

    def __init__(self, slot: SlotController, refusals: Refusals) -> None:
        self._slot = slot
        self._refusals = refusals

    async def perform(self, picture: Picture) -> Outcome:
        why = "nothing is judged without --drain-report"
        if self._slot.maybe_held:
            await self._refusals.attempt(_SLOT, self._slot.step(picture.node, wanted=False))
        return Outcome(replace(picture, evacuation=Undo(why) if picture.signals.marked else Rest(why)))


def _slot_status(slot: slots.Decision | None) -> SlotStatus | None:
    match slot:
        case leases.Hold(name) | leases.Renew(name) | leases.Take(name):
            return SlotStatus(name)
        case slots.WaitFor(ahead=ahead):
            return SlotStatus("", ahead)
        case _:
            return None
