"""Machines go and their Nodes are deleted, on real kubelets: what was announced is cleared away, what was not stays, and both come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import until
from sidecar.model import names
from tests.cluster.draining import Database, Drained, evacuating
from tests.cluster.scenes import DRIVER, NAMESPACE, VOLUMES, Json, is_ready

# A gone node is cleared up at once.
FLAGS = ("--node-delete-policy=Cleanup", "--node-gone-after=0s")
# Garbage collection of a gone node's pods takes up to a minute, each step of what follows ten seconds.
SLOW = 150.0


class Machines(Drained):
    """Sidecars that clear up after machines that are gone."""

    def who_looks(self) -> str:
        """The node of the sidecar that does."""
        found = self.get("lease", names.watch(DRIVER), f"--namespace={NAMESPACE}")
        return str(found["metadata"]["ownerReferences"][0]["name"]) if found else ""

    def volume_of(self, replica: str) -> Json:
        claim = self.claims()[f"data-{replica}"]
        return self.get("persistentvolume", claim["spec"].get("volumeName") or "none-yet")

    def noted(self, replica: str, key: str) -> str:
        return str(self.volume_of(replica)["metadata"].get("annotations", {}).get(key, ""))

    def gone(self, node: str) -> Json:
        return dict(self.report(node).get("gone") or {})

    def left_of(self, node: str, uid: str) -> list[str]:
        """Leases and capacity objects of the machine."""
        leases = self.items("leases", f"--namespace={NAMESPACE}")
        owned = [item for item in leases if uid in {ref["uid"] for ref in item["metadata"].get("ownerReferences", ())}]
        capacities = self.items("csistoragecapacities", f"--namespace={NAMESPACE}")
        placed = [item for item in capacities if node in item.get("nodeTopology", {}).get("matchLabels", {}).values()]
        return [item["metadata"]["name"] for item in (*owned, *placed)]

    def bring_back(self, node: str) -> None:
        """With its disks; the kubelet registers it, and its sidecar runs."""
        machine = self.cluster.node(node)
        machine.power_on()
        machine.start_kubelet()
        until(lambda: is_ready(self.pods().get(node, {})), f"the sidecar of {node} is ready")


def test_A13_what_was_announced_is_cleared_away_and_what_was_not_waits_for_its_machine(
    cluster: Cluster, deploy: Callable[[Machines], Machines], tmp_path: Path
) -> None:
    """One is announced and has a replica of the database, the other one is not and has the only copy of its data."""
    scene = deploy(Machines(cluster, evacuating(cluster, tmp_path / "manifests", "node-loss"), flags=FLAGS))
    # The one that looks after gone nodes stays: its own loss would be told a quarter of an hour later.
    looks = until(scene.who_looks, "a sidecar looks after gone nodes")
    lost, kept = (node for node in scene.nodes if node != looks)
    scene.stateful_set("alone", 1, node=kept)
    scene.kubectl("taint", "node", kept, "scenario.example.com/elsewhere:NoSchedule")  # a cordon that lasts asks for an evacuation
    db = Database(scene, replicas=2)
    scene.let_be(kept)
    pod, born = db.on(lost), scene.born("alone-0")
    before, alone, gone = db.claims(), scene.volume_of("alone-0"), scene.volume_of(pod)
    gone_uid, machine_lost, machine_kept = scene.node(lost)["metadata"]["uid"], scene.machine(lost), scene.machine(kept)
    # Announced, and nothing moves yet, for the budget allows none.
    db.budget(0)
    scene.taint(lost)
    until(lambda: scene.report(lost).get("leaving", {}).get("nodeUID") == gone_uid, "its report says that the machine leaves")
    until(lambda: scene.noted(pod, names.LIES_ON) == machine_lost, "the volume says where it lies")
    until(lambda: scene.noted("alone-0", names.LIES_ON) == machine_kept, "the other one says where it lies")
    assert db.claims() == before
    assert scene.left_of(lost, gone_uid)

    for node in (lost, kept):
        cluster.node(node).power_off()
    scene.kubectl("delete", "node", lost, kept, "--wait=true")
    for node, evidence in ((lost, "Announced"), (kept, "None")):
        told = until(lambda node=node: scene.gone(node), f"the loss of {node} is told", seconds=SLOW)  # type: ignore[misc]
        assert told["evidence"] == evidence
    claims = {before[pod], alone["spec"]["claimRef"]["uid"]}
    until(lambda: claims <= scene.events(names.NODE_GONE), "each claim is told")
    # The announced one is cleared away, and its replica waits for a node that the other one leaves to it.
    until(lambda: db.claims().get(pod, before[pod]) != before[pod], "the claim is made again", seconds=SLOW)
    uids = lambda: {item["metadata"]["uid"] for item in scene.volumes()}  # noqa: E731
    until(lambda: gone["metadata"]["uid"] not in uids(), "the volume is gone", seconds=SLOW)
    until(lambda: not scene.left_of(lost, gone_uid), "Leases and capacity are gone")
    until(lambda: not scene.gone(lost), "nothing is told of it any more", seconds=SLOW)
    # Of the other one nothing is touched.
    stays = scene.volume_of("alone-0")
    assert (stays["metadata"]["uid"], stays["status"]["phase"]) == (alone["metadata"]["uid"], "Bound")
    assert scene.gone(kept)["evidence"] == "None" and not scene.gone(kept)["done"]

    # It comes back with its disks, as another Node: its data is there, and the replica that waits finds a place.
    scene.bring_back(kept)
    until(lambda: is_ready(scene.pod("alone-0")), "its pod runs", seconds=SLOW)
    assert scene.born("alone-0") == born
    assert scene.noted("alone-0", names.LIES_ON) == machine_kept != scene.machine(kept), "which machine had it at first stays written"
    until(lambda: scene.report(kept).get("verdicts") and not scene.gone(kept), "its own sidecar reports", seconds=SLOW)
    db.await_whole()
    assert db.ready()[pod] == kept
    assert {**db.claims(), pod: before[pod]} == before

    # So does the one that was given up: what is on its disks is shown, and left alone.
    handle = gone["spec"]["csi"]["volumeHandle"]
    scene.bring_back(lost)
    until(lambda: scene.report(lost).get("counts", {}).get("classes", {}).get("Untracked"), "its untracked volume is shown", seconds=SLOW)
    assert handle in scene.on_disk()[lost]
    cluster.node(lost).run("rm", "-rf", f"{VOLUMES}/{handle}")
