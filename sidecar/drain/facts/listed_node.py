"""What one listing of the whole cluster has found about one node, for all drivers; `facts_of` selects one driver's facts."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sidecar.drain.facts.assembly import Facts
from sidecar.drain.facts.snapshot import Surroundings
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Json, Notes, Volume


@dataclass(frozen=True, slots=True)
class ListedNode:
    """Of all drivers. What could not be read is empty, and `ignorance` says so."""

    at: float
    node_name: str
    node: Node | None
    others: tuple[Node, ...]
    drivers: tuple[str, ...]
    """Drivers that are registered with the kubelet of the node."""
    volumes: tuple[Volume, ...]
    """Those that are on the node and on no other."""
    unlocated: Mapping[str, tuple[str, ...]]
    """By driver, some volumes that may be on any node: no node reaches them, or several do, and they do not say who made them."""
    loose: tuple[tuple[Volume, Claim | None], ...]
    """As `Snapshot.unplaced`, of all drivers."""
    orphans: Mapping[str, tuple[str, ...]]
    """By driver, some volumes that no living node reaches, and that do not say who made them."""
    doubtful: Mapping[str, tuple[str, ...]]
    """By driver, some volumes that may be on the node, which lacks labels that they ask for."""
    driverless: int
    """How many volumes on the node belong to no CSI driver."""
    claims: tuple[Claim, ...]
    """Claims of those volumes, and claims whose volume is to be created on the node."""
    pods: tuple[Pod, ...]
    claimants: tuple[Pod, ...]
    """Pods without a node, or of other nodes, that name a claim of those volumes."""
    mounted: tuple[Volume, ...]
    """Volumes of all drivers that pods of the node mount, or that are attached to it."""
    shared_with: Mapping[str, tuple[str, ...]]
    """By PersistentVolume: other nodes that reach it too, and stay."""
    attached: frozenset[str]
    """PersistentVolumes that are attached to the node."""
    reports: Mapping[str, Json]
    """By name: what the nodes' own sidecars have stored."""
    unread_reports: frozenset[str]
    """Names of reports that there may be, and that could not be read."""
    conditions: tuple[Json, ...]
    """In which the node's own sidecars say their verdicts."""
    contents: tuple[SnapshotContent, ...]
    unplaced: tuple[SnapshotContent, ...]
    """Snapshots of which nothing says where they are."""
    classes: tuple[Class, ...]
    capacities: tuple[CapacityRecord, ...] | None
    """None: they could not be read, and where volumes could go is not known."""
    capacity_drivers: Mapping[str, str]
    """By uid of a capacity record: its driver, as its class says."""
    budgets: tuple[Budget, ...] | None
    namespace_policies: Mapping[str, Notes]
    unheeded_namespaces: frozenset[str]
    """As `Snapshot.unheeded_namespaces`."""
    unread: frozenset[str]
    """As `Snapshot.unread`."""
    ignorance: tuple[str, ...]

    def all_drivers(self) -> tuple[str, ...]:
        """Those that are registered on the node, and those that something on it belongs to."""
        found = {volume.driver for volume in self.volumes} | {content.driver for content in self.contents}
        return tuple(sorted(found | {claim.provisioner for claim in self.claims if not claim.volume_name} | set(self.drivers)))

    def facts_of(self, driver: str) -> Facts:
        return Facts(
            driver=driver,
            node_name=self.node_name,
            node=self.node,
            volumes=self._volumes_of(driver),
            doubtful=self.doubtful.get(driver, ()),
            claims=self.claims,
            pods=self.pods,
            contents=self.contents,
            classes=self.classes,
            namespace_policies=self.namespace_policies,
            budgets=self.budgets,
            surroundings=self._surroundings(driver),
            unread=self.unread,
            ignorance=self.ignorance,
            claimants=self.claimants,
            attached=self.attached,
            unplaced_contents=tuple(content for content in self.unplaced if content.driver == driver),
            unplaced=tuple((volume, claim) for volume, claim in self.loose if volume.driver == driver),
            unheeded_namespaces=self.unheeded_namespaces,
            shared_with=self._shared_with(driver),
            foreign=tuple(volume for volume in self.mounted if volume.driver not in ("", driver)),
        )

    def _volumes_of(self, driver: str) -> tuple[Volume, ...]:
        """What a pod of the node mounts is on the node, whatever its labels say; so is what is attached."""
        named = {volume.name: volume for volume in (*self.volumes, *self.mounted) if volume.driver == driver}
        return tuple(named.values())

    def _shared_with(self, driver: str) -> Mapping[str, tuple[str, ...]]:
        ours = {volume.name for volume in self._volumes_of(driver)}
        return MappingProxyType({name: others for name, others in self.shared_with.items() if name in ours})

    def _surroundings(self, driver: str) -> Surroundings | None:
        if self.capacities is None:
            return None
        ours = (record for record in self.capacities if self.capacity_drivers.get(record.uid) == driver)
        return Surroundings(self.others, tuple(ours))
