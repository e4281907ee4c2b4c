"""The caches that a running sidecar judges its own node by, and what they leave open: `lookups` asks the API server for that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sidecar.drain.facts.locations import VolumeLocator
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Watched:
    """The caches, by kind. Budgets are the whole cluster's; of claims, volumes, contents and pods only those that concern this node.

    Some of the volumes may be on another node: `VolumeLocator` decides.
    """

    nodes: Store[Node]
    pods: Store[Pod]
    contents: Store[SnapshotContent]
    budgets: Store[Budget]
    claims: Store[Claim]
    volumes: Store[Volume]
    classes: Store[Class]
    ignorance: Callable[[], tuple[str, ...]]
    """What cannot be read at the moment, in sentences."""
    without_contents: Callable[[], bool] = lambda: False
    """Snapshots would be watched, and the API server does not serve them."""
    segment: Segment = field(default_factory=Segment)
    """The labels that the driver reports for this node."""


def needs_other_nodes(watched: Watched, node: Node) -> bool:
    """Whether the node of some volume depends on what other nodes there are."""
    alone, hostname = VolumeLocator(with_driver_labels(watched, node), ()), node.labels.get(names.HOSTNAME)
    places = (watched.segment, Segment(((names.HOSTNAME, hostname),) if hostname is not None else ()))
    return any(alone.may_reach(volume) and not alone.names_only(volume, places) for volume in watched.volumes.values())


def with_driver_labels(watched: Watched, node: Node) -> Node:
    """The node with the labels that its driver reports: people may have removed them, and the volumes are here all the same."""
    return replace(node, labels={**node.labels, **watched.segment.labels()})


def missing_claims(watched: Watched, held: Iterable[Volume]) -> tuple[tuple[str, str], ...]:
    """(namespace, name) of claims whose volume is here and that the watch dropped: it saw them before it knew of the volume."""
    known = {claim.full_name for claim in watched.claims.values()}
    refs = (volume.claim for volume in held if volume.phase == "Bound" and volume.claim is not None)
    return tuple(sorted((ref.namespace, ref.name) for ref in refs if f"{ref.namespace}/{ref.name}" not in known))
