"""`explain` says what is decided and why, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.harness.cluster import CAPACITIES, CLAIMS, CLASSES, STATEFUL_SETS, VOLUMES, Cluster, late, selected
from tests.harness.drains import Ground, command, explain, judged, stateful_set


def test_of_a_claim_that_this_node_provisions_it_shows_the_very_request(cluster: Cluster) -> None:
    driver = cluster.driver()
    cluster.classes(driver)
    cluster.create(CLAIMS, selected("data", late(driver)))
    until(lambda: names.STORAGE_PROVISIONER in cluster.notes(CLAIMS, "data"), "the provisioner is asked")
    before = cluster.versions(CLAIMS, CLASSES, VOLUMES, CAPACITIES)
    words = ("explain", "pvc", f"{cluster.namespace}/data", "--node=n1", f"--csi-address={driver.socket}")
    with driver:
        table, answer = command(cluster.role, *words), command(cluster.role, *words, "-o", "json")
    assert (table.returncode, answer.returncode, answer.stderr) == (0, 0, "")
    facts = json.loads(answer.stdout)
    assert (facts["decision"], "this node is selected" in facts["why"]) == ("Create", True)
    assert facts["request"]["name"] == f"pvc-{cluster.get(CLAIMS, 'data')['metadata']['uid']}"
    assert ["decision", "Create"] in [line.split(maxsplit=1) for line in table.stdout.splitlines()]
    assert cluster.versions(CLAIMS, CLASSES, VOLUMES, CAPACITIES) == before
    assert driver.recorded("CreateVolume") == []


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
        table = explain(drainer, "n1").stdout
        assert f"{ground.namespace}/data-db-0" in table and "VolumeInUse" in table
