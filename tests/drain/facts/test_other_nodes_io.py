"""Of other nodes a minute-old picture is good enough, but not of the one on whose staying a verdict depends."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.locations import VolumeLocator
from sidecar.drain.facts.other_nodes_io import OtherNodes
from sidecar.kube.api import Resource
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from tests.harness.drain.listed_cluster import Json, node, volume

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
