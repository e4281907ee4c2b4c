"""The API server is put back to a backup from before a machine came back: what its volumes said then is no evidence now."""

from typing import Any

import pytest

from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.drain.node_loss import gap
from sidecar.kube.api import CLAIMS, CSI_NODES, DRAIN_REPORTS, LEASES, MERGE_PATCH, NODES, VOLUMES
from sidecar.model import names
from tests.harness.drain.backups import back_up, put_back
from tests.harness.drain.node_loss import (
    CLEANING,
    REPORT,
    Watchman,
    announce,
    gone,
    holder,
    note,
    one_replica,
    play,
    report,
    there,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import Json, node_of, wait

ACK: Json = {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}}
LONG = gap.LONGEST + 60.0


async def back_with_its_disks(bench: NotebookWorld, node: Json, csi_node: Json) -> None:
    """As another Node, which is not to be retired."""
    for resource, obj in ((NODES, node), (CSI_NODES, csi_node)):
        meta = {"name": "n0", "labels": obj["metadata"].get("labels") or {}}
        await bench.you.create(resource, {"metadata": meta, "spec": obj.get("spec") or {}})
    await note(bench, "data-db-0", {names.LIES_ON: f"n0/{await uid_of(bench)}", names.LEAVING: None})


async def returned_then_restored(bench: NotebookWorld, *, acknowledged: bool = False, age: float = LONG) -> tuple[Json, Json]:
    """n0 is deleted, with evidence, and comes back; later its Node is not stored any more, and the evidence is. Returns what it was."""
    await one_replica(bench)
    found = await node_of(bench), await bench.you.get(CSI_NODES, "n0")
    if not acknowledged:
        await announce(bench)
    await vanish(bench)
    if acknowledged:
        await wait(bench, 90)
        await bench.you.patch(DRAIN_REPORTS, REPORT, ACK, content_type=MERGE_PATCH)
    backup = back_up(bench.cluster)
    await back_with_its_disks(bench, *found)
    await wait(bench, age)
    assert await what_is_there(bench) == (1, 1), "it was not back in time"
    put_back(bench.cluster, backup)
    return found


async def what_is_there(bench: NotebookWorld) -> tuple[int, int]:
    return len(await there(bench, CLAIMS)), len(await there(bench, VOLUMES))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({}, id="announced"),
        pytest.param({"acknowledged": True}, id="acknowledged"),
        pytest.param({"age": 900.0}, id="a young backup, which only a process that lives on can know of"),
    ],
)
def test_what_a_backup_says_of_a_machine_is_no_evidence(case: dict[str, Any]) -> None:
    """Its Node is made again once its kubelet starts; until then nobody knows that it is there."""
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        found = await returned_then_restored(bench, **case)
        await wait(bench, 1000)
        assert await what_is_there(bench) == (1, 1)
        told = await gone(bench)
        assert told["evidence"] == "None"
        assert "restored from a backup" in told["message"]
        await back_with_its_disks(bench, *found)
        await wait(bench, 700)
        assert await gone(bench) == {}

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []


@pytest.mark.parametrize("case", [{}, {"acknowledged": True}], ids=["announced", "acknowledged"])
def test_who_acknowledges_after_the_restore_is_believed(case: dict[str, Any]) -> None:
    async def story(bench: NotebookWorld) -> None:
        await returned_then_restored(bench, **case)
        await wait(bench, 1000)
        stored = await report(bench)
        assert stored is not None
        assert names.ACKNOWLEDGED not in stored["metadata"]["annotations"], "what was said before is taken off"
        await bench.you.patch(DRAIN_REPORTS, REPORT, ACK, content_type=MERGE_PATCH)
        await wait(bench, 200)
        assert await what_is_there(bench) == (0, 0)

    play(story, args=CLEANING)


def test_it_is_known_also_where_the_lease_goes_with_a_node_that_is_no_more() -> None:
    """As where the backup is of before an autoscaler has replaced that machine."""

    async def story(bench: NotebookWorld) -> None:
        await returned_then_restored(bench)
        had_it = await holder(bench)
        for node in bench.nodes.values():
            node.kill()
        await bench.you.delete(NODES, had_it)
        bench.cluster.collect_garbage()
        assert names.node_loss(DRIVER) not in await there(bench, LEASES)
        await wait(bench, 1000)
        assert await what_is_there(bench) == (1, 1)
        assert "restored from a backup" in (await gone(bench))["message"]

    play(story, args=CLEANING)


def test_what_is_lost_after_that_is_cleared_away_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap, "SETTLING", 900.0)

    async def story(bench: NotebookWorld) -> None:
        found = await returned_then_restored(bench)
        await wait(bench, 1000)
        await back_with_its_disks(bench, *found)
        await wait(bench, gap.SETTLING)
        await announce(bench)
        for resource in (NODES, CSI_NODES):
            await bench.you.delete(resource, "n0")
        await wait(bench, 600)
        assert await what_is_there(bench) == (0, 0)

    play(story, args=CLEANING)


def test_a_guard_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap, "doubt", lambda over, *, missed_since: "")

    async def story(bench: NotebookWorld) -> None:
        await returned_then_restored(bench)
        await wait(bench, 1000)
        assert await what_is_there(bench) == (0, 0)

    play(story, args=CLEANING)
