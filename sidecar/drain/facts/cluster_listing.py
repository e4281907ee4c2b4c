"""Supplies the facts to whoever asks from outside: lists, once, all that a judgement of one node needs. Writes nothing.

`explain node` asks so, and a sidecar that judges a node whose own sidecar is dead. Of its own node a running sidecar knows most of this
from its watches (`lookups`).
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from sidecar.drain.facts import unseen_volumes
from sidecar.drain.facts.assembly import content_lies_here, is_unseen, namespace_notes, policy_namespaces
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.kube.api import (
    BUDGETS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_NODES,
    NAMESPACES,
    NODES,
    PODS,
    SNAPSHOT_CONTENTS,
    VOLUMES,
    KubeApi,
    Resource,
    every,
)
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Notes, Volume

R = TypeVar("R")

_OPTIONAL: Final = frozenset({SNAPSHOT_CONTENTS})
"""Kinds that a cluster may do without."""

# Names that are kept: volumes that every node reaches, as those of network storage, may be thousands.
_SOME: Final = 20


class _VolumeSorting:
    """Keeps the volumes of one node, and of the others no more than what has to be said about them."""

    def __init__(self, locator: VolumeLocator) -> None:
        self._locator = locator
        self.names: set[str] = set()
        self.unlocated: dict[str, tuple[str, ...]] = {}
        self.doubtful: dict[str, tuple[str, ...]] = {}

    def keep(self, obj: Json) -> Volume | None:
        volume = Volume.of(obj)
        self.names.add(volume.name)
        if self._locator.may_hold(volume):
            told = self.doubtful if self._locator.is_doubtful(volume) else self.unlocated
            told[volume.driver] = (*told.get(volume.driver, ()), volume.name)[:_SOME]
        return volume if self._locator.holds(volume) else None


class ClusterListing:
    """One look. Each kind is listed once, and its objects are made small or dropped page by page: clusters are large, nodes are not."""

    def __init__(self, kube: KubeApi, node_name: str, *, now: float) -> None:
        self._kube = kube
        self._name = node_name
        self._now = now
        self._ignorance: list[str] = []
        self._unseen: list[Claim] = []
        """Claims bound here to volumes that were not listed."""

    async def look(self) -> ListedNode:
        """Raises NotFound when there is no such node; whatever else fails is in the answer's `ignorance`."""
        me = await self._kube.get(NODES, self._name)
        node = Node.of(me)
        others = await self._list(NODES, lambda obj: Node.of(obj) if obj["metadata"]["name"] != self._name else None)
        sorting = _VolumeSorting(VolumeLocator(node, others))
        unread = len(self._ignorance)
        found = await self._list(VOLUMES, sorting.keep)
        volumes = tuple(volume for volume in found if volume.driver)
        # After a list that failed all the rest would count as unseen, and one sentence has said already that it failed.
        listed = sorting.names if len(self._ignorance) == unread else None
        held = {(volume.claim.namespace, volume.claim.name) for volume in volumes if volume.claim}
        claims = await self._list(CLAIMS, lambda obj: self._keep_claim(obj, held, listed))
        self._ignorance += await unseen_volumes.ignorance_of(self._kube, self._unseen)
        classes = await self._list(CLASSES, Class.of)
        provisioners = {class_.name: class_.provisioner for class_ in classes}
        capacities = await self._list_or_none(CAPACITIES, CapacityRecord.of)
        if capacities is None:
            self._ignorance.pop()  # no verdict depends on it: only where volumes could move to is not known then
        budgets = await self._list_or_none(BUDGETS, Budget.of)
        return ListedNode(
            at=self._now,
            node_name=self._name,
            node=node,
            others=others,
            drivers=await self._drivers(),
            volumes=volumes,
            unlocated=MappingProxyType(sorting.unlocated),
            doubtful=MappingProxyType(sorting.doubtful),
            driverless=len(found) - len(volumes),
            claims=claims,
            pods=await self._list(PODS, Pod.of, field_selector=f"spec.nodeName={self._name}"),
            contents=await self._contents(volumes),
            classes=classes,
            capacities=capacities,
            capacity_drivers={record.uid: provisioners.get(record.class_name, "") for record in capacities or ()},
            budgets=budgets,
            namespace_policies=await self._policies(policy_namespaces(volumes)),
            ignorance=tuple(self._ignorance),
        )

    def _keep_claim(self, obj: Json, held: set[tuple[str, str]], listed: set[str] | None) -> Claim | None:
        claim = Claim.of(obj)
        if listed is not None and is_unseen(claim, node_name=self._name, seen=listed):
            self._unseen.append(claim)
        waits_here = not claim.volume_name and claim.selected_node == self._name
        return claim if waits_here or (claim.namespace, claim.name) in held else None

    async def _contents(self, volumes: tuple[Volume, ...]) -> tuple[SnapshotContent, ...]:
        handles = {(volume.driver, volume.handle) for volume in volumes}

        def record(obj: Json) -> SnapshotContent | None:
            content = SnapshotContent.of(obj)
            return content if content_lies_here(content, node_name=self._name, handles=handles) else None

        return await self._list(SNAPSHOT_CONTENTS, record)

    async def _drivers(self) -> tuple[str, ...]:
        """Drivers with a topology: a driver whose volumes every node reaches has nothing that a drain could strand."""
        try:
            found = await self._kube.get(CSI_NODES, self._name)
        except NotFound:
            return ()
        except ApiError as error:
            self._ignorance.append(f"{CSI_NODES}: {error}")
            return ()
        return tuple(sorted(item["name"] for item in (found.get("spec") or {}).get("drivers") or () if item.get("topologyKeys")))

    async def _policies(self, namespaces: Iterable[str]) -> Mapping[str, Notes]:
        """Policies of the namespaces that may be read. The others count as silent, and `ignorance` names them."""
        found: dict[str, Notes] = {}
        for name in namespaces:
            try:
                notes = namespace_notes(await self._kube.get(NAMESPACES, name))
            except NotFound:
                continue
            except ApiError as error:
                self._ignorance.append(f"namespace {name}: {error}")
                continue
            if notes:
                found[name] = notes
        return MappingProxyType(found)

    async def _list_or_none(self, resource: Resource, record: Callable[[Json], R | None]) -> tuple[R, ...] | None:
        """None is not the same as none of them."""
        before = len(self._ignorance)
        found = await self._list(resource, record)
        return found if len(self._ignorance) == before else None

    async def _list(self, resource: Resource, record: Callable[[Json], R | None], *, field_selector: str = "") -> tuple[R, ...]:
        found: list[R] = []
        try:
            async for obj in every(self._kube, resource, field_selector=field_selector):
                made = record(obj)
                if made is not None:
                    found.append(made)
        except NotFound:
            if resource not in _OPTIONAL:
                self._ignorance.append(f"{resource}: the API server does not serve them")
        except ApiError as error:
            self._ignorance.append(f"{resource}: {error}")
        return tuple(found)
