"""Finds out which snapshots without a place lie on other nodes: those whose source has a PersistentVolume that another living node has.

Where a source is does not change, so each snapshot is asked about until that is known, and then no more.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.watched import TRUSTED
from sidecar.kube.api import VOLUMES, KubeApi, records
from sidecar.model.nodes import SnapshotContent
from sidecar.model.objects import Json, Volume

# A list of all PersistentVolumes is dear: it is made again so seldom, or after a minute if there are new snapshots.
_RARELY: Final = 600.0
_QUESTION: Final = "volumes that snapshots were taken of"


class SnapshotSources:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, driver: str) -> None:
        self._kube = kube
        self._asking = asking
        self._driver = driver
        self._elsewhere: set[str] = set()
        """Uids of contents that lie on other nodes."""
        self._asked: frozenset[str] = frozenset()

    async def unplaced(self, contents: Iterable[SnapshotContent], locator: VolumeLocator) -> tuple[SnapshotContent, ...]:
        """`contents` are this driver's, say no node and have no source that lies here. Those remain that may lie here."""
        contents = tuple(contents)
        self._elsewhere &= {content.uid for content in contents}
        left = [content for content in contents if content.uid not in self._elsewhere]
        handles = frozenset(content.source_handle for content in left if content.source_handle)
        if not handles:
            return tuple(left)
        again = not handles <= self._asked and self._asking.age(_QUESTION) >= TRUSTED
        sources = await self._asking.ask(
            _QUESTION, lambda: self._sources(handles), trusted=_RARELY, not_before=float("inf") if again else float("-inf")
        )
        elsewhere = {source.handle for source in sources or () if locator.is_placed_elsewhere(source)}
        self._elsewhere |= {content.uid for content in left if content.source_handle in elsewhere}
        return tuple(content for content in left if content.uid not in self._elsewhere)

    async def _sources(self, handles: frozenset[str]) -> tuple[Volume, ...]:
        self._asked = handles
        named = records(self._kube, VOLUMES, lambda obj: Volume.of(obj) if _handle(obj) in handles else None, cached=True)
        return tuple([volume async for volume in named if volume.driver == self._driver])


def _handle(obj: Json) -> str:
    return str(((obj.get("spec") or {}).get("csi") or {}).get("volumeHandle") or "")
