"""What is read anew before a verdict depends on it: other nodes that reach a volume, and where snapshots lie."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.other_nodes_io import OtherNodes
from sidecar.drain.facts.renamed_snapshots_io import RenamedSnapshots
from sidecar.drain.facts.snapshot_sources_io import SnapshotSources
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node, SnapshotContent
from sidecar.model.objects import Volume
from tests.harness.drain.listed_cluster import DRIVER, OTHER, Json, meta, node, volume

HERE = Node.of(node("n1"))
SHARED = Volume.of(volume("shared", "n1", "n2", "n3"))


class Scene:
    def __init__(self) -> None:
        self.nodes: dict[str, Json | Exception] = {name: node(name) for name in ("n2", "n3")}
        self.others = tuple(Node.of(node(name)) for name in ("n2", "n3"))
        self.asked = list[str]()
        self.asking = Asking(clock=lambda: 0.0)
        self.part = OtherNodes(self, self.asking, "n1")  # type: ignore[arg-type]

    async def get(self, resource: Resource, name: str, **_: Any) -> Json:
        self.asked.append(name)
        found = self.nodes[name]
        if isinstance(found, Exception):
            raise found
        return found

    def cordon(self, *names: str) -> None:
        for name in names:
            self.nodes[name] = {**node(name), "spec": {"unschedulable": True}}

    def holds(self, *volumes: Volume) -> list[bool]:
        self.asking.begin()
        locator = VolumeLocator(HERE, self.others)
        others = asyncio.run(self.part.confirmed(self.others, locator, volumes))
        return [VolumeLocator(HERE, others).holds(item) for item in volumes]


def test_a_node_that_was_cordoned_a_moment_ago_stays_no_longer() -> None:
    scene = Scene()
    scene.cordon("n2")
    assert scene.holds(SHARED) == [False]
    assert scene.asked == ["n2", "n3"]
    scene.cordon("n2", "n3")
    assert scene.holds(SHARED) == [True]


def test_a_node_that_is_gone_or_cannot_be_read_does_not_stay() -> None:
    scene = Scene()
    scene.nodes = {"n2": NotFound("gone", status=404), "n3": Forbidden("no", status=403)}
    assert scene.holds(SHARED) == [True]
    assert scene.asking.ignorance == ["node n3: no"]


# --- Snapshots under the former name of a node lie where their source lies ---


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


class Renamed:
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
    scene = Renamed()
    assert (scene.found(), scene.lists) == ([], 0), "without such volumes nothing is asked"
    for scene.now in (0.0, 30.0):
        assert (scene.found("pv-1"), scene.lists) == (["former"], 1)
    assert (scene.found("pv-1", "pv-2"), scene.lists) == (["former", "later"], 2)
    scene.now = 100.0
    assert (scene.found("pv-1"), scene.lists) == (["former"], 3)


# --- Snapshots of which nothing says where they are: those whose source another node has are not in question ---


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


def test_without_such_snapshots_nothing_is_asked() -> None:
    scene = Sources()
    assert (scene.unplaced(), scene.unplaced(snapshot("s", "")), scene.lists) == ([], ["s"], 0)
