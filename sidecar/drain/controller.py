"""Judges this node again and again, and performs what the rules of this room decide: the only file that says what happens in which order.

One look: the node's marks and its standing, the judgement, the course of an evacuation, then what others see of it. Each write is tried
by itself: what is refused is told once and does not keep the rest from happening. A deadline is decided before anything is asked.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from sidecar.drain import evacuation, slots, stored, transitions
from sidecar.drain import gate as gates
from sidecar.drain import signals as marks_of
from sidecar.drain.asking import Asker
from sidecar.drain.assess import assess
from sidecar.drain.assessment import Assessment, Verdict
from sidecar.drain.evacuation import AskForSlot, EvacuationView, Expire, Override
from sidecar.drain.guarding import Guard
from sidecar.drain.leases import RENEWED_EVERY
from sidecar.drain.marks import Marks, needs_protection, wanted
from sidecar.drain.plain import bytes_in_the_way
from sidecar.drain.report import Course, Extra, Gate, Slot, summary
from sidecar.drain.settings import Settings
from sidecar.drain.signals import Signals
from sidecar.drain.snapshot import Snapshot
from sidecar.drain.standing import asked, standing, without_node
from sidecar.drain.turns import Turns
from sidecar.drain.untracked import Untracked
from sidecar.drain.watched import NeverUsed, Watched, look
from sidecar.drain.words import NOT_YET, End, Intent, Reason, Status
from sidecar.drain.writing import Scribe
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.health import OK, Degraded, Scope
from sidecar.kube.api import Change, KubeApi
from sidecar.kube.correlator import ObjectRef
from sidecar.kube.errors import ApiError
from sidecar.kube.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.standing import OPEN, Standing
from sidecar.observe.metrics import DrainNumbers
from sidecar.observe.narrator import Narrator

log = logging.getLogger(__name__)

R = TypeVar("R")

ROOM = "drain"

# At most once in so many seconds, however much changes.
_PACE: Final = 1.0
# As long as nobody empties the node: what comes and goes within a moment, as a volume that is being made, is no news.
_CALM: Final = 5.0
_MOMENT: Final = 2.0
# What was refused is not tried more often than that, whatever changes.
_REFUSED: Final = 10.0
# A watch that lags shows the node as it was before this room's last write; for so long that is not believed.
_LAG: Final = 30.0
# However quiet it is, what is not watched may have changed.
_USUAL: Final = 60.0
_GATE: Final = "the gate"
# As long as nobody has looked.
_UNSEEN: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "what blocks is looked at next")


class DrainRoom:
    """`handle` is given to the loop, with the node's name as the only key; it returns when to look again."""

    def __init__(
        self,
        *,
        settings: Settings,
        kube: KubeApi,
        watched: Watched,
        never_used: NeverUsed,
        untracked: Untracked,
        recorder: Recorder,
        narrator: Narrator,
        scope: Scope,
        retry: Backoff,
        clock: Callable[[], float],
        wall: Callable[[], float],
        on_standing: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._watched = watched
        self._never_used = never_used
        self._untracked = untracked
        self._recorder = recorder
        self._narrator = narrator
        self._scope = scope
        self._retry = retry
        self._clock = clock
        self._wall = wall
        self._on_standing = on_standing
        self._standing: Standing = OPEN
        self._cordoned_since: float | None = None
        self._standing_again: float | None = None
        self._uid = ""
        """Of the Node that was seen last."""
        self._problems: tuple[str, ...] = ()
        self._written: Node | None = None
        """As it was after this room's last write."""
        self._believed_until = 0.0
        self._asker = Asker(kube, settings, watched, clock=clock)
        self._scribe = Scribe(kube, settings, clock=clock)
        self._turns = Turns(kube, settings, wall=wall)
        self._guard = Guard(kube, settings, clock=clock, wall=wall)
        self._slot: slots.Decision | None = None
        self._assessment: Assessment | None = None
        self._signals: Signals | None = None
        self._failures: dict[str, str] = {}
        self._override_told = False
        """Of the one that holds now, which may not be noted yet."""
        self._last_look = -_PACE
        self._refused_until = 0.0
        """Something was refused: a change does not make it any sooner."""
        self._marked = False
        """This look has changed the node, of which no watch will tell."""
        self.attempts: Attempts[str] = Attempts()

    # --- what others ask --------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Whether this node takes volumes now."""
        return self._standing

    def node_changed(self) -> None:
        """The watch shows another node. An uncordon counts at once."""
        node = self._node()
        if node is None:
            self._stand_without_node()
        else:
            self._signals = self._read(node)
            self._renew_standing(self._signals)

    def soonest(self) -> float:
        """When the node is to be judged because something has changed."""
        if self._signals is not None and not _observed(self._signals):
            return max(self._clock() + _MOMENT, self._last_look + _CALM, self._refused_until)
        return max(self._clock(), self._last_look + _PACE, self._refused_until)

    def numbers(self) -> DrainNumbers | None:
        """For the metrics; None as long as nothing was judged."""
        judged, signals = self._assessment, self._signals
        if judged is None or signals is None:
            return None
        counts = Counter(str(blocker.reason) for blocker in judged.blockers if Intent.RETIRE in blocker.blocks)
        stranded = sum(End.RETURNS in (pod.reboot, pod.retire) or End.STRANDED in (pod.reboot, pod.retire) for pod in judged.pods)
        return DrainNumbers(
            ready={str(intent): _known(judged.verdict(intent).status) for intent in Intent},
            blockers=counts,
            bytes_remaining=bytes_in_the_way(judged),
            stranded_pods=stranded,
            evacuation_seconds=None if signals.started_at is None else max(0.0, self._wall() - signals.started_at),
            gate="off" if not self._settings.gate else "closed" if self._gate(signals).held else "open",
        )

    # --- one look ---------------------------------------------------------------------------------------------------

    async def handle(self, key: str) -> float | None:
        self._last_look, self._failures, self._marked = self._clock(), {}, False
        node = self._node()
        if node is None:
            # It is drained as far as anybody can be; what was made for it goes with it. Or nobody has heard of it yet.
            self._stand_without_node()
            self._assessment = self._signals = self._slot = None
            self._tell_health()
            return None
        signals = self._signals = self._read(node)
        self._renew_standing(signals)
        self._tell_problems(signals)
        if self._settings.judges:
            again = await self._judge(node, signals)
        else:
            again = await self._only_mark(node, signals)
        self._tell_health()
        usual = self._clock() + _PACE if self._marked else self._next_look(key)
        return usual if again is None else min(usual, max(again, self._clock() + _PACE))

    async def _only_mark(self, node: Node, signals: Signals) -> float | None:
        """Nothing is judged, so nothing is evacuated, and what a former process has begun is undone. A closing is noted all the same."""
        why = "nothing is judged without --drain-report"
        decision = evacuation.Undo(why) if signals.marked else evacuation.Rest(None, why)
        if self._turns.maybe_held:
            await self._try("the turn to be evacuated", self._turns.turn(node, wanted=False))
        if self._guard.may_stand:
            pods = self._watched.pods.values()
            gate = self._guard.guard(node, signals, drain=Status.UNKNOWN, retire=Status.UNKNOWN, overridden=False, pods=pods)
            await self._try(_GATE, gate)
        marks = wanted(signals, self._settings.driver, standing=self._standing, decision=decision)
        await self._mark(node, marks, protect=False)
        return self._standing_again

    async def _judge(self, node: Node, signals: Signals) -> float | None:
        node, signals, overridden = await self._end_in_time(node, signals)
        await self._try("the report", self._scribe.recall(node))
        assessment = await self._assess(node, signals)
        decision = await self._course(node, signals, assessment)
        assessment = evacuation.told(assessment, intent=signals.intent, state=signals.state, slot=self._slot)
        self._assessment = assessment
        if self._settings.gate or self._guard.may_stand:
            drain, retire = assessment.drain.status, assessment.retire.status
            pods = self._watched.pods.values()
            gate = self._guard.guard(node, signals, drain=drain, retire=retire, overridden=overridden, pods=pods)
            if (decided := await self._try(_GATE, gate)) is not None:
                self._tell_gate(node, decided)
            if self._guard.sign.failure:
                self._failures["the lease of the gate"] = self._guard.sign.failure
        await self._show(node, signals, assessment, decision, overridden=overridden)
        return self._due(signals, decision)

    def _due(self, signals: Signals, decision: evacuation.Decision) -> float | None:
        """When to look again whatever happens; a deadline ahead is among it, however far the evacuation got in this look."""
        untils = [decision.until] if isinstance(decision, evacuation.Rest | evacuation.Wait) else []
        untils += [self._deadline(signals)] if signals.state is not None else []
        now = self._wall()
        times = [self._clock() + until - now for until in untils if until is not None and until > now]
        return min((at for at in (*times, self._standing_again) if at is not None), default=None)

    def _deadline(self, signals: Signals) -> float | None:
        allowed = self._settings.allowed
        return signals.started_at + allowed if signals.started_at is not None and allowed > 0 else None

    async def _end_in_time(self, node: Node, signals: Signals) -> tuple[Node, Signals, bool]:
        """A deadline needs no judgement and no answer from anybody, so it comes before whatever might fail or take its time.

        The last is whether the node is let go: by people, or by an end that is noted, or that was decided and could not be.
        """
        view = self._evacuation_view(signals, drain=_UNSEEN, retire=_UNSEEN)
        decision, lets_go = evacuation.decide(view), evacuation.lets_go(view)
        overridden = lets_go or bool(signals.override)
        self._override_told &= lets_go
        if isinstance(decision, Expire | Override):
            marks = wanted(signals, self._settings.driver, standing=self._standing, decision=decision)
            after = await self._mark(node, marks)
            if after is not None or isinstance(decision, Override):
                self._tell_course(node, decision)
            if after is not None:
                node, signals = after, self._read(after)
        return node, evacuation.believed(self._evacuation_view(signals, drain=_UNSEEN, retire=_UNSEEN)), overridden

    async def _mark(self, node: Node, marks: Marks, *, protect: bool | None = None) -> Node | None:
        """The node as it is then, None if that was refused. It is known at once: a watch that is down must not have it decided again."""
        after = await self._try("marks on the node", self._scribe.write_marks(node, marks, protect=protect))
        if after is not None and after != node:
            self._watched.nodes.apply(Change(node.name, node, after))
            self._written, self._believed_until = after, self._clock() + _LAG
            self._marked = True
        return after

    def _evacuation_view(self, signals: Signals, *, drain: Verdict, retire: Verdict) -> EvacuationView:
        return EvacuationView(
            now=self._wall(),
            signals=signals,
            asked=asked(signals, policy=self._settings.policy, standing=self._standing),
            drain=drain,
            retire=retire,
            allowed=self._settings.allowed,
            expiry=self._settings.expiry,
        )

    async def _course(self, node: Node, signals: Signals, assessment: Assessment) -> evacuation.Decision:
        view = self._evacuation_view(signals, drain=assessment.drain, retire=assessment.retire)
        decision = evacuation.decide(view)
        needed = evacuation.wants_slot(view) and isinstance(decision, AskForSlot)
        if needed or self._turns.maybe_held:
            self._slot = await self._try("the turn to be evacuated", self._turn(node, wanted=evacuation.wants_slot(view)))
            if needed and self._slot is not None:
                decision = evacuation.decide(replace(view, slot=self._slot))
        else:
            self._slot = None
        self._narrator.note(ROOM, node.uid, node.name, decision)
        return decision

    async def _turn(self, node: Node, *, wanted: bool) -> slots.Decision:
        decision = await self._turns.turn(node, wanted=wanted)
        if isinstance(decision, slots.Take) and not self._settings.dry_run:
            where = f"in namespace {self._settings.namespace}" if self._settings.namespace else "for NAMESPACE is not set"
            raise ApiError(f"the Lease {decision.name} could not be taken, {where}")
        return decision

    async def _show(self, node: Node, signals: Signals, assessment: Assessment, decision: evacuation.Decision, *, overridden: bool) -> None:
        """To everybody. Events come after what they tell of, and before the report that remembers they were told; they are written in the
        background, so a process that is killed in between may omit one."""
        retire = assessment.retire.status
        protect = needs_protection(enabled=self._settings.protects, retire=retire, overridden=overridden)
        marks = wanted(signals, self._settings.driver, standing=self._standing, decision=decision)
        marks |= Marks({names.of_driver(self._settings.driver, names.DRAIN_SUMMARY): summary(assessment)})
        if await self._mark(node, marks, protect=protect) is not None:
            self._tell_course(node, decision)
        await self._try("the node's conditions", self._scribe.write_conditions(assessment))
        if not self._scribe.recalled:
            return  # what has been told before is not known, and is not to be overwritten
        extra = self._extra(signals)
        before = stored.status_of(self._scribe.previous) or None
        if not self._settings.dry_run:
            for happening in transitions.events(before, assessment, observed=extra.observed, intent=signals.intent):
                self._recorder.record(happening.ref, happening.type_, happening.reason, happening.message)
        await self._try("the report", self._scribe.write_report(assessment, extra, now=self._wall()))

    def _tell_gate(self, node: Node, decision: gates.Decision) -> None:
        self._narrator.note(ROOM, f"gate of {node.name}", f"gate of {node.name}", decision)
        reason = {gates.Build: names.DRAIN_HELD, gates.Open: names.DRAIN_LET_GO}.get(type(decision))
        if reason and not self._settings.dry_run:
            ref = ObjectRef("v1", "Node", "", node.name, node.uid)
            self._recorder.record(ref, "Normal", reason, f"{self._settings.driver}: {decision.why}")

    def _tell_course(self, node: Node, decision: evacuation.Decision) -> None:
        event = evacuation.event(decision)
        if isinstance(decision, Override):
            if self._override_told:
                return
            self._override_told = True
        if event is not None and not self._settings.dry_run:
            type_, reason, message = event
            self._recorder.record(ObjectRef("v1", "Node", "", node.name, node.uid), type_, reason, f"{self._settings.driver}: {message}")

    # --- what is known ------------------------------------------------------------------------------------------------

    def _node(self) -> Node | None:
        """As the watch shows it, or as this room has written it since."""
        seen, written = self._watched.nodes.get(self._settings.node), self._written
        if seen is None or written is None or seen.uid != written.uid or self._clock() > self._believed_until:
            return seen
        return written if seen.version < written.version else seen

    def _read(self, node: Node) -> Signals:
        return marks_of.read(node, self._settings.driver, now=self._wall(), usual=self._settings.policy)

    async def _assess(self, node: Node, signals: Signals) -> Assessment:
        """Where volumes could go is looked at only if some are to go elsewhere, and somebody empties the node."""
        asker = self._asker
        asker.begin()
        held = await asker.held(node)
        fetched, policies, classes = await asker.claims(held), await asker.policies(held), await asker.classes(held)
        await asker.volumes()
        await asker.snapshots()
        blank = Snapshot(
            now=self._wall(),
            driver=self._settings.driver,
            node_name=node.name,
            node=node,
            expected_uid=node.uid,
            untracked=self._untracked.handles,
            untracked_unknown=self._untracked.unknown,
            untracked_blocks=self._settings.untracked_blocks,
            namespace_policies=MappingProxyType(policies),
            default_policy=self._settings.default_policy,
            unread=frozenset(asker.unread),
            ignorance=tuple(asker.ignorance),
            since=self._scribe.since(now=self._wall()),
            node_policy=self._settings.policy,
        )
        never_used = self._never_used.names()
        snapshot = look(self._watched, blank, held=held, never_used=never_used, fetched=fetched, classes=classes)
        assessment = assess(snapshot)
        if not _observed(signals) or not any(volume.policy in NOT_YET for volume in assessment.volumes):
            return assessment
        before = len(asker.ignorance)
        surroundings = await asker.surroundings()
        return assess(replace(snapshot, surroundings=surroundings, ignorance=(*asker.ignorance[before:], *snapshot.ignorance)))

    # --- standing ---------------------------------------------------------------------------------------------------

    def _renew_standing(self, signals: Signals) -> None:
        now, self._uid = self._wall(), signals.uid
        self._cordoned_since = (self._cordoned_since or now) if signals.shut else None
        found, until = standing(
            signals,
            policy=self._settings.policy,
            zero_when_closed=self._settings.zero_when_closed,
            cordon_stable_since=self._cordoned_since,
            now=now,
            before=self._standing,
        )
        self._stand(found, None if until is None else self._clock() + until - now)

    def _stand_without_node(self) -> None:
        policy, zero = self._settings.policy, self._settings.zero_when_closed
        self._cordoned_since = None
        self._stand(without_node(self._standing, uid=self._uid, policy=policy, zero_when_closed=zero, now=self._wall()), None)

    def _stand(self, found: Standing, again: float | None) -> None:
        before, self._standing, self._standing_again = self._standing, found, again
        if (before.closed, before.publishes_zero) != (found.closed, found.publishes_zero):
            fields = {"node": self._settings.node, "why": found.why or "nothing keeps it from taking volumes"}
            log.info("The node takes no volumes" if found.closed else "The node takes volumes", extra={"fields": fields})
        if before != found:
            self._on_standing()

    # --- odds and ends ----------------------------------------------------------------------------------------------

    def _extra(self, signals: Signals) -> Extra:
        settings, slot = self._settings, self._slot
        return Extra(
            observed=_observed(signals),
            intent=signals.intent,
            intent_source=str(signals.source) if signals.intent else "",
            gate=self._gate(signals) if settings.gate else None,
            slot=_slot(slot),
            evacuation=Course(str(signals.state), signals.started_at, self._deadline(signals)) if signals.state else None,
        )

    def _gate(self, signals: Signals) -> Gate:
        """A gate whose guard does not run holds nobody, and one that was refused is none."""
        if self._guard.held:
            pods, budgets = self._watched.pods.values(), self._watched.budgets.values()
            why = gates.why_loose(signals.uid, self._settings.driver, self._settings.namespace, pods=pods, budgets=budgets)
            return Gate(True, not why, why)
        refused = self._failures.get(_GATE)
        return Gate(True, False, f"it could not be read or written: {refused}" if refused else "")

    def _next_look(self, key: str) -> float:
        """When nothing is due and nothing changes. What is refused is tried again with back-off."""
        if self._failures:
            # However patient it may be told to be: as long as it lives, its gate's lease is renewed in time.
            delay = min(self._retry.delay(self.attempts.next(key)), RENEWED_EVERY)
            self._refused_until = self._clock() + min(delay, _REFUSED)
            return self._clock() + delay
        self.attempts.forget(key)
        self._refused_until = 0.0
        return self._clock() + _USUAL

    async def _try(self, what: str, effect: Awaitable[R]) -> R | None:
        """The answer; None when it was refused or could not be had."""
        try:
            return await effect
        except ApiError as error:
            self._failures[what] = str(error)
            return None

    def _tell_problems(self, signals: Signals) -> None:
        if signals.problems and signals.problems != self._problems:
            fields = {"node": signals.node, "err": "; ".join(signals.problems)}
            log.warning("Marks on the node are wrong or contradict each other", extra={"fields": fields})
        self._problems = signals.problems

    def _tell_health(self) -> None:
        if not self._failures:
            self._scope.report(OK())
            return
        why = "; ".join(f"{what} could not be written or read: {error}" for what, error in sorted(self._failures.items()))
        if self._scope.state != Degraded(why):
            log.warning("Drain decisions are incomplete", extra={"fields": {"node": self._settings.node, "err": why}})
        self._scope.report(Degraded(why))


def _observed(signals: Signals) -> bool:
    """Somebody wants to empty the node, or is about to."""
    return signals.cordoned or bool(signals.evacuate) or signals.intent is not None


def _known(status: Status) -> bool | None:
    return None if status is Status.UNKNOWN else status is Status.TRUE


def _slot(slot: slots.Decision | None) -> Slot | None:
    match slot:
        case slots.Hold(name) | slots.Renew(name) | slots.Take(name):
            return Slot(name)
        case slots.WaitFor(ahead=ahead):
            return Slot("", ahead)
        case _:
            return None
