"""What one set of lists has found in a cluster, and the part of it that concerns one node."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sidecar.drain.facts import mounts_unknown
from sidecar.drain.facts.assembly import content_lies_here, policy_namespaces
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.listed_volumes import SOME, mounted_claims
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.drain.facts.volume_map import VolumeMap
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Notes, Volume
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class ListedNamespace:
    """As much of a Namespace as counts."""

    name: str
    notes: Notes
    heeded: bool
    """Its own word for Block counts."""


@dataclass(frozen=True, slots=True)
class ListedReports:
    """What nodes' own sidecars have stored: the status of their reports, shortened."""

    by_name: Mapping[str, Json]
    unread: frozenset[str] | None
    """Names of those that could not be read; None: none could."""


@dataclass(frozen=True, slots=True)
class ListedCluster:
    """Slim records of all that counts. What could not be read is empty, and `ignorance` says so."""

    at: float
    nodes: tuple[Node, ...]
    registered: Mapping[str, Mapping[str, tuple[str, ...]]]
    """By node: drivers with a topology that are registered with its kubelet, and their keys."""
    volumes: tuple[Volume, ...]
    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    contents: tuple[SnapshotContent, ...]
    classes: tuple[Class, ...]
    capacities: tuple[CapacityRecord, ...] | None
    capacity_drivers: Mapping[str, str]
    budgets: tuple[Budget, ...] | None
    attached: Mapping[str, frozenset[str]]
    """By node: PersistentVolumes that are attached to it."""
    reports: ListedReports
    conditions: Mapping[str, tuple[Json, ...]]
    """By node: the conditions in which sidecars say their verdicts."""
    namespaces: Mapping[str, ListedNamespace]
    unread: frozenset[str]
    """As `Snapshot.unread`."""
    unlisted: frozenset[str]
    """CLAIM, CLASS or NAMESPACE: what of these a volume has is not known."""
    volumes_listed: bool
    """The list of volumes did not fail."""
    ignorance: tuple[str, ...]


