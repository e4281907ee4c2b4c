"""`explain` says what is decided and why, and writes nothing."""

from __future__ import annotations

from pathlib import Path

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from tests.harness.cluster import STATEFUL_SETS
from tests.harness.drains import Ground, command, explain, judged, stateful_set


def test_of_a_node_it_says_who_holds_it_and_what_would_help(ground: Ground, drainer: Path) -> None:
    driver = ground.driver()
    with all_of([driver]), ground.sidecar(driver) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.create(STATEFUL_SETS, stateful_set("db", driver, 1))
        until(lambda: ground.ready() == {"db-0": "n1"}, "db-0 runs")
        (said,) = judged(explain(drainer, "n1", "-o", "json"))
        assert {key: (item["status"], item["reason"]) for key, item in said["verdicts"].items()} == {
            "drain": ("True", "NothingBlocks"),
            "retire": ("False", "VolumeInUse"),
        }
        assert [(item["reason"], item["name"]) for item in said["blockers"]] == [("VolumeInUse", "data-db-0")]
        assert command(ground.plane.kubeconfig, "explain", "nodes", "--intent=retire", "--exit-code").returncode == 3
        assert f"{ground.namespace}/data-db-0" in command(ground.plane.kubeconfig, "explain", "volumes").stdout
        table = explain(drainer, "n1").stdout
        assert f"{ground.namespace}/data-db-0" in table and "VolumeInUse" in table
