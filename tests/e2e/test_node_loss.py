"""Nodes that are gone, on a real control plane, beside what `tests/smoke/test_node_loss.py` shows."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.harness.cluster import CLAIMS, EVENTS, PODS, STATEFUL_SETS, VOLUMES, after_looks
from tests.harness.drains import Ground
from tests.harness.losing import gone, lose

CLEARING = ("--node-delete-policy=Cleanup", "--node-gone-after=0s")


def test_A13_a_node_that_is_deleted_without_a_word_waits_for_its_machine(ground: Ground) -> None:
    first, second = (ground.driver(node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, announced=False)
        (before,) = ground.items(CLAIMS)
        ground.node("n2", second)
        with ground.judge(second, *CLEARING) as sidecar:
            sidecar.until_ready()
            until(lambda: gone(ground), "the loss is told")
            assert (gone(ground)["evidence"], [item["name"] for item in gone(ground)["claims"]]) == ("None", [before["metadata"]["name"]])
            until(lambda: ground.told(names.NODE_GONE, EVENTS), "each claim is told")
            until(lambda: "db-0" in ground.names(PODS), "the pod waits")
            after_looks(sidecar, at="gone nodes")
            (claim,) = ground.items(CLAIMS)
            assert claim["metadata"]["uid"] == before["metadata"]["uid"] and not claim["metadata"].get("deletionTimestamp")
            ground.node("n1", first)  # the machine is back with its disks
            until(lambda: ground.phase(PODS, "db-0") == "Running", "the pod has its data again")
            until(lambda: not gone(ground), "nothing is told of it any more")


def test_A13_a_volume_without_node_affinity_is_told_and_left_to_people(ground: Ground) -> None:
    """Nothing says which nodes reach it."""
    unplaced = "--feature-gates=Topology=false"
    first, second = (ground.driver(node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, unplaced, announced=True)
        (before,) = ground.items(VOLUMES)
        name = before["metadata"]["name"]
        assert "nodeAffinity" not in before["spec"]
        # Nothing keeps a new pod off another node, so its owner gives the claim up.
        ground.delete(STATEFUL_SETS, "db")
        # As a collection: garbage collection may delete the same pods at the same time.
        ground.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        ground.request("DELETE", CLAIMS)
        until(lambda: ground.phase(VOLUMES, name) == "Released", "the volume is released")
        ground.node("n2", second)
        with ground.judge(second, unplaced, *CLEARING) as sidecar:
            sidecar.until_ready()
            until(lambda: gone(ground), "the loss is told")
            (volume,) = gone(ground)["volumes"]
            assert volume["name"] == name and "no node affinity" in volume["message"]
            after_looks(sidecar, at="gone nodes")
            assert ground.exists(VOLUMES, name)
        assert not second.recorded("DeleteVolume")
