"""A node says whether it may go, and a plain `kubectl drain` leaves it in peace, or waits, until it may."""

from __future__ import annotations

import json
import subprocess

from hack.lib.control_plane import REPOSITORY, ApiError, until
from sidecar.model import names
from tests.harness.cluster import (
    CLAIMS,
    DRAINER,
    HOME,
    NODES,
    OWN_BUDGETS,
    OWN_DEPLOYMENTS,
    OWN_PODS,
    PODS,
    STATEFUL_SETS,
    VOLUMES,
    after_looks,
)
from tests.harness.drains import EVENTS_OF_NODES, GATE, Ground, command, stateful_set

EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


def test_e1_e2_a_real_drain_is_held_by_the_gate_and_let_go(ground: Ground) -> None:
    """Without --force. Its sidecar is killed meanwhile and comes again, under its own taint and the cordon."""
    driver = ground.driver()
    with driver, ground.judge(driver, *GATE) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.create(STATEFUL_SETS, stateful_set("db", driver, 1))
        until(lambda: ground.ready() == {"db-0": "n1"}, "db-0 runs")
        ground.await_verdict(driver, "False", "VolumeInUse")
        until(ground.gate_stands, "the gate stands")
        first = ground.get(PODS, "db-0")["metadata"]["uid"]
        assert command(ground.plane.kubeconfig, "node", "retire", "n1", "--yes").returncode == 0
        assert ground.marks("n1")[names.DRAIN_INTENT] == "retire"
        ground.taint("n1")
        ground.await_state(driver, "InProgress")

        def started() -> str:
            return str(json.loads(ground.marks("n1")[names.of_driver(driver.driver, names.DRAIN_RECORD)])["startedAt"])

        since = started()

        with ground.drain("n1") as drain:
            until(drain.refusals, drain.output)
            until(lambda: ground.get(PODS, "db-0")["metadata"]["uid"] != first, "db-0 is evicted, and made again")
            sidecar.kill()
            sidecar.start().until_ready()
            after_looks(sidecar, at="drain")
            assert drain.is_running() and ground.gate_stands(), drain.output()
            assert ground.phase(PODS, "db-0") == "Pending", "the node is closed, and its volume lies there"
            assert started() == since
            assert all(name in line for line in drain.refusals() for name in ground.ready(OWN_PODS)), "nothing else holds it"

            ground.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 0}})
            ground.delete(CLAIMS, "data-db-0")
            until(lambda: not ground.items(VOLUMES), "the data is given up")
            assert drain.wait() == 0, drain.output()
        assert "error: " not in drain.output()
        assert not ground.items(OWN_BUDGETS) and not ground.items(OWN_DEPLOYMENTS)
        ground.await_state(driver, "Success")
        ground.await_verdict(driver, "True", "NothingBlocks")


def test_pods_of_a_held_drain_run_on_until_a_reboot_is_announced_or_the_drain_is_forced(ground: Ground) -> None:
    """With the policy of components/gate. The list is there before the drain begins, so that no race decides the test."""
    driver = ground.driver()
    with driver, ground.judge(driver, *GATE) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.plane.apply(policy(driver.driver))
        ground.create(STATEFUL_SETS, stateful_set("db", driver, 2))
        until(lambda: ground.ready() == {"db-0": "n1", "db-1": "n1"}, "both replicas run")
        until(ground.gate_stands, "the gate stands")
        ground.await_verdict(driver, "False", "VolumeInUse")
        first = replicas(ground)
        for let_go in (("node", "reboot", "n1", "--yes"), ()):
            ground.cordon("n1")
            refusal = until(lambda: evicted_in_vain(ground), "evictions are refused")
            assert "must not be evicted" in refusal and "nobody announced what it is for" in refusal
            drained = drain(ground, "n1")
            assert drained.returncode == 1 and drained.stderr.count("error when evicting pods") >= 2, drained.stderr
            for name in first:
                assert f"{ground.namespace}/{name} must not be evicted: {driver.driver} holds the drain of node n1" in drained.stderr
            assert f'pods/"{names.GUARDS}n1-' in drained.stderr + drained.stdout
            assert replicas(ground) == first, "nobody was evicted"
            until(lambda: "n1" in ground.told(names.DRAIN_HELD, EVENTS_OF_NODES), "an event says so")

            if let_go:
                assert command(ground.plane.kubeconfig, *let_go).returncode == 0
            else:
                ground.patch(NODES, "n1", {"metadata": {"annotations": {names.FORCE_DRAIN: "the power goes"}}})
            until(lambda: ground.report("n1", driver)["held"] == [], "nobody is held")
            until(lambda: drain(ground, "n1").returncode == 0, "the same drain passes")
            assert not first.items() & replicas(ground).items(), "both were evicted"

            ground.patch(NODES, "n1", {"metadata": {"annotations": {names.DRAIN_INTENT: None, names.FORCE_DRAIN: None}}})
            ground.cordon("n1", False)
            until(lambda: ground.ready().keys() == {"db-0", "db-1"} and ground.gate_stands(), "all is as before")
            first = replicas(ground)


def policy(driver: str) -> str:
    """For this driver, and the account of the tests."""
    text = (REPOSITORY / "deploy" / "components" / "gate" / "eviction.yaml").read_text()
    text = text.replace("'local.csi-node-sidecar.io'", f"'{driver}'").replace("--local.csi-node-sidecar.io--", f"--{driver}--")
    return text.replace("serviceaccount:csi-node-sidecar:csi-node-sidecar", f"serviceaccount:{HOME}:{DRAINER}")


def replicas(ground: Ground) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in ground.items(PODS)}


def evicted_in_vain(ground: Ground) -> str:
    """What is said to whoever would evict both."""
    said = [tried(ground, name) for name in replicas(ground)]
    return said[0] if all(said) else ""


def tried(ground: Ground, name: str) -> str:
    try:
        ground.create(f"{PODS}/{name}/eviction", {"metadata": {"name": name}, "deleteOptions": {"dryRun": ["All"]}, **EVICTION})
    except ApiError as error:
        return str(error) if error.status == 403 else ""
    return ""


def drain(ground: Ground, node: str) -> subprocess.CompletedProcess[str]:
    """One that is given up after some seconds."""
    line = [str(ground.plane.program("kubectl")), f"--kubeconfig={ground.plane.kubeconfig}", "drain", node, "--timeout=6s"]
    return subprocess.run(line, capture_output=True, text=True, check=False)
