"""What is known of one's own Node between a write and the watch that shows it."""

import asyncio

from hack.sim.cluster import Call, InProcessApi
from sidecar.drain.publish.on_node import Marks
from sidecar.drain.publish.own_node_io import OwnNode
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.kube.api import NODES, Change
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain.samples import DRIVER, NODE, NOW

MARKS = Marks({names.of_driver(DRIVER, names.CLOSED_AT): "2026-01-01T00:00:00Z"})


class Scene:
    """A Node in a cache that shows only what a test has it show."""

    def __init__(self, refusal: ApiError | None = None, *, dry_run: bool = False) -> None:
        async def before(call: Call) -> None:
            if refusal is not None:
                raise refusal

        self.now = 0.0
        self.cluster = new_cluster()
        self.nodes: Store[Node] = Store()
        self.refusals = Refusals()
        api, settings = InProcessApi(self.cluster, before=before), Settings(NODE, DRIVER, "default", "1", dry_run=dry_run)
        self.own = OwnNode(api, settings, self.nodes, self.refusals, clock=lambda: self.now, wall=lambda: NOW)
        self.seen = self.show(Node.of(self.cluster.create(NODES, {"metadata": {"name": NODE}}).obj))

    def show(self, node: Node) -> Node:
        self.nodes.apply(Change(NODE, None, node))
        return node

    def mark(self) -> Node | None:
        return asyncio.run(self.own.mark(self.seen, MARKS))


def test_before_anything_is_listed_there_is_none() -> None:
    scene = Scene()
    scene.nodes.apply(Change(NODE, scene.seen, None))
    assert scene.own.known() is None


def test_what_was_written_is_known_at_once_and_a_watch_that_lags_is_not_believed_for_half_a_minute() -> None:
    scene = Scene()
    written = scene.mark()
    assert written is not None and written.annotations == MARKS.annotations
    assert scene.own.marked and scene.own.known() == written
    scene.show(scene.seen)
    scene.now += 30
    assert scene.own.known() == written
    scene.now += 1
    assert scene.own.known() == scene.seen


def test_what_the_watch_shows_later_counts_and_so_does_another_machine_under_the_name() -> None:
    scene = Scene()
    scene.mark()
    scene.cluster.delete(NODES, NODE)
    other = scene.show(Node.of(scene.cluster.create(NODES, {"metadata": {"name": NODE}}).obj))
    assert scene.own.known() == other


def test_what_is_refused_changes_nothing() -> None:
    scene = Scene(Forbidden("cannot patch nodes", status=403))
    assert scene.mark() is None
    assert (scene.own.known(), scene.own.marked) == (scene.seen, False)
    assert scene.refusals.of("marks on the node") == "cannot patch nodes"


def test_a_dry_run_marks_nothing() -> None:
    scene = Scene(dry_run=True)
    assert scene.mark() == scene.seen and not scene.own.marked
    assert Node.of(scene.cluster.get(NODES, NODE).obj).annotations == {}
