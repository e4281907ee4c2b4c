"""Snapshots under the former name of a node lie where their source lies."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.renamed_snapshots_io import RenamedSnapshots
from sidecar.kube.api import Page, Resource
from sidecar.model import names
from sidecar.model.objects import Volume
from tests.harness.drain.listed_cluster import DRIVER, OTHER, Json, meta, volume


def content(name: str, source: str, *, node: str, driver: str = DRIVER) -> Json:
    labels = {names.CONTENT_MANAGED_BY: node} if node else {}
    return {"metadata": meta(name, labels=labels), "spec": {"driver": driver, "source": {"volumeHandle": source}}}


ALL = [
    content("former", "h-pv-1", node="old"),
    content("later", "h-pv-2", node="old"),
    content("watched", "h-pv-1", node="n1"),
    content("unlabelled", "h-pv-1", node=""),
    content("of-n2", "h-pv-9", node="n2"),
    content("other", "h-pv-1", node="old", driver=OTHER),
]


class Scene:
    def __init__(self) -> None:
        self.now, self.lists = 0.0, 0
        self.asking = Asking(clock=lambda: self.now)
        self.part = RenamedSnapshots(self, self.asking, driver=DRIVER, node="n1")  # type: ignore[arg-type]

    async def list_page(self, resource: Resource, **_: Any) -> Page:
        self.lists += 1
        return Page(ALL, "1", "")

    def found(self, *volumes: str) -> list[str]:
        self.asking.begin()
        return [item.name for item in asyncio.run(self.part.of([Volume.of(volume(name, "old")) for name in volumes]))]


def test_a_snapshot_under_another_name_is_where_its_source_is() -> None:
    scene = Scene()
    assert (scene.found(), scene.lists) == ([], 0), "without such volumes nothing is asked"
    for scene.now in (0.0, 30.0):
        assert (scene.found("pv-1"), scene.lists) == (["former"], 1)
    assert (scene.found("pv-1", "pv-2"), scene.lists) == (["former", "later"], 2)
    scene.now = 100.0
    assert (scene.found("pv-1"), scene.lists) == (["former"], 3)
