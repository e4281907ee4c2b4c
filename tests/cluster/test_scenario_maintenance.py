"""A declared maintenance on real kubelets: a machine is rebooted between its drain and its completion, and what ran there counts on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import until
from sidecar.model import names
from tests.cluster.draining import Drained, evacuating
from tests.cluster.scenes import DEPLOY, DRIVER, Json, is_ready

NOTED = names.of_driver(DRIVER, names.MAINTENANCE_RECORD)
COUNTS = "echo $(($(tail -n 1 /data/log 2>/dev/null || echo 0) + 1)) >> /data/log;"
"""Each second one more than the last line says."""


class Maintained(Drained):
    """Sidecars that carry maintenances out, beside all else that may evict, with the policies."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        types = yaml.safe_load_all((DEPLOY / "components" / "maintenance" / "crd.yaml").read_text())
        super().__init__(cluster, [*types, *evacuating(cluster, folder, "maintenance")])

    def uninstall(self) -> None:
        self.kubectl("delete", "pm", "--all")
        super().uninstall()

    def declare(self, **spec: object) -> None:
        self.apply({"apiVersion": names.REPORT_VERSION, "kind": names.MAINTENANCE_KIND, "metadata": {"name": "m1"}, "spec": spec})

    def go_to(self, stage: str) -> None:
        self.kubectl("patch", "pm", "m1", "--type=merge", f"--patch={json.dumps({'spec': {'stage': stage}})}")

    def noted(self, node: str) -> Json:
        found: Json = json.loads(self.node(node)["metadata"]["annotations"].get(NOTED, "{}"))
        return found

    def said(self, node: str) -> set[str]:
        """Of the conditions that other programs go by."""
        found = self.node(node)["status"]["conditions"]
        return {item["type"] for item in found if item["type"] in names.LIFECYCLE_CONDITIONS and item["status"] == "True"}

    def ours(self, node: str) -> tuple[Json, set[str]]:
        """What a maintenance could leave on a node: its spec, and our annotations."""
        found = self.node(node)
        return found["spec"], {key for key in found["metadata"]["annotations"] if names.GROUP in key}

    def counted(self) -> list[int]:
        return [int(line) for line in self.kubectl("exec", "counter-0", self.where, "--", "cat", "/data/log").split()]


def test_a_stateful_set_counts_on_through_a_planned_reboot(
    cluster: Cluster, deploy: Callable[[Maintained], Maintained], tmp_path: Path
) -> None:
    """The policy Evacuate takes a cordon that lasts for retiring: not that of a maintenance."""
    scene = deploy(Maintained(cluster, tmp_path / "manifests"))
    node, *others = scene.nodes
    scene.stateful_set("counter", 1, node=node, each=COUNTS)
    scene.stateful_set("beside", 1, node=others[0])
    before, claim, born = scene.ours(node), scene.claims()["data-counter-0"]["metadata"]["uid"], scene.born("counter-0")
    untouched = {other: scene.ours(other) for other in others}
    pod, beside, boot = scene.pod("counter-0")["metadata"]["uid"], scene.pod("beside-0")["metadata"]["uid"], cluster.node(node).boot_id

    scene.declare(nodes=[node], intent="reboot", stage="Cordon", deadline="10m", onDeadline="Override")
    until(lambda: scene.noted(node).get("prior") is False and scene.said(node) == {names.MAINTENANCE_IN_PROGRESS}, "it is cordoned")
    assert scene.node(node)["spec"].get("unschedulable") and scene.pod("counter-0")["metadata"]["uid"] == pod
    counted = scene.counted()
    until(lambda: len(scene.counted()) > len(counted), "it counts on under the cordon")

    scene.go_to("Drain")
    scene.kubectl_waits("wait", "pm/m1", "--for=condition=Drained")
    assert scene.said(node) == {names.MAINTENANCE_IN_PROGRESS, names.DRAINED}
    until(lambda: scene.pod("counter-0").get("status", {}).get("phase") == "Pending", "it was evicted, and waits for its volume")
    assert scene.pod("counter-0")["metadata"]["uid"] != pod and scene.pods()[node], "the sidecar's own pod stays"
    told = scene.program("explain", "maintenance", "m1")
    assert told.returncode == 0 and "1/1 drained" in told.stdout, told

    cluster.node(node).reboot()
    cluster.await_ready()
    until(lambda: is_ready(scene.pods().get(node, {})), f"the sidecar of {node} is back")
    assert cluster.node(node).boot_id != boot
    assert scene.node(node)["spec"].get("unschedulable") and scene.noted(node)["prior"] is False, "nobody has said that it is over"
    assert scene.pod("counter-0")["status"]["phase"] == "Pending"

    scene.go_to("Complete")
    until(lambda: is_ready(scene.pod("counter-0")), "it runs again")
    until(lambda: scene.ours(node) == before and not scene.said(node), lambda: f"{node} is as before: {scene.ours(node)}, {before}")
    after = scene.counted()
    assert after == list(range(1, len(after) + 1)) and after[: len(counted)] == counted
    until(lambda: len(scene.counted()) > len(after), "it counts on")
    assert (scene.claims()["data-counter-0"]["metadata"]["uid"], scene.born("counter-0")) == (claim, born)
    assert scene.pod("beside-0")["metadata"]["uid"] == beside and untouched == {other: scene.ours(other) for other in others}
