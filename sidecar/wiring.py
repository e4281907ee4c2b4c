"""The composition root: opens the doors, hands each room what it needs, and says when everything starts and stops.

The only file that knows all rooms. It decides nothing about claims or volumes; what it knows is which change wakes which key.
"""

import asyncio
import logging
import platform
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sidecar
from sidecar.capacity import rules as capacity_rules
from sidecar.capacity.controller import CapacityPublisher
from sidecar.capacity.owner import find_owner
from sidecar.capacity.view import Publisher
from sidecar.config import IGNORE, RANKED, Config
from sidecar.csi import link
from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT, PUBLISH_UNPUBLISH_VOLUME, Driver
from sidecar.csi.driver import DriverConnection
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.health import OK, Degraded, Health, State, Stopped
from sidecar.engine.loop import WORK, Loop, NeedsWork
from sidecar.kube import reflector as reflectors
from sidecar.kube.api import ATTACHMENTS, ATTRIBUTES_CLASSES, CAPACITIES, CLAIMS, CLASSES, NODES, VOLUMES, Change, KubeApi, Resource
from sidecar.kube.client import KubeClient, Observer, open_client
from sidecar.kube.errors import ApiError, NotFound
from sidecar.kube.gathering import SHORTEST
from sidecar.kube.recorder import EventRecorder
from sidecar.kube.reflector import Reflector
from sidecar.kube.skim import PassesBy, Skimmed, reads_all
from sidecar.kube.store import Store, by_name, by_uid
from sidecar.model import names
from sidecar.model.objects import (
    Attachment,
    CapacityRecord,
    Claim,
    ClaimRef,
    Class,
    Json,
    Owner,
    Volume,
    claim_provisioner,
    is_source_that_leaves,
    selected_node,
)
from sidecar.model.standing import OPEN as OPEN_NODE
from sidecar.model.standing import Standing
from sidecar.observe.decisions import Decisions
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.ownership.controller import Contenders
from sidecar.ownership.placement import Placement, RandomDelay, Ranked
from sidecar.ownership.space import Promise, Space
from sidecar.provisioning.caches import Caches, cloned_from
from sidecar.provisioning.controller import Provisioner
from sidecar.provisioning.foreign import is_foreign_claim, is_foreign_volume
from sidecar.provisioning.journal import FileJournal, Journal, NoJournal
from sidecar.provisioning.memory import Memory
from sidecar.provisioning.sweep import SnapshotSweep
from sidecar.provisioning.view import Here, Options
from sidecar.provisioning.volume_rules import concerns_us

if TYPE_CHECKING:
    from sidecar.drain_watches import DrainPart

log = logging.getLogger(__name__)

R = TypeVar("R")

# Beside the driver's own deadline a look may take two requests and their limiter.
_LOOK_SLACK: Final = 120.0
# In a burst, what a watch says may wait that long to be read together. By chance who hears of a winner late bids against it; in the
# ranked order nobody does.
_LONG: Final = 0.32
_FLUSH_SECONDS: Final = 2.0
_TAKE_OVER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Instruments:
    """What everybody reports to, and the clocks and dice that are handed in."""

    metrics: Metrics = field(default_factory=lambda: Metrics(sidecar.__version__))
    decisions: Decisions = field(default_factory=Decisions)
    health: Health = field(default_factory=Health)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    rng: Callable[[], float] = random.random

    @property
    def narrator(self) -> Narrator:
        return Narrator(self.decisions, self.metrics, self.wall)


@dataclass(frozen=True, slots=True)
class Doors:
    """The two doors as the rooms hold them. Capacity has a client of its own, with its own rate, as upstream."""

    kube: KubeApi
    capacity_kube: KubeApi
    driver: Driver
    journal: Journal = field(default_factory=NoJournal)


