"""Looks at this node again and again: one picture for all duties, which act one after the other, and the time of the next look.

What each duty does is in its room; what is decided here is only the order of things, and when to look again. The deadline comes before
anything is asked of anybody. What is refused is told once, and keeps nothing else from happening.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sidecar.drain.duty import Duty, Picture
from sidecar.drain.emptying.controller import EmptyingDuty
from sidecar.drain.evacuation.controller import DeadlineDuty, EvacuationDuty, EvacuationEvents, StandDownDuty, Views, nothing_is_left
from sidecar.drain.evacuation.slots_io import SlotController
from sidecar.drain.evacuation.standing_io import StandingKeeper
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.never_used import NeverUsed
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.facts.own_notes import State
from sidecar.drain.facts.untracked import Untracked
from sidecar.drain.facts.watched import Watched
from sidecar.drain.gate.controller import GateController, GateDuty
from sidecar.drain.gate.held_io import HeldPods
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.judgement.controller import JudgementDuty
from sidecar.drain.judgement.new_uses import NewUses
from sidecar.drain.leases import RENEWED_EVERY
from sidecar.drain.left_leases_io import LeftLeasesDuty
from sidecar.drain.publish.as_json import bytes_in_the_way
from sidecar.drain.publish.controller import MarksDuty, ReportDuty, ReportWriter
from sidecar.drain.publish.own_node_io import OwnNode
from sidecar.drain.publish.retraction_io import RetractionDuty
from sidecar.drain.publish.withdrawal_io import Withdrawal
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Fate, Intent, Status
from sidecar.engine.backoff import Attempts
from sidecar.engine.health import OK, Degraded
from sidecar.eviction.attempt_io import Evictor
from sidecar.model.standing import Standing
from sidecar.observe.scrape.drain import DrainNumbers
from sidecar.tools import Tools

if TYPE_CHECKING:
    from sidecar.drain.reprovision.controller import ReprovisionDuty

log = logging.getLogger(__name__)

ROOM = "drain"

# Seconds between two looks at least, however much changes.
_PACE: Final = 1.0
# While pods are evicted faster than that.
_SHORTEST_PACE: Final = 0.1
# As long as nobody empties the node: a volume that is being made blocks for a moment only, and nobody needs to hear of that.
_CALM: Final = 5.0
_MOMENT: Final = 2.0
# Seconds until what was refused is tried again at the earliest, whatever changes.
_REFUSED: Final = 10.0
# Seconds between two looks at most: what is not watched may have changed.
_USUAL: Final = 60.0
_READY: Final = {Status.TRUE: True, Status.FALSE: False, Status.UNKNOWN: None}


class DrainRoom:
    """`handle` is given to the loop, with the node's name as the only key; it returns when to look again."""

    def __init__(
        self,
        tools: Tools,
        *,
        settings: Settings,
        watched: Watched,
        never_used: NeverUsed,
        untracked: Untracked,
        absence: Absence,
        on_standing: Callable[[], None],
    ) -> None:
        kube, clock, wall = tools.kube, tools.clock, tools.wall
        self._settings = settings
        self._narrator = tools.narrator
        self._scope = tools.health.scope(ROOM, gates_ready=False)
        self._retry = tools.retry
        self._clock = clock
        self._wall = wall
        self._standing = StandingKeeper(settings, clock=clock, wall=wall, on_change=on_standing)
        self._problems: tuple[str, ...] = ()
        self._assessment: Assessment | None = None
        self._signals: Signals | None = None
        self._refusals = Refusals()
        self._refused = ""
        self._own_node = OwnNode(kube, settings, watched.nodes, self._refusals, clock=clock, wall=wall)
        self._last_look = -_PACE
        self._refused_until = 0.0
        """A change has the node looked at no sooner, because something was refused."""
        self.attempts: Attempts[str] = Attempts()
        self.withdrawal = Withdrawal(kube, settings, retry=tools.retry, wall=wall)
        """To be run from the very start, before anything is listed."""

        refusals, own_node = self._refusals, self._own_node
        slot, events = SlotController(kube, settings, clock=clock, wall=wall), EvacuationEvents(tools.recorder, settings)
        gate = GateController(kube, settings, clock=clock, wall=wall)
        marks = MarksDuty(settings, own_node, events, wall=wall)
        self._gate = GateDuty(settings, gate, watched=watched, recorder=tools.recorder, refusals=refusals, wall=wall)
        # The order counts: an old True is taken back first, the gate follows the verdicts, and nothing is told before it is done.
        self._duties: tuple[Duty, ...] = (StandDownDuty(slot, refusals), self._gate, marks)
        reports = ReportWriter(kube, settings, clock=clock)
        self.held = HeldPods(settings, reports, watched.pods, tools.recorder)
        if settings.judges:
            lookups = Lookups(kube, settings, watched, clock=clock)
            evictor = Evictor(kube, clock=clock, rng=tools.rng, qps=settings.eviction_qps)
            anew = _reprovisions(settings, tools, refusals, evictor) if settings.reprovisions else None
            emptying = EmptyingDuty(settings, tools, refusals, evictor=evictor)
            views = Views(settings, clock=clock, wall=wall, left=anew.left if anew else nothing_is_left)
            self._duties = (
                DeadlineDuty(settings, own_node, events, views=views),
                JudgementDuty(
                    settings,
                    lookups,
                    reports=reports,
                    never_used=never_used,
                    untracked=untracked,
                    new_uses=NewUses(watched.begun_uses, clock=clock),
                    absence=absence,
                    put_back=emptying.put_back,
                    refusals=refusals,
                    wall=wall,
                ),
                RetractionDuty(reports, refusals),
                EvacuationDuty(settings, slot, refusals, views=views),
                self._gate,
                marks,
                # First what takes minutes and is stored: while a replica is on its way nobody else is evicted.
                *((anew,) if anew else ()),
                *((emptying,) if settings.evicts else ()),
                ReportDuty(settings, reports, recorder=tools.recorder, refusals=refusals, clock=clock, wall=wall),
                # Last: a report does not wait for what an earlier process may have left.
                *(() if anew else (LeftLeasesDuty(settings, kube, refusals),)),
            )

    # --- what others ask --------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Whether this node takes volumes now."""
        return self._standing.current

    @property
    def signals(self) -> Signals | None:
        """What the marks of the node say; None: there is no Node, or nobody has heard of it yet."""
        return self._signals

    def node_changed(self) -> None:
        """The watch shows a change of the node. Its standing is renewed at once: an uncordoned node takes volumes without delay."""
        node = self._own_node.known()
        if node is None:
            self._standing.renew_without_node()
        else:
            self._signals = self._own_node.read(node)
            self._standing.renew(self._signals)
            self.held.marked(self._signals)

    def soonest(self) -> float:
        """When to look because something has changed."""
        if self._signals is not None and not self._signals.observed:
            return max(self._clock() + _MOMENT, self._last_look + _CALM, self._refused_until)
        return max(self._clock(), self._last_look + self._pace(), self._refused_until)

    def _pace(self) -> float:
        """A look evicts one pod at most, so looks follow each other as fast as pods may."""
        under_way = self._settings.evicts and self._signals is not None and self._signals.state is State.IN_PROGRESS
        return min(_PACE, max(_SHORTEST_PACE, 1.0 / self._settings.eviction_qps)) if under_way else _PACE

    def numbers(self) -> DrainNumbers | None:
        """For the metrics. None: nothing was judged yet."""
        judged, signals = self._assessment, self._signals
        if judged is None or signals is None:
            return None
        counts = Counter(str(blocker.reason) for blocker in judged.blockers if Intent.RETIRE in blocker.blocks)
        stranded = sum(Fate.RETURNS in (pod.reboot, pod.retire) or Fate.STRANDED in (pod.reboot, pod.retire) for pod in judged.pods)
        return DrainNumbers(
            ready={str(intent): _READY[judged.verdict(intent).status] for intent in Intent},
            blockers=counts,
            bytes_remaining=bytes_in_the_way(judged),
            stranded_pods=stranded,
            evacuation_seconds=None if signals.started_at is None else max(0.0, self._wall() - signals.started_at),
            gate="off" if not self._settings.gate else "closed" if self._gate.status(signals.node, signals.uid).held else "open",
        )

    # --- one look ---------------------------------------------------------------------------------------------------

    async def handle(self, key: str) -> float | None:
        self._last_look, self._own_node.marked = self._clock(), False
        self._refusals.begin()
        if self._settings.judges:
            await self.withdrawal.end()
        node = self._own_node.known()
        if node is None:
            # It is gone, and what was made for it is deleted with it; or it is not listed yet.
            self._standing.renew_without_node()
            self._assessment = self._signals = None
            self._tell_health()
            return None
        signals = self._signals = self._own_node.read(node)
        self._standing.renew(signals)
        self.held.marked(signals)
        self._tell_problems(signals)
        again = await self._look(Picture(node, signals, self._standing.current))
        self._tell_health()
        # The cache has the marks already that were written in this look, so no watch wakes the room for what follows from them.
        pace = self._pace()
        usual = self._clock() + pace if self._own_node.marked else self._next_look(key)
        return usual if again is None else min(usual, max(again, self._clock() + pace))

    async def _look(self, picture: Picture) -> float | None:
        """When to look again although nothing changes, by the monotonic clock; None: no duty asks for it."""
        untils: list[float] = []
        for duty in self._duties:
            # The watch may have renewed the standing since the last duty.
            outcome = await duty.perform(replace(picture, standing=self._standing.current))
            picture = outcome.picture
            if picture.assessment is not None and picture.assessment is not self._assessment:
                self._assessment = picture.assessment
                self.held.judged(picture.assessment, let_go=picture.overridden and not picture.signals.override)
            if outcome.decision is not None:
                node = picture.node
                self._narrator.note(ROOM, outcome.about or node.uid, outcome.about or node.name, outcome.decision)
            # One that passes while later duties wait for answers is due at once, and not forgotten.
            untils += [outcome.until] if outcome.until is not None and outcome.until > self._wall() else []
        now = self._wall()
        times = [self._clock() + max(0.0, until - now) for until in untils]
        return min((at for at in (*times, self._standing.again) if at is not None), default=None)

    def _next_look(self, key: str) -> float:
        """If nothing is due and nothing changes. What was refused is tried again with back-off."""
        if self._refusals:
            # Bounded, whatever --retry-interval-max says: the lease of the gate must be renewed before it runs out.
            delay = min(self._retry.delay(self.attempts.next(key)), RENEWED_EVERY)
            self._refused_until = self._clock() + min(delay, _REFUSED)
            return self._clock() + delay
        self.attempts.forget(key)
        self._refused_until = 0.0
        return self._clock() + _USUAL

    # --- telling ----------------------------------------------------------------------------------------------------

    def _tell_problems(self, signals: Signals) -> None:
        if signals.problems and signals.problems != self._problems:
            fields = {"node": signals.node, "err": "; ".join(signals.problems)}
            log.warning("Marks on the node are wrong or contradict each other", extra={"fields": fields})
        self._problems = signals.problems

    def _tell_health(self) -> None:
        """With one log line for as long as the same things are refused."""
        why = str(self._refusals)
        if why and why != self._refused:
            log.warning("Drain decisions are incomplete", extra={"fields": {"node": self._settings.node, "err": why}})
        self._refused = why
        self._scope.report(Degraded(self._refusals.shown) if why else OK())


def _reprovisions(settings: Settings, tools: Tools, refusals: Refusals, evictor: Evictor) -> "ReprovisionDuty":
    """Imports inside, so that a process that makes no replica anew does not have this in memory."""
    from sidecar.drain.reprovision.controller import ReprovisionDuty

    return ReprovisionDuty(settings, tools, refusals, evictor=evictor)
