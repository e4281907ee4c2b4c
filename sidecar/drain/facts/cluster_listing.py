"""Supplies the facts to whoever asks from outside: lists, once, all that a judgement of one node or of all nodes needs. Writes nothing.

`explain` asks so, and a sidecar that judges a node whose own sidecar is dead. Of its own node a running sidecar knows most of this
from its watches (`lookups`).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sidecar.drain.facts import unseen_volumes
from sidecar.drain.facts.assembly import is_unseen, namespace_notes, policy_namespaces
from sidecar.drain.facts.listed_cluster import ListedCluster, NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.listed_volumes import VolumeSorting, claim_of, mounted_claims
from sidecar.drain.facts.listing_io import Lister
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
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
)
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Notes, Volume

_WITH_POLICIES: Final = ((CLAIM, CLAIMS), (CLASS, CLASSES), (NAMESPACE, NAMESPACES))


class ClusterListing:
    """One look. Each kind is listed once, and its objects are made small or dropped page by page: clusters are large, nodes are not.

    Asked about one node, it keeps what concerns that one: a sidecar that asks has little memory.
    """

    def __init__(self, kube: KubeApi, node_name: str = "", *, now: float) -> None:
        self._kube = kube
        self._name = node_name
        self._now = now
        self._lister = Lister(kube)

    async def look(self) -> ListedNode:
        """At the one node. Raises NotFound when there is no such node; whatever else fails is in the answer's `ignorance`."""
        node = Node.of(await self._kube.get(NODES, self._name))
        others = await self._lister.all(NODES, lambda obj: Node.of(obj) if obj["metadata"]["name"] != self._name else None)
        there = await self._lister.all(PODS, Pod.of, field_selector=f"spec.nodeName={self._name}")
        sorting = VolumeSorting(node, others, mounted=mounted_claims(there))
        volumes = await self._lister.all(VOLUMES, sorting.keep)
        # After a list that failed all the rest would count as unseen, and one sentence has said already that it failed.
        listed = None if VOLUMES in self._lister.failed else sorting.names
        held = sorting.held(volumes)
        claims = await self._claims(held, listed)
        registered = await self._lister.one(CSI_NODES, self._name, what=str(CSI_NODES))
        pods = await self._pods(there, held)
        namespaces = [(name, await self._namespace(name)) for name in policy_namespaces(held)]
        cluster = await self._cluster((node, *others), volumes, claims, pods, namespaces=namespaces, csi_nodes=(registered,))
        return NodePicker(cluster).node(self._name)

    async def look_at_all(self) -> ListedCluster:
        """At all nodes. The number of requests grows with the size of the lists alone."""
        nodes = await self._lister.all(NODES, Node.of)
        # Claims before volumes: what a claim of this list is bound to is in a later list, or it is gone.
        claims = await self._lister.all(CLAIMS, Claim.of)
        volumes = await self._lister.all(VOLUMES, Volume.of)
        csi_nodes = await self._lister.all(CSI_NODES, _registration)
        namespaces = await self._lister.all(NAMESPACES, lambda obj: (obj["metadata"]["name"], namespace_notes(obj)))
        pods = await self._lister.all(PODS, Pod.of)
        return await self._cluster(nodes, volumes, claims, pods, namespaces=namespaces, csi_nodes=csi_nodes)

    async def _cluster(
        self,
        nodes: tuple[Node, ...],
        volumes: tuple[Volume, ...],
        claims: tuple[Claim, ...],
        pods: tuple[Pod, ...],
        *,
        namespaces: Iterable[tuple[str, Notes]],
        csi_nodes: Iterable[Json | None],
    ) -> ListedCluster:
        """What is listed in the same way for one node and for all."""
        classes = await self._lister.all(CLASSES, Class.of)
        provisioners = {class_.name: class_.provisioner for class_ in classes}
        capacities = await self._capacities()
        return ListedCluster(
            at=self._now,
            nodes=nodes,
            registered=_with_topology(csi_nodes),
            volumes=volumes,
            claims=claims,
            pods=pods,
            contents=await self._lister.all(SNAPSHOT_CONTENTS, SnapshotContent.of),
            classes=classes,
            capacities=capacities,
            capacity_drivers={record.uid: provisioners.get(record.class_name, "") for record in capacities or ()},
            budgets=await self._lister.all_or_none(BUDGETS, Budget.of),
            namespace_policies=MappingProxyType({name: notes for name, notes in namespaces if notes}),
            unread=frozenset(self._lister.unread),
            unlisted=frozenset(kind for kind, resource in _WITH_POLICIES if resource in self._lister.failed),
            ignorance=tuple(dict.fromkeys(self._lister.ignorance)),
        )

    async def _claims(self, held: Iterable[Volume], listed: set[str] | None) -> tuple[Claim, ...]:
        """Claims of these volumes, and claims whose volume is to be created on the node."""
        wanted, unseen = {claim_of(volume) for volume in held}, list[Claim]()

        def keep(obj: Json) -> Claim | None:
            claim = Claim.of(obj)
            if listed is not None and is_unseen(claim, node_name=self._name, seen=listed):
                unseen.append(claim)
            waits_here = not claim.volume_name and claim.selected_node == self._name
            return claim if waits_here or claim.full_name in wanted else None

        found = await self._lister.all(CLAIMS, keep)
        self._lister.ignorance += await unseen_volumes.ignorance_of(self._kube, unseen)
        return found

    async def _pods(self, there: tuple[Pod, ...], held: Iterable[Volume]) -> tuple[Pod, ...]:
        """Those of the node, and those anywhere that name a claim of these volumes. Without such claims no other pods are listed."""
        wanted = {claim_of(volume) for volume in held} - {""}
        if not wanted:
            return there

        def keep(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return pod if pod.node == self._name or not wanted.isdisjoint(mounted_claims((pod,))) else None

        return await self._lister.all(PODS, keep)

    async def _namespace(self, name: str) -> Notes:
        """Of those that cannot be read nobody knows what they say."""
        return namespace_notes(await self._lister.one(NAMESPACES, name, what=unread_key(NAMESPACE, name)))

    async def _capacities(self) -> tuple[CapacityRecord, ...] | None:
        found = await self._lister.all_or_none(CAPACITIES, CapacityRecord.of)
        if found is None:
            self._lister.ignorance.pop()  # no verdict depends on it: only where volumes could move to is not known then
        return found


def _registration(obj: Json) -> Json:
    """As much of a CSINode as is needed."""
    return {"metadata": {"name": obj["metadata"]["name"]}, "spec": {"drivers": (obj.get("spec") or {}).get("drivers") or ()}}


def _with_topology(csi_nodes: Iterable[Json | None]) -> Mapping[str, tuple[str, ...]]:
    """By node, its drivers with a topology: a driver whose volumes every node reaches has nothing that a drain could strand."""
    found = {}
    for csi_node in filter(None, csi_nodes):
        drivers = (csi_node.get("spec") or {}).get("drivers") or ()
        found[csi_node["metadata"]["name"]] = tuple(sorted(item["name"] for item in drivers if item.get("topologyKeys")))
    return MappingProxyType(found)
