"""Takes the evacuation of this node one step on: deadline, slot, marks, and what is sent away. `course` says what is done next."""

from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from sidecar.drain import course
from sidecar.drain.anew import Target
from sidecar.drain.anew_io import POLL, MakingAnew
from sidecar.drain.assess import Assessment, Verdict
from sidecar.drain.course import Answer, Away, Held, Next, Note, NotKnown, Rest, SendAway, TakeSlot
from sidecar.drain.empty import Candidate, Hold, candidates
from sidecar.drain.empty_io import Emptying
from sidecar.drain.lease_io import HeldLease, Holder
from sidecar.drain.marks import Marks, State
from sidecar.drain.node_io import OwnNode, Picture
from sidecar.drain.settings import Settings
from sidecar.drain.standing import StandingKeeper, closed_at
from sidecar.drain.words import Reason, Status
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import NEXT_PASS
from sidecar.kube.errors import ApiError, Conflict
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

R = TypeVar("R")
Due = Callable[[], Set[str]]
ROOM: Final = "drain"
PACE: Final = 1.0  # seconds between two looks at least, however much changes: one evicts one pod at most
_QUICK: Final = 0.25
_SOON_GONE: Final = 10.0  # the same for ten seconds after an eviction: the next pod can follow once this one's replacement is ready
USUAL: Final = 60.0
SETTLES: Final = 60.0  # seconds after the start in which no deadline ends anything, and an Unknown is no news
_STUCK: Final = 900.0  # seconds without anybody sent away, after which others may have the slot
_UNSEEN: Final = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "the node has not been judged yet")
_SENT_AWAY: Final = "what is sent away"


@dataclass(slots=True)
class Look:
    again: float = USUAL  # seconds until the next one
    pace: float = PACE  # seconds until the next one at least
    refused: dict[str, str] = field(default_factory=dict)  # what is tried again with the next look, the later the longer it goes on
    told: dict[str, str] = field(default_factory=dict)  # what is asked again in a time of its own, and keeps no look waiting

    def soon(self, seconds: float) -> None:
        self.again = min(self.again, seconds)

    async def attempt(self, what: str, effect: Awaitable[R]) -> R | None:
        """The answer; None when it was refused or could not be had."""
        try:
            return await effect
        except ApiError as error:
            self.refused[what] = str(error)
            return None


