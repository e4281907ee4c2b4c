"""Starts the room: looks up the owner, watches the objects, then works through the classes. `wiring` holds one of it, or none."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from sidecar.capacity import watches
from sidecar.capacity.controller import CapacityPublisher
from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.capacity.owner import await_owner, find_owner
from sidecar.capacity.rules import UNPLACED, is_unplaced
from sidecar.capacity.view import Publisher
from sidecar.csi.api import TOPOLOGY
from sidecar.engine.loop import Loop
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.local.watch import Watch
from sidecar.model.objects import CapacityRecord, Class
from sidecar.ownership.reserved_space import ReservedSpace
from sidecar.tools import MakeLoop, Tools

log = logging.getLogger(__name__)


class CapacityPart:
    """`run` it as a task. `room` and `loop` are None until the owner is known; until then there is nothing to renew."""

    def __init__(
        self,
        tools: Tools,
        publisher: Publisher,
        *,
        namespace: str,
        node: str,
        pod: str,
        ownerref_level: int,
        threads: int,
        classes: Store[Class],
        space: ReservedSpace,
        open_watch: Callable[[Watch[CapacityRecord]], Reflector[CapacityRecord]],
        make_loop: MakeLoop,
    ) -> None:
        self._tools = tools
        self._publisher = publisher
        self._namespace = namespace
        self._pod = pod
        self._ownerref_level = ownerref_level
        self._threads = threads
        self._gone_nodes = GoneNodes(tools, driver=publisher.driver, namespace=namespace, node=node)
        self._classes = classes
        self._space = space
        self._open_watch = open_watch
        self._make_loop = make_loop
        self.records = watches.records()
        self.room: CapacityPublisher | None = None
        self.loop: Loop[str] | None = None

    async def run(self) -> None:
        """Until cancelled."""
        info = self._tools.driver.info
        if is_unplaced(info.segment, has_topology=TOPOLOGY in info.plugin):
            log.warning("No capacity is published", extra={"fields": {"why": UNPLACED}})
        elif not info.segment:
            log.warning("The driver reported no topology; capacity is published without a node selector, so for all nodes")
        owner = await await_owner(self._tools, namespace=self._namespace, pod=self._pod, level=self._ownerref_level)
        publisher = replace(self._publisher, owner=owner)
        room = CapacityPublisher(
            self._tools,
            publisher=publisher,
            namespace=self._namespace,
            classes=self._classes,
            records=self.records,
            space=self._space,
            owner=lambda: find_owner(self._tools.kube, namespace=self._namespace, pod=self._pod, level=self._ownerref_level),
        )
        watch = watches.watch_records(publisher, self.records, namespace=self._namespace, appeared=room.appeared, renew=self.renew)
        reflector = self._open_watch(watch)
        self._tools.metrics.enable_capacity_metrics()
        loop = self._make_loop("csistoragecapacity", room.handle_in_turn, workers=self._threads, attempts=room.attempts)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run(), name=f"reflector {watch.resource}")
            # Before the list is complete a class may seem to have no object, and would get a second one.
            await reflector.wait_synced()
            self.loop, self.room = loop, room
            self.renew_all()
            group.create_task(loop.run(), name="capacity")
            name = "capacity of nodes that are gone"
            group.create_task(self._tools.keep_running("capacity", name, self._gone_nodes.look_for_ever), name=name)

    @property
    def loops(self) -> list[Loop[str]]:
        return [] if self.loop is None else [self.loop]

    def watches(self) -> list[Watch[Class]]:
        """Those that do not depend on the owner; the objects are watched once it is known."""
        return [watches.watch_classes(self._classes, self.renew)]

    def renew(self, classes: frozenset[str], *, at_once: bool = True) -> None:
        """What is published for these classes may be wrong. Several calls within a second lead to one look."""
        if self.loop is not None and self.room is not None:
            for name in sorted(classes):
                self.loop.add(name, self.room.soonest(name, at_once=at_once))

    def renew_all(self) -> None:
        if self.room is not None:
            self.renew(frozenset(self.room.class_names()))
