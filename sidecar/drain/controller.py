"""Looks at this node again and again: marks, picture, course, gate, writes. What is decided stands in the rules; here is only the order.

The deadline comes before anything is asked of anybody. A True that would open something is judged twice. What is refused is told once, and
keeps nothing else from happening.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from sidecar.drain import course, events, gate, report
from sidecar.drain.anew import Target
from sidecar.drain.anew import candidates as replicas_to_make
from sidecar.drain.anew_io import POLL, MakingAnew
from sidecar.drain.assess import Assessment, Verdict, assess
from sidecar.drain.course import Answer, Away, Continue, Evict, Held, MakeAnew, Note, NotKnown, Rest, TakenBy, TakeSlot
from sidecar.drain.empty import Candidate, Hold, candidates
from sidecar.drain.empty_io import Emptying
from sidecar.drain.gate_io import Gate
from sidecar.drain.lease_io import RENEWED_EVERY, HeldLease, Holder
from sidecar.drain.look_io import Looks
from sidecar.drain.marks import Marks, Record, State
from sidecar.drain.node_io import OwnNode, needs_protection
from sidecar.drain.picture import Picture, read_marks
from sidecar.drain.report_io import ReportWriter
from sidecar.drain.settings import Settings
from sidecar.drain.standing import StandingKeeper, closed_at
from sidecar.drain.things import used_though_acknowledged
from sidecar.drain.words import Fate, Intent, Reason, Status
from sidecar.engine.backoff import Attempts
from sidecar.engine.health import OK, Degraded
from sidecar.eviction.answers import NEXT_PASS
from sidecar.eviction.attempt_io import Evictor
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.standing import Standing
from sidecar.observe.scrape.drain import DrainNumbers
from sidecar.tools import Tools

log = logging.getLogger(__name__)

R = TypeVar("R")
ROOM: Final = "drain"
PACE: Final = 1.0
"""Seconds between two looks at least, however much changes. A look evicts one pod at most."""
CALM: Final = 5.0
"""The same as long as nobody empties the node."""
USUAL: Final = 60.0
_URGENT: Final = 10.0
"""Seconds until what was refused is tried again at the earliest, and until a gate that should stand is."""
_SETTLES: Final = 60.0
"""Seconds after the start in which no deadline ends anything, and an Unknown is no news."""
_STUCK: Final = 900.0
"""Seconds without anybody sent away, after which others may have the slot."""
_UNSEEN: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the node has not been judged yet")
_SENT_AWAY: Final = "what is sent away"
_READY: Final = {Status.TRUE: True, Status.FALSE: False, Status.UNKNOWN: None}


@dataclass(slots=True)
class _Look:
    """One look in the making."""

    again: float = USUAL
    """Seconds until the next one."""
    refused: dict[str, str] = field(default_factory=dict)
    """What is tried again with the next look, which comes the later the longer that goes on."""
    told: dict[str, str] = field(default_factory=dict)
    """The same of what is asked again in a time of its own, and keeps no look waiting."""

    def soon(self, seconds: float) -> None:
        self.again = min(self.again, seconds)


class DrainRoom:
    """`handle` is given to the loop, with the node's name as the only key; it returns when to look again."""

    def __init__(
        self,
        tools: Tools,
        settings: Settings,
        *,
        nodes: Store[Node],
        pods: Callable[[], Collection[Pod]],
        looks: Looks,
        on_standing: Callable[[], None],
    ) -> None:
        self._tools, self._settings, self._kube, self._clock, self._wall = tools, settings, tools.kube, tools.clock, tools.wall
        self._scope = tools.health.scope(ROOM, gates_ready=False)
        self._nodes, self._pods, self._looks = nodes, pods, looks
        self._standing = StandingKeeper(settings, clock=tools.clock, wall=tools.wall, on_change=on_standing)
        self._own_node = OwnNode(tools.kube, nodes, driver=settings.driver, clock=tools.clock, wall=tools.wall)
        self.report = ReportWriter(tools.kube, settings, clock=tools.clock)
        self._gate = Gate(tools.kube, settings, clock=tools.clock)
        self._evictor = Evictor(tools.kube, clock=tools.clock, rng=tools.rng)
        self._emptying = Emptying(tools, settings, self._evictor)
        self._anew: MakingAnew | None = None
        self._slots: list[HeldLease] = []
        self._holder: Holder | None = None
        self.attempts: Attempts[str] = Attempts()
        self._began_at = tools.clock()
        self._started: tuple[float, float, float] | None = None
        """The noted start of the evacuation, and the wall and the steady clock when this process first saw it."""
        self._sent_at = tools.clock()
        """When somebody was sent away last, or an evacuation began."""
        self._marks: Marks | None = None
        self._written: Node | None = None
        """As the answer to this process's last write showed it."""
        self._judged: Assessment | None = None
        self._told_marks: Marks | None = None
        self._told_override: tuple[str, float | None] | None = None
        self._loose = ""
        """Why the gate, which stands, holds nobody."""
        self._opened: frozenset[Intent] = frozenset()
        """What the last look found True for whoever empties the node."""
        self._last_look = float("-inf")
        self._refused_until = 0.0
        self._told_refused = ""

    # --- what others ask --------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Whether this node takes volumes now."""
        return self._standing.current

    @property
    def marks(self) -> Marks | None:
        return self._marks

    def node_changed(self) -> None:
        """The watch shows a change of the node. Its standing is renewed at once: an uncordoned node takes volumes without delay."""
        node = self._node()
        if node is None:
            self._standing.renew_without_node()
        else:
            self._marks = self._read(node)
            self._standing.renew(self._marks)

    def held(self) -> gate.HeldPods:
        """By what was judged last and by the marks of now: for the report, as soon as a drain begins."""
        marks, judged, settings = self._marks, self._judged, self._settings
        if not settings.gate or marks is None or judged is None or judged.node_uid != marks.uid:
            return gate.HeldPods()
        return gate.held(judged, marks, self._pods(), assumed=settings.gate_assumes, overridden=self._lets_go(marks, judged))

    def soonest(self) -> float:
        """When to look because something has changed."""
        calm = self._marks is not None and not self._marks.observed
        return max(self._clock(), self._last_look + (CALM if calm else PACE), self._refused_until)

    def numbers(self) -> DrainNumbers | None:
        """For the metrics. None: nothing was judged yet."""
        judged, marks = self._judged, self._marks
        if judged is None or marks is None:
            return None
        started = marks.record.started_at
        return DrainNumbers(
            ready={str(intent): _READY[judged.verdict(intent).status] for intent in Intent},
            blockers=Counter(str(blocker.reason) for blocker in judged.blockers if Intent.RETIRE in blocker.blocks),
            bytes_remaining=report.bytes_in_the_way(judged),
            stranded_pods=sum(fate.reboot is Fate.RETURNS or fate.retire is Fate.STRANDED for fate in judged.pods),
            evacuation_seconds=None if started is None else max(0.0, self._wall() - started),
            gate="off" if not self._settings.gate else "closed" if self._gate.stands and not self._loose else "open",
        )

    # --- one look ---------------------------------------------------------------------------------------------------

    async def handle(self, key: str) -> float | None:
        self._last_look = self._clock()
        node = self._node()
        if node is None:
            # It is gone, and what was made for it is deleted with it; or it is not listed yet.
            self._standing.renew_without_node()
            self._marks = self._judged = None
            return None
        self._marks = marks = self._read(node)
        self._standing.renew(marks)
        look = _Look()
        if self._standing.again is not None:
            look.soon(self._standing.again - self._clock())
        if self._settings.judges:
            await self._look(node, marks, look)
        else:
            await self._stand_down(node, marks, look)
        self._tell_refused(look.told | look.refused)
        if look.refused:
            # Bounded, whatever --retry-interval-max says: leases must be renewed before they run out.
            delay = min(self._tools.retry.delay(self.attempts.next(key)), RENEWED_EVERY)
            self._refused_until = self._clock() + min(delay, _URGENT)
            return self._clock() + min(delay, max(look.again, _URGENT))
        self.attempts.forget(key)
        self._refused_until = 0.0
        return self._clock() + max(look.again, PACE)

    async def _look(self, node: Node, marks: Marks, look: _Look) -> None:
        await self._attempt(look, "the report", self.report.recall())
        # The deadline needs no answer, and nothing that fails may put it off.
        judged = self._judged if self._judged is not None and self._judged.node_uid == node.uid else None
        step = course.step(self._view(marks, judged, slot=None, away=None, following=None))
        if isinstance(step, Note) and step.state in (State.FAILED, State.OVERRIDDEN) and self._is_late(marks):
            node, marks = await self._note(node, marks, step, look)
        picture = await self._picture(node, marks)
        self._judged = picture.assessment
        if not self._settings.dry_run:
            # Before all that may take long: nobody is to read an old True meanwhile.
            await self._attempt(look, "the node's conditions", self._own_node.write_conditions(picture.assessment))
            look.soon(_URGENT if self._own_node.true_is_old else USUAL)
        if picture.assessment.passes_in is not None:
            look.soon(picture.assessment.passes_in)
        await self._void_acknowledgements(picture, look)
        told = await self._course(picture, look)
        marks = self._marks if self._marks is not None and self._marks.uid == node.uid else marks
        overridden = self._lets_go(marks, picture.assessment)
        decision: gate.Decision | None = None
        if self._is_same_drain(marks, picture.marks) or overridden:
            decision = await self._attempt(look, "the gate", self._gate.step(picture, self._pods(), overridden=overridden))
            if decision is None and self._settings.gate:
                look.soon(_URGENT)
        else:
            look.soon(PACE)  # somebody has begun a drain, or said something else, since it was judged
        if decision is not None:
            self._tools.narrator.note(ROOM, f"gate of {node.name}", f"gate of {node.name}", decision)
        await self._write(picture, marks, told, decision, look, overridden=overridden)

    async def _stand_down(self, node: Node, marks: Marks, look: _Look) -> None:
        """Where nothing is judged nothing is evacuated and no gate stands: what an earlier process has begun is undone."""
        record = replace(marks.record, state=None, started_at=None, closed_at=closed_at(self._standing.current))
        await self._attempt(look, "the marks on the node", self._write_record(node, record))
        await self._attempt(look, "the gate", self._gate.take_down(node))
        if not self._settings.dry_run:
            await self._attempt(look, "the autoscalers' annotations", self._own_node.protect(node, needed=False))

    # --- the picture ------------------------------------------------------------------------------------------------

    async def _picture(self, node: Node, marks: Marks) -> Picture:
        """Judged anew where something would be opened by it: a word may have been taken back since the API server was asked."""
        picture = await self._judge(node, marks, anew=False)
        opening = self._opening(picture)
        if not opening <= self._opened:
            picture = await self._judge(node, marks, anew=True)
            opening = self._opening(picture)
        self._opened = opening
        return picture

    async def _judge(self, node: Node, marks: Marks, *, anew: bool) -> Picture:
        snapshot = await self._looks.look(node, observed=marks.observed, anew=anew)
        return Picture(node, marks, snapshot, assess(snapshot))

    def _opening(self, picture: Picture) -> frozenset[Intent]:
        if not picture.marks.observed:
            return frozenset()
        intents = {Intent.RETIRE, *gate.counting(picture.marks, self._settings.gate_assumes)}
        return frozenset(intent for intent in intents if picture.assessment.verdict(intent).status is Status.TRUE)

    async def _void_acknowledgements(self, picture: Picture, look: _Look) -> None:
        """A volume that a pod uses is not dispensable any more: the object is the memory, so the word is taken off it."""
        for volume in used_though_acknowledged(picture.assessment.things) if not self._settings.dry_run else ():
            meta = {"uid": volume.uid, "resourceVersion": volume.resource_version, "annotations": {names.ACKNOWLEDGED: None}}
            try:
                await self._kube.patch(VOLUMES, volume.name, {"metadata": meta}, content_type=MERGE_PATCH)
            except (Conflict, NotFound):
                continue
            except ApiError as error:
                look.refused[f"the annotation {names.ACKNOWLEDGED}"] = str(error)
                continue
            message = f"{names.ACKNOWLEDGED} was taken off: a pod uses the volume, so it is not dispensable any more"
            self._record(ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid), names.WARNING, names.NODE_MARKS_WRONG, message)

    # --- the course -------------------------------------------------------------------------------------------------

    async def _course(self, picture: Picture, look: _Look) -> report.Course:
        settings, slot = self._settings, None
        away: Away | None = None
        told = ""
        try:
            away, told = await self._continue_late_ones(picture, look)
        except ApiError as error:
            look.refused["the replicas that are made anew"] = str(error)
            return self._as_course(self._marks or picture.marks, None, str(error))
        for _ in range(3):
            marks = self._marks or picture.marks
            following = self._following(picture, marks)
            step = course.step(self._view(marks, picture.assessment, slot=slot, away=away, following=following))
            self._tools.narrator.note(ROOM, picture.node.uid, picture.node.name, step)
            match step:
                case TakeSlot():
                    slot = await self._take_slot(picture.node)
                case Note():
                    node, _ = await self._note(picture.node, marks, step, look)
                    picture = replace(picture, node=node, marks=self._marks or marks)
                    if step.gives_back:
                        await self._attempt(look, "the evacuation slot", self._give_slots_back())
                    if step.state is None:
                        self._emptying.forget()
                    look.soon(PACE)
                    told = told or f"{step.reason}: {step.why}" if step.reason else told
                    break
                case Rest(why, reason):
                    told = f"{reason}: {why}" if reason else why
                    look.soon(NEXT_PASS if marks.wish is not None else USUAL)
                    break
                case Evict() | MakeAnew() | Continue():
                    told = await self._act(picture, step, look)
                    break
        if picture.marks.wish is not None and (why := self._emptying.refused()):
            look.told[_SENT_AWAY] = why
        if slot is None and self._slots and not settings.dry_run:
            await self._attempt(look, "the evacuation slot", self._renew_slots())
        return self._as_course(self._marks or picture.marks, slot, told)

    def _following(self, picture: Picture, marks: Marks) -> Candidate | Target | Hold | None:
        """What could be sent away next, or why nobody is."""
        if not self._settings.evicts or marks.wish is None or marks.wish.intent is Intent.REBOOT:
            return None
        memory, things = self._emptying.memory(), picture.assessment.things
        found, holds = candidates(picture.snapshot, things, memory, ours=self._settings.own_pods)
        targets: list[Target] = []
        if self._settings.reprovisions:
            targets, refused = replicas_to_make(picture.snapshot, things)
            refused += [memory.held[each.pod_uid] for each in targets if each.pod_uid in memory.held]
            targets = [each for each in targets if each.pod_uid not in memory.held]
            # Which lock keeps a replica here says more than that it is to be made anew.
            holds = [*refused, *(hold for hold in holds if hold.pod not in {told.pod for told in refused})]
        if targets:
            return targets[0]
        if found:
            return found[0]
        return min(holds, key=lambda hold: hold.lasting, default=None)

    async def _act(self, picture: Picture, step: Evict | MakeAnew | Continue, look: _Look) -> str:
        """What was done or is waited for. What is refused keeps only that pod waiting."""
        uid, told = "", step.why
        hold: Hold | None = None
        try:
            match step:
                case Evict(candidate):
                    found, _ = candidates(
                        picture.snapshot, picture.assessment.things, self._emptying.memory(), ours=self._settings.own_pods
                    )
                    hold = await self._emptying.evict_first(picture, found)
                    told = f"{candidate.pod.full_name} is evicted: {step.why}"
                    look.soon(PACE)
                case MakeAnew(target):
                    uid, told = target.pod_uid, f"{target.full_name} is to be made anew"
                    hold = await self._making_anew(picture.node).begin(picture, target)
                    look.soon(PACE)
                case Continue(away):
                    outcome = await self._making_anew(picture.node).step(picture, away, undone="")
                    uid, hold = away.target.pod_uid, outcome if isinstance(outcome, Hold) else None
                    told = step.why if isinstance(outcome, Hold) else outcome[0]
                    look.soon(POLL if isinstance(outcome, Hold) else max(outcome[1], PACE))
        except Conflict as error:
            look.soon(PACE)  # what was judged has changed since, and is judged anew
            return str(error)
        except ApiError as error:
            look.refused[_SENT_AWAY] = str(error)
            return str(error)
        if uid:
            self._emptying.hold(uid, hold)
        if hold is None:
            self._sent_at = self._clock()
        return told if hold is None else f"{hold.reason}: {hold.why}"

    async def _continue_late_ones(self, picture: Picture, look: _Look) -> tuple[Away | None, str]:
        """The replica that holds up all others, if there is one. Those that take too long, and all of them once nobody asks any more, are
        looked at here, and hold nobody up. Raises ApiError."""
        marks = picture.marks
        if self._settings.dry_run or not self._settings.namespace or (self._anew is None and not self._settings.judges):
            return None, ""
        making = self._making_anew(picture.node)
        await making.recall()
        if not making.names:
            return None, ""
        on_their_way, late = await making.away()
        under_way = course.is_under_way(marks.record, marks.wish)
        undone = "" if under_way else "the evacuation was undone, or has ended"
        told = ""
        for away in (*late, *(on_their_way if undone else ())):
            try:
                outcome = await making.step(picture, away, undone=undone)
                told = f"{outcome.reason}: {outcome.why}" if isinstance(outcome, Hold) else outcome[0]
                if isinstance(outcome, Hold) and outcome.refused:
                    look.told[_SENT_AWAY] = outcome.why
            except Conflict:
                continue
            except ApiError as error:
                look.refused[_SENT_AWAY] = str(error)
        look.soon(POLL if on_their_way or undone else NEXT_PASS)
        return (on_their_way[0] if on_their_way and not undone else None), told

    def _view(
        self,
        marks: Marks,
        judged: Assessment | None,
        *,
        slot: Answer | None,
        away: Away | None,
        following: Candidate | Target | Hold | None,
    ) -> course.View:
        verdict = _UNSEEN if judged is None or marks.wish is None else judged.verdict(marks.wish.intent)
        return course.View(
            wish=marks.wish if self._standing.current.closed else None,
            record=marks.record,
            verdict=verdict,
            late=self._is_late(marks),
            expiry=self._settings.expiry,
            slot=slot,
            has_slot=any(lease.is_held for lease in self._slots),
            away=away,
            next=following,
            stuck=self._clock() - self._sent_at >= _STUCK,
        )

    def _lets_go(self, marks: Marks, judged: Assessment | None) -> bool:
        view = self._view(marks, judged, slot=None, away=None, following=None)
        return bool(marks.forced) or bool(course.lets_go(view))

    def _is_same_drain(self, marks: Marks, judged: Marks) -> bool:
        """The gate opens by what was judged for it, and for nothing else."""
        assumed = self._settings.gate_assumes
        return (marks.draining, gate.counting(marks, assumed)) == (judged.draining, gate.counting(judged, assumed))

    def _is_late(self, marks: Marks) -> bool:
        """By two clocks, of which the one that leaves more time counts: the wall clock may have leapt while no process counted."""
        started, now, wall = marks.record.started_at, self._clock(), self._wall()
        if started is None or self._settings.allowed <= 0:
            self._started = None
            return False
        if self._started is None or self._started[0] != started:
            self._started = started, wall, now
        _, wall_then, clock_then = self._started
        steady = min(wall, wall_then + now - clock_then)
        settled = now - self._began_at >= _SETTLES or (
            marks.record.state is not None and marks.record.state.value in ("Failed", "Overridden")
        )
        return settled and steady - started >= self._settings.allowed

    def _as_course(self, marks: Marks, slot: Answer | None, told: str) -> report.Course:
        record, allowed = marks.record, self._settings.allowed
        if marks.wish is None:
            return report.Course()
        has = {Held: "held", TakenBy: "waits", NotKnown: "not known"}.get(type(slot), "") if slot is not None else ""
        deadline = record.started_at + allowed if record.started_at is not None and allowed > 0 else None
        return report.Course(str(record.state or ""), record.started_at, deadline, has, told)

    # --- slots ------------------------------------------------------------------------------------------------------

    def _of(self, node: Node) -> Holder:
        """Another machine under the node's name is another holder."""
        holder = Holder(node.name, node.uid, self._settings.driver, self._settings.namespace)
        if self._holder != holder:
            self._holder, self._anew, self._slots = holder, None, []
        return holder

    async def _take_slot(self, node: Node) -> Answer:
        """The first that is ours, free or run out."""
        limit, holder = self._settings.limit, self._of(node)
        if limit <= 0 or self._settings.dry_run:
            return Held("")
        if not self._settings.namespace:
            return NotKnown("no evacuation slot can be taken, because NAMESPACE is not set")
        if not self._slots:
            self._slots = [
                HeldLease(
                    self._kube,
                    names.evacuation_slot(index, holder.driver),
                    holder,
                    label=names.SLOT_FOR,
                    clock=self._clock,
                    wall=self._wall,
                )
                for index in range(limit)
            ]
        answers: list[Answer] = []
        for lease in sorted(self._slots, key=lambda lease: not lease.is_held):
            answer = await lease.hold()
            if isinstance(answer, Held):
                return answer
            answers.append(answer)
        return next((answer for answer in answers if isinstance(answer, NotKnown)), answers[0])

    async def _renew_slots(self) -> None:
        for lease in self._slots:
            if lease.is_held and isinstance(answer := await lease.hold(), NotKnown):
                raise ApiError(answer.why)

    async def _give_slots_back(self) -> None:
        for lease in self._slots:
            if lease.is_held:
                await lease.give_back()

    def _making_anew(self, node: Node) -> MakingAnew:
        holder = self._of(node)
        if self._anew is None:
            self._anew = MakingAnew(self._tools, self._settings, self._evictor, holder)
        return self._anew

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _note(self, node: Node, marks: Marks, step: Note, look: _Look) -> tuple[Node, Marks]:
        """No event without its mark, but for an override, which counts although it could not be noted."""
        record = replace(marks.record, state=step.state, closed_at=closed_at(self._standing.current))
        if step.begins:
            record, self._sent_at = replace(record, started_at=self._wall()), self._clock()
        if step.state is None:
            record = replace(record, started_at=None)
        after = await self._attempt(look, "the marks on the node", self._write_record(node, record))
        overridden = (marks.uid, record.started_at) if step.state is State.OVERRIDDEN else None
        if step.event and (after is not None or overridden) and (overridden is None or overridden != self._told_override):
            self._told_override = overridden or self._told_override
            warns = step.event in (names.EVACUATION_DEADLINE_EXCEEDED, names.EVACUATION_OVERRIDDEN)
            ref = ObjectRef("v1", names.NODE, "", node.name, node.uid)
            self._record(ref, names.WARNING if warns else names.NORMAL, step.event, f"{self._settings.driver}: {step.why}")
        if after is None:
            return node, marks
        self._marks = self._read(after)
        return after, self._marks

    async def _write_record(self, node: Node, record: Record) -> Node:
        if self._settings.dry_run:
            return node
        self._written = await self._own_node.write_record(node, record)
        return self._written

    def _node(self) -> Node | None:
        """As it is known. A watch that lags does not show yet what this process has written: nothing is begun twice."""
        node, last = self._nodes.get(self._settings.node), self._written
        return last if node is not None and last is not None and node.uid == last.uid and node.version < last.version else node

    async def _write(
        self, picture: Picture, marks: Marks, told: report.Course, decision: gate.Decision | None, look: _Look, *, overridden: bool
    ) -> None:
        settings, judged = self._settings, picture.assessment
        node = self._node() or picture.node
        record = replace(marks.record, closed_at=closed_at(self._standing.current))
        await self._attempt(look, "the marks on the node", self._write_record(node, record))
        needed = needs_protection(enabled=settings.protects, retire=judged.retire.status, overridden=overridden)
        if settings.dry_run:
            return
        await self._attempt(look, "the autoscalers' annotations", self._own_node.protect(node, needed=needed))
        settling = self._clock() - self._began_at < _SETTLES
        for event in events.changes(self.report.stored, judged, marks, before=self._told_marks, settling=settling):
            self._record(event.ref, event.type_, event.reason, event.message, once=event.once)
        if isinstance(decision, gate.Open):
            event = events.of_node(judged, names.DRAIN_LET_GO, decision.why)
            self._record(event.ref, event.type_, event.reason, event.message)
        self._told_marks = marks
        body = report.body(
            judged,
            marks,
            agent=settings.agent,
            course=told,
            held=self.held(),
            gate=self._gate_status(picture, decision, look),
            previous=self.report.stored,
        )
        await self._attempt(look, "the report", self.report.write(body, held=self.held))

    def _gate_status(self, picture: Picture, decision: gate.Decision | None, look: _Look) -> dict[str, object] | None:
        if not self._settings.gate:
            return None
        why = look.refused.get("the gate", "")
        if isinstance(decision, gate.Leave):
            why = decision.why
        if self._gate.stands:
            self._loose = why = self._gate.why_loose(picture, self._pods())
        return {"enabled": True, "held": self._gate.stands and not why, "why": why}

    # --- telling ----------------------------------------------------------------------------------------------------

    def _read(self, node: Node) -> Marks:
        return read_marks(node, self._settings, now=self._wall(), before=self._marks)

    async def _attempt(self, look: _Look, what: str, effect: Awaitable[R]) -> R | None:
        """The answer; None when it was refused or could not be had."""
        try:
            return await effect
        except ApiError as error:
            look.refused[what] = str(error)
            return None

    def _record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        if not self._settings.dry_run:
            self._tools.recorder.record(ref, type_, reason, message, **({"once": once} if once else {}))

    def _tell_refused(self, refused: dict[str, str]) -> None:
        """With one log line for as long as the same things are refused. Whoever reaches the page of health may read it: it says nothing in
        words of others."""
        why = "; ".join(f"{what} could not be written or read: {error}" for what, error in sorted(refused.items()))
        if why and why != self._told_refused:
            log.warning("Drain decisions are incomplete", extra={"fields": {"node": self._settings.node, "err": why}})
        self._told_refused = why
        shown = f"could not be written or read: {', '.join(sorted(refused))}; the log says why"
        self._scope.report(Degraded(shown) if why else OK())
