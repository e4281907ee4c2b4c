"""`explain pvc` against a live cluster, beside what `tests/smoke/test_explain.py` shows: an open race, from elsewhere, without a driver."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, claim
from sidecar.model import names
from tests.harness.cluster import CLAIMS, Cluster, late, now, selected
from tests.harness.drains import command


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[OurDriver]:
    with cluster.driver(pools={"main": "5Gi"}) as made:
        cluster.classes(made)
        yield made


def facts(cluster: Cluster, driver: OurDriver, name: str, *, remote: bool = False) -> Json:
    where = (f"--driver={driver.driver}",) if remote else (f"--csi-address={driver.socket}",)
    done = command(cluster.role, "explain", "pvc", f"{cluster.namespace}/{name}", "--node=n1", *where, "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: Json = json.loads(done.stdout)
    return found


def asked(cluster: Cluster, *claims: str) -> None:
    until(lambda: all(names.STORAGE_PROVISIONER in cluster.notes(CLAIMS, name) for name in claims), "the provisioner is asked")


def test_whether_a_node_bids_depends_on_its_free_space_which_is_told(cluster: Cluster, driver: OurDriver) -> None:
    """Only the delay is the running program's secret."""
    for name, size in (("small", "1Gi"), ("large", "6Gi")):
        cluster.create(CLAIMS, claim(name, now(driver), size=size))
    asked(cluster, "small", "large")
    for name, decisions in (("small", {"Wait", "Bid"}), ("large", {"Wait"})):
        said = facts(cluster, driver, name)
        assert said["decision"] in decisions
        assert said["free space"] == "5368709120 bytes"
        assert "only the running program" in said["race"]


def test_from_elsewhere_the_cluster_says_what_it_knows_of_the_driver(cluster: Cluster, driver: OurDriver) -> None:
    """With --driver and --node alone: the segment comes from CSINode and labels; what only the driver knows is not made up."""
    cluster.node("n1", driver)
    cluster.create(CLAIMS, selected("ours", late(driver)))
    cluster.create(CLAIMS, selected("theirs", late(driver), node="n2"))
    cluster.create(CLAIMS, claim("open", now(driver)))
    asked(cluster, "ours", "theirs", "open")
    assert facts(cluster, driver, "theirs", remote=True)["why"] == "node n2 is selected"
    ours = facts(cluster, driver, "ours", remote=True)
    assert (ours["decision"], ours["node"]) == ("Create", f"n1, segment {driver.key}=n1")
    assert "not known from here" in ours["driver"]
    race = facts(cluster, driver, "open", remote=True)
    assert race["decision"] in ("Wait", "Bid")
    assert race.get("free space", "not known from here") == "not known from here"


def test_what_is_not_there_is_named_and_not_guessed(cluster: Cluster, driver: OurDriver) -> None:
    where = (f"{cluster.namespace}/nothing", "--node=n1", f"--driver={driver.driver}")
    done = command(cluster.role, "explain", "pvc", *where)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert 'persistentvolumeclaims "nothing" not found' in line and "check the namespace and the name" in line
    cluster.create(CLAIMS, selected("data", late(driver)))
    asked(cluster, "data")
    driver.stop()
    said = facts(cluster, driver, "data")
    assert (said["decision"], "the driver is not known" in said["why"]) == ("Ignore", True)
    assert "name it with --driver" in said["driver"]
