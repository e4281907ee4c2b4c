"""`uninstall` leaves nothing of ours on nodes, and lets what holds a drain go."""

from __future__ import annotations

from hack.lib.control_plane import until
from sidecar.model import names
from tests.harness.cluster import LEASES, NODES, OWN_BUDGETS, OWN_DEPLOYMENTS, OWN_PODS, PODS, REPORTS
from tests.harness.drains import GATE, Ground, command


def test_g7_an_uninstall_leaves_nothing_of_ours(ground: Ground) -> None:
    driver = ground.driver()
    with driver:
        with ground.judge(driver, *GATE) as sidecar:
            ground.node("n1", driver)
            sidecar.until_ready()
            ground.use("data", driver)
            until(ground.gate_stands, "the gate stands")
            ground.taint("n1")
            ground.await_state(driver, "InProgress")
        assert {trace.partition(":")[0] for trace in traces(ground)} == {"node", "budget", "deployment", "report"}
        uninstall = ("uninstall", f"--driver={driver.driver}")
        done = command(ground.plane.kubeconfig, *uninstall)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert traces(ground) == []
        assert "There is nothing of" in command(ground.plane.kubeconfig, *uninstall).stdout
        taints = [item["key"] for item in ground.get(NODES, "n1")["spec"]["taints"]]
        assert taints == [names.EVACUATE_TAINT], "what people wrote stays"
        until(lambda: not ground.items(OWN_PODS), "the guard is gone")
        assert ground.names(PODS) == {"data"}


def traces(ground: Ground) -> list[str]:
    """Everything that sidecars of this driver have put on the node, or made for it."""
    node, driver = ground.get(NODES, "n1"), ground.driver_name
    meta, conditions = node["metadata"], node["status"]["conditions"]
    marks = [*meta["labels"], *meta.get("annotations", {}), *(item["type"] for item in conditions)]
    found = [f"node: {mark}" for mark in marks if mark.startswith((f"{driver}.{names.GROUP}/", f"{driver}/"))]
    for kind, path in {"budget": OWN_BUDGETS, "deployment": OWN_DEPLOYMENTS, "lease": LEASES}.items():
        labels = ((item["metadata"]["name"], item["metadata"].get("labels", {})) for item in ground.items(path))
        found += [f"{kind}: {name}" for name, of in labels if driver in (of.get(names.GUARDED_FOR), of.get(names.SLOT_FOR))]
    return found + [f"report: {name}" for name in ground.names(REPORTS)]
