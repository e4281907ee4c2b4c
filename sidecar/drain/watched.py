"""What a running sidecar knows of its own node from its watches, and how that becomes the snapshot that is judged. Nothing here waits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sidecar.drain.snapshot import InFlight, Snapshot
from sidecar.kube.store import Store
from sidecar.model.nodes import Budget, Node, Pod, SnapshotContent
from sidecar.model.objects import Claim, Class, Volume


@dataclass(frozen=True, slots=True)
class Watched:
    """The caches, by kind. Of claims, volumes and contents those of this node, of pods too; budgets are the whole cluster's."""

    nodes: Store[Node]
    pods: Store[Pod]
    contents: Store[SnapshotContent]
    budgets: Store[Budget]
    claims: Store[Claim]
    volumes: Store[Volume]
    classes: Store[Class]
    ignorance: Callable[[], tuple[str, ...]]
    """What of it cannot be read, in words."""


@dataclass(slots=True)
class NeverUsed:
    """Volumes that this process has made and that no pod has been seen with since, without a gap in what was seen. Who sees no pods tells
    it of no volume.

    Nothing of this is stored: after a restart a volume may have been used meanwhile, and so counts as used.
    """

    _fresh: dict[str, str] = field(default_factory=dict)
    """The claim's full name, by volume."""

    def made(self, volume: Volume) -> None:
        if volume.claim is not None:
            self._fresh[volume.name] = f"{volume.claim.namespace}/{volume.claim.name}"

    def gone(self, volume: str) -> None:
        self._fresh.pop(volume, None)

    def seen(self, pod: Pod) -> None:
        mounted = {f"{pod.namespace}/{claim}" for claim in pod.claims}
        self._fresh = {volume: claim for volume, claim in self._fresh.items() if claim not in mounted}

    def overlooked(self) -> None:
        """Pods may have come and gone unseen."""
        self._fresh.clear()

    def names(self) -> frozenset[str]:
        return frozenset(self._fresh)


def look(watched: Watched, blank: Snapshot, *, never_used: Iterable[str] = (), fetched: Iterable[Claim] = ()) -> Snapshot:
    """`blank` says when, whose and for whom; `fetched` are claims that the watch did not bring."""
    claims = watched.claims.by_index("node", blank.node_name)
    bound = [claim for claim in watched.claims.values() if claim.volume_name]
    return replace(
        blank,
        node=watched.nodes.get(blank.node_name),
        volumes=tuple(watched.volumes.values()),
        claims=MappingProxyType({claim.full_name: claim for claim in (*fetched, *bound)}),
        pods=tuple(watched.pods.values()),
        contents=_ours(watched),
        classes=MappingProxyType({class_.name: class_ for class_ in watched.classes.values()}),
        in_flight=tuple(_in_flight(claim) for claim in claims if not claim.volume_name),
        never_used=frozenset(never_used),
        budgets=tuple(watched.budgets.values()),
        ignorance=(*watched.ignorance(), *blank.ignorance),
    )


def unknown_claims(watched: Watched) -> tuple[tuple[str, str], ...]:
    """(namespace, name) of the claims of volumes here that the watch did not keep: they were bound before it knew of the volume."""
    known = {claim.full_name for claim in watched.claims.values()}
    refs = (volume.claim for volume in watched.volumes.values() if volume.phase == "Bound" and volume.claim is not None)
    return tuple(sorted((ref.namespace, ref.name) for ref in refs if f"{ref.namespace}/{ref.name}" not in known))


def _ours(watched: Watched) -> tuple[SnapshotContent, ...]:
    """The store may hold contents that no label gives to a node: these lie where their source lies."""
    handles = {volume.handle for volume in watched.volumes.values()}
    return tuple(content for content in watched.contents.values() if content.managed_by or content.source_handle in handles)


def _in_flight(claim: Claim) -> InFlight:
    return InFlight(claim.uid, claim.namespace, claim.name, claim.class_name, claim.requested or 0)
