"""Says what this room watches and which changes wake it, and joins its watches, its controller and its tasks.

A process that makes no drain decisions has none of this. What follows from a change is decided elsewhere in the room.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME, DriverInfo
from sidecar.drain.controller import DrainRoom
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.begun_uses import BegunUses
from sidecar.drain.facts.never_used import NeverUsed
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.drain.facts.untracked import Untracked
from sidecar.drain.facts.watched import Watched
from sidecar.drain.notes.controller import Notes
from sidecar.drain.settings import Settings
from sidecar.engine.loop import Loop
from sidecar.kube import reflector_state as reflectors
from sidecar.kube.api import ATTACHMENTS, BUDGETS, CLAIMS, CLASSES, NODES, PODS, SNAPSHOT_CONTENTS, VOLUMES, Change, Resource
from sidecar.kube.event_prefix import EventPrefix
from sidecar.kube.reflector_state import ReflectorState
from sidecar.kube.store import Store, by_uid
from sidecar.local.caches import Caches
from sidecar.local.here import Here
from sidecar.local.raw_filter import is_foreign_claim
from sidecar.local.volume_location import heard_volumes, may_lie_here, unplaced
from sidecar.local.watch import Watch
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, Claim, Json, Volume, claim_provisioner, selected_node
from sidecar.tools import MakeLoop, Tools

if TYPE_CHECKING:
    from sidecar.drain.gate.takeover_io import Neighbours
    from sidecar.drain.node_loss.controller import NodeLoss
    from sidecar.drain.node_loss.unplaced_io import DeleteByDriver

_SHARED = (CLAIMS, VOLUMES, CLASSES)
"""What this room judges by, and other rooms watch too."""

# Seconds for what no work waits for. A cluster with fewer objects of a kind than a page has does not notice.
_SPREAD = 5.0
# Seconds that a look may take: as long as some fifteen requests, one after the other, that get no answer.
_LOOK = 450.0


class DrainWatches:
    """The node itself is always watched; pods, budgets and snapshots only if the node is judged."""

    def __init__(
        self,
        here: Here,
        caches: Caches,
        *,
        judges: bool,
        state: Callable[[Resource], ReflectorState],
        clock: Callable[[], float],
        version: Callable[[Resource], str] = lambda _: "",
    ) -> None:
        """`version`: up to which resourceVersion a watch has come without a break; empty: a list is due."""
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        self.contents: Store[SnapshotContent] = Store()
        self.budgets: Store[Budget] = Store()
        self.never_used = NeverUsed()
        self.recent = RecentUse(clock=clock)
        self.begun_uses = BegunUses(clock=clock)
        self.on_node: Callable[[], None] = _nobody
        self.on_change: Callable[[], None] = _nobody
        self.on_volume: Callable[[], None] = _nobody
        """Beside `on_change`: of a volume something has changed, be it a note of our own that changes no judgement."""
        self._here, self._caches, self._judges, self._state = here, caches, judges, state
        self._driver: DriverInfo = here.driver
        self._pod_lists, self._version = 0, version
        # Snapshots even if the driver does not offer them today: those it made before still lie here.
        judged: list[Watch[Any]] = [self._watch_pods(), self._watch_budgets(), self._watch_contents()] if judges else []
        # Provisioning watches them as well, for a driver that attached when this process began.
        judged += [self._watch_attachments()] if judges and PUBLISH_UNPUBLISH_VOLUME in here.driver.controller else []
        self._own: list[Watch[Any]] = [self._watch_node(), *judged]

    def watches(self) -> list[Watch[Any]]:
        claims: Watch[Claim] = Watch(
            resource=CLAIMS,
            store=self._caches.claims,
            project=self._claim,
            wakes=self._wake,
            skip=self._skip_claim,
            key_of=by_uid,
            required=True,
        )
        volumes: Watch[Volume] = Watch(
            resource=VOLUMES,
            store=self._caches.volumes,
            project=self._volume,
            wakes=self.volume_changed,
            watch_selectors=heard_volumes(self._here),
            # A verdict that a node may go must know of a volume here whose label somebody has changed.
            begins_selected=not self._judges,
            required=True,
        )
        return [claims, volumes, Watch(resource=CLASSES, store=self._caches.classes, wakes=self._wake, required=True), *self._own]

    def watched(self) -> Watched:
        return Watched(
            nodes=self.nodes,
            pods=self.pods,
            contents=self.contents,
            budgets=self.budgets,
            claims=self._caches.claims,
            volumes=self._caches.volumes,
            classes=self._caches.classes,
            ignorance=self.ignorance,
            segment=self._driver.segment,
            without_contents=self._without_contents,
            attached=self._attached,
            recent=self.recent,
            begun_uses=self.begun_uses,
            pod_lists=lambda: self._pod_lists,
            pods_version=lambda: self._version(PODS),
        )

    def ignorance(self) -> tuple[str, ...]:
        """Each watch that is not complete now, with the reason."""
        resources = (*_SHARED, *(watch.resource for watch in self._own))
        return tuple(sorted(filter(None, (_unknown(resource, self._state(resource)) for resource in resources))))

    def _attached(self) -> frozenset[str]:
        return frozenset(item.volume for item in self._caches.attachments.values() if item.node == self._here.node)

    def _without_contents(self) -> bool:
        return self._judges and isinstance(state := self._state(SNAPSHOT_CONTENTS), reflectors.Off) and state.absent

    # --- claims and volumes -------------------------------------------------------------------------------------------

    def _claim(self, obj: Json) -> Claim | None:
        """Claims that are bound to a volume on this node: provisioning does not keep them any more."""
        volume = str((obj.get("spec") or {}).get("volumeName") or "")
        if not self._judges or not volume or claim_provisioner(obj) != self._driver.name:
            return None
        return Claim.of(obj) if selected_node(obj) == self._here.node or volume in self._caches.volumes else None

    def _skip_claim(self, prefix: EventPrefix, line: bytes) -> bool:
        """Not those that have their volume, which provisioning need not read."""
        return not self._judges or is_foreign_claim(line, self._here)

    def _volume(self, obj: Json) -> Volume | None:
        """Volumes that may lie here, besides those that provisioning keeps, and those that say nothing of where they are. Judged by the
        hostname label, which hardly ever changes."""
        node = self.nodes.get(self._here.node)
        hostname = node.labels.get(names.HOSTNAME, "") if node else ""
        if not self._judges:
            return None
        return Volume.of(obj) if may_lie_here(self._here, obj, hostname) else unplaced(self._here, obj)

    def volume_changed(self, change: Change[Volume]) -> None:
        if change.new is None:
            self.never_used.gone(change.key)
        elif change.old is None and change.new.identity == self._here.identity and self._sees_pods() and self._is_empty(change.new):
            self.never_used.made(change.new)
        else:
            self.never_used.noticed(change.new)
        self.on_volume()
        if not is_only_noted(change):
            self.on_change()

    def _is_empty(self, volume: Volume) -> bool:
        """Whether the volume was made empty. One from a snapshot or a clone was not; without its claim that is not known."""
        claim = self._caches.claims.get(volume.claim.uid) if volume.claim else None
        return claim is not None and claim.source is None

    def _sees_pods(self) -> bool:
        return self._judges and isinstance(self._state(PODS), reflectors.Synced)

    # --- what no other room watches -----------------------------------------------------------------------------------

    def _watch_node(self) -> Watch[Node]:
        """Awaited before any work: whether the node takes volumes has to be known."""
        field = f"metadata.name={self._here.node}"
        return Watch(
            resource=NODES, store=self.nodes, project=Node.of, wakes=lambda change: self.on_node(), optional=True, field_selector=field
        )

    def _watch_pods(self) -> Watch[Pod]:
        def wakes(change: Change[Pod]) -> None:
            if change.new is not None:
                self.never_used.seen(change.new)
            if change.new is not None and change.old is None and self._pod_lists:
                self.begun_uses.began(change.new)
            for pod in (change.old, change.new):
                if pod is not None and not pod.ended:
                    self.recent.named(pod)
            self.on_change()

        return Watch(
            resource=PODS,
            store=self.pods,
            project=Pod.of,
            wakes=wakes,
            optional=True,
            awaited=False,
            start_spread=_SPREAD,
            field_selector=f"spec.nodeName={self._here.node}",
            on_list=self._pods_were_listed,
        )

    def _pods_were_listed(self) -> None:
        """A list shows which pods are there, and not which came and went since the watch broke."""
        if self._pod_lists:
            self.never_used.overlooked()
        self._pod_lists += 1
        self.recent.began()

    def _watch_budgets(self) -> Watch[Budget]:
        return Watch(
            resource=BUDGETS,
            store=self.budgets,
            project=Budget.of,
            wakes=self._wake,
            optional=True,
            awaited=False,
            start_spread=_SPREAD,
        )

    def _watch_contents(self) -> Watch[SnapshotContent]:
        def project(obj: Json) -> SnapshotContent | None:
            content = SnapshotContent.of(obj)
            return content if content.driver == self._driver.name and content.managed_by in ("", self._here.node) else None

        return Watch(
            resource=SNAPSHOT_CONTENTS,
            store=self.contents,
            project=project,
            wakes=self._wake,
            optional=True,
            awaited=False,
            start_spread=_SPREAD,
        )

    def _watch_attachments(self) -> Watch[Attachment]:
        def wakes(change: Change[Attachment]) -> None:
            if any(item is not None and item.node == self._here.node for item in (change.old, change.new)):
                self.on_change()

        return Watch(resource=ATTACHMENTS, store=self._caches.attachments, wakes=wakes, optional=True)

    def _wake(self, change: Change[Any]) -> None:
        self.on_change()


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
        under_way: Callable[[], Iterable[str]],
        make_loop: MakeLoop,
        on_standing: Callable[[], None],
        version: Callable[[Resource], str],
        delete_lost: "Callable[[], DeleteByDriver] | None" = None,
    ) -> None:
        """`delete_lost`: makes what has this node's driver delete a volume of a gone maker; None where another program provisions."""
        self._tools = tools
        judges = settings.judges
        watches = self._watches = DrainWatches(here, caches, judges=judges, state=state, clock=tools.clock, version=version)
        watched = replace(watches.watched(), begun=lambda: frozenset(under_way()))
        self._node = here.node
        self._untracked = Untracked(tools.kube, tools.driver, watched, under_way=under_way, clock=tools.clock, on_found=self._found)
        watched = replace(watched, listed=self._untracked.listed)
        self._absence = Absence(tools.kube, here.node, watched=watched, clock=tools.clock, on_found=self.wake)
        self.room = DrainRoom(
            tools,
            settings=settings,
            watched=watched,
            never_used=watches.never_used,
            untracked=self._untracked,
            absence=self._absence,
            on_standing=on_standing,
        )
        self._judges = judges
        self._notes = self._make_notes(tools, settings, here, watched)
        self._neighbours = _neighbours(tools, settings, own_node=lambda: watches.nodes.get(here.node)) if settings.gate else None
        self._loss = (
            _node_loss(
                tools,
                settings,
                here=here,
                own_node=lambda: watches.nodes.get(here.node),
                delete_lost=delete_lost,
                claims=caches.claims.values,
            )
            if settings.follows_loss
            else None
        )
        self.loop = make_loop("drain", self.room.handle, workers=1, attempts=self.room.attempts, deadline=_LOOK)
        watches.on_node, watches.on_change = self.node_changed, self.wake
        watches.on_volume = self._notes.volumes_changed if self._notes is not None else _nobody
        tools.metrics.watch_drain(self.room.numbers)

    @property
    def loops(self) -> list[Loop[str]]:
        return [self.loop]

    def watches(self) -> list[Watch[Any]]:
        return self._watches.watches()

    async def run(self) -> None:
        """Until cancelled. The driver's list of volumes is needed only to judge; only who builds gates looks after others' gates."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(), name="drain")
            for name, run in self._side_tasks().items():
                group.create_task(self._tools.keep_running("drain", name, run), name=name)

    def _side_tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        found: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        if self._judges:
            found["pods that must not be evicted"] = self.room.held.run
            found |= {"untracked volumes": self._untracked.run, "uses that nobody watched": self._absence.run}
        if self._notes is not None:
            found["notes on volumes"] = self._notes.run
        if self._neighbours is not None:
            found["gates of others"] = self._neighbours.run
        if self._loss is not None:
            found["nodes that are gone"] = self._loss.run
        return found

    def _make_notes(self, tools: Tools, settings: Settings, here: Here, watched: Watched) -> Notes | None:
        """None where nothing is written, and where another program provisions: there the role may only read volumes."""
        if not settings.provisions or settings.dry_run:
            return None
        return Notes(
            tools,
            node=here.node,
            driver=settings.driver,
            identity=here.identity,
            watched=watched,
            signals=lambda: self.room.signals,
            leaves=lambda node: node_marks.read(node, settings.driver, now=tools.wall(), default_policy=settings.policy).leaving,
            writes=settings.judges,
        )

    def _found(self) -> None:
        """The driver has listed its volumes."""
        self._watches.on_volume()
        self.wake()

    def node_changed(self) -> None:
        """The standing is renewed at once, the rest in the next look."""
        self.room.node_changed()
        if self._notes is not None:
            self._notes.node_changed()
        self.wake()

    def wake(self) -> None:
        self.loop.add(self._node, self.room.soonest())


def is_only_noted(change: Change[Volume]) -> bool:
    """Nothing else of the volume has changed than what sidecars note on it."""
    old, new = change.old, change.new
    if old is None or new is None or (old.lies_on, old.leaving) == (new.lies_on, new.leaving):
        return False
    return replace(new, lies_on=old.lies_on, leaving=old.leaving, resource_version=old.resource_version) == old


def _neighbours(tools: Tools, settings: Settings, *, own_node: Callable[[], Node | None]) -> "Neighbours":
    """Imports inside, so that a process that builds no gates does not have this in memory."""
    from sidecar.drain.gate.takeover_io import Neighbours

    return Neighbours(tools, settings, own_node=own_node)


def _node_loss(
    tools: Tools,
    settings: Settings,
    *,
    here: Here,
    own_node: Callable[[], Node | None],
    delete_lost: "Callable[[], DeleteByDriver] | None",
    claims: Callable[[], Iterable[Claim]],
) -> "NodeLoss":
    """As `_neighbours`."""
    from sidecar.drain.node_loss.controller import NodeLoss

    attaches, delete = PUBLISH_UNPUBLISH_VOLUME in here.driver.controller, delete_lost() if delete_lost is not None else None
    loss = NodeLoss(tools, settings, own_node=own_node, attaches=attaches, delete=delete, claims=claims)
    tools.metrics.watch_node_loss(loss.lost, driver=settings.driver)
    return loss


def _unknown(resource: Resource, state: ReflectorState) -> str:
    match state:
        case reflectors.Synced():
            return ""
        case reflectors.Off(absent=True) if resource == SNAPSHOT_CONTENTS:
            return ""
        case _:
            return f"{resource}: {state.why}"


def _nobody() -> None:
    """Nobody is there yet."""
