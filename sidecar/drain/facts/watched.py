"""The caches that a running sidecar judges its own node by, and what they leave open: `lookups` asks the API server for that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from sidecar.drain.facts.begun_uses import BegunUses
from sidecar.drain.facts.driver_list import NOTHING_LISTED, DriverList
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.recent_use import RecentUse
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.topology import Segment

TRUSTED: Final = 60.0
"""Seconds for which what is not watched is trusted."""
_RARELY: Final = 600.0


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
    attached: Callable[[], frozenset[str]] = frozenset
    """Names of PersistentVolumes that are attached to this node; none for a driver that does not attach."""
    recent: RecentUse = field(default_factory=lambda: RecentUse(clock=lambda: 0.0))
    begun_uses: BegunUses = field(default_factory=lambda: BegunUses(clock=lambda: 0.0))
    pod_lists: Callable[[], int] = lambda: 0
    """How many lists of this node's pods were complete: with each one but the first, pods may have come and gone unseen before it."""
    pods_version: Callable[[], str] = str
    """Up to which resourceVersion `pods` has followed them without a break since the last list; empty: a list is due."""
    listed: Callable[[], DriverList] = lambda: NOTHING_LISTED
    """What the driver said last of its volumes."""
    begun: Callable[[], frozenset[str]] = frozenset
    """Uids of claims for which this process or one before it has begun something in the driver."""


def other_nodes_needed(watched: Watched, node: Node, volumes: Iterable[Volume], listed: DriverList, *, observed: bool) -> float | None:
    """How many seconds old a list of the other nodes may be that decides on the place of some of these volumes; None: none needs it."""
    alone, hostname = VolumeLocator(with_driver_labels(watched, node), ()), node.labels.get(names.HOSTNAME)
    places = (watched.segment, Segment(((names.HOSTNAME, hostname),) if hostname is not None else ()))
    left = [volume for volume in volumes if not alone.names_only(volume, places)]
    if any(alone.may_reach(volume) for volume in left):
        return TRUSTED
    # Some drivers list the volumes of all nodes. That would have every node list all others every minute.
    may_be_renamed = any(listed.handles.get(volume.handle) is False for volume in left)
    return (TRUSTED if observed else _RARELY) if may_be_renamed else None


def bound_volumes(watched: Watched) -> dict[str, Volume]:
    """By the full names of their claims."""
    return {volume.claim_name: volume for volume in watched.volumes.values() if _is_bound(volume)}


@dataclass(frozen=True, slots=True)
class OpenClaims:
    """Full names of claims of volumes here, of which the pods of this node do not tell whether they are in use."""

    unused: tuple[str, ...]
    """No pod of this node names them."""
    kept: tuple[str, ...]
    """Only pods that no drain evicts name them: another pod, which was evicted, may be about to come again."""


def open_claims(held: Iterable[Volume], pods: Iterable[Pod]) -> OpenClaims:
    present = [pod for pod in pods if not pod.ended]
    named = {claim for pod in present for claim in pod.claim_names}
    # The ephemeral volume of a pod is no other pod's.
    settled = {f"{pod.namespace}/{claim}" for pod in present for claim in (pod.ephemeral if pod.stays else pod.claims)}
    bound = {volume.claim_name for volume in held if _is_bound(volume)}
    return OpenClaims(tuple(sorted(bound - named)), tuple(sorted(bound & named - settled)))


def with_driver_labels(watched: Watched, node: Node) -> Node:
    """The node with the labels that its driver reports: people may have removed them, and the volumes are here all the same."""
    return replace(node, labels={**node.labels, **watched.segment.labels()})


def missing_claims(watched: Watched, held: Iterable[Volume]) -> tuple[tuple[str, str], ...]:
    """(namespace, name) of claims whose volume is here and that the watch dropped: it saw them before it knew of the volume."""
    known = {claim.full_name for claim in watched.claims.values()}
    refs = (volume.claim for volume in held if _is_bound(volume))
    return tuple(sorted((ref.namespace, ref.name) for ref in refs if ref is not None and ref.full_name not in known))


def _is_bound(volume: Volume) -> bool:
    return volume.phase == "Bound" and volume.claim is not None
