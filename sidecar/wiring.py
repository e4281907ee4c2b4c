"""The composition root: makes the rooms, joins them, and starts and stops everything. The only file that knows all rooms; what is joined
where another program provisions is in `report_only`, and `start` chooses.

It decides nothing. What a room watches, and which change wakes what, is in the room's `watches.py`; what a room is told of the command
line is in `settings`.
"""

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sidecar import settings
from sidecar.capacity.part import CapacityPart
from sidecar.config.config import Config
from sidecar.config.table import LABELLED, RANKED
from sidecar.doors import Doors, Instruments
from sidecar.engine.loop import Loop
from sidecar.equipment import LoopMaker, identity_of, make_failover, tools_of
from sidecar.kube.api import CLAIMS
from sidecar.kube.events.recorder import EventRecorder
from sidecar.kube.store import Store
from sidecar.local.caches import Caches
from sidecar.local.claim_hearing_io import ClaimHearing
from sidecar.local.here import Here
from sidecar.model.names import SHARDS
from sidecar.model.objects import CapacityRecord, Class
from sidecar.model.standing import OPEN, Standing
from sidecar.ownership.controller import Contenders
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.ownership.shards import LISTENERS, any_binds_immediately, heard_shards, may_be_shared_out
from sidecar.provisioning.part import ProvisioningPart
from sidecar.rights.asking_io import RightsKnown
from sidecar.rights.rights import NOT_KNOWN, FinalizerWrites, finalizer_writes
from sidecar.watching import Watching

if TYPE_CHECKING:
    from sidecar.drain.watches import DrainPart

log = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 2.0


