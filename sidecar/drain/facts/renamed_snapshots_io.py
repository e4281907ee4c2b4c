"""Finds snapshots of volumes that the driver has here under the name of another node.

They are labelled with that name too, so the watch of this node's snapshots does not keep them.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.drain.facts.asking_io import Asking
from sidecar.kube.api import SNAPSHOT_CONTENTS, KubeApi, records
from sidecar.model.nodes import SnapshotContent
from sidecar.model.objects import Volume

_QUESTION: Final = "snapshots of volumes under another name"


class RenamedSnapshots:
    """One per process."""

    def __init__(self, kube: KubeApi, asking: Asking, *, driver: str, node: str) -> None:
        self._kube = kube
        self._asking = asking
        self._driver = driver
        self._known_to_watch = ("", node)
        self._asked: frozenset[str] = frozenset()

    async def of(self, renamed: Iterable[Volume]) -> tuple[SnapshotContent, ...]:
        """Without those that the watch has: they are labelled with this node, or with none."""
        handles = frozenset(volume.handle for volume in renamed)
        if not handles:
            return ()
        not_before = float("-inf") if handles <= self._asked else float("inf")
        found = await self._asking.ask(_QUESTION, lambda: self._list(handles), not_before=not_before)
        return tuple(content for content in found or () if content.source_handle in handles)

    async def _list(self, handles: frozenset[str]) -> tuple[SnapshotContent, ...]:
        self._asked = handles
        contents = [content async for content in records(self._kube, SNAPSHOT_CONTENTS, SnapshotContent.of, cached=True)]
        ours = (content for content in contents if content.driver == self._driver and content.source_handle in handles)
        return tuple(content for content in ours if content.managed_by not in self._known_to_watch)
