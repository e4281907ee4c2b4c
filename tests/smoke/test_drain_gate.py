"""A node says whether it may go, and a plain `kubectl drain` waits until it may."""

from __future__ import annotations

from hack.lib.control_plane import until
from sidecar.model import names
from tests.harness.cluster import BUDGETS, CLAIMS, DEPLOYMENTS, PODS, STATEFUL_SETS, VOLUMES, after_looks
from tests.harness.drains import GATE, Ground, command, stateful_set


def test_e1_e2_a_real_drain_is_held_by_the_gate_and_let_go(ground: Ground) -> None:
    """Without --force. Its sidecar is killed meanwhile and comes again, under its own taint and the cordon."""
    driver = ground.driver()
    with driver, ground.judge(driver, *GATE) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.create(STATEFUL_SETS, stateful_set("db", driver, 1))
        until(lambda: ground.ready() == {"db-0": "n1"} | guards(ground), "db-0 runs")
        ground.await_verdict(driver, "False", "VolumeInUse")
        until(ground.gate_stands, "the gate stands")
        first = ground.get(PODS, "db-0")["metadata"]["uid"]
        assert command(ground.plane.kubeconfig, "node", "retire", "n1", "--yes").returncode == 0
        assert ground.marks("n1")[names.DRAIN_INTENT] == "retire"
        ground.taint("n1")
        ground.await_state(driver, "InProgress")
        started = ground.marks("n1")[names.of_driver(driver.driver, names.EVACUATION_STARTED_AT)]

        with ground.drain("n1") as drain:
            until(drain.refusals, drain.output)
            until(lambda: ground.get(PODS, "db-0")["metadata"]["uid"] != first, "db-0 is evicted, and made again")
            sidecar.kill()
            sidecar.start().until_ready()
            after_looks(sidecar, at="drain")
            assert drain.is_running() and ground.gate_stands(), drain.output()
            assert ground.phase(PODS, "db-0") == "Pending", "the node is closed, and its volume lies there"
            assert ground.marks("n1")[names.of_driver(driver.driver, names.EVACUATION_STARTED_AT)] == started
            assert all(name in line for line in drain.refusals() for name in guards(ground)), "nothing else holds it"

            ground.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 0}})
            ground.delete(CLAIMS, "data-db-0")
            until(lambda: not ground.items(VOLUMES), "the data is given up")
            assert drain.wait() == 0, drain.output()
        assert "error: " not in drain.output()
        assert not ground.items(BUDGETS) and not ground.items(DEPLOYMENTS)
        ground.await_state(driver, "Success")
        ground.await_verdict(driver, "True", "NoVolumes")


def guards(ground: Ground) -> dict[str, str]:
    return {name: node for name, node in ground.ready().items() if not name.startswith("db-")}
