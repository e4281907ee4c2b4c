"""One look at a whole cluster for the sake of one node, and what of it is one driver's. Who asks from outside judges by this."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sidecar.drain.place import place_unknown
from sidecar.drain.snapshot import InFlight, Snapshot, Surroundings
from sidecar.drain.words import Policy
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Volume


@dataclass(frozen=True, slots=True)
class Picture:
    """Of all drivers. What could not be read is empty, and `ignorance` says so."""

    at: float
    node_name: str
    node: Node | None
    others: tuple[Node, ...]
    drivers: tuple[str, ...]
    """That the kubelet of the node knows."""
    volumes: tuple[Volume, ...]
    """Those that lie on the node and nowhere else."""
    strays: Mapping[str, tuple[str, ...]]
    """By driver, some volumes of which that is not known: no node reaches them, or several do, and they do not say who made them."""
    doubtful: Mapping[str, tuple[str, ...]]
    """By driver, some volumes that may lie on the node, which lacks labels they ask for."""
    foreign: int
    """How many volumes lie on the node that no CSI driver is behind."""
    claims: tuple[Claim, ...]
    """Bound to those, or yet to be created on the node."""
    pods: tuple[Pod, ...]
    contents: tuple[SnapshotContent, ...]
    classes: tuple[Class, ...]
    capacities: tuple[CapacityRecord, ...] | None
    """None: they could not be read, and where volumes could go is not known."""
    capacity_drivers: Mapping[str, str]
    """By uid of a capacity record: whose it is, as its class says."""
    budgets: tuple[Budget, ...] | None
    namespace_policies: Mapping[str, str]
    ignorance: tuple[str, ...]

    def all_drivers(self) -> tuple[str, ...]:
        """Those that the node has, or that something on it belongs to."""
        found = {volume.driver for volume in self.volumes} | {content.driver for content in self.contents}
        return tuple(sorted(found | {claim.provisioner for claim in self.claims if not claim.volume_name} | set(self.drivers)))


def snapshot_of(picture: Picture, driver: str, *, default_policy: Policy | None = None) -> Snapshot:
    """What one driver's sidecar would judge."""
    volumes = tuple(volume for volume in picture.volumes if volume.driver == driver)
    # Those of volumes that people made have no driver behind them.
    named = {volume.class_name for volume in volumes}
    doubtful = picture.doubtful.get(driver, ())
    return Snapshot(
        now=picture.at,
        driver=driver,
        node_name=picture.node_name,
        node=picture.node,
        volumes=volumes,
        claims=MappingProxyType({claim.full_name: claim for claim in picture.claims if claim.volume_name}),
        pods=picture.pods,
        contents=tuple(content for content in picture.contents if content.driver == driver),
        classes=MappingProxyType(
            {class_.name: class_ for class_ in picture.classes if class_.provisioner == driver or class_.name in named}
        ),
        in_flight=tuple(_in_flight(claim) for claim in picture.claims if not claim.volume_name and claim.provisioner == driver),
        namespace_policies=picture.namespace_policies,
        default_policy=default_policy,
        budgets=picture.budgets,
        surroundings=_surroundings(picture, driver),
        ignorance=(*picture.ignorance, *((place_unknown(doubtful),) if doubtful else ())),
    )


def _surroundings(picture: Picture, driver: str) -> Surroundings | None:
    if picture.capacities is None:
        return None
    ours = (record for record in picture.capacities if picture.capacity_drivers.get(record.uid) == driver)
    return Surroundings(picture.others, tuple(ours))


def _in_flight(claim: Claim) -> InFlight:
    return InFlight(claim.uid, claim.namespace, claim.name, claim.class_name, claim.requested or 0)