class NodePicker:
    """Finds the part of each node. What lies on one node alone is looked up, so that many nodes cost little more than one."""

    def __init__(self, cluster: ListedCluster) -> None:
        self._cluster = cluster
        self._nodes = {node.name: node for node in cluster.nodes}
        self.map = VolumeMap(cluster.nodes, cluster.volumes)
        self._pods: dict[str, list[Pod]] = defaultdict(list)
        self._users: dict[str, list[Pod]] = defaultdict(list)
        for pod in cluster.pods:
            self._pods[pod.node].append(pod)
            for name in mounted_claims((pod,)):
                self._users[name].append(pod)
        self._claims = {claim.full_name: claim for claim in cluster.claims}
        self._waiting: dict[str, list[Claim]] = defaultdict(list)
        for claim in cluster.claims:
            if not claim.volume_name and claim.selected_node:
                self._waiting[claim.selected_node].append(claim)
        self._unlabelled = tuple(content for content in cluster.contents if not content.managed_by)
        handles = {(content.driver, content.source_handle) for content in self._unlabelled}
        by_handle = (((volume.driver, volume.handle), volume) for volume in cluster.volumes)
        self._sources = {handle: volume for handle, volume in by_handle if handle in handles}
        self._volumes = {volume.name: volume for volume in cluster.volumes}

    def node(self, name: str) -> ListedNode:
        """Of a node that is in the lists."""
        cluster, node = self._cluster, self._nodes[name]
        locator, found = self.map.locator(name), self.map.held(name)
        pods = tuple(self._pods.get(name, ()))
        attached = cluster.attached.get(name, frozenset())
        mounted = {volume.name: volume for volume in self._mounted(pods, attached)}
        volumes = tuple(volume for volume in found if volume.driver)
        all_here = tuple({volume.name: volume for volume in (*volumes, *mounted.values())}.values())
        doubtful = tuple(volume for volume in self.map.doubtful(name) if volume.name not in mounted)
        shared = {volume.name: locator.others_that_stay(volume) for volume in all_here}
        return ListedNode(
            at=cluster.at,
            node_name=name,
            node=node,
            others=self.map.others(name),
            drivers=tuple(cluster.registered.get(name, ())),
            loose=tuple(self._loose(node, without=mounted)),
            volumes=volumes,
            unlocated=_named(volume for volume in self.map.unlocated(name) if volume.name not in mounted),
            orphans=_named(volume for volume in self.map.orphans(name) if volume.name not in mounted),
            doubtful=_named(doubtful),
            driverless=len(found) - len(volumes),
            claims=tuple(self._claims_of(name, all_here)),
            pods=pods,
            claimants=tuple(self._claimants(name, all_here, pods)),
            mounted=tuple(mounted.values()),
            shared_with=MappingProxyType({volume: staying for volume, staying in shared.items() if staying}),
            attached=attached,
            reports=cluster.reports.by_name,
            unread_reports=self._unread_reports(name, {volume.driver for volume in all_here}),
            conditions=cluster.conditions.get(name, ()),
            contents=tuple(self._contents(name, all_here)),
            unplaced=tuple(self._unplaced(locator, all_here, doubtful)),
            classes=cluster.classes,
            capacities=cluster.capacities,
            capacity_drivers=cluster.capacity_drivers,
            budgets=cluster.budgets,
            namespace_policies=self._policies(all_here),
            unheeded_namespaces=self._unheeded(all_here),
            unread=cluster.unread | set(self._unlisted(all_here)),
            ignorance=(*cluster.ignorance, *self._unknown_mounts(pods)),
        )

    def nowhere(self, volumes: Iterable[Volume]) -> ListedNode:
        """As of a node that does not exist, these volumes: for what is on no node, or on several."""
        cluster, volumes = self._cluster, tuple(volumes)
        return ListedNode(
            at=cluster.at,
            node_name="",
            node=None,
            others=cluster.nodes,
            drivers=(),
            loose=(),
            volumes=volumes,
            unlocated=MappingProxyType({}),
            orphans=MappingProxyType({}),
            doubtful=MappingProxyType({}),
            driverless=0,
            claims=tuple(self._claims_of("", volumes)),
            pods=(),
            claimants=tuple(self._claimants("", volumes, ())),
            mounted=(),
            shared_with=MappingProxyType({}),
            attached=frozenset(),
            reports=MappingProxyType({}),
            unread_reports=frozenset(),
            conditions=(),
            contents=(),
            classes=cluster.classes,
            capacities=None,
            capacity_drivers=MappingProxyType({}),
            budgets=None,
            unplaced=(),
            namespace_policies=self._policies(volumes),
            unheeded_namespaces=self._unheeded(volumes),
            unread=cluster.unread | set(self._unlisted(volumes)),
            ignorance=cluster.ignorance,
        )

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._nodes))

    def volumes(self) -> tuple[Volume, ...]:
        """Of all CSI drivers."""
        return tuple(volume for volume in self._cluster.volumes if volume.driver)

    def drivers_with_topology(self) -> frozenset[str]:
        """On any node."""
        return frozenset(driver for drivers in self._cluster.registered.values() for driver in drivers)

    def _claims_of(self, name: str, volumes: Iterable[Volume]) -> Iterable[Claim]:
        named = [self._claims.get(volume.claim_name) for volume in volumes]
        of_volumes = {claim.full_name: claim for claim in named if claim is not None}
        waiting = {claim.full_name: claim for claim in self._waiting.get(name, ())}
        return (of_volumes | waiting).values()

    def _claimants(self, name: str, volumes: Iterable[Volume], pods: Iterable[Pod]) -> Iterable[Pod]:
        """Where a pod of this node names the claim, nobody else's has to be known."""
        claims = {volume.claim_name for volume in volumes} - mounted_claims(pods)
        users = (pod for claim in sorted(claims) for pod in self._users.get(claim, ()))
        return {pod.uid: pod for pod in users if pod.node != name}.values()

    def _mounted(self, pods: Iterable[Pod], attached: Iterable[str]) -> Iterable[Volume]:
        named = (self._claims.get(claim) for claim in sorted(mounted_claims(pods)))
        names = (claim.volume_name for claim in named if claim is not None)
        return (self._volumes[name] for name in dict.fromkeys((*names, *sorted(attached))) if name in self._volumes)

    def _unknown_mounts(self, pods: Iterable[Pod]) -> Iterable[str]:
        """Of pods that run with a claim or a volume that is gone."""
        if CLAIM in self._cluster.unlisted:
            return
        for pod in filter(mounts_unknown.has_mounted, pods):
            for name in sorted(mounted_claims((pod,))):
                claim = self._claims.get(name)
                if claim is None:
                    yield mounts_unknown.claim_is_gone(name, pod)
                elif claim.volume_name and claim.volume_name not in self._volumes and self._cluster.volumes_listed:
                    yield mounts_unknown.volume_is_gone(claim.volume_name, pod)

    def _contents(self, name: str, volumes: Iterable[Volume]) -> Iterable[SnapshotContent]:
        handles = {(volume.driver, volume.handle) for volume in volumes}
        return (content for content in self._cluster.contents if content_lies_here(content, node_name=name, handles=handles))

    def _unplaced(self, locator: VolumeLocator, here: Iterable[Volume], doubtful: Iterable[Volume]) -> Iterable[SnapshotContent]:
        """Nothing says where they are: not their label, nor the place of their source. Of a source in doubt is told already."""
        told = {(volume.driver, volume.handle) for volume in (*here, *doubtful)}
        for content in self._unlabelled:
            source = self._sources.get((content.driver, content.source_handle))
            if (content.driver, content.source_handle) not in told and not (source and locator.is_placed_elsewhere(source)):
                yield content

    def _loose(self, node: Node, *, without: Container[str]) -> Iterable[tuple[Volume, Claim | None]]:
        """Of the drivers of this node. A volume of which nothing else says where it is, is where a pod runs with it."""
        keys = self._cluster.registered.get(node.name, {})
        for volume in self.map.unlocated(node.name):
            if volume.driver not in keys or volume.name in without:
                continue
            place = Segment.of({key: node.labels[key] for key in keys[volume.driver] if key in node.labels})
            runs = (pod.node not in ("", node.name) and mounts_unknown.has_mounted(pod) for pod in self._users.get(volume.claim_name, ()))
            if VolumeLocator(node, self.map.others(node.name), place=place).is_unplaced(volume) and not any(runs):
                yield volume, self._claims.get(volume.claim_name)

    def _said(self, volumes: Iterable[Volume]) -> Iterable[ListedNamespace]:
        known = self._cluster.namespaces
        return (known[name] for name in policy_namespaces(volumes) if name in known)

    def _unread_reports(self, name: str, drivers: Iterable[str]) -> frozenset[str]:
        unread = self._cluster.reports.unread
        return frozenset(names.drain_report(name, driver) for driver in drivers) if unread is None else unread

    def _policies(self, volumes: Iterable[Volume]) -> Mapping[str, Notes]:
        return MappingProxyType({namespace.name: namespace.notes for namespace in self._said(volumes) if namespace.notes})

    def _unheeded(self, volumes: Iterable[Volume]) -> frozenset[str]:
        """Of what could not be read nobody knows whether it counts, so it does."""
        unread = self._cluster.unread
        said = (namespace for namespace in self._said(volumes) if unread_key(NAMESPACE, namespace.name) not in unread)
        return frozenset(namespace.name for namespace in said if not namespace.heeded)

    def _unlisted(self, volumes: Sequence[Volume]) -> Iterable[str]:
        """What of these volumes' claims, classes and namespaces could have said a policy, and was in a list that failed."""
        named = {
            CLAIM: (volume.claim_name for volume in volumes),
            CLASS: (volume.class_name for volume in volumes),
            NAMESPACE: iter(policy_namespaces(volumes)),
        }
        return (unread_key(kind, name) for kind in self._cluster.unlisted for name in named[kind] if name)


def _named(volumes: Iterable[Volume]) -> Mapping[str, tuple[str, ...]]:
    """Some names, by driver."""
    found: dict[str, tuple[str, ...]] = {}
    for volume in volumes:
        found[volume.driver] = (*found.get(volume.driver, ()), volume.name)[:SOME]
    return MappingProxyType(found)
