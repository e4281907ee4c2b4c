"""Snapshots of which nothing says where they are: those whose source another node has are not in question."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.snapshot_sources_io import SnapshotSources
from sidecar.kube.api import Page, Resource
from sidecar.model.nodes import Node, SnapshotContent
from tests.harness.drain.listed_cluster import DRIVER, OTHER, Json, meta, node, volume

LOCATOR = VolumeLocator(Node.of(node("n1")), (Node.of(node("n2")),))


def snapshot(name: str, source: str) -> SnapshotContent:
    return SnapshotContent.of({"metadata": meta(name), "spec": {"driver": DRIVER, "source": {"volumeHandle": source}}})


class Sources:
    def __init__(self, *volumes: Json) -> None:
        self.volumes, self.now, self.lists = list(volumes), 0.0, 0
        self.asking = Asking(clock=lambda: self.now)
        self.part = SnapshotSources(self, self.asking, DRIVER)  # type: ignore[arg-type]

    async def list_page(self, resource: Resource, **_: Any) -> Page:
        self.lists += 1
        return Page(self.volumes, "1", "")

    def unplaced(self, *contents: SnapshotContent) -> list[str]:
        self.asking.begin()
        return [item.name for item in asyncio.run(self.part.unplaced(contents, LOCATOR))]


def test_a_snapshot_of_a_volume_of_another_node_is_not_here() -> None:
    assert Sources(volume("pv-2", "n2")).unplaced(snapshot("s", "h-pv-2")) == []


def test_a_snapshot_whose_source_is_gone_or_an_orphan_or_not_told_may_be_here() -> None:
    scene = Sources(volume("pv-orphan", "gone"), volume("pv-2", "n2", driver=OTHER))
    contents = [snapshot("a", "h-gone"), snapshot("b", "h-pv-orphan"), snapshot("c", ""), snapshot("d", "h-pv-2")]
    assert scene.unplaced(*contents) == ["a", "b", "c", "d"]
