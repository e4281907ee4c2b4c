"""Asks the API server for all that a judgement about any node needs: lists, once, for who asks from outside. Writes nothing.

A sidecar that runs knows most of this from its watches and never comes here.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from sidecar.drain.picture import Picture
from sidecar.drain.place import Pinned
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
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Volume

R = TypeVar("R")

_OPTIONAL: Final = frozenset({SNAPSHOT_CONTENTS})
"""Kinds that a cluster may do without."""

# Whose place is not known may be thousands, of drivers whose volumes every node reaches.
_SOME: Final = 20


class Gathering:
    """One look. Each kind is listed once; what a list brings is made small, or dropped, page by page."""

    def __init__(self, kube: KubeApi, node_name: str, *, now: float) -> None:
        self._kube = kube
        self._name = node_name
        self._now = now
        self._ignorance: list[str] = []
        self._unlisted: list[Claim] = []

    async def look(self) -> Picture:
        """Raises NotFound when there is no such node; whatever else fails is told in the picture."""
        me = await self._kube.get(NODES, self._name)
        node = Node.of(me)
        others = await self._list(NODES, lambda obj: Node.of(obj) if obj["metadata"]["name"] != self._name else None)
        pinned, strays, doubtful = Pinned(node, others), dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
        every_volume, unread = set[str](), len(self._ignorance)

        def lies_here(obj: Json) -> Volume | None:
            volume = Volume.of(obj)
            every_volume.add(volume.name)
            if pinned.may_hold(volume):
                told = doubtful if pinned.is_doubtful(volume) else strays
                told[volume.driver] = (*told.get(volume.driver, ()), volume.name)[:_SOME]
            return volume if pinned.holds(volume) else None

        found = await self._list(VOLUMES, lies_here)
        volumes = tuple(volume for volume in found if volume.driver)
        listed = every_volume if len(self._ignorance) == unread else None
        held = {(volume.claim.namespace, volume.claim.name) for volume in volumes if volume.claim}
        claims = await self._list(CLAIMS, lambda obj: _if(self._concerns(claim := Claim.of(obj), held, listed), claim))
        await self._unheard()
        classes = await self._list(CLASSES, Class.of)
        provisioners = {class_.name: class_.provisioner for class_ in classes}
        capacities = await self._list_or_none(CAPACITIES, CapacityRecord.of)
        if capacities is None:
            self._ignorance.pop()  # a verdict can do without: of volumes that are to go elsewhere it is not known where
        budgets = await self._list_or_none(BUDGETS, Budget.of)
        return Picture(
            at=self._now,
            node_name=self._name,
            node=node,
            others=others,
            drivers=await self._drivers(),
            volumes=volumes,
            strays=MappingProxyType(strays),
            doubtful=MappingProxyType(doubtful),
            foreign=len(found) - len(volumes),
            claims=claims,
            pods=await self._list(PODS, Pod.of, field_selector=f"spec.nodeName={self._name}"),
            contents=await self._contents(volumes),
            classes=classes,
            capacities=capacities,
            capacity_drivers={record.uid: provisioners.get(record.class_name, "") for record in capacities or ()},
            budgets=budgets,
            namespace_policies=await self._policies({claim.namespace for claim in claims} | {namespace for namespace, _ in held}),
            ignorance=tuple(self._ignorance),
        )

    def _concerns(self, claim: Claim, held: set[tuple[str, str]], listed: set[str] | None) -> bool:
        waits_here = not claim.volume_name and claim.selected_node == self._name
        bound_here = bool(claim.volume_name) and claim.selected_node == self._name
        if bound_here and listed is not None and claim.volume_name not in listed:
            self._unlisted.append(claim)
        return waits_here or (claim.namespace, claim.name) in held

    async def _unheard(self) -> None:
        """Volumes that were not listed, and claims are bound to: one that is gone does not count."""
        for claim in self._unlisted:
            what = f"claim {claim.full_name} is bound to volume {claim.volume_name}, which was not there a moment before"
            try:
                await self._kube.get(VOLUMES, claim.volume_name)
            except NotFound:
                continue
            except ApiError as error:
                what = f"volume {claim.volume_name}: {error}"
            self._ignorance.append(what)

    async def _contents(self, volumes: tuple[Volume, ...]) -> tuple[SnapshotContent, ...]:
        handles = {(volume.driver, volume.handle) for volume in volumes}

        def here(content: SnapshotContent) -> bool:
            return content.managed_by == self._name or (content.driver, content.source_handle) in handles

        return await self._list(SNAPSHOT_CONTENTS, lambda obj: _if(here(content := SnapshotContent.of(obj)), content))

    async def _drivers(self) -> tuple[str, ...]:
        """Those with a place of their own: a driver whose volumes every node reaches has nothing that a drain could strand."""
        try:
            found = await self._kube.get(CSI_NODES, self._name)
        except NotFound:
            return ()
        except ApiError as error:
            self._ignorance.append(f"{CSI_NODES}: {error}")
            return ()
        return tuple(sorted(item["name"] for item in (found.get("spec") or {}).get("drivers") or () if item.get("topologyKeys")))

    async def _policies(self, namespaces: set[str]) -> Mapping[str, str]:
        """What namespaces say, where they may be read; elsewhere they are as good as silent, and the answer says that."""
        found: dict[str, str] = {}
        for name in sorted(namespaces):
            try:
                notes = (await self._kube.get(NAMESPACES, name))["metadata"].get("annotations") or {}
            except NotFound:
                continue  # only volumes are left of it that were kept
            except ApiError as error:
                self._ignorance.append(f"namespace {name}: {error}")
                continue
            if names.DRAIN_POLICY in notes:
                found[name] = notes[names.DRAIN_POLICY]
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


def _if(wanted: bool, value: R) -> R | None:
    return value if wanted else None