def options_of(config: Config) -> Options:
    """What the provisioning room is told of the command line."""
    return Options(
        volume_name_prefix=config.volume_name_prefix,
        volume_name_uuid_length=config.volume_name_uuid_length,
        default_fstype=config.default_fstype,
        extra_create_metadata=config.extra_create_metadata,
        strict_topology=config.strict_topology,
        topology_gate=config.gate("Topology"),
        controller_publish_readonly=config.controller_publish_readonly,
        cross_namespace_sources=config.gate("CrossNamespaceVolumeDataSource"),
        attributes_classes=config.gate("VolumeAttributesClass"),
        keeps_volume_mode=config.prevent_volume_mode_conversion,
        bids=config.node_deployment_immediate_binding,
        placement=_placement_of(config),
    )


def drains(config: Config) -> bool:
    """Whether the node is looked at at all. To name the policy is enough, even as Ignore: the node's annotation may say another one."""
    named = config.origins.get("node-drain-policy", "default") != "default"
    return named or config.drain_report or config.node_drain_policy != IGNORE


def _placement_of(config: Config) -> Placement:
    random = RandomDelay(config.node_deployment_base_delay, config.node_deployment_max_delay)
    return Ranked(random) if config.node_deployment_placement == RANKED else random


class Sidecar:
    """The rooms, joined: caches fed by reflectors, queues woken by changes, loops that work them off.

    Made when the driver has said who it is. `run` works until cancelled; `drain` lets what is in hand come to its end.
    """

    def __init__(self, config: Config, doors: Doors, instruments: Instruments, *, recorder: EventRecorder) -> None:
        self._config = config
        self._doors = doors
        self._tools = instruments
        self._recorder = recorder
        self._retry = Backoff(config.retry_interval_start, max(config.retry_interval_max, config.retry_interval_start))
        self._memory = Memory()
        self._capacity: Loop[str] | None = None
        self._publisher: CapacityPublisher | None = None
        driver = doors.driver.info
        options, identity = options_of(config), self._identity(driver.name)
        self._here = Here(config.node_name, driver, options, identity)
        self.caches = Caches(
            claims=Store({"class": lambda claim: (claim.class_name,), "node": lambda claim: (claim.selected_node,), "source": cloned_from}),
            classes=Store(),
            volumes=Store({"claim": lambda volume: (f"{volume.claim.namespace}/{volume.claim.name}",) if volume.claim else ()}),
            attachments=Store({"volume": lambda attachment: (attachment.volume,)}),
        )
        self.records: Store[CapacityRecord] = Store({"class": lambda record: (record.class_name,)})
        self.space = Space(classes=self._classes_by_name, promises=self._promises)
        self.space.on_change, self.space.on_growth = self._renew_capacity, self._wake_waiting
        self._contenders = self._make_contenders() if config.node_deployment_placement == RANKED else None
        self._sweep = self._make_sweep()
        self._drain: DrainPart | None = None
        self.provisioner = self._make_provisioner()
        self.claims = self._loop(
            "claims",
            self.provisioner.handle_claim,
            config.worker_threads,
            self.provisioner.claim_attempts,
            glance=self.provisioner.glance_at_claim,
        )
        self.volumes = self._loop("volumes", self.provisioner.removal.handle, config.worker_threads, self.provisioner.removal.attempts)
        self._caches_scope = instruments.health.scope("caches", gates_ready=False)
        self._required: list[Reflector[Any]] = [self._watch_claims(), self._watch_volumes(), self._watch_classes()]
        self._optional: list[Reflector[Any]] = [self._watch_attachments()] if PUBLISH_UNPUBLISH_VOLUME in driver.controller else []
        self._drain = self._make_drain() if drains(config) else None
        self._optional += self._drain.reflectors if self._drain else []

    def here(self) -> Here:
        """This node, with what its driver said last. The same object until the driver says something else."""
        info = self._doors.driver.info
        if info is not self._here.driver:
            self._here = replace(self._here, driver=info)
        return self._here

    async def run(self) -> None:
        """Until cancelled: the caches first, then the work."""
        async with asyncio.TaskGroup() as group:
            for item in (*self._required, *self._optional):
                group.create_task(item.run(), name=f"reflector {item.resource}")
            group.create_task(self._recorder.run(), name="events")
            if self._sweep is not None:
                group.create_task(self._sweep.run(), name="snapshots")
            if self._contenders is not None:
                group.create_task(self._contenders.run(), name="contenders")
            # What a judgement waits for does not keep claims waiting; whether the node takes volumes has to be known.
            for item in (*self._required, *self._optional):
                if self._drain is None or item not in self._drain.reflectors or item.resource == NODES:
                    await item.wait_synced()
            log.info("Caches are complete", extra={"fields": {"claims": len(self.caches.claims), "volumes": len(self.caches.volumes)}})
            if self._drain is not None:
                self._drain.node_changed()
            # Before any claim is looked at: whoever was here before may have begun what a look would not see.
            await self._take_over()
            group.create_task(self._take_over_later(), name="journal")
            group.create_task(self.claims.run(), name="claims")
            group.create_task(self.volumes.run(), name="volumes")
            if self._drain is not None:
                group.create_task(self._drain.run(), name="drain")
            if self._config.enable_capacity:
                await self._run_capacity(group)

    async def drain(self, limit: float) -> bool:
        """Take no new work and let calls in flight end. Whether all did within the limit."""
        loops = self._loops()
        ended = await asyncio.gather(*(loop.drain(limit) for loop in loops))
        await self._recorder.flush(_FLUSH_SECONDS)
        await self._doors.journal.close()
        return all(ended)

    def wake_all(self) -> None:
        """The driver is back: what waited for it need not wait for the end of its back-off."""
        for uid in (*self.caches.claims.keys(), *self._memory.under_way()):
            self.claims.add(uid)
        for name in self.caches.volumes.keys():  # noqa: SIM118
            self.volumes.add(name)
        self._renew_all_capacity()

    def queues(self) -> dict[str, object]:
        """For /debug/queue."""
        return {loop.name: loop.snapshot() for loop in self._loops()}

    def _loops(self) -> list[Loop[str]]:
        drain = self._drain.loop if self._drain else None
        return [loop for loop in (self.claims, self.volumes, self._capacity, drain) if loop is not None]

    async def _take_over(self) -> None:
        for uid in await self.provisioner.take_over():
            self.claims.add(uid)

    async def _take_over_later(self) -> None:
        """A process that ran on beside this one, as with a DaemonSet that surges, may have left something when it ended."""
        while True:
            await asyncio.sleep(_TAKE_OVER_SECONDS)
            await self._take_over()

    # --- claims and volumes -------------------------------------------------------------------------------------------

    def _identity(self, driver: str) -> str:
        return f"{int(self._tools.wall() * 1000)}-{int(self._tools.rng() * 10000)}-{driver}-{self._config.node_name}"

    def _make_provisioner(self) -> Provisioner:
        self._tools.metrics.watch_claims_in_progress(self._memory.in_progress)
        self._tools.metrics.watch_unsaved_volumes(self._memory.unsaved)
        return Provisioner(
            here=self.here,
            kube=self._doors.kube,
            driver=self._doors.driver,
            caches=self.caches,
            recorder=self._recorder,
            metrics=self._tools.metrics,
            narrator=self._tools.narrator,
            retry=self._retry,
            clock=self._tools.clock,
            chance=self._tools.rng,
            space=self.space,
            attachments_known=self._attachments_known,
            memory=self._memory,
            contenders=self._contenders,
            hearing=lambda: self._required[0].hears,
            journal=self._doors.journal,
            standing=self._standing,
            snapshot_protected=self._sweep.protected if self._sweep else lambda: None,
            dry_run=self._config.dry_run,
        )

    def _make_sweep(self) -> SnapshotSweep | None:
        config = self._config
        if config.snapshot_orphan_sweep_interval <= 0 or config.dry_run:
            return None
        return SnapshotSweep(
            kube=self._doors.kube,
            driver=self._doors.driver.info.name,
            interval=config.snapshot_orphan_sweep_interval,
            rng=self._tools.rng,
            able=lambda: CREATE_DELETE_SNAPSHOT in self.here().driver.controller,
        )

    def _make_contenders(self) -> Contenders:
        return Contenders(
            kube=self._doors.kube,
            driver=self._doors.driver.info.name,
            namespace=self._config.namespace,
            classes=self._classes_by_name,
            clock=self._tools.clock,
            rng=self._tools.rng,
            on_known=self._wake_blind,
        )

    def _classes_by_name(self) -> dict[str, Class]:
        return {class_.name: class_ for class_ in self.caches.classes.values()}

    def _wake_waiting(self, classes: frozenset[str], free: int) -> None:
        """There is more room: claims that found none are looked at now, not at the end of their delay."""
        for uid in self.provisioner.room_grew(classes, free):
            self.claims.add(uid)

    def _wake_blind(self) -> None:
        """The order is known now: claims that came before it need not wait for the end of a delay drawn by chance."""
        for uid in self.provisioner.blind_races():
            self.claims.add(uid)

    def _promises(self) -> Mapping[str, Promise]:
        return self.provisioner.promises()

    def _watch_claims(self) -> Reflector[Claim]:
        here = self.here()

        def project(obj: Json) -> Claim | None:
            """Claims of other drivers, nodes and times are dropped, unless something here is still under way for one."""
            provisioner, bound = claim_provisioner(obj), bool((obj.get("spec") or {}).get("volumeName"))
            if not provisioner and bound and self._is_to_release(obj):
                return Claim.of(obj, keep_whole=True)  # somebody bound it by hand, and this driver may have cloned it all the same
            if provisioner != here.driver.name:
                return None
            waits = not bound and selected_node(obj) in ("", here.node)
            # Most events are of claims that other nodes have: of those not even the record is made.
            if waits or self.provisioner.concerns(obj["metadata"]["uid"]) or self._is_to_release(obj):
                return Claim.of(obj, keep_whole=True)
            return Claim.of(obj) if self._config.drain_report and self._is_held_here(obj) else None

        def changed(change: Change[Claim]) -> None:
            self.claims.add(change.key)
            if self._drain is not None:
                self._drain.wake()
            ours = [claim for claim in (change.old, change.new) if claim is not None and claim.selected_node == here.node]
            if len(ours) == 1:
                self.space.promise_changed(ours[0].class_name)

        def passes_by(skimmed: Skimmed, line: bytes) -> bool:
            held = skimmed.uid in self.caches.claims or self.provisioner.concerns(skimmed.uid)
            return not held and is_foreign_claim(line, here)

        return self._reflector(CLAIMS, project, self.caches.claims, changed, key_of=by_uid, required=True, passes_by=passes_by)

    def _watch_volumes(self) -> Reflector[Volume]:
        here = self.here()

        def project(obj: Json) -> Volume | None:
            wanted = concerns_us(here, obj) or (self._drain is not None and self._drain.may_be_held(here, obj))
            return Volume.of(obj) if wanted else None

        def changed(change: Change[Volume]) -> None:
            self.volumes.add(change.key)
            if self._drain is not None:
                self._drain.volume_changed(change)
            old, new = (volume.claim if volume else None for volume in (change.old, change.new))
            if change.new is None and old is not None:
                self.provisioner.volume_gone(old.uid)
                self.claims.add(old.uid)
            if new is not None and new != old:
                self._wake_clones(new)

        def passes_by(skimmed: Skimmed, line: bytes) -> bool:
            return skimmed.name not in self.caches.volumes and is_foreign_volume(line, here)

        return self._reflector(VOLUMES, project, self.caches.volumes, changed, required=True, passes_by=passes_by)

    def _wake_clones(self, source: ClaimRef) -> None:
        """That claim has its volume here now: what is to be cloned from it may begin, and what keeps it while it is deleted may go."""
        for claim in self.caches.claims.by_index("source", f"{source.namespace}/{source.name}"):
            self.claims.add(claim.uid)
        bound = self.caches.claims.get(source.uid)
        if bound is not None and bound.deleting:
            self.claims.add(bound.uid)

    def _watch_classes(self) -> Reflector[Class]:
        name = self._doors.driver.info.name

        def project(obj: Json) -> Class | None:
            return Class.of(obj) if obj.get("provisioner") == name else None

        def changed(change: Change[Class]) -> None:
            for claim in self.caches.claims.by_index("class", change.key):
                self.claims.add(claim.uid)
            self._renew_capacity(frozenset({change.key}))
            if self._drain is not None:
                self._drain.wake()

        return self._reflector(CLASSES, project, self.caches.classes, changed, required=True)

    def _attachments_known(self) -> bool:
        """A driver may learn to attach when it is updated under us; then there is no such watch, and nothing is known."""
        attaches = PUBLISH_UNPUBLISH_VOLUME in self._doors.driver.info.controller
        return not attaches or any(item.resource == ATTACHMENTS and item.has_synced for item in self._optional)

    def _watch_attachments(self) -> Reflector[Attachment]:
        def changed(change: Change[Attachment]) -> None:
            for attachment in (change.old, change.new):
                if attachment is not None and attachment.volume in self.caches.volumes:
                    self.volumes.add(attachment.volume)

        return self._reflector(ATTACHMENTS, Attachment.of, self.caches.attachments, changed, optional=True)

    # --- drain decisions ----------------------------------------------------------------------------------------------

    def _make_drain(self) -> "DrainPart":
        # Who does not use it need not have it in memory.
        from sidecar.drain_watches import DrainPart, DrainWatches

        config, tools, driver = self._config, self._tools, self._doors.driver.info
        watches = DrainWatches(
            self._reflector, node=config.node_name, driver=driver, caches=self.caches, judges=config.drain_report, shared=self._required
        )
        return DrainPart(
            config,
            driver=self._doors.driver,
            identity=self._here.identity,
            under_way=self._memory.under_way,
            watches=watches,
            make_loop=self._loop,
            kube=self._doors.kube,
            recorder=self._recorder,
            narrator=tools.narrator,
            metrics=tools.metrics,
            scope=tools.health.scope("drain", gates_ready=False),
            retry=self._retry,
            clock=tools.clock,
            wall=tools.wall,
            rng=tools.rng,
            on_standing=self._standing_changed,
        )

    def _standing(self) -> Standing:
        return self._drain.room.standing() if self._drain is not None else OPEN_NODE

    def _is_to_release(self, obj: Json) -> bool:
        """The driver may have learnt to clone since this process began."""
        return is_source_that_leaves(obj) and CLONE_VOLUME in self.here().driver.controller

    def _is_held_here(self, obj: Json) -> bool:
        volume = str((obj.get("spec") or {}).get("volumeName") or "")
        return bool(volume) and (selected_node(obj) == self._config.node_name or volume in self.caches.volumes)

    def _standing_changed(self) -> None:
        """Claims that wait are judged anew, and what is published may be wrong."""
        for uid in self.caches.claims.keys():  # noqa: SIM118
            self.claims.add(uid)
        self._renew_all_capacity()

    # --- capacity -----------------------------------------------------------------------------------------------------

    async def _run_capacity(self, group: asyncio.TaskGroup) -> None:
        owner = await self._find_owner()
        here = self.here()
        if not here.driver.segment:
            log.warning("The driver reported no topology; capacity is published without a node selector, so for all nodes")
        publisher = Publisher(
            driver=here.driver.name,
            manager=names.capacity_manager(here.node),
            owner=owner,
            for_immediate=self._config.capacity_for_immediate_binding,
            poll_interval=self._config.capacity_poll_interval,
            reserve_pending=self._config.capacity_reserve_pending,
            stale_after=self._config.capacity_stale_after,
        )
        records = self._watch_records(publisher)
        room = CapacityPublisher(
            publisher=publisher,
            namespace=self._config.namespace,
            kube=self._doors.capacity_kube,
            driver=self._doors.driver,
            classes=self.caches.classes,
            records=self.records,
            metrics=self._tools.metrics,
            narrator=self._tools.narrator,
            retry=self._retry,
            clock=self._tools.clock,
            wall=self._tools.wall,
            space=self.space,
            standing=self._standing,
            dry_run=self._config.dry_run,
        )
        self._tools.metrics.enable_capacity_metrics()
        loop = self._loop("csistoragecapacity", room.handle_in_turn, self._config.capacity_threads, room.attempts)
        group.create_task(records.run(), name=f"reflector {CAPACITIES}")
        await records.wait_synced()
        self._capacity, self._publisher = loop, room
        self._renew_all_capacity()
        group.create_task(loop.run(), name="capacity")

    async def _find_owner(self) -> Owner | None:
        """Once per start. The answer decides what is written, so an API server that is away is waited for."""
        config, attempt = self._config, 0
        while True:
            try:
                return await find_owner(
                    self._doors.capacity_kube, namespace=config.namespace, pod=config.pod_name, level=config.capacity_ownerref_level
                )
            except ApiError as error:
                delay = self._retry.delay(attempt)
                log.warning("Looking up the owner failed", extra={"fields": {"pod": config.pod_name, "err": str(error), "retry_in": delay}})
                await asyncio.sleep(delay)
                attempt += 1

    def _watch_records(self, publisher: Publisher) -> Reflector[CapacityRecord]:
        def project(obj: Json) -> CapacityRecord | None:
            record = CapacityRecord.of(obj)
            return record if capacity_rules.is_managed(record, publisher) else None

        def changed(change: Change[CapacityRecord]) -> None:
            if change.new is not None and self._publisher is not None:
                self._publisher.appeared(change.new.class_name)
            for record in (change.old, change.new):
                if record is not None:
                    # Mostly it is our own write that comes back, and there is nothing to be done about that one.
                    self._renew_capacity(frozenset({record.class_name}), at_once=False)

        selector = capacity_rules.selector(publisher)
        kube, namespace = self._doors.capacity_kube, self._config.namespace
        return self._reflector(CAPACITIES, project, self.records, changed, kube=kube, namespace=namespace, label_selector=selector)

    def _renew_capacity(self, classes: frozenset[str], *, at_once: bool = True) -> None:
        """What is published for them may be wrong. Many such reasons within a second are one look."""
        if self._capacity is not None and self._publisher is not None:
            for name in sorted(classes):
                self._capacity.add(name, self._publisher.soonest(name, at_once=at_once))

    def _renew_all_capacity(self) -> None:
        if self._publisher is not None:
            self._renew_capacity(frozenset(self._publisher.class_names()))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _loop(
        self,
        name: str,
        handle: Callable[[str], Awaitable[float | None]],
        workers: int,
        attempts: Attempts[str],
        *,
        glance: Callable[[str], float | NeedsWork | None] = lambda key: WORK,
    ) -> Loop[str]:
        observer = self._tools.metrics.queue(name)
        loop: Loop[str] = Loop(
            name,
            handle,
            workers=workers,
            deadline=2 * self._config.timeout + _LOOK_SLACK,
            backoff=self._retry,
            glance=glance,
            attempts=attempts,
            clock=self._tools.clock,
            observer=observer,
        )
        observer.watch(loop)
        return loop

    def _reflector(
        self,
        resource: Resource,
        project: Callable[[Json], R | None],
        store: Store[R],
        changed: Callable[[Change[R]], None],
        *,
        key_of: Callable[[Json], str] = by_name,
        required: bool = False,
        optional: bool = False,
        kube: KubeApi | None = None,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        passes_by: PassesBy = reads_all,
        on_list: Callable[[], None] = lambda: None,
    ) -> Reflector[R]:
        """`required` gates readiness; `optional` is switched off where the role does not allow it."""
        metrics, name = self._tools.metrics, resource.plural
        scope = self._caches_scope.scope(name, gates_ready=required)
        scope.report(Degraded("the first list has not arrived yet"))
        metrics.watch_cache(name, lambda: len(store))

        def listed() -> None:
            metrics.reflector_relist(name)
            on_list()

        return Reflector(
            kube or self._doors.kube,
            resource,
            project=project,
            store=store,
            key_of=key_of,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            optional=optional,
            passes_by=passes_by,
            on_change=changed,
            on_state=lambda state: scope.report(health_of_reflector(state)),
            on_attempt=lambda: metrics.reflector_attempt(name),
            on_list=listed,
            on_event=lambda: metrics.reflector_event(name),
            clock=self._tools.clock,
            rng=self._tools.rng,
        )


