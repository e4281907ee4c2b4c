"""Supplies the facts to whoever asks from outside: lists, once, all that a judgement of one node or of all nodes needs. Writes nothing.

`explain` asks so, and a sidecar that judges a node whose own sidecar is dead. Of its own node a running sidecar knows most of this
from its watches (`lookups`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from types import MappingProxyType
from typing import Final

from sidecar.drain.facts.assembly import is_unseen, namespace_is_heeded, namespace_notes, policy_namespaces
from sidecar.drain.facts.listed_cluster import ListedCluster, ListedNamespace, ListedReports, NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.listed_volumes import VolumeSorting, mounted_claims, unplaced_sources
from sidecar.drain.facts.listing_io import Lister
from sidecar.drain.facts.slim_records import registration, stored, verdict_conditions, with_topology
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.facts.unseen_volumes import UnseenVolumes
from sidecar.kube.api import (
    ATTACHMENTS,
    BUDGETS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    DRAIN_REPORTS,
    NAMESPACES,
    NODES,
    PODS,
    SNAPSHOT_CONTENTS,
    VOLUMES,
    KubeApi,
)
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Attachment, CapacityRecord, Claim, Class, Json, Volume
from sidecar.model.topology import Requirement

_WITH_POLICIES: Final = ((CLAIM, CLAIMS), (CLASS, CLASSES), (NAMESPACE, NAMESPACES))


class ClusterListing:
    """One look. Each kind is listed once, and its objects are made small or dropped page by page: clusters are large, nodes are not.

    Asked about one node, it keeps what concerns that one: a sidecar that asks has little memory.
    """

    def __init__(self, kube: KubeApi, node_name: str = "", *, now: float, tenants: tuple[Requirement, ...] = ()) -> None:
        """`tenants` as `Settings.tenant_policies`."""
        self._kube = kube
        self._tenants = tenants
        self._name = node_name
        self._now = now
        self._lister = Lister(kube)
        self._conditions: dict[str, tuple[Json, ...]] = {}
        """By node: what sidecars have written there of their verdicts."""

    async def look(self) -> ListedNode:
        """At the one node. Raises NotFound when there is no such node; whatever else fails is in the answer's `ignorance`."""
        node = self._node(await self._kube.get(NODES, self._name))
        others = await self._lister.all(NODES, lambda obj: Node.of(obj) if obj["metadata"]["name"] != self._name else None)
        there = await self._lister.all(PODS, Pod.of, field_selector=f"spec.nodeName={self._name}")
        contents = await self._lister.all(SNAPSHOT_CONTENTS, self._content)
        attachments = await self._lister.all(ATTACHMENTS, self._attachment)
        sorting = VolumeSorting(
            node,
            others,
            mounted=mounted_claims(there),
            attached=frozenset(one.volume for one in attachments),
            sources=unplaced_sources(contents),
        )
        volumes = await self._lister.all(VOLUMES, sorting.keep)
        # After a list that failed all the rest would count as unseen, and one sentence has said already that it failed.
        listed = None if VOLUMES in self._lister.failed else sorting.names
        held = tuple(volume for volume in volumes if sorting.counts(volume))
        claims = await self._claims({volume.claim_name for volume in volumes} | mounted_claims(there), listed)
        registered = await self._lister.one(CSI_NODES, self._name, what=str(CSI_NODES))
        pods = await self._pods(there, volumes)
        namespaces = [await self._namespace(name) for name in policy_namespaces(held)]
        drivers = chain(with_topology((registered,)).get(self._name, ()), (volume.driver for volume in held))
        reports = await self._reports_of(drivers)
        cluster = await self._cluster(
            (node, *others),
            volumes,
            claims,
            pods,
            contents,
            attachments=attachments,
            namespaces=namespaces,
            csi_nodes=(registered,),
            reports=reports,
        )
        return NodePicker(cluster).node(self._name)

    async def look_at_all(self) -> ListedCluster:
        """At all nodes. The number of requests grows with the size of the lists alone."""
        nodes = await self._lister.all(NODES, self._node)
        # Claims before volumes: what a claim of this list is bound to is in a later list, or it is gone.
        claims = await self._lister.all(CLAIMS, Claim.of)
        volumes = await self._lister.all(VOLUMES, Volume.of)
        csi_nodes = await self._lister.all(CSI_NODES, registration)
        namespaces = await self._lister.all(NAMESPACES, self._said)
        contents = await self._lister.all(SNAPSHOT_CONTENTS, self._content)
        pods, reports = await self._lister.all(PODS, Pod.of), await self._reports()
        return await self._cluster(
            nodes,
            volumes,
            claims,
            pods,
            contents,
            attachments=await self._lister.all(ATTACHMENTS, self._attachment),
            namespaces=namespaces,
            csi_nodes=csi_nodes,
            reports=reports,
        )

    async def _cluster(
        self,
        nodes: tuple[Node, ...],
        volumes: tuple[Volume, ...],
        claims: tuple[Claim, ...],
        pods: tuple[Pod, ...],
        contents: tuple[SnapshotContent, ...],
        *,
        attachments: Iterable[Attachment],
        namespaces: Iterable[ListedNamespace],
        csi_nodes: Iterable[Json | None],
        reports: ListedReports,
    ) -> ListedCluster:
        """What is listed in the same way for one node and for all."""
        classes = await self._lister.all(CLASSES, Class.of)
        provisioners = {class_.name: class_.provisioner for class_ in classes}
        capacities = await self._capacities()
        return ListedCluster(
            at=self._now,
            nodes=nodes,
            registered=with_topology(csi_nodes),
            volumes=volumes,
            claims=claims,
            pods=pods,
            contents=contents,
            classes=classes,
            capacities=capacities,
            capacity_drivers={record.uid: provisioners.get(record.class_name, "") for record in capacities or ()},
            budgets=await self._lister.all_or_none(BUDGETS, Budget.of),
            attached=await self._attached(volumes, attachments),
            reports=reports,
            conditions=MappingProxyType(self._conditions),
            namespaces=MappingProxyType({namespace.name: namespace for namespace in namespaces}),
            unread=frozenset(self._lister.unread),
            unlisted=frozenset(kind for kind, resource in _WITH_POLICIES if resource in self._lister.failed),
            volumes_listed=VOLUMES not in self._lister.failed,
            ignorance=tuple(dict.fromkeys(self._lister.ignorance)),
        )

    async def _claims(self, wanted: Set[str], listed: set[str] | None) -> tuple[Claim, ...]:
        """These claims, and those whose volume is to be created on the node."""
        unseen = list[Claim]()

        def keep(obj: Json) -> Claim | None:
            claim = Claim.of(obj)
            if listed is not None and is_unseen(claim, node_name=self._name, seen=listed):
                unseen.append(claim)
            waits_here = not claim.volume_name and claim.selected_node == self._name
            return claim if waits_here or claim.full_name in wanted else None

        found = await self._lister.all(CLAIMS, keep)
        self._lister.ignorance += await UnseenVolumes(self._kube).ignorance_of(unseen, forbidden={})
        return found

    async def _pods(self, there: tuple[Pod, ...], held: Iterable[Volume]) -> tuple[Pod, ...]:
        """Those of the node, and those anywhere that name a claim of these volumes. Asked are only the namespaces of claims that no pod
        of the node names."""
        wanted = {volume.claim_name for volume in held} - mounted_claims(there) - {""}

        def keep(obj: Json) -> Pod | None:
            pod = Pod.of(obj)
            return None if wanted.isdisjoint(mounted_claims((pod,))) else pod

        namespaces = sorted({claim.partition("/")[0] for claim in wanted})
        found = [await self._lister.all(PODS, keep, namespace=namespace) for namespace in namespaces]
        return tuple({pod.uid: pod for pod in chain(there, *found)}.values())

    def _node(self, obj: Json) -> Node:
        ours = verdict_conditions(obj)
        self._conditions |= {obj["metadata"]["name"]: ours} if ours else {}
        return Node.of(obj)

    async def _reports(self) -> ListedReports:
        """What the nodes' own sidecars have stored. Hardly a verdict depends on it, so it is no ignorance if that cannot be read."""
        found = await self._lister.all_or_none(DRAIN_REPORTS, stored)
        if found is None:
            self._lister.ignorance.pop()
        return ListedReports(MappingProxyType(dict(found or ())), None if found is None else frozenset())

    async def _reports_of(self, drivers: Iterable[str]) -> ListedReports:
        found, unread = dict[str, Json](), set[str]()
        for name in sorted({names.drain_report(self._name, driver) for driver in drivers if driver}):
            try:
                found |= dict((stored(await self._kube.get(DRAIN_REPORTS, name)),))
            except NotFound:
                continue
            except ApiError:
                unread.add(name)
        return ListedReports(MappingProxyType(found), frozenset(unread))

    def _attachment(self, obj: Json) -> Attachment | None:
        attachment = Attachment.of(obj)
        return attachment if self._name in ("", attachment.node) else None

    async def _attached(self, volumes: Iterable[Volume], attachments: Iterable[Attachment]) -> Mapping[str, frozenset[str]]:
        """By node, what is attached to it. Where the driver asks for no attachments, one that is left says nothing."""
        drivers = {volume.name: volume.driver for volume in volumes}
        found = [one for one in attachments if one.volume in drivers]
        attaching = {name: await self._attaches(name) for name in sorted({drivers[one.volume] for one in found})}
        attached: dict[str, set[str]] = defaultdict(set)
        for one in found:
            if attaching[drivers[one.volume]]:
                attached[one.node].add(one.volume)
        return MappingProxyType({node: frozenset(volumes) for node, volumes in attached.items()})

    async def _attaches(self, driver: str) -> bool:
        """A driver of which that cannot be read counts as one that does."""
        try:
            found = await self._kube.get(CSI_DRIVERS, driver)
        except ApiError:
            return True
        return (found.get("spec") or {}).get("attachRequired") is not False

    async def _namespace(self, name: str) -> ListedNamespace:
        """Of those that cannot be read nobody knows what they say."""
        found = await self._lister.one(NAMESPACES, name, what=unread_key(NAMESPACE, name))
        return self._said(found or {"metadata": {"name": name}})

    def _said(self, namespace: Json) -> ListedNamespace:
        return ListedNamespace(namespace["metadata"]["name"], namespace_notes(namespace), namespace_is_heeded(namespace, self._tenants))

    def _content(self, obj: Json) -> SnapshotContent | None:
        content = SnapshotContent.of(obj)
        return None if self._name and content.managed_by not in ("", self._name) else content

    async def _capacities(self) -> tuple[CapacityRecord, ...] | None:
        found = await self._lister.all_or_none(CAPACITIES, CapacityRecord.of)
        if found is None:
            self._lister.ignorance.pop()  # no verdict depends on it: only where volumes could move to is not known then
        return found
