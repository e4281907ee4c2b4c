"""`explain pvc`: the decision, why, and the facts, against the live cluster; with the driver at hand and without; nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, claim, storage_class
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, VOLUMES, Cluster

SELECTED, ASKED = "volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner"
READ = (CLAIMS, CLASSES, VOLUMES, CAPACITIES, "/api/v1/namespaces/default/events")


@dataclass
class Explainer:
    """The command as a person at the node calls it, or with `remote` one who is elsewhere."""

    cluster: Cluster
    driver: OurDriver
    remote: bool = False

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        where = ["--driver", self.driver.driver, "--node", "n1"] if self.remote else ["--node=n1", f"--csi-address={self.driver.socket}"]
        line = [sys.executable, "-m", "sidecar", "explain", "pvc", *words, *where, f"--kubeconfig={self.cluster.role}"]
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=60)

    def facts(self, name: str) -> Json:
        """What it says as JSON, having checked that the table says the same and that neither of them wrote anything."""
        before = self.versions()
        table, answer = self.run(f"default/{name}"), self.run(f"default/{name}", "-o", "json")
        assert (table.returncode, answer.returncode, answer.stderr) == (0, 0, "")
        facts: Json = json.loads(answer.stdout)
        rows = [line.split(maxsplit=1) for line in table.stdout.splitlines()]
        assert ["decision", facts["decision"]] in rows
        assert ["why", facts["why"]] in rows
        assert self.versions() == before
        return facts

    def versions(self) -> dict[str, str]:
        return {f"{path}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for path in READ for item in self.items(path)}

    def items(self, path: str) -> list[Json]:
        """Of the events only those that would be ours: controllers go on telling what claims wait for."""
        found = self.cluster.items(path)
        return [item for item in found if "source" not in item or self.driver.driver in item["source"].get("component", "")]


@pytest.fixture
def at_node(cluster: Cluster, tmp_path: Path) -> Iterator[Explainer]:
    driver = OurDriver(tmp_path, node="n1", pools={"main": "5Gi"})
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with driver:
        yield Explainer(cluster, driver)


def pending(cluster: Cluster, name: str, class_: str, *, node: str = "", size: str = "1Gi", asked: bool = True) -> None:
    """A claim as the controllers leave it: its provisioner is named, unless the claim waits for its first consumer."""
    cluster.create(CLAIMS, claim(name, class_, size=size, annotations={SELECTED: node} if node else {}))
    if asked:
        until(lambda: ASKED in (cluster.get(CLAIMS, name)["metadata"].get("annotations") or {}), "the provisioner is asked")


def test_a_claim_that_this_node_provisions(at_node: Explainer) -> None:
    """Create, with the very request the driver would get."""
    pending(at_node.cluster, "data", "late", node="n1")
    facts = at_node.facts("data")
    assert facts["decision"] == "Create"
    assert "this node is selected" in facts["why"]
    assert facts["request"]["name"] == f"pvc-{at_node.cluster.get(CLAIMS, 'data')['metadata']['uid']}"
    assert facts["request"]["required_bytes"] == 2**30
    assert at_node.driver.driver in facts["driver"]
    assert str(at_node.driver.socket) in facts["driver"]
    assert at_node.driver.recorded("CreateVolume") == []


def test_a_claim_of_another_node(at_node: Explainer) -> None:
    pending(at_node.cluster, "data", "late", node="n2")
    facts = at_node.facts("data")
    assert facts["decision"] == "Ignore"
    assert facts["why"] == "node n2 is selected"


def test_a_claim_that_waits_for_its_first_consumer(at_node: Explainer) -> None:
    """No provisioner has been asked yet, and the answer says so."""
    pending(at_node.cluster, "data", "late", asked=False)
    facts = at_node.facts("data")
    assert facts["decision"] == "Ignore"
    assert "first consumer" in facts["why"]
    assert "no provisioner has been asked" in facts["provisioner"]


@pytest.mark.parametrize(
    ("size", "decisions", "free"),
    [("1Gi", {"Wait", "Bid"}, "5368709120 bytes"), ("6Gi", {"Wait"}, "5368709120 bytes")],
    ids=["room", "no-room"],
)
def test_an_open_race(at_node: Explainer, size: str, decisions: set[str], free: str) -> None:
    """Whether this node would bid depends on its free space, which is told; only the delay is the running program's secret."""
    pending(at_node.cluster, "data", "now", size=size)
    facts = at_node.facts("data")
    assert facts["decision"] in decisions
    assert facts["free space"] == free
    assert "only the running program" in facts["race"]


def test_a_claim_of_another_driver(at_node: Explainer) -> None:
    at_node.cluster.create(CLASSES, storage_class("foreign", "other.csi.example.org", IMMEDIATE))
    pending(at_node.cluster, "data", "foreign")
    facts = at_node.facts("data")
    assert facts["decision"] == "Ignore"
    assert facts["provisioner"] == "other.csi.example.org"
    assert "not for this driver" in facts["why"]


def test_a_bound_claim(at_node: Explainer) -> None:
    cluster = at_node.cluster
    body = claim("data", "late")
    cluster.create(CLAIMS, {**body, "spec": {**body["spec"], "volumeName": "some-volume"}})
    facts = at_node.facts("data")
    assert facts["decision"] == "Ignore"
    assert "bound to volume some-volume" in facts["why"]


@pytest.mark.parametrize("remote", [False, True], ids=["at-the-node", "elsewhere"])
def test_a_claim_that_does_not_exist(at_node: Explainer, remote: bool) -> None:
    """Exit 1 and one line."""
    at_node.remote = remote
    done = at_node.run("default/nothing")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert 'persistentvolumeclaims "nothing" not found' in line
    assert "check the namespace and the name" in line


def test_asked_for_help_it_helps(at_node: Explainer) -> None:
    done = at_node.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: csi-node-sidecar explain pvc")


def test_from_elsewhere_the_cluster_says_what_it_knows_of_the_driver(at_node: Explainer) -> None:
    """With --driver and --node alone: the segment comes from CSINode and labels; what only the driver knows is not made up."""
    cluster, driver = at_node.cluster, at_node.driver
    at_node.remote = True
    cluster.plane.add_node("n1", {driver.key: "n1"})
    cluster.plane.add_csinode("n1", driver.driver, "n1", [driver.key])
    for name, class_, node in (("ours", "late", "n1"), ("theirs", "late", "n2"), ("open", "now", "")):
        pending(cluster, name, class_, node=node)
    assert at_node.facts("theirs")["why"] == "node n2 is selected"
    ours = at_node.facts("ours")
    assert ours["decision"] == "Create"
    assert ours["node"] == f"n1, segment {driver.key}=n1"
    assert "not known from here" in ours["driver"]
    race = at_node.facts("open")
    assert race["decision"] in ("Wait", "Bid")
    assert race.get("free space", "not known from here") == "not known from here"


def test_without_driver_and_without_its_name_nothing_is_guessed(at_node: Explainer) -> None:
    pending(at_node.cluster, "data", "late", node="n1")
    at_node.driver.stop()
    facts = at_node.facts("data")
    assert facts["decision"] == "Ignore"
    assert "the driver is not known" in facts["why"]
    assert "name it with --driver" in facts["driver"]