def health_of_reflector(state: reflectors.ReflectorState) -> State:
    """What a cache's state means for health. An optional one that is off stays visible and gates nothing."""
    match state:
        case reflectors.Synced():
            return OK()
        case reflectors.Off(why=why):
            return Stopped(f"off: {why}")
        case reflectors.Listing(why) | reflectors.Degraded(why) | reflectors.Denied(why):
            return Degraded(why)


def health_of_link(state: link.LinkState) -> State:
    """What the driver's link means for health."""
    match state:
        case link.Ready():
            return OK()
        case link.GaveUp(why):
            return Stopped(why)
        case link.Waiting(why) | link.Probing(why) | link.Reading(why) | link.Lost(why):
            return Degraded(why)


@dataclass(frozen=True, slots=True)
class Opened:
    """Both doors, open. Nothing is sent through the driver's before its `run`, nor through the other before it is used."""

    config: Config
    tools: Instruments
    kube: KubeClient
    connection: DriverConnection

    def join(self) -> Sidecar:
        """Everything together, once the driver has said who it is."""
        config, driver = self.config, self.connection.driver
        capacity_kube = self.kube.with_limits(qps=config.kube_api_capacity_qps, burst=config.kube_api_capacity_burst)
        component = f"{driver.info.name}_{config.pod_name or platform.node()}_{uuid.uuid4()}"
        recorder = EventRecorder(self.kube, component=component, host=config.node_name)
        return Sidecar(config, Doors(self.kube, capacity_kube, driver, self._journal()), self.tools, recorder=recorder)

    def _journal(self) -> Journal:
        if self.config.dry_run:
            return NoJournal()
        scope = self.tools.health.scope("journal", gates_ready=False)
        scope.report(OK())
        folder = Path(self.config.journal_dir) if self.config.journal_dir else Path(self.config.csi_address).parent
        return FileJournal(folder, self.connection.driver.info.name, on_state=lambda why: scope.report(Degraded(why) if why else OK()))

    async def close(self) -> None:
        await self.connection.close()
        await self.kube.aclose()


