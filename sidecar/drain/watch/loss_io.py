"""Looks for nodes that are gone, tells what they have left, and under Cleanup clears some of it away: one request for each step.

Whether a node is gone is asked anew each time. Before each effect the thing itself is read and judged again, then whether somebody still
says that the disks do not come back, and last the Node: lists are minutes old, and from a claim's deletion there is no way back. What is
refused, as by a policy of one namespace, is told and tried again in the next look; all else goes on.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.drain.node_io import FRESH, version_of
from sidecar.drain.report import differs, status_patch
from sidecar.drain.settings import Settings
from sidecar.drain.statefulset import StatefulSet
from sidecar.drain.watch import loss_report
from sidecar.drain.watch.loss import (
    LeftReport,
    Living,
    Loss,
    Machine,
    Remain,
    Step,
    Surroundings,
    judge,
    living,
    may_be_gone,
    remains,
    unreached,
    who_had,
)
from sidecar.drain.watch.loss_report import Found
from sidecar.kube.api import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    DRAIN_REPORTS,
    JSON_PATCH,
    MERGE_PATCH,
    NODES,
    PODS,
    STATEFUL_SETS,
    VOLUMES,
    Resource,
    find,
    records,
)
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Attachment, Claim, Json, Volume
from sidecar.tools import Tools

log = logging.getLogger(__name__)

VOLUMES_EVERY: Final = 600.0
"""Seconds between two looks at the volumes, and at a node that is gone and of which there is no news."""
SOON_AGAIN: Final = 60.0
BUSY_FOR: Final = 3600.0
"""Seconds after the last step, or after clearing up could begin, in which each minute is looked: others take what they have to take."""
MOST_AT_ONCE: Final = 20
"""Nodes that are looked at in one look, and steps for one of them: what must not happen, that all seem to be gone, is to show before much
is done."""


@dataclass(slots=True)
class Gone:
    """What the last look at a node that is gone has found."""

    due_at: float = float("-inf")
    counts: Counter[str] = field(default_factory=Counter)
    """Of its volumes, by evidence."""
    refused: list[str] = field(default_factory=list)
    busy_until: float | None = None
    """While something is cleared away; None: nothing may be."""


class LostNodes:
    """For the elected looker. `look` returns the seconds until there is more to do. Raises ApiError."""

    def __init__(self, tools: Tools, settings: Settings, *, attaches: bool, may_go_on: Callable[[], Awaitable[bool]]) -> None:
        """`may_go_on`: whether this process is the looker still, by a write at that moment."""
        self._kube, self._recorder, self._clock, self._wall = tools.kube, tools.recorder, tools.clock, tools.wall
        self._settings, self._driver, self._attaches, self._may_go_on = settings, settings.driver, attaches, may_go_on
        self._there: Living = {}
        self._said: dict[str, LeftReport] = {}
        """The reports of the last look, by name."""
        self._due_at = float("-inf")
        self._gone: dict[str, Gone] = {}
        """By name of a node that is gone: what the last look at it has found."""
        self._missed: dict[Machine, float] = {}
        """Since when, by this process's own clock: what is deleted waits for this, not for a time that is stored."""
        self._refused_before: set[str] = set()
        """Uids of what could not be cleared away: it comes after all else."""

    async def look(self) -> float:
        there = dict([pair async for pair in records(self._kube, CSI_NODES, living, cached=True)])
        if self._settings.node not in there:
            return VOLUMES_EVERY  # a list without this very node is too old to say anything
        reports, before = await self._reports(), self._said
        news = {node for node in self._there if node not in there}
        news |= {report.node for report in reports.values() if report.is_of_gone_node and report.node in there}
        news |= {report.node for name, report in reports.items() if report != before.get(name)}
        now = self._clock()
        if not news and now < self._due_at:
            self._there = there
            return self._due_at - now
        self._due_at = now  # whatever fails below is looked at anew in the next look
        found = await self._missing(there, reports.values())
        self._there, self._said = there, reports  # not before: what could not be looked at stays news
        self._missed = {machine: at for machine, at in self._missed.items() if machine in found}
        gone = {machine.node for machine in found}
        self._gone = {node: self._gone.get(node, Gone()) for node in gone}
        for node in news & gone:
            self._gone[node].due_at = float("-inf")
        due = sorted((node for node in gone if self._gone[node].due_at <= now), key=lambda node: (self._gone[node].due_at, node))
        for node in due[:MOST_AT_ONCE]:
            await self._look_at(node, {machine: volumes for machine, volumes in found.items() if machine.node == node})
        for name, report in reports.items():
            if report.node not in gone:
                await self._take_away(name)
        self._due_at = min((one.due_at for one in self._gone.values()), default=now + VOLUMES_EVERY)
        return max(0.0, self._due_at - self._clock())

    @property
    def counts(self) -> Mapping[str, int]:
        """Volumes on nodes that are gone, by evidence."""
        return sum((one.counts for one in self._gone.values()), Counter[str]())

    @property
    def refused(self) -> list[str]:
        """What could not be read or written in the last look at each node, while all else went on."""
        return [why for _, one in sorted(self._gone.items()) for why in one.refused]

    # --- what is missing ------------------------------------------------------------------------------------------------

    async def _reports(self) -> dict[str, LeftReport]:
        """By name, those that no Node owns. Without the type there are none."""
        selector = f"{names.NODE_LOSS_FOR}={self._driver}"
        try:
            stored = [obj async for obj in records(self._kube, DRAIN_REPORTS, lambda obj: obj, label_selector=selector)]
        except NotFound:
            return {}
        found = ((obj["metadata"]["name"], LeftReport.of(obj, self._driver)) for obj in stored)
        return {name: report for name, report in found if report is not None}

    async def _missing(self, there: Living, reports: Iterable[LeftReport]) -> dict[Machine, list[Volume]]:
        reports, found = tuple(reports), defaultdict[Machine, list[Volume]](list)

        def lost(obj: Json) -> tuple[Machine, Volume] | None:
            if ((obj.get("spec") or {}).get("csi") or {}).get("driver") != self._driver:
                return None
            volume = Volume.of(obj)
            machine = who_had(volume, reports)
            return (machine, volume) if may_be_gone(machine, there) else None

        async for machine, volume in records(self._kube, VOLUMES, lost, cached=True):
            found[machine].append(volume)
        if any(not machine.uid for machine in found):
            nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True)]
            found.update({machine: unreached(volumes, nodes) for machine, volumes in found.items() if not machine.uid})
        return {machine: volumes for machine, volumes in found.items() if volumes}

    async def _loss(self, machine: Machine) -> Loss | None:
        """By the API server's own word of this moment. A kubelet makes the Node before the CSINode, so the Node has the last word."""
        asked_at = self._clock()
        report = await find(self._kube, DRAIN_REPORTS, names.drain_report(machine.node, self._driver))
        csi_node = await self._ask_for(CSI_NODES, machine.node)
        node = await self._ask_for(NODES, machine.node)
        if self._clock() - asked_at > FRESH:
            return None
        said = LeftReport.of(report, self._driver) if report is not None else None
        uid = str(node["metadata"].get("uid")) if node is not None else ""
        return judge(machine, node_uid=uid, has_csi_node=csi_node is not None, report=said)

    async def _ask_for(self, resource: Resource, name: str) -> Json | None:
        """None where the API server itself says that there is none: a 404 of a proxy on the way says nothing."""
        try:
            return await self._kube.get(resource, name)
        except NotFound as error:
            if error.reason == "NotFound":
                return None
            raise ApiError(f"{resource} {name}: {error}", status=error.status) from error

    # --- one node -------------------------------------------------------------------------------------------------------

    async def _look_at(self, node: str, machines: dict[Machine, list[Volume]]) -> None:
        one = self._gone[node] = Gone(self._clock() + VOLUMES_EVERY, self._gone[node].counts, busy_until=self._gone[node].busy_until)
        try:
            one.due_at = self._clock() + await self._tell_and_clear(one, machines)
        except ApiError as error:
            one.refused.append(f"node {node}: {error}")
            one.due_at = self._clock() + SOON_AGAIN

    async def _tell_and_clear(self, one: Gone, machines: dict[Machine, list[Volume]]) -> float:
        """There is one report for a name: about the machine whose loss is proven, or which left most; the others are told beside it.

        Returns the seconds until there is more to do for this node.
        """
        losses = {machine: loss for machine in machines if (loss := await self._loss(machine)) is not None}
        for machine in machines.keys() - losses.keys():
            self._missed.pop(machine, None)  # it is there, or nobody knows: that it was missed before counts no more
        one.counts = Counter()
        if not losses:
            return VOLUMES_EVERY
        machine = max(losses, key=lambda each: (losses[each].is_proven, bool(each.uid), len(machines[each]), each.uid))
        loss, volumes = losses[machine], tuple(machines[machine])
        for each, lost in machines.items():
            if each in losses:
                one.counts[losses[each].evidence] += len(lost)
        missed_for = self._clock() - self._missed.setdefault(machine, self._clock())
        clears = self._settings.clears and missed_for >= self._settings.gone_after
        stored = await find(self._kube, DRAIN_REPORTS, names.drain_report(machine.node, self._driver))
        around = await self._surroundings(volumes)
        left = [item for volume in volumes for item in remains(volume, around[volume.name], loss=loss, clears=clears)]
        since = loss_report.since_of(stored, machine, now=self._wall())
        pods = [pod.full_name async for pod in records(self._kube, PODS, Pod.of, field_selector=f"spec.nodeName={machine.node}")]
        beside = sum(len(lost) for other, lost in machines.items() if other != machine)
        done = [dict(item) for item in loss_report.entries(loss_report.gone_of(stored), "done")]
        found = Found(loss, since, volumes, tuple(left), tuple(sorted(pods)), beside)
        self._tell_claims(found)
        before = len(done)
        try:
            found = await self._clear(one, found, done)
        finally:
            await self._write(machine, loss_report.status(found, stored, done, agent=self._settings.agent, now=self._wall()), stored)
        if not clears or not loss.is_proven:
            one.busy_until = None
            waits = self._settings.clears and loss.is_proven
            return max(1.0, self._settings.gone_after - missed_for) if waits else VOLUMES_EVERY
        if len(done) > before or one.busy_until is None:
            one.busy_until = self._clock() + BUSY_FOR
        return 0.0 if len(done) > before else SOON_AGAIN if self._clock() < one.busy_until else VOLUMES_EVERY

    async def _surroundings(self, volumes: Iterable[Volume]) -> dict[str, Surroundings]:
        """By volume. Lists of a namespace each, since a node's claims may be many."""
        kube, found = self._kube, dict[str, Surroundings]()
        by_namespace: dict[str, tuple[dict[str, Claim], tuple[StatefulSet, ...], tuple[Pod, ...]]] = {}
        attachments = tuple([item async for item in records(kube, ATTACHMENTS, Attachment.of)]) if self._attaches else ()
        for volume in volumes:
            namespace = volume.claim.namespace if volume.claim else ""
            if namespace and namespace not in by_namespace:
                claims = {item.uid: item async for item in records(kube, CLAIMS, Claim.of, namespace=namespace)}
                sets = tuple([item async for item in records(kube, STATEFUL_SETS, StatefulSet.of, namespace=namespace)])
                by_namespace[namespace] = claims, sets, tuple([pod async for pod in records(kube, PODS, Pod.of, namespace=namespace)])
            claims, sets, pods = by_namespace.get(namespace, ({}, (), ()))
            claim = claims.get(volume.claim.uid) if volume.claim else None
            found[volume.name] = Surroundings(claim, sets, pods, attachments)
        return found

    def _tell_claims(self, found: Found) -> None:
        """Once each: the event's name is the same whoever writes it."""
        for volume in found.volumes:
            if volume.claim is None:
                continue
            ref = ObjectRef("v1", names.CLAIM, volume.claim.namespace, volume.claim.name, volume.claim.uid)
            once = names.shared_event(volume.claim.name, volume.claim.uid, "node-gone")
            self._recorder.record(ref, names.WARNING, names.NODE_GONE, loss_report.event(found.loss, volume.name), once=once)

    # --- clearing -------------------------------------------------------------------------------------------------------

    async def _clear(self, one: Gone, found: Found, done: list[Json]) -> Found:
        """Appends to `done` what it has done, also where it fails then."""
        steps = [item for item in found.remains if item.step is not Step.NOTHING]
        if not steps or not await self._may_go_on():
            return found
        refused: dict[str, str] = {}
        for item in sorted(steps, key=lambda item: item.uid in self._refused_before)[:MOST_AT_ONCE]:
            try:
                volume = next(each for each in found.volumes if item.uid in (each.uid, each.claim.uid if each.claim else ""))
                if await self._take(item, volume, found.loss):
                    done.append(loss_report.done_entry(item, now=self._wall()))
                    self._tell_step(item, found.loss)
            except (Conflict, NotFound):
                continue  # it is not as it was judged: the next look sees what it is
            except ApiError as error:
                refused[item.uid] = str(error)
                one.refused.append(f"{item.named}: {error}")
        self._refused_before |= refused.keys()
        return replace(found, remains=tuple(replace(item, why=refused.get(item.uid, item.why)) for item in found.remains))

    async def _take(self, item: Remain, volume: Volume, loss: Loss) -> bool:
        """Whether it was done. All is read and judged once more; the Node comes last."""
        asked_at = self._clock()
        fresh = await self._judged_again(item, volume, loss)
        if fresh is None or fresh.step is not item.step:
            return False
        now = await self._loss(loss.machine)
        if now is None or now.evidence is not loss.evidence or not now.is_proven:
            return False
        if (age := self._clock() - asked_at) > FRESH:
            raise ApiError(f"the API server is slow: what decides it was asked for {age:.0f} s ago")
        guard: Json = {"uid": fresh.uid, "resourceVersion": fresh.resource_version}
        match fresh.step:
            case Step.MARK_CLAIM:
                patch = {"metadata": {**guard, "annotations": {names.LOST_WITH: str(loss.machine)}}}
                await self._kube.patch(CLAIMS, fresh.name, patch, content_type=MERGE_PATCH, namespace=fresh.namespace)
            case Step.DELETE_CLAIM | Step.DELETE_VOLUME:
                resource, version = CLAIMS if fresh.step is Step.DELETE_CLAIM else VOLUMES, fresh.resource_version
                await self._kube.delete(resource, fresh.name, namespace=fresh.namespace, uid=fresh.uid, resource_version=version)
            case Step.RELEASE_VOLUME:
                stored = await self._kube.get(VOLUMES, fresh.name)
                left = [name for name in stored["metadata"].get("finalizers") or () if name != names.VOLUME_FINALIZER]
                patch = {"metadata": {**guard, "finalizers": left}}
                await self._kube.patch(VOLUMES, fresh.name, patch, content_type=MERGE_PATCH)
            case Step.NOTHING:
                return False
        return True

    async def _judged_again(self, item: Remain, volume: Volume, loss: Loss) -> Remain | None:
        obj = await find(self._kube, VOLUMES, volume.name)
        if obj is None:
            return None
        now = Volume.of(obj)
        reports = (await self._reports()).values()
        if now.uid != volume.uid or who_had(now, reports) != loss.machine:
            return None
        around = await self._surroundings((now,))
        found = remains(now, around[now.name], loss=loss, clears=True)
        return next((each for each in found if (each.kind, each.uid) == (item.kind, item.uid)), None)

    def _tell_step(self, item: Remain, loss: Loss) -> None:
        fields = {"node": loss.machine.node, "step": str(item.step), "object": item.named, "why": item.why}
        log.warning("Clearing up after a node that is gone", extra={"fields": fields})
        if item.step is Step.RELEASE_VOLUME:
            ref = ObjectRef("v1", names.VOLUME, "", item.name, item.uid)
            self._recorder.record(ref, names.WARNING, names.NODE_GONE, loss_report.scrub(loss))

    # --- the report -----------------------------------------------------------------------------------------------------

    async def _write(self, machine: Machine, status: Json, stored: Json | None) -> None:
        """The report of the node's own sidecar may be there yet, and garbage collection may delete it: its owner is taken off first, and
        with it what a person has acknowledged of another machine, or before it was gone."""
        head = loss_report.head(machine, self._driver)
        name = head["metadata"]["name"]
        if stored is None:
            stored = await self._kube.create(DRAIN_REPORTS, head)
        else:
            meta = stored["metadata"]
            owned, other = bool(meta.get("ownerReferences")), ((stored.get("status") or {}).get("nodeUID")) != machine.uid
            labelled = (meta.get("labels") or {}).get(names.NODE_LOSS_FOR) == self._driver
            if owned or other or not labelled:
                changed = {"resourceVersion": version_of(stored), "ownerReferences": None, "labels": head["metadata"]["labels"]}
                changed |= {"annotations": {names.ACKNOWLEDGED: None}} if owned or other else {}
                stored = await self._kube.patch(DRAIN_REPORTS, name, {"metadata": changed}, content_type=MERGE_PATCH)
        if differs(stored, status):
            patch = status_patch(status, version=version_of(stored))
            await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")

    async def _take_away(self, name: str) -> None:
        """Nothing is left to tell, or the name is there again. Not where the node itself is leaving: that report is its own sidecar's."""
        obj = await find(self._kube, DRAIN_REPORTS, name)
        if obj is None or not loss_report.gone_of(obj) or obj["metadata"].get("ownerReferences"):
            return
        meta = obj["metadata"]
        try:
            await self._kube.delete(DRAIN_REPORTS, name, uid=meta["uid"], resource_version=meta["resourceVersion"])
        except (Conflict, NotFound):
            pass  # somebody has changed it, or its node's own sidecar writes it by now
