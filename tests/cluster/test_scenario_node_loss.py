"""Machines go and their Nodes are deleted, on real kubelets: what was announced is cleared away, what was not stays, and both come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.lib.control_plane import until
from sidecar.model import names
from tests.cluster.draining import MAY_BE, RUNS
from tests.cluster.replicated import ELSEWHERE, MADE_ANEW, Database, Retiring, is_ready, stateful_set
from tests.cluster.scenes import DRIVER, NAMESPACE, VOLUMES, Json

# A loss is told within 90 seconds; what follows it a step every ten. Garbage collection of a gone node's pods takes up to a minute besides.
TOLD_WITHIN = 90.0
CLEARED_WITHIN = 150.0


class Machines:
    """Two of the four: one is announced to go and has a replica of the database, the other one is not and has the only copy of its data."""

    def __init__(self, retiring: Retiring) -> None:
        self.retiring, self.installation = retiring, retiring.installation
        self.db = Database(self.installation)
        # The one that looks after gone nodes is neither: its own loss would be told a quarter of an hour later.
        looks = until(self._who_looks, "a sidecar looks after gone nodes", seconds=90)
        self.lost, _, self.kept = (node for node in retiring.nodes if node != looks)

    def _who_looks(self) -> str:
        found = self.installation.get("lease", names.node_loss(DRIVER), f"--namespace={NAMESPACE}")
        return str(found["metadata"]["ownerReferences"][0]["name"]) if found else ""

    def start(self) -> None:
        self.retiring.kubectl("taint", "node", self.kept, ELSEWHERE)
        self.db.start()
        self.retiring.let_be()
        self.retiring.await_open()
        self.installation.apply(stateful_set("alone", 1, node=self.kept))
        self.installation.kubectl_waits("rollout", "status", "statefulset/alone", seconds=90)

    def machine(self, node: str) -> str:
        return f"{node}/{self.retiring.node(node)['metadata']['uid']}"

    def volume_of(self, replica: str) -> Json:
        claim = self.installation.get("persistentvolumeclaim", f"data-{replica}", "--namespace=default")
        return self.installation.get("persistentvolume", claim["spec"].get("volumeName") or "none-yet")

    def lies_on(self, replica: str, key: str = names.LIES_ON) -> str:
        return str((self.volume_of(replica)["metadata"].get("annotations") or {}).get(key, ""))

    def lose(self) -> None:
        for node in (self.lost, self.kept):
            self.installation.cluster.node(node).power_off()
        self.retiring.kubectl("delete", "node", self.lost, self.kept, "--wait=true")

    def bring_back(self, node: str) -> None:
        """With its disks; the kubelet registers it, and its sidecar runs."""
        machine = self.installation.cluster.node(node)
        if not machine.is_on:
            machine.power_on()
        machine.start_kubelet()
        until(lambda: self._is_up(node), f"{node} is registered", seconds=60)
        self.retiring.kubectl("label", "node", node, f"{RUNS}=here", "--overwrite")
        until(lambda: is_ready(self.installation.pods().get(node, NOBODY)), f"the sidecar of {node} is ready", seconds=90)

    def bring_all_back(self) -> None:
        there = {node["metadata"]["name"] for node in self.installation.items("nodes")}
        for node in (self.lost, self.kept):
            if node not in there:
                self.bring_back(node)

    def _is_up(self, node: str) -> bool:
        found = self.installation.get("node", node)
        return bool(found) and any((item["type"], item["status"]) == ("Ready", "True") for item in found["status"]["conditions"])

    # --- what is told and left ------------------------------------------------------------------------------------------

    def gone(self, node: str) -> Json:
        return dict(self.retiring.report(node).get("gone") or {})

    def told_by_events(self) -> set[str]:
        """Uids of claims."""
        told = self.installation.items("events", "--namespace=default", f"--field-selector=reason={names.NODE_GONE}")
        return {item["involvedObject"]["uid"] for item in told}

    def left_in_the_namespace(self, node: str, uid: str) -> list[str]:
        """Leases and capacity objects of the machine."""
        leases = self.installation.items("leases", f"--namespace={NAMESPACE}")
        owned = [item for item in leases if uid in {ref["uid"] for ref in item["metadata"].get("ownerReferences", ())}]
        capacities = self.installation.items("csistoragecapacities", f"--namespace={NAMESPACE}")
        placed = [item for item in capacities if node in item.get("nodeTopology", {}).get("matchLabels", {}).values()]
        return [item["metadata"]["name"] for item in (*owned, *placed)]


NOBODY: Json = {"metadata": {}, "status": {}}


@pytest.fixture
def machines(retiring: Retiring) -> Iterator[Machines]:
    found = Machines(retiring)
    try:
        found.start()
        yield found
    finally:
        found.bring_all_back()
        retiring.let_be()
        retiring.await_open()
        found.db.stop()


def test_A13_what_was_announced_is_cleared_away_and_what_was_not_waits_for_its_machine(retiring: Retiring, machines: Machines) -> None:
    db, installation, lost, kept = machines.db, machines.installation, machines.lost, machines.kept
    pod, born = db.on(lost), installation.kubectl("exec", "alone-0", "--namespace=default", "--", "cat", "/data/born")
    before, alone = db.claims(), machines.volume_of("alone-0")
    gone_volume, gone_uid = machines.volume_of(pod), retiring.node(lost)["metadata"]["uid"]
    # Announced, and nothing moves yet, for the budget allows none.
    db.budget(0)
    retiring.taint(lost)
    noted = lambda: (machines.lies_on(pod), machines.lies_on(pod, names.LEAVING), machines.lies_on("alone-0"))  # noqa: E731
    wanted = machines.machine(lost), machines.machine(lost), machines.machine(kept)
    until(lambda: noted() == wanted, "the volumes say where they lie, and one that its machine leaves", seconds=60)
    assert db.claims() == before
    assert machines.left_in_the_namespace(lost, gone_uid)

    machines.lose()
    for node, evidence in ((lost, "Announced"), (kept, "None")):
        told = until(lambda node=node: machines.gone(node), f"the loss of {node} is told", seconds=TOLD_WITHIN)  # type: ignore[misc]
        assert told["evidence"] == evidence
    claims = {before[pod], alone["spec"]["claimRef"]["uid"]}
    until(lambda: claims <= machines.told_by_events(), "each claim is told", seconds=MAY_BE)
    # The announced one is cleared away, and its replica waits for a node that the others leave to it.
    until(lambda: db.claims().get(pod, before[pod]) != before[pod], "the claim is made again", seconds=CLEARED_WITHIN)
    until(lambda: gone_volume["metadata"]["uid"] not in _uids(installation.volumes()), "the volume is gone", seconds=CLEARED_WITHIN)
    until(lambda: not machines.left_in_the_namespace(lost, gone_uid), "Leases and capacity are gone", seconds=MAY_BE)
    until(lambda: not machines.gone(lost), "nothing is told of it any more", seconds=TOLD_WITHIN)
    # Of the other one nothing is touched.
    stays = machines.volume_of("alone-0")
    assert (stays["metadata"]["uid"], stays["status"]["phase"]) == (alone["metadata"]["uid"], "Bound")
    assert machines.gone(kept)["evidence"] == "None"
    assert not machines.gone(kept)["done"]

    # It comes back with its disks, as another Node: its data is there, and the replica that waits finds a place.
    machines.bring_back(kept)
    until(lambda: is_ready(installation.get("pod", "alone-0", "--namespace=default") or NOBODY), "its pod runs", seconds=MADE_ANEW)
    assert installation.kubectl("exec", "alone-0", "--namespace=default", "--", "cat", "/data/born") == born
    until(lambda: machines.lies_on("alone-0") == machines.machine(kept), "its volume says where it lies now", seconds=90)
    until(lambda: retiring.report(kept).get("verdicts") and not machines.gone(kept), "its own sidecar reports", seconds=TOLD_WITHIN)
    db.await_whole()
    assert db.ready()[pod] == kept
    assert {name: uid for name, uid in db.claims().items() if name != pod} == {name: uid for name, uid in before.items() if name != pod}

    # So does the one that was given up: what is on its disks is shown, and left alone.
    handle = gone_volume["spec"]["csi"]["volumeHandle"]
    machines.bring_back(lost)
    until(lambda: retiring.report(lost).get("untracked"), "its untracked volume is shown", seconds=TOLD_WITHIN)
    assert handle in installation.on_disk()[lost]
    installation.cluster.node(lost).run("rm", "-rf", f"{VOLUMES}/{handle}")


def _uids(found: list[Json]) -> set[str]:
    return {item["metadata"]["uid"] for item in found}
