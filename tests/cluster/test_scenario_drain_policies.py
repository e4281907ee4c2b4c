"""What people and programs say of a node or a volume, on real kubelets: policies under a drain that comes twice, kured, an autoscaler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from sidecar.model import names
from tests.cluster.draining import MAY_BE, STATE, Drained, Writers
from tests.cluster.scenes import EXAMPLE, NAMESPACE, ClusterError, lines_of

WRITERS = ("writer-0", "writer-1")
# Longer than it is remembered that a pod used a volume.
FORGOTTEN = 75.0
# As long as a look of the sidecar may come late, and a gate that opens be seen.
SOON = 12.0
KURED = names.KURED_REBOOTS
AUTOSCALER = "ToBeDeletedByClusterAutoscaler"


@pytest.fixture(scope="module")
def writers(drained: Drained) -> Iterator[Writers]:
    """Both on the first node."""
    elsewhere, found = drained.nodes[1], Writers(drained.installation)
    drained.kubectl("cordon", elsewhere)
    try:
        found.start(2)
    finally:
        drained.let_be()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def _let_be(drained: Drained, writers: Writers) -> Iterator[None]:
    yield
    drained.let_be()
    drained.await_open()
    writers.await_rollout()


def test_volumes_stay_in_use_after_their_pods_were_evicted_by_whatever_policy(drained: Drained, writers: Writers, tmp_path: Path) -> None:
    """Twice, with the sidecar killed in the middle, and without --force. Then the owner gives the data up, and the drain ends."""
    node = drained.nodes[0]
    say(drained, "data-writer-0", f"{names.DRAIN_POLICY}=AllowIdle")
    say(drained, "data-writer-1", f"{names.DRAIN_POLICY}=Block")
    drained.await_gate(node)
    for attempt in ("killed", "made anew"):
        before = writers.pods()
        with drained.drain(node, seconds=300, log=tmp_path / f"{attempt}.log") as drain:
            until(drain.refusals, "the guard is not evicted", seconds=MAY_BE)
            for name in WRITERS:
                writers.await_pending(name, other_than=before[name]["metadata"]["uid"])
            if attempt == "killed":
                machine, process = drained.installation.cluster.node(node), drained.installation.process_of(node)
                machine.run("kill", "-KILL", str(process))
            else:
                drained.renew_sidecar(node)
            time.sleep(FORGOTTEN)
            assert drain.runs(), drain.said()
            assert drained.guards(node) and drained.budgets(node)
            until(lambda: drained.condition(node) == ("False", "VolumeInUse"), "the volumes are in use", seconds=MAY_BE)
            told = {(item["namespace"], item["name"], item["class"]) for item in drained.report(node)["blockers"]}
            assert told == {(EXAMPLE, f"data-{name}", "InUse") for name in WRITERS}
        drained.kubectl("uncordon", node)
        writers.await_rollout()
        assert {item["spec"]["nodeName"] for item in writers.pods().values()} == {node}
    written = lines_of(drained.installation, "writer-0")

    for name in WRITERS:
        say(drained, f"data-{name}", f"{names.DRAIN_POLICY_RETIRE}=Ignore")
    with drained.drain(node, seconds=60, log=tmp_path / "given-up.log") as drain:
        assert drain.await_end(70) == 0, drain.said()
    drained.kubectl("uncordon", node)
    writers.await_rollout()
    assert lines_of(drained.installation, "writer-0")[: len(written)] == written
    for name in WRITERS:
        say(drained, f"data-{name}", f"{names.DRAIN_POLICY}-", f"{names.DRAIN_POLICY_RETIRE}-")


def say(drained: Drained, claim: str, *words: str) -> None:
    drained.kubectl("annotate", "persistentvolumeclaim", claim, f"--namespace={EXAMPLE}", "--overwrite", *words)


def test_kured_s_mark_opens_the_gate_only_while_the_node_is_cordoned(drained: Drained, writers: Writers, tmp_path: Path) -> None:
    """In kured's order: its mark, the cordon, the drain, the reboot, the uncordon, and last its mark is removed."""
    node = drained.nodes[0]
    guard = drained.await_gate(node)
    drained.kubectl("annotate", "node", node, f"{KURED}=2026-11-23T00:00:00Z")
    try:
        time.sleep(SOON)
        assert [item["metadata"]["name"] for item in drained.guards(node)] == [guard] and drained.budgets(node)
        with drained.drain(node, seconds=60, log=tmp_path / "drain.log") as drain:
            assert drain.await_end(70) == 0, drain.said()
        assert not drained.budgets(node)
        until(lambda: intent(drained, node) == ("reboot", "kured"), "the cordon is kured's", seconds=MAY_BE)
        drained.kubectl("uncordon", node)
        drained.await_gate(node)
    finally:
        drained.kubectl("annotate", "node", node, f"{KURED}-")


def test_an_autoscaler_that_taints_and_does_not_cordon_is_held_until_it_gives_up(drained: Drained, writers: Writers) -> None:
    node = drained.nodes[0]
    guard, before = drained.await_gate(node), writers.pods()
    drained.kubectl("taint", "node", node, f"{AUTOSCALER}={time.time():.0f}:NoSchedule")
    try:
        for name in WRITERS:
            assert evict(drained, EXAMPLE, name) == ""
            writers.await_pending(name, other_than=before[name]["metadata"]["uid"])
        until(lambda: drained.condition(node) == ("False", "VolumeInUse"), "the volumes are in use", seconds=MAY_BE)
        until(lambda: intent(drained, node) == ("retire", "autoscaler"), "the taint is the autoscaler's", seconds=MAY_BE)
        assert drained.label(node, STATE) == "InProgress"
        for _ in range(3):
            assert "disruption budget" in evict(drained, NAMESPACE, guard)
            time.sleep(SOON / 3)
    finally:
        drained.kubectl("taint", "node", node, f"{AUTOSCALER}:NoSchedule-")
    writers.await_rollout()
    assert [item["metadata"]["name"] for item in drained.guards(node)] == [guard]


def intent(drained: Drained, node: str) -> tuple[str, str]:
    """What the report says that the node is emptied for, and who said so."""
    said = drained.report(node)
    return said.get("intent", ""), said.get("intentSource", "")


def evict(drained: Drained, namespace: str, pod: str) -> str:
    """As an autoscaler does it. Empty, or the refusal."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    where = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    try:
        drained.kubectl("create", f"--raw={where}", "--filename=-", input=json.dumps(body))
    except ClusterError as refusal:
        return str(refusal)
    return ""
