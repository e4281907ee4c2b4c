"""Joins the rooms where another program provisions for the driver (`--provisioning=false`): drain decisions, and nothing beside them.

There is no queue of claims or volumes here, no journal and no capacity. The driver needs no Controller service.
"""

import asyncio
import logging
from typing import Final

from sidecar import settings
from sidecar.config.config import Config
from sidecar.doors import Doors, Instruments
from sidecar.drain.watches import DrainPart
from sidecar.equipment import LoopMaker, identity_of, make_failover, tools_of
from sidecar.kube.events.recorder import EventRecorder
from sidecar.local import others_volumes
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.provisioning import left_alone_io
from sidecar.provisioning.left_alone_io import Journals
from sidecar.watching import Watching

log = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 2.0


class ReportOnly:
    """Made when the driver has said who it is. `run` works until cancelled."""

    def __init__(self, config: Config, doors: Doors, instruments: Instruments, *, recorder: EventRecorder, journals: Journals) -> None:
        """`journals`: those of processes that provisioned here before."""
        self._config = config
        self._journals = journals
        self._recorder = recorder
        self._tools = tools = tools_of(config, doors, instruments, recorder)
        driver = doors.driver.info
        self.here = Here(config.node_name, driver, settings.options(config), identity_of(config, tools, driver.name))
        self.caches = Caches.empty()
        self._watching = Watching(tools, nodes=lambda: None)
        tools.metrics.watch_classes(self.caches.classes.__contains__)
        self.drains = DrainPart(
            tools,
            settings.drain(config, driver.name),
            here=self.here,
            caches=self.caches,
            state=self._watching.state,
            under_way=tuple,
            make_loop=LoopMaker(tools, call_timeout=config.timeout),
            on_standing=_nobody_waits,
            open_guest=doors.open_guest,
        )
        self._failover = make_failover(config, tools, doors, self.drains) if settings.fails_over(config) else None
        self._reflectors = self._watching.open([*others_volumes.watches(self.here, self.caches), *self.drains.watches()])

    async def run(self) -> None:
        """Until cancelled: the caches first, then the work."""
        log.info("Report only: claims, volumes and capacity of this driver are left to its own provisioner")
        async with asyncio.TaskGroup() as group:
            for watch, reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"reflector {watch.resource}")
            group.create_task(self._recorder.run(), name="events")
            name = "what was said before"
            group.create_task(self._tools.keep_running("drain", name, self.drains.take_back), name=name)
            for watch, reflector in self._reflectors:
                if watch.awaited:
                    await reflector.wait_synced()
            log.info("Caches are complete", extra={"fields": {"claims": len(self.caches.claims), "volumes": len(self.caches.volumes)}})
            self.drains.node_changed()
            name = "what is left alone"
            group.create_task(self._tools.keep_running("provisioning", name, self._tell_what_is_left), name=name)
            group.create_task(self.drains.run(), name="drain decisions")
            if self._failover is not None:
                group.create_task(self._failover.run(), name="fail-over")

    async def drain(self, limit: float) -> bool:
        """Takes no new work and waits for what is under way. Returns whether it ended within the limit."""
        ended = await self.drains.loop.drain(limit)
        await self._recorder.flush(_FLUSH_SECONDS)
        return ended

    def wake_all(self) -> None:
        """The driver is back. Nothing here waits for it: it is asked for its list of volumes in turn."""

    def queues(self) -> dict[str, object]:
        """For /debug/queue."""
        return {self.drains.loop.name: self.drains.loop.snapshot()}

    async def _tell_what_is_left(self) -> None:
        found = await left_alone_io.look(
            self._tools.kube,
            self.here,
            self.caches.volumes.values(),
            namespace=self._config.namespace,
            journals=self._journals,
        )
        left_alone_io.tell(found, self.here)


def _nobody_waits() -> None:
    """The node closed or opened, which is nothing to those who only report."""
