"""What one set of lists has found in a cluster, and the part of it that concerns one node."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sidecar.drain.facts.assembly import content_lies_here, policy_namespaces
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.facts.listed_volumes import SOME, claim_of, mounted_claims
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.snapshot import CLAIM, CLASS, NAMESPACE, unread_key
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Notes, Volume
from sidecar.model.topology import Term


@dataclass(frozen=True, slots=True)
class ListedCluster:
    """Slim records of all that counts. What could not be read is empty, and `ignorance` says so."""

    at: float
    nodes: tuple[Node, ...]
    registered: Mapping[str, tuple[str, ...]]
    """By node: drivers with a topology that are registered with its kubelet."""
    volumes: tuple[Volume, ...]
    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    contents: tuple[SnapshotContent, ...]
    classes: tuple[Class, ...]
    capacities: tuple[CapacityRecord, ...] | None
    capacity_drivers: Mapping[str, str]
    budgets: tuple[Budget, ...] | None
    namespace_policies: Mapping[str, Notes]
    unread: frozenset[str]
    """As `Snapshot.unread`."""
    unlisted: frozenset[str]
    """CLAIM, CLASS or NAMESPACE: what of these a volume has is not known."""
    ignorance: tuple[str, ...]


class NodePicker:
    """Finds the part of each node. What lies on one node alone is looked up, so that many nodes cost little more than one."""

    def __init__(self, cluster: ListedCluster) -> None:
        self._cluster = cluster
        self._nodes = {node.name: node for node in cluster.nodes}
        self._reached_by: dict[tuple[Term, ...] | None, tuple[str, ...]] = {None: ()}
        self._alone, self._anywhere = self._by_place()
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
        self._bound = {claim_of(volume): volume for volume in cluster.volumes if volume.phase == "Bound"}

    def node(self, name: str) -> ListedNode:
        """Of a node that is in the lists."""
        cluster, node = self._cluster, self._nodes[name]
        others = tuple(other for other in cluster.nodes if other is not node)
        locator = VolumeLocator(node, others)
        near = (*self._alone.get(name, ()), *self._anywhere)
        found = tuple(volume for volume in near if locator.holds(volume))
        volumes, pods = tuple(volume for volume in found if volume.driver), tuple(self._pods.get(name, ()))
        loose = tuple(volume for volume in near if locator.may_hold(volume))
        return ListedNode(
            at=cluster.at,
            node_name=name,
            node=node,
            others=others,
            drivers=cluster.registered.get(name, ()),
            volumes=volumes,
            unlocated=_named(volume for volume in loose if not locator.is_doubtful(volume)),
            doubtful=_named(volume for volume in loose if locator.is_doubtful(volume)),
            driverless=len(found) - len(volumes),
            claims=tuple(self._claims_of(name, volumes)),
            pods=pods,
            claimants=tuple(self._claimants(name, volumes)),
            mounted=tuple(self._mounted(pods)),
            contents=tuple(self._contents(name, volumes)),
            classes=cluster.classes,
            capacities=cluster.capacities,
            capacity_drivers=cluster.capacity_drivers,
            budgets=cluster.budgets,
            namespace_policies=self._policies(volumes),
            unread=cluster.unread | set(self._unlisted(volumes)),
            ignorance=cluster.ignorance,
        )

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._nodes))

    def reached_by(self, volume: Volume) -> tuple[str, ...]:
        """The nodes that its affinity allows; none for one without affinity."""
        affinity = volume.affinity
        if affinity not in self._reached_by:
            terms = affinity or ()
            self._reached_by[affinity] = tuple(
                node.name for node in self._cluster.nodes if any(term.matches(node.name, node.labels) for term in terms)
            )
        return self._reached_by[affinity]

    def _by_place(self) -> tuple[dict[str, list[Volume]], list[Volume]]:
        """Volumes that one node alone reaches, by that node; and the others."""
        alone, anywhere = defaultdict[str, list[Volume]](list), list[Volume]()
        for volume in self._cluster.volumes:
            reached = self.reached_by(volume)
            (alone[reached[0]] if len(reached) == 1 else anywhere).append(volume)
        return alone, anywhere

    def _claims_of(self, name: str, volumes: Iterable[Volume]) -> Iterable[Claim]:
        named = [self._claims.get(claim_of(volume)) for volume in volumes]
        of_volumes = {claim.full_name: claim for claim in named if claim is not None}
        waiting = {claim.full_name: claim for claim in self._waiting.get(name, ())}
        return (of_volumes | waiting).values()

    def _claimants(self, name: str, volumes: Iterable[Volume]) -> Iterable[Pod]:
        users = (pod for volume in volumes for pod in self._users.get(claim_of(volume), ()))
        return {pod.uid: pod for pod in users if pod.node != name}.values()

    def _mounted(self, pods: Iterable[Pod]) -> Iterable[Volume]:
        claims = sorted(mounted_claims(pods))
        return (self._bound[claim] for claim in claims if claim in self._bound)

    def _contents(self, name: str, volumes: Iterable[Volume]) -> Iterable[SnapshotContent]:
        handles = {(volume.driver, volume.handle) for volume in volumes}
        return (content for content in self._cluster.contents if content_lies_here(content, node_name=name, handles=handles))

    def _policies(self, volumes: Iterable[Volume]) -> Mapping[str, Notes]:
        said = self._cluster.namespace_policies
        return MappingProxyType({name: said[name] for name in policy_namespaces(volumes) if name in said})

    def _unlisted(self, volumes: Sequence[Volume]) -> Iterable[str]:
        """What of these volumes' claims, classes and namespaces could have said a policy, and was in a list that failed."""
        named = {
            CLAIM: (claim_of(volume) for volume in volumes),
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
