"""One look at a whole cluster for the sake of one node, and what of it is one driver's. Who asks from outside judges by this."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sidecar.drain.snapshot import InFlight, Snapshot, Surroundings
from sidecar.drain.words import Policy
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import CapacityRecord, Claim, Class, Volume
from sidecar.model.topology import Term


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
    return Snapshot(
        now=picture.at,
        driver=driver,
        node_name=picture.node_name,
        node=picture.node,
        volumes=volumes,
        claims=MappingProxyType({claim.full_name: claim for claim in picture.claims if claim.volume_name}),
        pods=picture.pods,
        contents=tuple(content for content in picture.contents if content.driver == driver),
        classes=MappingProxyType({class_.name: class_ for class_ in picture.classes if class_.provisioner == driver}),
        in_flight=tuple(_in_flight(claim) for claim in picture.claims if not claim.volume_name and claim.provisioner == driver),
        namespace_policies=picture.namespace_policies,
        default_policy=default_policy,
        budgets=picture.budgets,
        surroundings=_surroundings(picture, driver),
        ignorance=picture.ignorance,
    )


def _surroundings(picture: Picture, driver: str) -> Surroundings | None:
    if picture.capacities is None:
        return None
    ours = (record for record in picture.capacities if picture.capacity_drivers.get(record.uid) == driver)
    return Surroundings(picture.others, tuple(ours))


def _in_flight(claim: Claim) -> InFlight:
    return InFlight(claim.uid, claim.namespace, claim.name, claim.class_name, claim.requested or 0)


class Pinned:
    """Which volumes lie on one node and nowhere else. Volumes of one place are many and say the same, so each affinity is judged once.

    People change the labels of nodes: where labels say that no node reaches a volume, or several do, it lies where it was made.
    """

    def __init__(self, node: Node | None, others: Iterable[Node]) -> None:
        self._node = node
        self._others = tuple(others)
        self._known: dict[tuple[Term, ...], tuple[bool, bool]] = {}

    def holds(self, volume: Volume) -> bool:
        here, elsewhere = self._reached(volume)
        return here if here != elsewhere else self._was_made_here(volume)

    def may_hold(self, volume: Volume) -> bool:
        """Nothing speaks for another node."""
        here, elsewhere = self._reached(volume)
        return here == elsewhere and not _maker(volume)

    def _reached(self, volume: Volume) -> tuple[bool, bool]:
        """From this node, and from any other; of a volume without affinity nothing is known."""
        if volume.affinity is None or self._node is None:
            return False, False
        if volume.affinity not in self._known:
            others = any(_reaches(volume.affinity, other) for other in self._others)
            self._known[volume.affinity] = _reaches(volume.affinity, self._node), others
        return self._known[volume.affinity]

    def _was_made_here(self, volume: Volume) -> bool:
        return self._node is not None and _maker(volume) == self._node.name


def _maker(volume: Volume) -> str:
    """The node whose sidecar made it, as that wrote into it who it was: `<time>-<random>-<driver>-<node>`. Empty: nobody says."""
    head, driver, node = volume.identity.partition(f"-{volume.driver}-")
    return node if driver and head.count("-") == 1 else ""


def _reaches(affinity: tuple[Term, ...], node: Node) -> bool:
    return any(term.holds(node.labels) for term in affinity)
