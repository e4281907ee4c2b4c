"""Drivers and nodes whose names have an end in common: the name of a report is that of the node and that of the driver."""

from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.drain.node_loss import report
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, VOLUMES
from sidecar.model import names
from tests.harness.drain.node_loss import CLEANING, REPORT, Watchman, announce, one_replica, play, vanish
from tests.harness.drain.simulated import Json, wait

FIRST, _, REST = DRIVER.partition(".")
NODE: Json = {"apiVersion": "v1", "kind": names.NODE, "name": f"n0.{FIRST}", "uid": "uid-9"}
ANOTHERS: Json = {
    **report.head(Suspect(f"n0.{FIRST}", "uid-9"), REST),
    "status": {"nodeUID": "uid-9", "schemaVersion": 1, "agentVersion": "v0"},
}


def test_the_report_of_another_node_by_another_driver_is_not_written_over() -> None:
    """Its node is there, and its own sidecar writes it. Without a report nothing is cleared away."""
    assert names.drain_report(f"n0.{FIRST}", REST) == REPORT
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench, collected=True)
        head = {**ANOTHERS, "metadata": {"name": REPORT, "ownerReferences": [NODE], "annotations": {names.ACKNOWLEDGED: "me"}}}
        before = await bench.you.create(DRAIN_REPORTS, head)
        await wait(bench, 1500)
        assert await bench.you.get(DRAIN_REPORTS, REPORT) == before

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []
