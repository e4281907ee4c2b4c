"""Says what this room watches and which changes wake it, and joins its watches, its loop and its tasks.

Watched are the own Node, its pods, snapshots, and what provisioning watches too: volumes, claims, classes, attachments. A process that
makes no drain decisions has none of this. What the program can do without runs as side tasks: a fault there ends nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME
from sidecar.drain.controller import DrainRoom
from sidecar.drain.driver_list_io import DriverList
from sidecar.drain.gate import HeldPods
from sidecar.drain.look_io import Looks
from sidecar.drain.maintenance.executor_io import Executor
from sidecar.drain.maintenance.guest_io import GuestDrains, OpenGuest
from sidecar.drain.node_io import take_back
from sidecar.drain.report import told_of
from sidecar.drain.settings import Settings
from sidecar.drain.watch.turn_io import Looker
from sidecar.engine.side_task import keep_running
from sidecar.kube import reflector_state as reflectors
from sidecar.kube.api import ATTACHMENTS, CLAIMS, CLASSES, NODES, PODS, SNAPSHOT_CONTENTS, VOLUMES, Change, Resource
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.kube.event_prefix import EventPrefix
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.reflector_state import ReflectorState
from sidecar.kube.store import Store, by_uid
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.local.raw_filter import is_foreign_claim
from sidecar.local.volume_location import heard_volumes, may_lie_here, unplaced
from sidecar.local.watch import Watch
from sidecar.model import names
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, Claim, Json, Volume, claim_provisioner, selected_node
from sidecar.tools import MakeLoop, Tools

log = logging.getLogger(__name__)

_SHARED: Final = (CLAIMS, VOLUMES, CLASSES)  # what this room judges by, and other rooms watch too
_SPREAD: Final = 5.0  # seconds for what no work waits for: a cluster with fewer objects of a kind than a page has does not notice
_LOOK: Final = 450.0  # seconds that a look may take: as long as some fifteen requests, one after the other, that get no answer
_PATIENCE: Final = 30.0  # seconds between two tries to take back what an earlier process has said: the old words must not stand for long


class DrainPart:
    """The watches, the room and its tasks. `wiring` has one of these, or none if there are no drain decisions."""

    def __init__(
        self,
        tools: Tools,
        settings: Settings,
        *,
        here: Here,
        caches: Caches,
        state: Callable[[Resource], ReflectorState],
        under_way: Callable[[], Collection[str]],
        make_loop: MakeLoop,
        on_standing: Callable[[], None],
        open_guest: OpenGuest,
    ) -> None:
        self._tools, self._settings, self._here, self._caches, self._state = tools, settings, here, caches, state
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        self.contents: Store[SnapshotContent] = Store()
        known = lambda: [volume.handle for volume in caches.volumes.values()]  # noqa: E731
        self._list = DriverList(tools.kube, tools.driver, under_way=under_way, known=known, clock=tools.clock, on_found=self.wake)
        self._looks = Looks(
            tools.kube,
            settings,
            caches,
            self._list,
            pods=self.pods,
            contents=self.contents,
            ignorance=self.ignorance,
            segment=here.driver.segment,
            begun=under_way,
            clock=tools.clock,
            wall=tools.wall,
        )
        self.room = DrainRoom(tools, settings, nodes=self.nodes, pods=self.pods.values, looks=self._looks, on_standing=on_standing)
        self.loop = make_loop("drain", self._handle, workers=1, attempts=self.room.attempts, deadline=_LOOK)
        self.loops = [self.loop]
        attaches = PUBLISH_UNPUBLISH_VOLUME in here.driver.controller
        own_node = lambda: self.nodes.get(here.node)  # noqa: E731
        self._looker = Looker(tools, settings, own_node=own_node, attaches=attaches) if settings.judges else None
        self._executor = Executor(tools, settings, self.room, on_change=self._maintained) if settings.maintains else None
        self._guests = GuestDrains(tools, settings, open_guest) if settings.drains_guests else None
        self._held = HeldPods()
        self._told_held: str | None = None  # for what a drain was told to be held; None: by this process, for nothing yet
        self._held_changed = asyncio.Event()
        tools.metrics.watch_drain(self.room.numbers)
        if self._looker is not None and settings.follows_loss:
            tools.metrics.watch_node_loss(self._looker.lost, driver=settings.driver)

    def ask_storage(self, copies: Callable[[], Mapping[str, bool | None]]) -> None:
        """Of replicated volumes the storage knows where copies are."""
        self._looks.copies = copies

    @property
    def machine(self) -> str:
        """As `node/uid`; empty where nothing is judged, or there is no Node."""
        node = self.nodes.get(self._here.node) if self._settings.judges else None
        return f"{node.name}/{node.uid}" if node is not None else ""

    def watches(self) -> list[Watch[Any]]:
        judges, here = self._settings.judges, self._here
        claims: Watch[Claim] = Watch(
            resource=CLAIMS,
            store=self._caches.claims,
            project=self._claim,
            wakes=self.wake,
            skip=self._skip_claim,
            key_of=by_uid,
            required=True,
        )
        volumes: Watch[Volume] = Watch(
            resource=VOLUMES,
            store=self._caches.volumes,
            project=self._volume,
            wakes=self.wake,
            watch_selectors=heard_volumes(here),
            # A verdict that a node may go must know of a volume here whose label somebody has changed.
            begins_selected=not judges,
            required=True,
        )
        field = f"metadata.name={here.node}"
        # Awaited before any work: whether the node takes volumes has to be known.
        node = Watch(
            resource=NODES, store=self.nodes, project=Node.of, wakes=lambda _: self.node_changed(), optional=True, field_selector=field
        )
        classes: Watch[Any] = Watch(resource=CLASSES, store=self._caches.classes, wakes=self.wake, required=True)
        return [claims, volumes, classes, node, *(self._judged_by() if judges else [])]

    def _judged_by(self) -> list[Watch[Any]]:
        here = self._here
        pods = Watch(
            resource=PODS,
            store=self.pods,
            project=Pod.of,
            wakes=self._pod_changed,
            optional=True,
            awaited=False,
            start_spread=_SPREAD,
            field_selector=f"spec.nodeName={here.node}",
            on_list=self._looks.recent.began,
        )

        def content(obj: Json) -> SnapshotContent | None:
            found = SnapshotContent.of(obj)
            return found if found.driver == here.driver.name and found.managed_by in ("", here.node) else None

        # Even if the driver does not offer them today: those it made before still are here. Listed rarely, a new one would be overlooked
        # for as long, and the node be said to be retirable.
        contents = Watch(
            resource=SNAPSHOT_CONTENTS,
            store=self.contents,
            project=content,
            wakes=self.wake,
            optional=True,
            awaited=False,
            start_spread=_SPREAD,
        )

        def of_this_node(change: Change[Attachment]) -> None:
            if any(item is not None and item.node == here.node for item in (change.old, change.new)):
                self.wake()

        # Provisioning watches them as well, for a driver that attached when this process began.
        attachments: Watch[Any] = Watch(resource=ATTACHMENTS, store=self._caches.attachments, wakes=of_this_node, optional=True)
        return [pods, contents, *([attachments] if PUBLISH_UNPUBLISH_VOLUME in here.driver.controller else [])]

    def ignorance(self) -> tuple[str, ...]:
        """Each watch that is not complete now, with the reason."""
        resources = (*_SHARED, NODES, *(watch.resource for watch in self._judged_by()))
        return tuple(sorted(filter(None, (_unknown(resource, self._state(resource)) for resource in resources))))

    # --- what is kept -----------------------------------------------------------------------------------------------------

    def _claim(self, obj: Json) -> Claim | None:
        """Claims that are bound to a volume on this node: provisioning does not keep them any more."""
        volume = str((obj.get("spec") or {}).get("volumeName") or "")
        if not self._settings.judges or not volume or claim_provisioner(obj) != self._here.driver.name:
            return None
        return Claim.of(obj) if selected_node(obj) == self._here.node or volume in self._caches.volumes else None

    def _skip_claim(self, prefix: EventPrefix, line: bytes) -> bool:
        """Not those that have their volume, which provisioning need not read."""
        return not self._settings.judges or is_foreign_claim(line, self._here)

    def _volume(self, obj: Json) -> Volume | None:
        """Volumes that may be here, besides those that provisioning keeps: nothing contradicts it, or nothing is said at all."""
        node = self.nodes.get(self._here.node)
        hostname = node.labels.get(names.HOSTNAME, "") if node else ""
        if not self._settings.judges:
            return None
        return Volume.of(obj) if may_lie_here(self._here, obj, hostname) else unplaced(self._here, obj)

    # --- what wakes it ----------------------------------------------------------------------------------------------------

    def node_changed(self) -> None:
        """The standing is renewed at once, and so is which pods are held; the rest in the next look."""
        self.room.node_changed()
        if self._executor is not None:
            self._executor.node_changed(self.nodes.get(self._here.node))
        self._renew_held()
        self.wake()

    def wake(self, _: object = None) -> None:
        self.loop.add(self._here.node, self.room.soonest())

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None:
                self._looks.recent.named(pod)
        if self._executor is not None:
            self._executor.wake()
        self.wake()

    def _maintained(self) -> None:
        if self._executor is not None:
            self.room.maintenance, self.room.maintenance_due = self._executor.status, self._executor.due
        self.wake()

    # --- tasks ------------------------------------------------------------------------------------------------------------

    async def take_back(self) -> None:
        """To be run from the very start, before anything is listed: what an earlier process has said counts no more. Once the node is
        judged, that has taken its place."""
        while not self._settings.dry_run and self.room.numbers() is None:
            try:
                await take_back(self._tools.kube, self._settings, wall=self._tools.wall)
                return
            except Forbidden as error:
                if not self._settings.judges:
                    return  # who may not even read it has written none of it
                why = str(error)
            except ApiError as error:
                why = str(error)
            log.info("What was said of the node before could not be taken back yet", extra={"fields": {"err": why}})
            await asyncio.sleep(_PATIENCE)

    async def run(self) -> None:
        beside = {
            "volumes of the driver": self._list.run if self._settings.judges else None,
            "held pods": self._write_held if self._settings.gate else None,
            "maintenance": self._executor.run if self._executor is not None else None,
            "guests": self._guests.run if self._guests is not None else None,
            "silent sidecars and gone nodes": self._looker.run if self._looker is not None else None,
        }
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(), name="drain")
            for name, run in ((name, run) for name, run in beside.items() if run is not None):
                scope = self._tools.health.scope(f"drain: {name}", gates_ready=False)
                group.create_task(keep_running(name, run, scope=scope, on_fault=self._tools.metrics.fault), name=name)

    async def _handle(self, key: str) -> float | None:
        try:
            return await self.room.handle(key)
        finally:
            self._renew_held()

    def _renew_held(self) -> None:
        found = self.room.held()
        if found != self._held:
            self._held = found
            self._held_changed.set()

    async def _write_held(self) -> None:
        """Waits for no look: the drainer evicts a moment after its cordon. What fails is left to the next look."""
        while True:
            await self._held_changed.wait()
            self._held_changed.clear()
            held, marks, before = self._held, self.room.marks, self._told_held
            if before is None and marks is not None:
                before = told_of(self.room.report.stored, marks.uid)
            try:
                await self.room.report.write_held()
            except ApiError as error:
                log.info("Which pods must not be evicted could not be written at once", extra={"fields": {"err": str(error)}})
            told = held.purpose if held.because else ""
            if told and told != before and marks is not None and not self._settings.dry_run:
                ref = ObjectRef("v1", names.NODE, "", marks.node, marks.uid)
                self._tools.recorder.record(ref, names.WARNING, names.DRAIN_HELD, held.because)
            self._told_held = told


def _unknown(resource: Resource, state: ReflectorState) -> str:
    """Why what it brings is not known. Where there is no type for snapshots there are none."""
    match state:
        case reflectors.Synced():
            return ""
        case reflectors.Off(absent=True) if resource == SNAPSHOT_CONTENTS:
            return ""
        case _:
            return f"{resource}: {state.why}"