async def fitted(config: Config, kube: KubeApi) -> Config:
    """A gate that nobody named gives way to a cluster that does not serve what it is about; while that is not known, it stays."""
    gate, wanted = "VolumeAttributesClass", ATTRIBUTES_CLASSES
    if gate in config.gates_named or not config.gate(gate):
        return config
    try:
        await kube.resource_for(wanted.api_version, wanted.kind)
    except NotFound:
        log.info("A feature gate is off: the cluster does not serve its API", extra={"fields": {"gate": gate, "api": wanted.api_version}})
        return config.without_gate(gate)
    except ApiError as error:
        log.info("A feature gate stays on: what the cluster serves is not known", extra={"fields": {"gate": gate, "err": str(error)}})
    return config


async def open_doors(config: Config, tools: Instruments, *, on_link: Callable[[link.LinkState], None]) -> Opened:
    """Raises Fatal when there is no way to the API server, or the driver's address is none."""
    connection = DriverConnection(
        config.csi_address,
        call_timeout=config.timeout,
        topology=config.gate("Topology"),
        on_state=on_link,
        on_call=tools.metrics.csi_call,
        on_name=tools.metrics.driver_name,
    )
    kube = await open_client(
        kubeconfig=config.kubeconfig,
        master=config.master,
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
        longest_gathering=_LONG if config.node_deployment_placement == RANKED else SHORTEST,
        observer=Observer(on_request=tools.metrics.api_request, on_throttled=tools.metrics.api_throttled),
    )
    return Opened(config, tools, kube, connection)