class Evacuation:
    """One per machine: another one under the node's name is another holder of Leases. What it remembers it may forget: the record on the
    Node and the Leases say how far everything is."""

    def __init__(
        self, tools: Tools, settings: Settings, node: Node, own_node: OwnNode, standing: StandingKeeper, due: Due = frozenset
    ) -> None:
        """`due`: uids of pods that leave now by the rules of the maintenances that drain this node."""
        self._tools, self._settings, self._clock, self._wall = tools, settings, tools.clock, tools.wall
        self._own_node, self._standing, self._due = own_node, standing, due
        self._evictor = Evictor(tools.kube, clock=tools.clock, rng=tools.rng)
        self._emptying = Emptying(tools, settings, self._evictor)
        holder = Holder(node.name, node.uid, settings.driver, settings.namespace)
        self._anew = MakingAnew(tools, settings, self._evictor, holder)
        slots = [names.evacuation_slot(index, settings.driver) for index in range(settings.limit)]
        self._slots = [HeldLease(tools.kube, slot, holder, label=names.SLOT_FOR, clock=tools.clock, wall=tools.wall) for slot in slots]
        self.uid = node.uid
        self._began_at = self._sent_at = tools.clock()  # when this process began; when somebody was sent away last
        self._told_overrides: set[float | None] = set()  # of evacuations that began then

    async def end_if_late(self, node: Node, marks: Marks, judged: Assessment | None, look: Look) -> tuple[Node, Marks]:
        """The deadline needs no answer, and nothing that fails may put it off."""
        step = course.decide(self._view(marks, judged))
        if isinstance(step, Note) and step.state in (State.FAILED, State.OVERRIDDEN) and self._is_late(marks):
            return await self._note(node, marks, step, look)
        return node, marks

    def lets_go(self, marks: Marks, judged: Assessment | None) -> bool:
        """What blocks keeps nobody any more: the deadline with Override is over, or somebody says so."""
        return bool(marks.overridden) or bool(course.lets_go(self._view(marks, judged)))

    async def go_on(self, picture: Picture, look: Look) -> Json:
        slot: Answer | None = None
        if self._settings.dry_run and course.is_under_way(picture.marks.record, picture.marks.wish):
            # What an earlier process has begun may have to be braked by this very flag.
            return self._as_course(picture.marks, None, "a dry run sends nobody away")
        try:
            away, told = await self._continue_late_ones(picture, look)
        except ApiError as error:
            look.refused["the replicas that are made anew"] = str(error)
            return self._as_course(self._own_node.marks or picture.marks, None, str(error))
        for _ in range(3):
            marks = self._own_node.marks or picture.marks
            following = away or course.following(
                picture.snapshot, picture.assessment.things, marks, self._emptying.memory(), self._settings, self._due()
            )
            step = course.decide(self._view(marks, picture.assessment, slot=slot, following=following))
            self._tools.narrator.note(ROOM, picture.node.uid, picture.node.name, step)
            match step:
                case TakeSlot():
                    slot = await self._take_slot()
                    if isinstance(slot, NotKnown):
                        look.told["the evacuation slot"] = slot.why
                case Note():
                    await self._note(picture.node, marks, step, look)
                    if step.gives_back:
                        await look.attempt("the evacuation slot", self._give_slots_back())
                    if step.state is None:
                        self._emptying.forget()
                    look.soon(PACE)
                    told = told or f"{step.reason}: {step.why}" if step.reason else told
                    break
                case Rest(why, reason):
                    told = f"{reason}: {why}" if reason else why
                    look.soon(NEXT_PASS if marks.wish is not None else USUAL)
                    break
                case SendAway():
                    told = await self._act(picture, step, look)
                    break
        if picture.marks.wish is not None and self._clock() - self._sent_at < _SOON_GONE:
            look.pace = _QUICK
        if picture.marks.wish is not None and (why := self._emptying.refused()):
            look.told[_SENT_AWAY] = why
        if slot is None and not self._settings.dry_run:
            await look.attempt("the evacuation slot", self._renew_slots())
        return self._as_course(self._own_node.marks or picture.marks, slot, told)

    # --- what is done next ------------------------------------------------------------------------------------------

    def _view(
        self, marks: Marks, judged: Assessment | None, *, slot: Answer | None = None, following: Next | Hold | None = None
    ) -> course.View:
        return course.View(
            wish=marks.wish if self._standing.current.closed else None,
            record=marks.record,
            verdict=_UNSEEN if judged is None or marks.wish is None else judged.verdict(marks.wish.intent),
            late=self._is_late(marks),
            expiry=self._settings.expiry,
            slot=slot,
            has_slot=any(lease.is_held for lease in self._slots),
            next=following,
            stuck=self._clock() - self._sent_at >= _STUCK,
        )

    def _is_late(self, marks: Marks) -> bool:
        """Not right after the start: the clock of a machine that has just booted may not be set yet."""
        started, allowed = marks.record.started_at, self._settings.allowed
        settled = self._clock() - self._began_at >= SETTLES or marks.record.state in (State.FAILED, State.OVERRIDDEN)
        return started is not None and allowed > 0 and settled and self._wall() - started >= allowed

    async def _act(self, picture: Picture, step: SendAway, look: Look) -> str:
        """What was done or is waited for. What is refused keeps only that pod waiting."""
        told, again = step.why, PACE
        hold: Hold | None = None
        try:
            match step.whom:
                case Candidate():
                    found, _ = candidates(
                        picture.snapshot, picture.assessment.things, self._emptying.memory(), ours=self._settings.own_pods
                    )
                    hold = await self._emptying.evict_first(picture, found)
                case Target() as target:
                    hold = await self._anew.begin(picture, target)
                    self._emptying.hold(target.pod_uid, hold)
                case Away(_, target) as away:
                    outcome = await self._anew.step(picture, away, undone="")
                    hold, (told, again) = (outcome, ("", POLL)) if isinstance(outcome, Hold) else (None, outcome)
                    self._emptying.hold(target.pod_uid, hold)
            look.soon(max(again, PACE))
        except Conflict as error:
            look.soon(PACE)  # what was judged has changed since, and is judged anew
            return str(error)
        except ApiError as error:
            look.refused[_SENT_AWAY] = str(error)
            return str(error)
        if hold is None:
            self._sent_at = self._clock()
        return told if hold is None else f"{hold.reason}: {hold.why}"

    async def _continue_late_ones(self, picture: Picture, look: Look) -> tuple[Away | None, str]:
        """The replica that holds up all others. Late ones, and all once nobody asks any more, are continued here. Raises ApiError."""
        marks = picture.marks
        if self._settings.dry_run or not self._settings.namespace:
            return None, ""
        await self._anew.recall()
        if not self._anew.names:
            return None, ""
        on_their_way, late = await self._anew.away()
        under_way = course.is_under_way(marks.record, marks.wish)
        undone = "" if under_way else "the evacuation was undone, or has ended"
        told = ""
        for away in (*late, *(on_their_way if undone else ())):
            try:
                outcome = await self._anew.step(picture, away, undone=undone)
                told = f"{outcome.reason}: {outcome.why}" if isinstance(outcome, Hold) else outcome[0]
                if isinstance(outcome, Hold) and outcome.refused:
                    look.told[_SENT_AWAY] = outcome.why
            except Conflict:
                continue
            except ApiError as error:
                look.refused[_SENT_AWAY] = str(error)
        look.soon(POLL if on_their_way or undone else NEXT_PASS)
        return (on_their_way[0] if on_their_way and not undone else None), told

    def _as_course(self, marks: Marks, slot: Answer | None, told: str) -> Json:
        return course.as_json(marks.record, slot, told, allowed=self._settings.allowed) if marks.wish is not None else {}

    # --- slots ------------------------------------------------------------------------------------------------------

    async def _take_slot(self) -> Answer:
        """The first that is ours, free or run out."""
        if self._settings.limit <= 0 or self._settings.dry_run:
            return Held("")
        if not self._settings.namespace:
            return NotKnown("no evacuation slot can be taken, because NAMESPACE is not set")
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

    # --- the mark on the Node ---------------------------------------------------------------------------------------

    async def _note(self, node: Node, marks: Marks, step: Note, look: Look) -> tuple[Node, Marks]:
        """No event without its mark, but for an override, which counts although it could not be noted."""
        record = replace(marks.record, state=step.state, closed_at=closed_at(self._standing.current))
        if step.begins:
            record, self._sent_at = replace(record, started_at=self._wall()), self._clock()
        if step.state is None:
            record = replace(record, started_at=None)
        after = await look.attempt("the marks on the node", self._own_node.write_record(node, record))
        overrides = step.state is State.OVERRIDDEN
        if step.event and (record.started_at not in self._told_overrides if overrides else after is not None):
            self._told_overrides |= {record.started_at} if overrides else set()
            warns = step.event in (names.EVACUATION_DEADLINE_EXCEEDED, names.EVACUATION_OVERRIDDEN)
            ref = ObjectRef("v1", names.NODE, "", node.name, node.uid)
            if not self._settings.dry_run:
                type_ = names.WARNING if warns else names.NORMAL
                self._tools.recorder.record(ref, type_, step.event, f"{self._settings.driver}: {step.why}")
        return (node, marks) if after is None else (after, self._own_node.read(after))
