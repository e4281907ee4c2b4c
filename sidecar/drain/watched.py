"""What a running sidecar knows of its own node from its watches, and how that becomes the snapshot that is judged. Nothing here waits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from sidecar.drain.place import Pinned
from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Volume
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Watched:
    """The caches, by kind. Of claims, volumes and contents those of this node, of pods too; budgets are the whole cluster's.

    Among the volumes are some of which only `held` tells whether they lie here.
    """

    nodes: Store[Node]
    pods: Store[Pod]
    contents: Store[SnapshotContent]
    budgets: Store[Budget]
    claims: Store[Claim]
    volumes: Store[Volume]
    classes: Store[Class]
    ignorance: Callable[[], tuple[str, ...]]
    """What of it cannot be read, in words."""
    without_contents: Callable[[], bool] = lambda: False
    """Whether snapshots would be looked at, and the API server had none to offer."""
    segment: Segment = field(default_factory=Segment)
    """Where the driver says that this node is."""


_MOST: Final = 20_000
"""Names that are remembered; after that no volume counts as new any more."""


@dataclass(slots=True)
class NeverUsed:
    """Volumes that this process has made and that no pod has been seen with since, without a gap in what was seen. Who sees no pods tells
    it of no volume.

    Nothing of this is stored: after a restart a volume may have been used meanwhile, and so counts as used.
    """

    _fresh: dict[str, str] = field(default_factory=dict)
    """The claim's full name, by volume."""
    _known: set[str] = field(default_factory=set)
    """All volumes this was ever told of, and all claims that pods were seen with: what comes again under such a name is not new."""

    def made(self, volume: Volume) -> None:
        if volume.claim is None or len(self._known) >= _MOST:
            return
        claim = f"{volume.claim.namespace}/{volume.claim.name}"
        if volume.name not in self._known and claim not in self._known:
            self._fresh[volume.name] = claim
        self._known.add(volume.name)

    def gone(self, volume: str) -> None:
        self._fresh.pop(volume, None)

    def seen(self, pod: Pod) -> None:
        mounted = {f"{pod.namespace}/{claim}" for claim in pod.claims}
        if len(self._known) < _MOST:
            self._known |= mounted
        self._fresh = {volume: claim for volume, claim in self._fresh.items() if claim not in mounted}

    def overlooked(self) -> None:
        """Pods may have come and gone unseen."""
        self._fresh.clear()

    def names(self) -> frozenset[str]:
        return frozenset(self._fresh)


def look(
    watched: Watched,
    blank: Snapshot,
    *,
    held: Iterable[Volume],
    never_used: Iterable[str] = (),
    fetched: Iterable[Claim] = (),
    classes: Iterable[Class] = (),
) -> Snapshot:
    """`blank` says when, whose and for whom; `held` are the volumes here, `fetched` and `classes` what the watches did not bring."""
    held = tuple(held)
    claims = watched.claims.by_index("node", blank.node_name)
    # A volume is there before its claim says so.
    named = {volume.claim.uid for volume in held if volume.claim}
    bound = [claim for claim in watched.claims.values() if claim.volume_name or claim.uid in named]
    return replace(
        blank,
        volumes=held,
        claims=MappingProxyType({claim.full_name: claim for claim in (*fetched, *bound)}),
        pods=tuple(watched.pods.values()),
        contents=_ours(watched, held),
        classes=MappingProxyType({class_.name: class_ for class_ in (*classes, *watched.classes.values())}),
        in_flight=tuple(_in_flight(claim) for claim in claims if not claim.volume_name),
        never_used=frozenset(never_used),
        budgets=tuple(watched.budgets.values()),
        ignorance=(*watched.ignorance(), *blank.ignorance),
    )


def undecided(watched: Watched, node: Node) -> bool:
    """Whether some volume's place depends on what other nodes there are."""
    alone, places = Pinned(at_home(watched, node), ()), (watched.segment, _hostname(node))
    return any(alone.may_reach(volume) and not alone.names_only(volume, places) for volume in watched.volumes.values())


def at_home(watched: Watched, node: Node) -> Node:
    """The node with the labels that its driver reports, which people may have taken off it."""
    return replace(node, labels={**node.labels, **watched.segment.labels()})


def unknown_claims(watched: Watched, held: Iterable[Volume]) -> tuple[tuple[str, str], ...]:
    """(namespace, name) of the claims of volumes here that the watch did not keep: they were bound before it knew of the volume."""
    known = {claim.full_name for claim in watched.claims.values()}
    refs = (volume.claim for volume in held if volume.phase == "Bound" and volume.claim is not None)
    return tuple(sorted((ref.namespace, ref.name) for ref in refs if f"{ref.namespace}/{ref.name}" not in known))


def unheard(watched: Watched, node: str) -> tuple[Claim, ...]:
    """Claims that are bound here to a volume nobody has told of: it is yet to be heard of, or it is gone."""
    bound = (claim for claim in watched.claims.by_index("node", node) if claim.volume_name)
    return tuple(sorted((claim for claim in bound if claim.volume_name not in watched.volumes), key=lambda claim: claim.full_name))


def _hostname(node: Node) -> Segment:
    return Segment(tuple((key, value) for key, value in node.labels.items() if key == names.HOSTNAME))


def _ours(watched: Watched, held: Iterable[Volume]) -> tuple[SnapshotContent, ...]:
    """The store may hold contents that no label gives to a node: these lie where their source lies."""
    handles = {volume.handle for volume in held}
    return tuple(content for content in watched.contents.values() if content.managed_by or content.source_handle in handles)


def _in_flight(claim: Claim) -> InFlight:
    return InFlight(claim.uid, claim.namespace, claim.name, claim.class_name, claim.requested or 0)
