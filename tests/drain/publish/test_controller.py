"""What a writer remembers of former looks and of its own writes, and what is kept as it is until that is known."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call, InProcessApi
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment, Verdict
from sidecar.drain.publish.controller import ReportWriter
from sidecar.drain.publish.on_node import Marks
from sidecar.drain.publish.own_node_io import OwnNode
from sidecar.drain.publish.report import HEARTBEAT, NORMAL_LIFE
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.kube.api import DRAIN_REPORTS, NODES, STRATEGIC_MERGE_PATCH, Change
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import samples
from tests.harness.drain.samples import DRIVER, NODE, NOW
from tests.harness.drain.simulated import Bench, node_of

HOUR = 3600.0


class Desk:
    """A scribe where no reports are served; where it is `broken`, not even that can be learnt."""

    def __init__(self) -> None:
        self.broken = False

        async def before(call: Any) -> None:
            if self.broken:
                raise Unavailable("no answer")
            raise NotFound("no such resource", status=404)

        kube = InProcessApi(new_cluster(clock=lambda: NOW), before=before)
        self.scribe = ReportWriter(kube, Settings(samples.NODE, samples.DRIVER, "ns", "1"), clock=lambda: 0.0)

    def look(self, snapshot: Snapshot) -> Assessment:
        found = assess(snapshot)
        with pytest.raises(NotFound):
            asyncio.run(self.scribe.write_report(found, NORMAL_LIFE, now=snapshot.now))
        return found


def test_the_stored_report_is_read_once_and_again_for_another_machine() -> None:
    desk = Desk()
    desk.broken = True
    with pytest.raises(Unavailable):
        asyncio.run(desk.scribe.recall(samples.node()))
    assert not desk.scribe.recalled
    desk.broken = False
    asyncio.run(desk.scribe.recall(samples.node()))
    assert desk.scribe.recalled
    desk.look(samples.idle())
    desk.broken = True
    with pytest.raises(Unavailable):
        asyncio.run(desk.scribe.recall(samples.node(uid="uid-new")))
    assert not desk.scribe.recalled


class LatePost:
    """A scribe some of whose writes get no answer and are carried out later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._cluster = new_cluster(clock=lambda: NOW + self.now)
        self.you = InProcessApi(self._cluster)
        self._lost: tuple[Any, ...] | None = None
        self._loses: Any = None
        kube = InProcessApi(self._cluster)
        self._patch = kube.patch
        kube.patch = self._late_patch  # type: ignore[method-assign]
        self.scribe = ReportWriter(kube, Settings(samples.NODE, samples.DRIVER, "ns", "1"), clock=lambda: self.now)

    async def _late_patch(self, resource: Any, name: str, patch: Any, **options: Any) -> Any:
        if self._loses == resource:
            self._lost, self._loses = (resource, name, patch, options), None
            raise Unavailable("no answer in time")
        return await self._patch(resource, name, patch, **options)

    async def begin(self) -> None:
        self.uid = (await self.you.create(NODES, {"metadata": {"name": samples.NODE}}))["metadata"]["uid"]

    async def tell(self, status: Status, *, loses: Any = None) -> bool:
        """Write both verdicts; whether all was answered."""
        self.now, self._loses = self.now + 10, loses
        word = Verdict(status, Reason.NOT_KNOWN, "said")
        judged = replace(assess(samples.idle(now=NOW + self.now)), drain=word, retire=word, node_uid=self.uid)
        await self.scribe.recall(samples.node(uid=self.uid))
        try:
            await self.scribe.write_conditions(judged)
            await self.scribe.write_report(judged, NORMAL_LIFE, now=NOW + self.now)
        except Unavailable:
            return False
        return True

    async def arrives(self) -> None:
        assert self._lost is not None
        resource, name, patch, options = self._lost
        with suppress(Conflict):
            await self._patch(resource, name, patch, **options)

    async def said(self) -> set[str]:
        node = await self.you.get(NODES, samples.NODE)
        found = await self.you.get(DRAIN_REPORTS, names.drain_report(samples.NODE, samples.DRIVER))
        return {item["status"] for item in (*node["status"]["conditions"], *found["status"]["verdicts"].values())}


def test_a_write_that_arrives_late_does_not_bring_an_old_true_back() -> None:
    def case(before: Status, lost: Any) -> None:
        async def story() -> None:
            post = LatePost()
            await post.begin()
            assert await post.tell(before)
            post.now += HEARTBEAT
            assert not await post.tell(Status.TRUE, loses=lost)
            assert await post.tell(Status.FALSE)
            await post.arrives()
            assert await post.said() == {"False"}

        asyncio.run(story())

    for before in [Status.FALSE, Status.TRUE, Status.UNKNOWN]:
        for lost in [
            NODES,  # conditions
            DRAIN_REPORTS,  # report
        ]:
            case(before, lost)


def test_where_the_type_has_no_status_of_its_own_no_verdict_is_left_in_a_report() -> None:
    """It could be neither renewed nor taken back there; and whoever installed that type is told what to do."""
    sent: list[Any] = []

    class Api(InProcessApi):
        async def create(self, resource: Any, body: Any, **where: Any) -> Any:
            sent.append(body)
            return await super().create(resource, body, **where)

    async def before(call: Any) -> None:
        if call.subresource == "status":
            raise NotFound("not found", status=404)

    scribe = ReportWriter(
        Api(new_cluster(clock=lambda: NOW), before=before), Settings(samples.NODE, samples.DRIVER, "ns", "1"), clock=lambda: 0.0
    )
    asyncio.run(scribe.recall(samples.node()))
    for _ in range(2):
        with pytest.raises(NotFound, match="have no status of their own: install the CustomResourceDefinition"):
            asyncio.run(scribe.write_report(assess(samples.idle()), NORMAL_LIFE, now=NOW))
    assert sent and not any("status" in body for body in sent)


CONDITION = "world.csi-node-sidecar.io/RetireReady"


async def retire(bench: Bench) -> str:
    return next(item["status"] for item in (await node_of(bench))["status"]["conditions"] if item["type"] == CONDITION)


# --- What is known of one's own Node between a write and the watch that shows it ---


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


def test_own_writes_count_over_a_lagging_watch_for_half_a_minute() -> None:
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


def test_who_else_writes_to_the_node_at_that_moment_delays_no_verdict() -> None:
    async def story() -> None:
        post = LatePost()
        await post.begin()
        kubelet = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        get = post.scribe._kube.get

        async def meanwhile(resource: Any, name: str, **options: Any) -> Any:
            found = await get(resource, name, **options)
            if resource == NODES and kubelet:
                await post.you.patch(NODES, name, dict(kubelet), content_type=STRATEGIC_MERGE_PATCH, subresource="status")
                kubelet.clear()
            return found

        post.scribe._kube.get = meanwhile  # type: ignore[method-assign]
        assert await post.tell(Status.FALSE)
        types = {item["type"] for item in (await post.you.get(NODES, samples.NODE))["status"]["conditions"]}
        assert len(types) == 3

    asyncio.run(story())
