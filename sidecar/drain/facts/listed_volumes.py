"""Sorts the listed volumes for one node: what lies there, what may, and what its pods mount."""

from collections.abc import Iterable, Set
from typing import Final

from sidecar.drain.facts.locations import VolumeLocator
from sidecar.model.nodes import Node, Pod, SnapshotContent
from sidecar.model.objects import Json, Volume

SOME: Final = 20
"""Names that are kept: volumes that every node reaches, as those of network storage, may be thousands."""


def mounted_claims(pods: Iterable[Pod]) -> frozenset[str]:
    """`namespace/name` of all claims that pods name which have not ended."""
    return frozenset(claim for pod in pods if not pod.ended for claim in pod.claim_names)


def unplaced_sources(contents: Iterable[SnapshotContent]) -> frozenset[tuple[str, str]]:
    """(driver, handle) of the sources of snapshots that say no node: they lie where their source lies."""
    return frozenset((content.driver, content.source_handle) for content in contents if not content.managed_by and content.source_handle)


class VolumeSorting:
    """Keeps the volumes of one node, and of the others no more than what has to be said about them."""

    def __init__(self, node: Node, others: Iterable[Node], *, mounted: Set[str], attached: Set[str], sources: Set[tuple[str, str]]) -> None:
        """`mounted` are claims that pods of the node name, `attached` volumes; `sources` as `unplaced_sources` says."""
        self._locator = VolumeLocator(node, others)
        self._mounted, self._attached, self._sources = mounted, attached, sources
        self._told: dict[tuple[str, bool, bool], int] = {}
        self.names: set[str] = set()

    def keep(self, obj: Json) -> Volume | None:
        volume = Volume.of(obj)
        self.names.add(volume.name)
        kept = self.counts(volume) or (volume.driver, volume.handle) in self._sources or self._is_told(volume)
        return volume if kept else None

    def counts(self, volume: Volume) -> bool:
        """It lies here, or a pod of the node mounts it, or it is attached to the node."""
        return volume.name in self._attached or volume.claim_name in self._mounted or self._locator.holds(volume)

    def _is_told(self, volume: Volume) -> bool:
        is_doubtful = self._locator.is_doubtful(volume)
        if not is_doubtful and not self._locator.may_hold(volume):
            return False
        kind = volume.driver, is_doubtful, self._locator.is_orphan(volume)
        self._told[kind] = self._told.get(kind, 0) + 1
        return self._told[kind] <= SOME