class Sidecar:
    """The rooms, joined: caches fed by reflectors, queues woken by changes, loops that work them off.

    Made when the driver has said who it is. `run` works until cancelled; `drain` waits for calls in flight.
    """

    def __init__(
        self,
        config: Config,
        doors: Doors,
        instruments: Instruments,
        *,
        recorder: EventRecorder,
        listeners: int = LISTENERS,
        asks_rights: bool = False,
    ) -> None:
        """`listeners`: how many nodes hear of each open claim, where claims are shared out. `asks_rights`: whether the API server has roles
        that it can be asked about."""
        self._config = config
        self._listeners = listeners
        self._doors = doors
        self._recorder = recorder
        self._tracing = instruments.tracing
        self._tools = tools_of(config, doors, instruments, recorder)
        self._loop = LoopMaker(self._tools, call_timeout=config.timeout, tracing=self._tracing)
        driver = doors.driver.info
        self._here = Here(config.node_name, driver, settings.options(config), identity_of(config, self._tools, driver.name))
        self._watching = Watching(self._tools, nodes=self._nodes)
        self.caches = Caches.empty()
        if self._tracing is not None:
            self._tracing.sees(claim=self.caches.claims.get, volume=self.caches.volumes.get, driver=lambda: doors.driver.info.name)
        self._tools.metrics.watch_classes(self.caches.classes.__contains__)
        self.space = ReservedSpace(classes=self._classes_by_name)
        self.drains: DrainPart | None = None
        self._rights = RightsKnown(self._tools, on_change=self._finalizers_changed) if asks_rights else None
        self._contenders = self._make_contenders() if config.node_deployment_placement == RANKED else None
        self.hearing = self._make_hearing() if config.watch_scope == LABELLED else None
        self.provisioning = self._make_provisioning()
        self.capacity = self._make_capacity() if config.enable_capacity else None
        self.drains = self._make_drains() if settings.drains(config) else None
        self.failover = make_failover(config, self._tools, doors, self.drains) if self.drains and settings.fails_over(config) else None
        self.space.on_growth = self.provisioning.space_grew
        self.space.waiting = self.provisioning.room.waiting
        # The order counts: for an object that two rooms want, the first one's record is kept (`local.watch.join`).
        self._reflectors = self._watching.open(watch for part in self._parts() for watch in part.watches())

    @property
    def records(self) -> Store[CapacityRecord]:
        """The capacity objects of this node."""
        return self.capacity.records if self.capacity else Store()

    def here(self) -> Here:
        """This node, with what its driver said last. The same object until the driver says something else, or the Node is another one."""
        info, machine = self._doors.driver.info, self.drains.machine if self.drains is not None else ""
        if info is not self._here.driver or machine != self._here.machine:
            self._here = replace(self._here, driver=info, machine=machine)
        return self._here

    async def run(self) -> None:
        """Until cancelled: the caches first, then the work."""
        async with asyncio.TaskGroup() as group:
            if self._rights is not None:
                # Sent first, so that the answer is there before a volume is made, though nothing waits for it.
                group.create_task(self._tools.keep_running("provisioning", "rights", self._rights.run), name="rights")
            for watch, reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"reflector {watch.resource}")
            group.create_task(self._recorder.run(), name="events")
            if self.drains is not None:
                name = "what was said before"
                group.create_task(self._tools.keep_running("drain", name, self.drains.take_back), name=name)
            if self.hearing is not None and (claims := self._watching.changing(CLAIMS)) is not None:
                group.create_task(self.hearing.run(claims), name="labels of claims")
            for name, task in self.provisioning.background().items():
                group.create_task(task, name=name)
            for watch, reflector in self._reflectors:
                if watch.awaited:
                    await reflector.wait_synced()
            log.info("Caches are complete", extra={"fields": {"claims": len(self.caches.claims), "volumes": len(self.caches.volumes)}})
            if self.drains is not None:
                self.drains.node_changed()
            # Before capacity is published too: what an earlier process has begun takes space.
            await self.provisioning.take_over()
            for part in (*self._parts(), *([self.failover] if self.failover is not None else [])):
                group.create_task(part.run(), name=type(part).__name__)

    async def drain(self, limit: float) -> bool:
        """Takes no new work and waits for calls in flight. Returns whether all ended within the limit."""
        ended = await asyncio.gather(*(loop.drain(limit) for loop in self._loops()))
        await self._recorder.flush(_FLUSH_SECONDS)
        await self._doors.journal.close()
        return all(ended)

    def wake_all(self) -> None:
        """The driver is back, so what waited for it is tried again at once and not only after its pause."""
        self.provisioning.wake_all()
        if self.capacity is not None:
            self.capacity.renew_all()

    def queues(self) -> dict[str, object]:
        """For /debug/queue."""
        return {loop.name: loop.snapshot() for loop in self._loops()}

    def _parts(self) -> list["ProvisioningPart | CapacityPart | DrainPart"]:
        return [part for part in (self.provisioning, self.capacity, self.drains) if part is not None]

    def _loops(self) -> list[Loop[str]]:
        return [loop for part in self._parts() for loop in part.loops]

    # --- the rooms ----------------------------------------------------------------------------------------------------

    def _make_provisioning(self) -> ProvisioningPart:
        return ProvisioningPart(
            self._tools,
            here=self.here,
            caches=self.caches,
            space=self.space,
            contenders=self._contenders,
            hearing=self.hearing,
            journal=self._doors.journal,
            standing=self._standing,
            has_synced=self._watching.has_synced,
            hears=self._watching.is_watching,
            watched=self._watching.version,
            threads=self._config.worker_threads,
            sweep_interval=self._config.snapshot_orphan_sweep_interval,
            make_loop=self._loop,
            finalizers=self._finalizers,
            on_forbidden=self._rights.doubt if self._rights else lambda: None,
        )

    def _make_contenders(self) -> Contenders:
        return Contenders(
            self._tools,
            driver=self._doors.driver.info.name,
            namespace=self._config.namespace,
            classes=self._classes_by_name,
            on_known=lambda: self.provisioning.order_known(),  # noqa: PLW0108 - made later
            on_nodes=lambda: self.hearing.shards_changed() if self.hearing else None,
            by_shards=self._by_shards,
            listeners=self._listeners,
        )

    def _make_hearing(self) -> ClaimHearing:
        return ClaimHearing(
            self._tools,
            node=self._config.node_name,
            driver=self._doors.driver.info.name,
            is_ours=self.caches.classes.__contains__,
            shards=self._shards,
            contenders=self._nodes,
            bids=self._config.node_deployment_immediate_binding,
            may_be_left=lambda: any_binds_immediately(self.caches.classes.values()),
        )

    def _nodes(self) -> int | None:
        return len(self._contenders.nodes) or None if self._contenders else None

    def _shards(self) -> tuple[str, ...]:
        if not self._config.node_deployment_immediate_binding:
            return ()
        if self._contenders is None or not self._by_shards():
            return SHARDS
        return heard_shards(self._config.node_name, self._contenders.nodes, listeners=self._listeners)

    def _by_shards(self) -> bool:
        if self._config.watch_scope != LABELLED:
            return False
        return may_be_shared_out(self._doors.driver.info.controller, self.caches.classes.values())

    def _make_capacity(self) -> CapacityPart:
        config, kube = self._config, self._doors.capacity_kube
        part = CapacityPart(
            replace(self._tools, kube=kube),
            settings.publisher(config, self._doors.driver.info.name),
            namespace=config.namespace,
            node=config.node_name,
            pod=config.pod_name,
            ownerref_level=config.capacity_ownerref_level,
            threads=config.capacity_threads,
            classes=self.caches.classes,
            space=self.space,
            open_watch=lambda watch: self._watching.open_one(watch, kube=kube),
            make_loop=self._loop,
        )
        self.space.on_change = part.renew
        return part

    def _make_drains(self) -> "DrainPart":
        # Imported here, so that a process without drain decisions does not have them in memory.
        from sidecar.drain.watches import DrainPart

        return DrainPart(
            self._tools,
            settings.drain(self._config, self._doors.driver.info.name),
            here=self.here(),
            caches=self.caches,
            state=self._watching.state,
            under_way=self.provisioning.under_way,
            make_loop=self._loop,
            on_standing=self._standing_changed,
            open_guest=self._doors.open_guest,
        )

    # --- what one room asks or tells another --------------------------------------------------------------------------

    def _finalizers(self) -> FinalizerWrites:
        return finalizer_writes(self._rights.rights() if self._rights is not None else NOT_KNOWN)

    def _finalizers_changed(self) -> None:
        self.provisioning.finalizers_changed()

    def _standing(self) -> Standing:
        return self.drains.room.standing() if self.drains is not None else OPEN

    def _standing_changed(self) -> None:
        """The node closed or opened: every claim is decided again."""
        self.provisioning.standing_changed()

    def _classes_by_name(self) -> dict[str, Class]:
        return {class_.name: class_ for class_ in self.caches.classes.values()}
