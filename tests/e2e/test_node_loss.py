"""Nodes that are gone, on a real control plane: a Node is deleted, and another sidecar tells what it has left, and clears it away where
it was announced. The notes on volumes are written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.e2e.conftest import CLAIMS, PODS, VOLUMES, Cluster
from tests.e2e.draining import EVENTS, REPORTS, STATEFUL_SETS, Ground, installed
from tests.e2e.losing import ALPHA, LOOK, gone, lose


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    with installed(plane, "node-loss/rbac.yaml"):
        yield


@pytest.fixture
def ground(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(cluster, tmp_path)
    yield found
    for report in cluster.items(REPORTS):
        cluster.delete(REPORTS, report["metadata"]["name"])
    found.clean()


@pytest.mark.parametrize("announced", [True, False])
def test_A13_a_node_that_is_deleted(ground: Ground, announced: bool) -> None:
    cluster = ground.cluster
    first, second = (ground.driver(ALPHA, node) for node in ("n1", "n2"))
    with all_of([first, second]):
        lose(ground, first, announced=announced)
        (before,) = cluster.items(CLAIMS)
        ground.node("n2", second)
        with ground.sidecar(second, "--node-delete-policy=Cleanup", "--node-gone-after=0s") as sidecar:
            sidecar.until_ready()
            until(lambda: bool(gone(cluster)), "the loss is told", seconds=LOOK)
            told = gone(cluster)
            assert told["evidence"] == ("Announced" if announced else "None")
            assert [item["name"] for item in told["claims"]] == [before["metadata"]["name"]]
            until(lambda: any(event["reason"] == names.NODE_GONE for event in cluster.items(EVENTS)), "each claim is told", seconds=20)
            assert sidecar.metric("csi_node_sidecar_lost_volumes", evidence=told["evidence"]) == 1
            if announced:
                until(lambda: cluster.phase(PODS, "db-0") == "Running", "the set is whole", seconds=LOOK)
                assert cluster.items(CLAIMS)[0]["metadata"]["uid"] != before["metadata"]["uid"]
                until(lambda: len(cluster.items(VOLUMES)) == 1, "what was lost is cleared away", seconds=LOOK)
            else:
                until(lambda: "db-0" in {item["metadata"]["name"] for item in cluster.items(PODS)}, "the pod waits", seconds=30)
                assert cluster.items(CLAIMS)[0]["metadata"]["uid"] == before["metadata"]["uid"]
                assert not cluster.items(CLAIMS)[0]["metadata"].get("deletionTimestamp")
                ground.node("n1", first)  # the machine is back with its disks
                until(lambda: cluster.phase(PODS, "db-0") == "Running", "the pod has its data again", seconds=LOOK)
                until(lambda: not gone(cluster), "nothing is told of it any more", seconds=LOOK)


def test_A13_a_volume_without_node_affinity_is_deleted_by_the_driver_of_another_node(ground: Ground) -> None:
    """That driver refuses at first, as one does that knows the owner to be there, and then its sidecar dies while it is asked again."""
    cluster, unplaced = ground.cluster, "--feature-gates=Topology=false"
    first, second = (ground.driver(ALPHA, node) for node in ("n1", "n2"))
    clearing = (unplaced, "--node-delete-policy=Cleanup", "--node-gone-after=0s", "--retry-interval-start=1s")
    with all_of([first, second]):
        lose(ground, first, unplaced, announced=True)
        (before,) = cluster.items(VOLUMES)
        name, handle = before["metadata"]["name"], before["spec"]["csi"]["volumeHandle"]
        assert "nodeAffinity" not in before["spec"]
        # Nothing keeps a new pod off another node, so its owner gives the claim up.
        cluster.delete(STATEFUL_SETS, "db")
        # As a collection: garbage collection may delete the same pods at the same time.
        cluster.plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        for item in cluster.items(CLAIMS):
            cluster.delete(CLAIMS, item["metadata"]["name"])
        until(lambda: cluster.phase(VOLUMES, name) == "Released", "the volume is released", seconds=60)
        ground.node("n2", second)
        second.misbehave({"method": "DeleteVolume", "fail": "FAILED_PRECONDITION", "message": "its owner is there"})
        with ground.sidecar(second, *clearing) as sidecar:
            sidecar.until_ready()
            until(lambda: second.recorded("DeleteVolume") != [], "the driver is asked", seconds=LOOK)
            until(lambda: refusals(cluster) != [], "people are told", seconds=LOOK)
            assert cluster.exists(VOLUMES, name)
            # It does it, and its answer takes long enough for a kill.
            second.misbehave({"method": "DeleteVolume", "linger": 30.0})
            asked = len(second.recorded("DeleteVolume"))
            until(lambda: len(second.recorded("DeleteVolume")) > asked, "it is asked again", seconds=700)
            sidecar.kill()
            assert cluster.exists(VOLUMES, name)
            second.misbehave()
        with ground.sidecar(second, *clearing) as sidecar:
            sidecar.until_ready()
            until(lambda: not cluster.exists(VOLUMES, name), "the object goes", seconds=2 * LOOK)
        assert {call["name"] for call in second.recorded("DeleteVolume")} == {handle}


def refusals(cluster: Cluster) -> list[str]:
    found = [event["message"] for event in cluster.items(EVENTS) if event["reason"] == names.VOLUME_FAILED_DELETE]
    return [message for message in found if "its owner is there" in message]
