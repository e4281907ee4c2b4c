"""Looks at this node again and again: marks, picture, course, gate, writes. What is decided stands in the rules; here is only the order.

A True that would open something is judged twice. What is refused is told once, and keeps nothing else from happening.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from sidecar.drain import gate, report
from sidecar.drain.assess import Assessment, assess
from sidecar.drain.course_io import PACE, ROOM, SETTLES, USUAL, Evacuation, Look
from sidecar.drain.gate_io import Gate
from sidecar.drain.lease_io import RENEWED_EVERY
from sidecar.drain.look_io import Looks
from sidecar.drain.marks import Marks
from sidecar.drain.node_io import OwnNode, Picture, ReportWriter, needs_protection
from sidecar.drain.settings import Settings
from sidecar.drain.standing import StandingKeeper, closed_at
from sidecar.drain.things import used_though_acknowledged
from sidecar.drain.words import Fate, Intent, Status
from sidecar.engine.backoff import Attempts
from sidecar.engine.health import OK, Degraded
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Json
from sidecar.model.standing import Standing
from sidecar.observe.scrape.drain import DrainNumbers
from sidecar.tools import Tools

log = logging.getLogger(__name__)

CALM: Final = 5.0  # seconds between two looks as long as nobody empties the node
_URGENT: Final = 10.0  # seconds until what was refused is tried again at the earliest, and until a gate that should stand is
_READY: Final = {Status.TRUE: True, Status.FALSE: False, Status.UNKNOWN: None}


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
        self._pods, self._looks = pods, looks
        self._standing = StandingKeeper(settings, clock=tools.clock, wall=tools.wall, on_change=on_standing)
        self._own_node = OwnNode(tools.kube, nodes, settings, clock=tools.clock, wall=tools.wall)
        self._evacuation: Evacuation | None = None
        self.report = ReportWriter(tools.kube, settings, clock=tools.clock, held=self.held)
        self._gate = Gate(tools.kube, settings, clock=tools.clock)
        self.attempts: Attempts[str] = Attempts()
        self._began_at = tools.clock()
        self._judged: Assessment | None = None
        self._judged_for: object = None  # as `_counting`: in peace it is judged by what was read some time ago
        self._told_marks: Marks | None = None
        self._loose = ""  # why the gate, which stands, holds nobody
        self.maintenance: Sequence[Json] = ()  # for the report: what is done for the maintenances that select this node
        self.maintenance_due: frozenset[str] = frozenset()  # uids of pods that leave by their rules now
        self._opened: frozenset[tuple[Intent, bool]] = frozenset()
        """What the last look found True for whoever empties the node, and whether somebody did."""
        self._last_look, self._pace = float("-inf"), PACE
        self._refused_until = 0.0
        self._told_refused = ""

    # --- what others ask --------------------------------------------------------------------------------------------

    def standing(self) -> Standing:
        return self._standing.current

    @property
    def marks(self) -> Marks | None:
        return self._own_node.marks

    def node_changed(self) -> None:
        """The watch shows a change of the node. Its standing is renewed at once: an uncordoned node takes volumes without delay."""
        node = self._own_node.known()
        if node is None:
            self._standing.renew_without_node()
        else:
            self._standing.renew(self._own_node.read(node))

    def held(self) -> gate.HeldPods:
        """By what was judged last and by the marks of now: for the report, as soon as a drain begins."""
        marks, judged, settings = self.marks, self._judged, self._settings
        if not settings.gate or marks is None or judged is None or judged.node_uid != marks.uid:
            return gate.HeldPods()
        overridden = self._evacuation is not None and self._evacuation.lets_go(marks, judged)
        return gate.held(judged, marks, self._pods(), assumed=settings.gate_assumes, overridden=overridden)

    def assessment(self) -> Assessment | None:
        """That of the Node as it is now, and for what it is drained for now, if there is one."""
        marks, judged = self.marks, self._judged
        if marks is None or judged is None or judged.node_uid != marks.uid:
            return None
        return judged if self._judged_for == self._counting(marks) else None

    def blocking(self, pods: Iterable[Pod]) -> frozenset[str] | None:
        """Full names of those whose volumes block what the node is drained for; None: that is not known."""
        marks, judged = self.marks, self.assessment()
        if marks is None or judged is None or not marks.draining:
            return None
        if self._evacuation is not None and self._evacuation.lets_go(marks, judged):
            return frozenset()
        intents = gate.counting(marks, self._settings.gate_assumes)
        if any(judged.verdict(intent).status is Status.UNKNOWN for intent in intents):
            return None
        return frozenset(gate.held(judged, marks, pods, assumed=self._settings.gate_assumes, overridden=False).pods)

    def _counting(self, marks: Marks) -> tuple[bool, tuple[Intent, ...]]:
        """Whether the node is drained, and what for."""
        return marks.draining, gate.counting(marks, self._settings.gate_assumes)

    def soonest(self) -> float:
        """When to look because something has changed."""
        calm = self.marks is not None and not self.marks.drain_expected
        return max(self._clock(), self._last_look + (CALM if calm else self._pace), self._refused_until)

    def numbers(self) -> DrainNumbers | None:
        """For the metrics. None: nothing was judged yet."""
        judged, marks = self._judged, self.marks
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
            maintenances=self.maintenance,
        )

    # --- one look ---------------------------------------------------------------------------------------------------

    async def handle(self, key: str) -> float | None:
        self._last_look = self._clock()
        node = self._own_node.known()
        if node is None:
            # It is gone, and what was made for it is deleted with it; or it is not listed yet.
            self._standing.renew_without_node()
            self._own_node.marks = self._judged = None
            return None
        marks = self._own_node.read(node)
        self._standing.renew(marks)
        look = Look()
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
        self._pace = look.pace
        return self._clock() + max(look.again, look.pace)

    async def _look(self, node: Node, marks: Marks, look: Look) -> None:
        await look.attempt("the report", self.report.recall())
        judged = self._judged if self._judged is not None and self._judged.node_uid == node.uid else None
        if self._evacuation is None or self._evacuation.uid != node.uid:
            self._evacuation = Evacuation(self._tools, self._settings, node, self._own_node, self._standing, lambda: self.maintenance_due)
        evacuation = self._evacuation
        node, marks = await evacuation.end_if_late(node, marks, judged, look)
        picture = await self._picture(node, marks)
        self._judged, self._judged_for = picture.assessment, self._counting(picture.marks)
        look.told |= self._looks.unread
        if not self._settings.dry_run:
            # Before all that may take long: nobody is to read an old True meanwhile.
            await look.attempt("the node's conditions", self._own_node.write_conditions(picture.assessment))
            look.soon(_URGENT if self._own_node.true_is_old else USUAL)
        if any(thing.use.lately for thing in picture.assessment.things):
            look.soon(CALM)  # that it counts as used ends by itself
        await self._void_acknowledgements(picture, look)
        told = await evacuation.go_on(picture, look)
        marks = self.marks if self.marks is not None and self.marks.uid == node.uid else marks
        overridden = evacuation.lets_go(marks, picture.assessment)
        decision: gate.Decision | None = None
        # The gate opens by what was judged for it, and for nothing else.
        if self._judged_for == self._counting(marks) or overridden:
            decision = await look.attempt("the gate", self._gate.update(picture, self._pods(), overridden=overridden))
            if decision is None and self._settings.gate:
                look.soon(_URGENT)
        else:
            look.soon(PACE)  # somebody has begun a drain, or said something else, since it was judged
        if decision is not None:
            self._tools.narrator.note(ROOM, f"gate of {node.name}", f"gate of {node.name}", decision)
        await self._write(picture, marks, told, decision, look, overridden=overridden)

    async def _stand_down(self, node: Node, marks: Marks, look: Look) -> None:
        """Where nothing is judged nothing is evacuated and no gate stands: what an earlier process has begun is undone."""
        record = replace(marks.record, state=None, started_at=None, closed_at=closed_at(self._standing.current))
        await look.attempt("the marks on the node", self._own_node.write_record(node, record))
        await look.attempt("the gate", self._gate.take_down(node))
        if not self._settings.dry_run:
            await look.attempt("the autoscalers' annotations", self._own_node.protect(node, needed=False))

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
        snapshot = await self._looks.look(node, drain_expected=marks.drain_expected, anew=anew)
        return Picture(node, marks, snapshot, assess(snapshot))

    def _opening(self, picture: Picture) -> frozenset[tuple[Intent, bool]]:
        if not picture.marks.drain_expected:
            return frozenset()
        draining = picture.marks.draining
        return frozenset((intent, draining) for intent in Intent if picture.assessment.verdict(intent).status is Status.TRUE)

    async def _void_acknowledgements(self, picture: Picture, look: Look) -> None:
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
            ref = ObjectRef("v1", names.VOLUME, "", volume.name, volume.uid)
            self._record(report.DrainEvent(ref, names.WARNING, names.NODE_MARKS_WRONG, message))

    # --- writes -----------------------------------------------------------------------------------------------------

    async def _write(
        self, picture: Picture, marks: Marks, told: Json, decision: gate.Decision | None, look: Look, *, overridden: bool
    ) -> None:
        settings, judged = self._settings, picture.assessment
        node = self._own_node.known() or picture.node
        record = replace(marks.record, closed_at=closed_at(self._standing.current))
        await look.attempt("the marks on the node", self._own_node.write_record(node, record))
        needed = needs_protection(enabled=settings.protects, retire=judged.retire.status, overridden=overridden)
        if settings.dry_run:
            return
        await look.attempt("the autoscalers' annotations", self._own_node.protect(node, needed=needed))
        settling = self._clock() - self._began_at < SETTLES
        for event in report.changes(self.report.stored, judged, marks, before=self._told_marks, settling=settling):
            self._record(event)
        if isinstance(decision, gate.Open):
            self._record(report.of_node(judged, names.DRAIN_LET_GO, decision.why))
        self._told_marks = marks
        body = report.body(
            judged,
            marks,
            agent=settings.agent,
            course=told,
            gate=self._gate_status(picture, decision, look),
            maintenance=self.maintenance,
            previous=self.report.stored,
        )
        await look.attempt("the report", self.report.write(body))

    def _gate_status(self, picture: Picture, decision: gate.Decision | None, look: Look) -> dict[str, object] | None:
        if not self._settings.gate:
            return None
        why = look.refused.get("the gate", "")
        if isinstance(decision, gate.Leave):
            why = decision.why
        if self._gate.stands:
            self._loose = why = self._gate.why_loose(picture, self._pods())
        return {"enabled": True, "held": self._gate.stands and not why, "why": why}

    # --- telling ----------------------------------------------------------------------------------------------------

    def _record(self, event: report.DrainEvent) -> None:
        if not self._settings.dry_run:
            self._tools.recorder.record(event.ref, event.type_, event.reason, event.message, once=event.once)

    def _tell_refused(self, refused: dict[str, str]) -> None:
        """In one log line for as long as the same is refused. Anybody may read the page of health: it says nothing in words of others."""
        why = "; ".join(f"{what} could not be written or read: {error}" for what, error in sorted(refused.items()))
        if why and why != self._told_refused:
            log.warning("Drain decisions are incomplete", extra={"fields": {"node": self._settings.node, "err": why}})
        self._told_refused = why
        shown = f"could not be written or read: {', '.join(sorted(refused))}; the log says why"
        self._scope.report(Degraded(shown) if why else OK())
