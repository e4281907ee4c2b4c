"""The part of the composition root that only drain decisions need: their watches, joined to the caches that all rooms share.

Without drain decisions none of this exists. Which change wakes the room is known here; what is made of it is the room's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

import sidecar
from sidecar.config import Config
from sidecar.csi.api import Driver, DriverInfo
from sidecar.drain.controller import DrainRoom
from sidecar.drain.evacuation import Expiry
from sidecar.drain.neighbours import Neighbours
from sidecar.drain.settings import Settings
from sidecar.drain.signals import NodePolicy
from sidecar.drain.untracked import Untracked
from sidecar.drain.watched import NeverUsed, Watched
from sidecar.drain.words import Policy
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.health import Scope
from sidecar.engine.loop import Loop
from sidecar.kube import reflector as reflectors
from sidecar.kube.api import BUDGETS, NODES, PODS, SNAPSHOT_CONTENTS, Change, KubeApi, Resource
from sidecar.kube.recorder import Recorder
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Json, Volume
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.provisioning.caches import Caches
from sidecar.provisioning.view import Here
from sidecar.provisioning.volume_rules import may_lie_here

R = TypeVar("R")


def settings_of(config: Config, driver: str) -> Settings:
    """What the drain room is told of the command line."""
    return Settings(
        node=config.node_name,
        driver=driver,
        namespace=config.namespace,
        agent=sidecar.__version__,
        policy=NodePolicy(config.node_drain_policy),
        judges=config.drain_report,
        zero_when_closed=config.drain_publish_zero_capacity,
        default_policy=Policy(config.drain_default_policy) if config.drain_default_policy else None,
        allowed=config.evacuation_deadline,
        expiry=Expiry(config.evacuation_expiry),
        limit=config.max_concurrent_evacuations,
        gate=config.drain_gate,
        gate_image=config.drain_gate_image,
        protects=config.drain_autoscaler_annotations,
        untracked_blocks=config.drain_untracked_blocks,
        dry_run=config.dry_run,
    )


class ReflectorFactory(Protocol):
    """Makes a reflector that reports to health and metrics as all do."""

    def __call__(
        self,
        resource: Resource,
        project: Callable[[Json], R | None],
        store: Store[R],
        changed: Callable[[Change[R]], None],
        *,
        optional: bool = False,
        field_selector: str = "",
        on_list: Callable[[], None] = ...,
    ) -> Reflector[R]: ...


class DrainWatches:
    """The node itself is always watched; pods, budgets and snapshots where the node is judged."""

    def __init__(
        self, make: ReflectorFactory, *, node: str, driver: DriverInfo, caches: Caches, judges: bool, shared: Iterable[Reflector[Any]]
    ) -> None:
        self.nodes: Store[Node] = Store()
        self.pods: Store[Pod] = Store()
        self.contents: Store[SnapshotContent] = Store()
        self.budgets: Store[Budget] = Store()
        self.never_used = NeverUsed()
        self.on_node: Callable[[], None] = _nobody
        self.on_change: Callable[[], None] = _nobody
        self._node, self._driver, self._caches, self._judges = node, driver, caches, judges
        self._shared = tuple(shared)
        self._pods_listed = False
        self.reflectors: list[Reflector[Any]] = [self._watch_node(make)]
        if judges:
            # Snapshots whatever the driver can do today: what it made before still lies here.
            self.reflectors += [self._watch_pods(make), self._watch_budgets(make), self._watch_contents(make)]

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
            without_contents=lambda: any(item.resource == SNAPSHOT_CONTENTS and _is_absent(item) for item in self.reflectors),
        )

    def may_be_held(self, here: Here, obj: Json) -> bool:
        """A volume that may lie here beside those that this program would delete. The hostname says most of it, and hardly ever changes."""
        node = self.nodes.get(self._node)
        return self._judges and may_lie_here(here, obj, node.labels.get(names.HOSTNAME, "") if node else "")

    def ignorance(self) -> tuple[str, ...]:
        """What is not complete, or of which it is not known whether it still is."""
        return tuple(sorted(filter(None, (_unknown(item) for item in (*self._shared, *self.reflectors)))))

    def volume_changed(self, change: Change[Volume], *, identity: str) -> None:
        if change.new is None:
            self.never_used.gone(change.key)
        elif change.old is None and change.new.identity == identity and self._sees_pods() and self._is_empty(change.new):
            self.never_used.made(change.new)
        self.on_change()

    def _is_empty(self, volume: Volume) -> bool:
        """What was filled from a snapshot or a clone has data before any pod comes, and of a claim that is gone nobody knows."""
        claim = self._caches.claims.get(volume.claim.uid) if volume.claim else None
        return claim is not None and claim.source is None

    def _sees_pods(self) -> bool:
        return any(item.resource == PODS and isinstance(item.state, reflectors.Synced) for item in self.reflectors)

    def _watch_node(self, make: ReflectorFactory) -> Reflector[Node]:
        def changed(change: Change[Node]) -> None:
            self.on_node()

        return make(NODES, Node.of, self.nodes, changed, optional=True, field_selector=f"metadata.name={self._node}")

    def _watch_pods(self, make: ReflectorFactory) -> Reflector[Pod]:
        def changed(change: Change[Pod]) -> None:
            if change.new is not None:
                self.never_used.seen(change.new)
            self.on_change()

        selector = f"spec.nodeName={self._node}"
        return make(PODS, Pod.of, self.pods, changed, optional=True, field_selector=selector, on_list=self._pods_were_listed)

    def _pods_were_listed(self) -> None:
        """A list shows who is there, and not who came and went since the watch broke."""
        if self._pods_listed:
            self.never_used.overlooked()
        self._pods_listed = True

    def _watch_budgets(self, make: ReflectorFactory) -> Reflector[Budget]:
        return make(BUDGETS, Budget.of, self.budgets, self._wake, optional=True)

    def _watch_contents(self, make: ReflectorFactory) -> Reflector[SnapshotContent]:
        def project(obj: Json) -> SnapshotContent | None:
            content = SnapshotContent.of(obj)
            return content if content.driver == self._driver.name and content.managed_by in ("", self._node) else None

        return make(SNAPSHOT_CONTENTS, project, self.contents, self._wake, optional=True)

    def _wake(self, change: Change[Any]) -> None:
        self.on_change()


class DrainPart:
    """Watches, room and queue together. The rest of the composition root holds this, or nothing."""

    def __init__(
        self,
        config: Config,
        *,
        driver: Driver,
        identity: str,
        under_way: Callable[[], Iterable[str]],
        watches: DrainWatches,
        make_loop: Callable[[str, Callable[[str], Awaitable[float | None]], int, Attempts[str]], Loop[str]],
        kube: KubeApi,
        recorder: Recorder,
        narrator: Narrator,
        metrics: Metrics,
        scope: Scope,
        retry: Backoff,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Callable[[], float],
        on_standing: Callable[[], None],
    ) -> None:
        self._node, self._identity, self._watches = config.node_name, identity, watches
        settings, watched = settings_of(config, driver.info.name), watches.watched()
        self._untracked = Untracked(kube, driver, watched, under_way=under_way)
        self.room = DrainRoom(
            settings=settings,
            kube=kube,
            watched=watched,
            never_used=watches.never_used,
            untracked=self._untracked,
            recorder=recorder,
            narrator=narrator,
            scope=scope,
            retry=retry,
            clock=clock,
            wall=wall,
            on_standing=on_standing,
        )
        self._neighbours = Neighbours(
            kube,
            settings,
            own_node=lambda: watches.nodes.get(config.node_name),
            recorder=recorder,
            narrator=narrator,
            clock=clock,
            wall=wall,
            rng=rng,
        )
        self._judges, self._guards_others = settings.judges, settings.gate
        self.loop = make_loop("drain", self.room.handle, 1, self.room.attempts)
        self.reflectors = watches.reflectors
        watches.on_node, watches.on_change = self.node_changed, self.wake
        metrics.watch_drain(self.room.numbers)

    async def run(self) -> None:
        """Until cancelled. Who judges nothing asks no driver, and who builds no gates looks after none."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(), name="drain")
            if self._judges:
                group.create_task(self._untracked.run(), name="untracked volumes")
            if self._guards_others:
                group.create_task(self._neighbours.run(), name="gates of others")

    def node_changed(self) -> None:
        """Whether it takes volumes is known at once; the rest is the queue's."""
        self.room.node_changed()
        self.wake()

    def may_be_held(self, here: Here, obj: Json) -> bool:
        return self._watches.may_be_held(here, obj)

    def volume_changed(self, change: Change[Volume]) -> None:
        self._watches.volume_changed(change, identity=self._identity)

    def wake(self) -> None:
        self.loop.add(self._node, self.room.soonest())


def _is_absent(item: Reflector[Any]) -> bool:
    return isinstance(item.state, reflectors.Off) and item.state.absent


def _unknown(item: Reflector[Any]) -> str:
    match item.state:
        case reflectors.Synced():
            return ""
        case reflectors.Off(absent=True) if item.resource == SNAPSHOT_CONTENTS:
            return ""
        case state:
            return f"{item.resource}: {state.why}"


def _nobody() -> None:
    """Nobody is there yet."""
