"""Carries out the maintenances that select this node: reads what is declared, notes and cordons, evicts, and puts the node back.

One pass reads everything anew, writes the record on the Node, and only then evicts, for ten seconds at most. Nothing is remembered that
matters: what a process forgets makes it evict a pod again that comes back, or tell something once more.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sidecar.drain.controller import DrainRoom
from sidecar.drain.maintenance.objects import Behavior, Maintenance, Rule, Runner, Stage, labels_of
from sidecar.drain.maintenance.plan import Draining, Peer, Treatment, treatments
from sidecar.drain.maintenance.status_io import reports_of, said_of
from sidecar.drain.maintenance.step import (
    MOST,
    Decision,
    Record,
    View,
    decide,
    is_drained,
    is_late,
    is_of_maintenance,
    late,
    overridden,
    record_of,
    strictest,
)
from sidecar.drain.marks import read
from sidecar.drain.settings import Settings
from sidecar.drain.words import Intent, Status
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.eviction.rules import May, Result, is_ours
from sidecar.kube.api import DRAIN_RULES, MAINTENANCES, MERGE_PATCH, NAMESPACES, NODES, PODS, STRATEGIC_MERGE_PATCH, find, records
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names, timestamps
from sidecar.model.nodes import TRUE, Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

AT_REST: Final = 60.0  # seconds between two lists while no maintenance selects this node; while one does they are watched
DRAINING: Final = 10.0
SOON: Final = 1.0  # seconds between two passes while pods leave
_PEERS: Final = 0.1  # seconds for each node of a maintenance between two lists of all their reports, of which all of them ask
_CHECKED_FOR: Final = 2.0  # seconds for which it counts that the maintenances still want what they wanted
_OVERDUE: Final = 300.0  # seconds after its grace period, on a node that is not ready: nobody would report that such a pod has ended
_COMES_BACK: Final = 3
_HEARD_FOR: Final = 300.0  # seconds: a busy API server answers 429 as well
_MANY: Final = 1000


class Executor:
    """One per process, where `--maintenance` asks for it."""

    def __init__(self, tools: Tools, settings: Settings, room: DrainRoom, *, on_change: Callable[[], None]) -> None:
        self._kube, self._recorder, self._metrics = tools.kube, tools.recorder, tools.metrics
        self._clock, self._wall, self._settings, self._room, self._on_change = tools.clock, tools.wall, settings, room, on_change
        # As kubectl drain, which asks for all at once; the client's own limit is the user's.
        self._evictor = Evictor(tools.kube, clock=tools.clock, rng=tools.rng, qps=20.0, burst=40)
        self._changed = asyncio.Event()
        self._view: View | None = None  # what the last pass has looked at: the clock alone may decide something by it
        self.due: frozenset[str] = frozenset()  # uids of pods that leave now: neither skipped nor waited for, nor of a later step
        self.status: tuple[Json, ...] = ()  # for the report: one of each maintenance that selects this node
        self._again: dict[str, tuple[float, str]] = {}  # by uid: until when a pod is not asked to leave again, and why it did not
        self._round: dict[str, int] = {}  # by workload: how often its pods were evicted, and others put here after that
        self._rounds: dict[str, int] = {}  # by uid of a pod of such a workload: the round in which it was put here
        self._waits_for_vm: dict[str, float] = {}  # by uid of a pod: until when it counts that somebody else carries its eviction out
        self._peers: dict[str, tuple[Peer, ...]] = {}  # by uid of the maintenance, as they were read last: they only ever go forward
        self._peers_at = float("-inf")
        self._peers_for: dict[str, int] = {}  # how far this node was then
        self._version, self._known = "", dict[str, tuple[object, bool]]()  # of the list of maintenances, and what each declares
        self._listed_at = float("-inf")
        self._undone = 0
        self._told: set[tuple[str, str]] = set()

    def wake(self) -> None:
        """A pod of this node has changed."""
        if self._view is not None and self._view.drains:
            self._changed.set()

    def node_changed(self, node: Node | None) -> None:
        """Somebody may have undone the cordon."""
        if self._view is not None and self._view.record.prior is not None and node is not None and not node.unschedulable:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                again = await self.turn()
            except ApiError as error:
                log.info("A pass of maintenance has failed", extra={"fields": {"err": str(error)}})
                again = AT_REST if self._view is None and isinstance(error, Forbidden) else DRAINING
            await asyncio.sleep(SOON)
            news = (self._changed.wait(), *((self._declared(),) if self._view is not None else ()))
            tasks = [asyncio.ensure_future(each) for each in news]
            try:
                await asyncio.wait(tasks, timeout=max(0.0, again - SOON), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            self._changed.clear()

    async def _declared(self) -> None:
        """Ends when somebody has declared something else. Its status is the looker's, and nothing to us."""
        try:
            async for event in self._kube.watch(MAINTENANCES, resource_version=self._version):
                meta = event.object["metadata"]
                is_news = event.type != "BOOKMARK" and self._known.get(meta.get("uid")) != _declaration(meta)
                if is_news or event.type == "DELETED":
                    return
        except ApiError as error:
            log.info("A new stage is noticed late", extra={"fields": {"err": str(error)}})
        await asyncio.sleep(AT_REST)  # the pause ends first

    async def turn(self) -> float:
        """One pass: seconds until the next. Raises ApiError."""
        stored = await find(self._kube, NODES, self._settings.node)
        self._tell_deadlines()  # before all that may fail; an event that is told while nothing is answered would be lost
        if stored is None:
            self._view = None
            self._publish(())
            return AT_REST
        node = Node.of(stored)
        record = record_of(node, self._settings.driver)
        active = self._view.active if self._view is not None else ()
        try:
            active = await self._active(node)
            if not active and record == Record() and not _ours(stored):
                self._view = None
                self._told.clear()
                self._publish(())
                return AT_REST
            view = self._view = await self._look(node, record, active)
        except ApiError:
            await self._override(stored, node, record, active)
            raise
        decision = decide(view)
        self._tell_deadlines()
        self._tell(view, decision)
        if not self._settings.dry_run:
            await self._write(stored, view, decision)
        # What is noted is told, whatever fails from here on: the other nodes wait by it.
        chosen = (*decision.evict, *decision.waits)
        self._publish(decision.status, frozenset(each.runner.pod.uid for each in chosen if each.behavior is Behavior.DRAIN))
        if not self._settings.dry_run:
            await self._evict(view, decision)
            await self._say(stored, view, decision)
        if decision.record != record or decision.cordon is not None or decision.evict:
            return SOON
        if all(is_drained(view, one.maintenance, record.of.get(one.maintenance.uid)) for one in view.drains):
            return AT_REST
        return DRAINING

    def _publish(self, status: tuple[Json, ...], due: frozenset[str] = frozenset()) -> None:
        if (status, due) != (self.status, self.due):
            self.status, self.due = status, due
            self._on_change()

    async def _override(self, stored: Json, node: Node, record: Record, active: tuple[Maintenance, ...]) -> None:
        """What else cannot be read puts no deadline off. Of what is declared the last that was read counts."""
        said = late(record, active, self._wall())
        if not active:
            said = replace(said, forced=overridden(record, self._wall()))  # a process that has just started has read none yet
        if said.forced and not self._settings.dry_run and not record.forced and not (said.of.keys() - record.of.keys()):
            await self._note(stored, node, replace(record, forced=said.forced).as_text(node.uid))

    # --- reading --------------------------------------------------------------------------------------------------------

    async def _active(self, node: Node) -> tuple[Maintenance, ...]:
        """Those that select this node and are not over, the oldest ones first. Without the type there are none."""
        self._listed_at = self._clock()
        found, known, token = list[Maintenance | None](), dict[str, tuple[object, bool]](), ""
        try:
            while True:
                page = await self._kube.list_page(MAINTENANCES, continue_token=token)
                known |= {obj["metadata"]["uid"]: _declaration(obj["metadata"]) for obj in page.items}
                found += map(Maintenance.of, page.items)
                if not (token := page.continue_token):
                    break
        except NotFound:
            return ()
        self._version, self._known = page.resource_version, known
        mine = (one for one in found if one is not None and one.stage is not Stage.COMPLETE and one.selects(node.name, node.labels))
        return tuple(sorted(mine, key=lambda one: (one.stage is Stage.IDLE, one.created, one.name)))[:MOST]

    async def _look(self, node: Node, record: Record, active: tuple[Maintenance, ...]) -> View:
        marks, judged = self._room.marks, self._room.assessment()
        draining = [one for one in active if one.stage is Stage.DRAIN]
        drains: tuple[Draining, ...] = ()
        held: frozenset[str] = frozenset()
        if not draining:
            # Of another drain nobody has come back yet.
            self._round.clear()
            self._rounds.clear()
            self._waits_for_vm.clear()
        else:
            runners = await self._runners(node)
            self._count_those_that_came_back(runners)
            rules = [rule async for rule in records(self._kube, DRAIN_RULES, Rule.of)]
            by_labels = any(entry.namespaces is not None for one in draining for entry in one.plan)
            spaces = {name: labels async for name, labels in records(self._kube, NAMESPACES, labels_of)} if by_labels else {}
            peers, ours = await self._others(node, draining, record), self._settings.own_pods
            undrainable = {each.pod.full_name: why for each in runners if (why := self._why_undrainable(each, node))}
            drains = tuple(
                Draining(
                    one,
                    _finished(record, one),
                    tuple(treatments(one, runners, rules, spaces, ours=ours, undrainable=undrainable, overridden=bool(record.forced))),
                    peers[one.uid],
                )
                for one in draining
            )
            # Until what is wanted is noted, and the room has heard of it, it judges for something else.
            is_heard = marks is not None and marks.maintenance is record.intent is strictest(draining)
            blocking = self._room.blocking([each.pod for each in runners]) if is_heard else None
            held = blocking if blocking is not None else frozenset(each.pod.full_name for each in runners if each.pod.claims)
        # By the Node as it was read: a watch that lags does not show yet who wants the cordon besides.
        there = read(node, self._settings.driver, now=self._wall(), policy=self._settings.policy, before=marks)
        kured = names.KURED_REBOOTS in node.annotations and not there.left_behind
        return View(
            node=node,
            now=self._wall(),
            record=record,
            active=active,
            drains=drains,
            wanted_by_others=bool(there.declared or there.evacuate or there.retiring or kured),
            retire=judged.verdict(Intent.RETIRE).status if judged is not None else Status.UNKNOWN,
            held=held,
            heard=frozenset(uid for uid, until in self._waits_for_vm.items() if until > self._clock()),
            refused={uid: why for uid, (_, why) in self._again.items()},
        )

    async def _runners(self, node: Node) -> list[Runner]:
        found = [each async for each in records(self._kube, PODS, Runner.of, field_selector=f"spec.nodeName={node.name}")]
        since = self._wall() - _OVERDUE if node.ready != TRUE else 0.0
        return [each for each in found if (timestamps.to_seconds(each.pod.deleting_since) or float("inf")) >= since]

    async def _others(self, node: Node, draining: Sequence[Maintenance], record: Record) -> dict[str, tuple[Peer, ...]]:
        """By uid of the maintenance: its other nodes. One that does not exist is drained. Asked again only while this node waits."""
        if all(one.nodes == {node.name} for one in draining):
            return {one.uid: () for one in draining}
        known = {one.uid: self._peers[one.uid] for one in draining if one.uid in self._peers}
        waits = any(Draining(one, _finished(record, one), (), known[one.uid]).waits_for() for one in draining if one.uid in known)
        pause = max(DRAINING - SOON, _PEERS * max(map(len, known.values()), default=0))
        is_next = self._peers_for != {one.uid: _finished(record, one) for one in draining}  # nodes may have come meanwhile
        if len(known) == len(draining) and not is_next and (not waits or self._clock() - self._peers_at < pause):
            return known
        nodes = [each async for each in records(self._kube, NODES, Node.of, cached=True) if each.name != node.name]
        said = await reports_of(self._kube, self._settings.driver)
        self._peers_at, self._peers_for = self._clock(), {one.uid: _finished(record, one) for one in draining}
        self._peers = {
            one.uid: tuple(_peer(each, one, said.get(each.name, {})) for each in nodes if one.selects(each.name, each.labels))
            for one in draining
        }
        return self._peers

    # --- writing --------------------------------------------------------------------------------------------------------

    async def _write(self, stored: Json, view: View, decision: Decision) -> None:
        node, key = view.node, names.of_driver(self._settings.driver, names.MAINTENANCE_RECORD)
        text = decision.record.as_text(node.uid)
        if (node.annotations.get(key) or None) != text or decision.cordon is not None:
            if decision.cordon and view.record.prior is not None:
                self._undone += 1
                if self._undone == _COMES_BACK:
                    self._event(names.WARNING, names.CORDON_UNDONE, "Somebody uncordons this node again and again during its maintenance")
            await self._note(stored, node, text, {} if decision.cordon is None else {"spec": {"unschedulable": decision.cordon or None}})
            if text is None:
                self._undone = 0
                self._event(names.NORMAL, names.MAINTENANCE_OVER, "No maintenance wants this node any more; it is as it was before")

    async def _say(self, stored: Json, view: View, decision: Decision) -> None:
        """The conditions, at last: nobody waits by them."""
        change = conditions_patch(stored, decision.conditions, now=view.now)
        if change:
            patch = {"metadata": {"uid": view.node.uid}, "status": {"conditions": change}}
            await self._kube.patch(NODES, view.node.name, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")

    async def _note(self, stored: Json, node: Node, text: str | None, spec: Json | None = None) -> None:
        """The record and the cordon in one write, so that nobody finds the node cordoned and does not know by whom."""
        key = names.of_driver(self._settings.driver, names.MAINTENANCE_RECORD)
        meta: Json = {"uid": node.uid, "resourceVersion": stored["metadata"]["resourceVersion"], "annotations": {key: text}}
        await self._kube.patch(NODES, node.name, {"metadata": meta, **(spec or {})}, content_type=MERGE_PATCH)

    async def _evict(self, view: View, decision: Decision) -> None:
        began, slowest = self._clock(), 0.0
        for each in decision.evict:
            pod = each.runner.pod
            if self._again.get(pod.uid, (0.0, ""))[0] > self._clock() or is_ours(pod, self._settings.own_pods):
                continue
            await asyncio.sleep(self._evictor.wait())
            if self._clock() - began + slowest > LONGEST_PASS:
                return
            if self._clock() - self._listed_at > _CHECKED_FOR and not await self._still_wanted(view):
                return
            asked = self._clock()
            await self._evict_one(each, view.drains[0].treatments)
            slowest = max(slowest, self._clock() - asked)

    async def _still_wanted(self, view: View) -> bool:
        active = await self._active(view.node)
        before, now = ({(one.uid, one.stage, one.intent, one.overrides) for one in each} for each in (view.active, active))
        return before == now

    async def _evict_one(self, each: Treatment, here: Iterable[Treatment]) -> None:
        pod = each.runner.pod
        answer = await self._evictor.evict(May(pod.namespace, pod.name, pod.uid), why=f"{each.why}, of a maintenance")
        self._metrics.evicted(str(answer.result))
        if len(self._again) > _MANY:
            self._again.clear()
        self._again[pod.uid] = self._clock() + max(answer.again, SOON), "" if answer.is_over else answer.why.partition(" (")[0][:160]
        if answer.result is Result.SERVER_BUSY and each.runner.vm:
            # Nobody's budget: whoever moves virtual machines has heard it, and would be asked in vain again and again.
            self._waits_for_vm[pod.uid] = self._clock() + _HEARD_FOR
        if answer.is_over:
            workload = _workload_of(each.runner)
            for one in here:
                if _workload_of(one.runner) == workload:
                    self._rounds.setdefault(one.runner.pod.uid, 0)
            self._round[workload] = max(self._round.get(workload, 0), self._rounds.get(pod.uid, 0) + 1)

    # --- pods that come back --------------------------------------------------------------------------------------------

    def _count_those_that_came_back(self, runners: Iterable[Runner]) -> None:
        if len(self._rounds) > _MANY:
            self._round.clear()
            self._rounds.clear()
        for each in runners:
            if (now := self._round.get(_workload_of(each))) is not None:
                self._rounds.setdefault(each.pod.uid, now)

    def _why_undrainable(self, runner: Runner, node: Node) -> str:
        if self._rounds.get(runner.pod.uid, 0) < _COMES_BACK:
            return ""
        tolerated = ", ".join(str(taint) for taint in node.taints if runner.pod.tolerates((taint,)))
        return f"its owner puts it back on this node; it tolerates {tolerated or 'nothing that keeps pods off'}"

    # --- telling --------------------------------------------------------------------------------------------------------

    def _tell_deadlines(self) -> None:
        if (view := self._view) is None:
            return
        of = late(view.record, view.active, self._wall()).of
        for one in view.active:
            if one.uid in of and is_late(view, one, of[one.uid], self._wall()):
                message = f"The deadline of {one.name} is over, and this node is not drained"
                self._event(names.WARNING, names.MAINTENANCE_LATE, message, once=(one.uid, "late"))

    def _tell(self, view: View, decision: Decision) -> None:
        for reason, message in decision.events:
            self._event(names.NORMAL, reason, message)
        for said in decision.status:
            uid, of = str(said["uid"]), f"PlannedMaintenance {said['name']}: this node"
            if "finished" in said:
                self._event(names.NORMAL, names.MAINTENANCE_DRAINING, f"{of} begins to be drained", once=(uid, "drain"))
            if said.get("drained"):
                self._event(names.NORMAL, names.MAINTENANCE_DRAINED, f"{of} is drained", once=(uid, "drained"))
            for pod in said.get("undrainable") or ():
                message = f"{pod} comes back to this node again and again, and is left here"
                self._event(names.WARNING, names.POD_UNDRAINABLE, message, once=(uid, pod))

    def _event(self, type_: str, reason: str, message: str, *, once: tuple[str, str] | None = None) -> None:
        if self._view is None or self._settings.dry_run or once in self._told:
            return
        self._told |= {once} if once else set()
        node = self._view.node
        self._recorder.record(ObjectRef("v1", names.NODE, "", node.name, node.uid), type_, reason, message)


def _finished(record: Record, one: Maintenance) -> int:
    return record.of[one.uid].finished if one.uid in record.of else 0


def _declaration(meta: Json) -> tuple[object, bool]:
    return meta.get("generation"), "deletionTimestamp" in meta


def _workload_of(each: Runner) -> str:
    return f"{each.pod.namespace}/{each.pod.owner.uid}" if each.pod.owner else each.pod.uid


def _peer(node: Node, one: Maintenance, status: Mapping[str, Any]) -> Peer:
    found = (said_of(one, node, status) or {}).get("finished")
    ignored = bool(node.annotations.get(names.IGNORED_BY_MAINTENANCE, "").strip())
    return Peer(node.name, max(0, found) if isinstance(found, int) else None, str(status.get("observedAt") or ""), ignored)


def _ours(stored: Json) -> list[Json]:
    conditions = (stored.get("status") or {}).get("conditions") or ()
    return [item for item in conditions if is_of_maintenance(item)]


def conditions_patch(stored: Json, wanted: Mapping[str, str], *, now: float) -> list[Json]:
    """Those that say something else, and those of ours that are over. Whoever else writes one of these types keeps it."""
    there = {item.get("type"): item for item in (stored.get("status") or {}).get("conditions") or ()}
    ours, at = {item["type"]: item for item in _ours(stored)}, timestamps.to_text(now)
    found: list[Json] = [{"type": kind, "$patch": "delete"} for kind in ours if kind not in wanted]
    for kind, message in wanted.items():
        before = ours.get(kind)
        if (kind in there) if before is None else (before["status"], before["message"]) == (TRUE, message):
            continue
        since = before["lastTransitionTime"] if before is not None and before["status"] == TRUE else at
        said = {"type": kind, "status": TRUE, "reason": names.MAINTENANCE_KIND, "message": message}
        found.append({**said, "lastTransitionTime": since, "lastHeartbeatTime": at})
    return found
