"""A node is drained with real kubelets: predicted, held by the gate, and let go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import until
from tests.cluster.draining import Drained
from tests.cluster.scenes import DEPLOY, NAMESPACE, is_ready, kustomized

Deploy = Callable[[Drained], Drained]


def test_e1_e2_a_real_drain_is_held_by_the_gate_and_let_go(cluster: Cluster, deploy: Deploy, tmp_path: Path) -> None:
    """Without --force, and with a guard that is a real pod; the node's sidecar is made anew meanwhile, under its own taint and the cordon.

    The pod, which would be stranded (D2), is not evicted and runs on, until somebody gives its data up.
    """
    scene = deploy(Drained(cluster, kustomized(cluster, DEPLOY / "overlays" / "gated")))
    scene.stateful_set("writer", 1)
    before = scene.pod("writer-0")
    node, uid = before["spec"]["nodeName"], before["metadata"]["uid"]
    guard = scene.await_gate(node)
    asked = scene.program("explain", "node", node, "--intent", "retire", "-o", "json")
    assert (asked.returncode, asked.stderr) == (0, "")
    (said,) = json.loads(asked.stdout)
    assert [item["retire"] for item in said["pods"] if item["name"] == "writer-0"] == ["StrandedUntilUncordon"]

    scene.taint(node)
    with scene.drain(node, tmp_path / "drain.log") as drain:
        until(drain.refusals, "the guard is not evicted")
        sidecar = scene.pods()[node]["metadata"]["uid"]
        scene.kubectl("delete", "pod", scene.pods()[node]["metadata"]["name"], f"--namespace={NAMESPACE}")
        until(lambda: is_ready(scene.pods().get(node, {})), f"another sidecar on {node} is ready")
        assert scene.pods()[node]["metadata"]["uid"] != sidecar
        until(lambda: scene.condition(node) == ("False", "VolumeInUse"), "it says so too")
        assert scene.state(node) == "InProgress"
        assert drain.runs(), drain.said()
        assert scene.pod("writer-0")["metadata"]["uid"] == uid, "its eviction was refused"
        assert {f'pods/"{guard}" -n "{NAMESPACE}"' in line for line in drain.refusals()} == {True}, drain.said()
        scene.kubectl("scale", "statefulset", "writer", "--replicas=0", scene.where)
        scene.kubectl("delete", "persistentvolumeclaim", "data-writer-0", scene.where, "--wait=false")
        drain.await_end()
        assert "writer-0 must not be evicted" in drain.said() and "retire is announced (taint)" in drain.said()

    with scene.drain(node, tmp_path / "again.log") as drain:
        drain.await_success()
    scene.kubectl("scale", "statefulset", "writer", "--replicas=1", scene.where)
    until(lambda: (scene.state(node), scene.condition(node)[0]) == ("Success", "True"), "the node may be retired")
    assert not scene.guards(node) and not scene.budgets(node)
    until(lambda: is_ready(scene.pod("writer-0")), "the pod runs elsewhere")
    assert scene.pod("writer-0")["spec"]["nodeName"] != node
