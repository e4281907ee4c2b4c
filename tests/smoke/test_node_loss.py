"""A machine is gone with its data: that is told, and cleared away where it had been announced."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.harness.cluster import CLAIMS, EVENTS, PODS, VOLUMES
from tests.harness.drains import Ground
from tests.harness.losing import gone, lose


def test_A13_a_node_that_is_deleted_as_announced_is_cleared_away(ground: Ground) -> None:
    first, second = (ground.driver(node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, announced=True)
        (before,) = ground.items(CLAIMS)
        ground.node("n2", second)
        with ground.judge(second, "--node-delete-policy=Cleanup", "--node-gone-after=0s") as sidecar:
            sidecar.until_ready()
            until(lambda: gone(ground), "the loss is told")
            told = gone(ground)
            assert told["evidence"] == "Announced"
            assert [item["name"] for item in told["claims"]] == [before["metadata"]["name"]]
            until(lambda: ground.told(names.NODE_GONE, EVENTS), "each claim is told")
            assert sidecar.metric("csi_node_sidecar_lost_volumes", evidence="Announced") == 1
            until(lambda: ground.phase(PODS, "db-0") == "Running", "the set is whole")
            assert ground.items(CLAIMS)[0]["metadata"]["uid"] != before["metadata"]["uid"]
            until(lambda: len(ground.items(VOLUMES)) == 1, "what was lost is cleared away")
