"""Drain decisions on a real control plane: a closed node in the race, two drivers on one node, concurrent writers, and `explain node`."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import IMMEDIATE, Json, OurDriver, Sidecar, all_of, claim, storage_class, within
from sidecar.model import names
from tests.e2e.conftest import CLAIMS, CLASSES, DEPLOYMENTS, NODES, PODS, VOLUMES, Cluster
from tests.e2e.draining import (
    AFTER_USE,
    BUDGETS,
    LEASES,
    NAMESPACE,
    REPORTS,
    STATEFUL_SETS,
    Ground,
    accounts,
    budget,
    command,
    explain,
    installed,
    judged,
    of_drivers,
    stateful_set,
    still,
    stored_volume,
)

ALPHA, BETA = "alpha.example.com", "beta.example.com"
AUTOSCALERS = (names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT)


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    with installed(plane):
        yield


@pytest.fixture
def ground(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Ground]:
    found = Ground(cluster, tmp_path)
    yield found
    found.clean()


# --- a closed node ----------------------------------------------------------------------------------------------------


def test_D9_a_cordoned_node_never_wins_a_race_although_its_delay_is_over(ground: Ground) -> None:
    """One node alone has room for the second big claim, and only once the first is gone; by then it has been closed."""
    cluster = ground.cluster
    drivers = [ground.driver(ALPHA, "n1", pools={"main": "6Gi"}), ground.driver(ALPHA, "n2", pools={"main": "3Gi"})]
    delays = ("--node-deployment-base-delay=500ms", "--node-deployment-max-delay=2s")
    sidecars = [ground.sidecar(driver, *delays) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        cluster.create(CLASSES, storage_class("now", ALPHA, IMMEDIATE))
        cluster.create(CLAIMS, claim("first", "now", size="5Gi"))
        until(lambda: cluster.phase(CLAIMS, "first") == "Bound", "the first claim is bound", seconds=30)
        cluster.create(CLAIMS, claim("second", "now", size="5Gi"))
        assert not within(2.0, lambda: chosen(cluster, "second") != "")

        ground.cordon("n1")
        until(lambda: closed(ground, "n1", ALPHA), "n1 is closed", seconds=20)
        bids = sidecars[0].metric("csi_node_sidecar_ownership_bids_total")
        ground.give_up("first")
        for number in range(6):
            cluster.create(CLAIMS, claim(f"small-{number}", "now", size="100Mi"))
        small = [f"small-{number}" for number in range(6)]
        until(lambda: all(cluster.phase(CLAIMS, name) == "Bound" for name in small), "the small claims are bound", seconds=30)
        assert {chosen(cluster, name) for name in small} == {"n2"}
        assert not within(6.0, lambda: chosen(cluster, "second") != "")
        assert sidecars[0].metric("csi_node_sidecar_ownership_bids_total") == bids

        ground.cordon("n1", on=False)
        until(lambda: cluster.phase(CLAIMS, "second") == "Bound", "the second claim is bound", seconds=20)
        assert chosen(cluster, "second") == "n1"
        until(lambda: not closed(ground, "n1", ALPHA), "n1 is noted as closed no more")
        assert len(drivers[0].recorded("CreateVolume")) == 2


def chosen(cluster: Cluster, name: str) -> str:
    return str((cluster.get(CLAIMS, name)["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, ""))


def closed(ground: Ground, node: str, driver: str) -> bool:
    """As its sidecar has noted on the node."""
    return names.of_driver(driver, names.CLOSED_AT) in ground.notes(node)


# --- two drivers ------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """Two drivers on two nodes; each has left a volume on n1 that no pod uses."""

    ground: Ground
    drivers: dict[tuple[str, str], OurDriver]
    sidecars: dict[tuple[str, str], Sidecar]

    def await_state(self, driver: OurDriver, state: str) -> None:
        until(lambda: self.ground.state("n1", driver) == state, f"{driver.driver} says {state or 'nothing'} of n1", seconds=30)

    def await_leases(self, *leases: tuple[str, str]) -> None:
        until(lambda: self.ground.leases() == [*leases], f"{leases} to be what is taken", seconds=20)

    def await_verdict(self, driver: OurDriver, status: str, reason: str) -> None:
        wanted = (status, reason)
        until(
            lambda: self.ground.condition(driver.node, driver) == wanted,
            f"{driver.driver} says {wanted} of {driver.node}",
            seconds=AFTER_USE,
        )

    def marks(self, driver: OurDriver) -> dict[str, str]:
        return {**of_drivers(self.ground.labels("n1"), driver), **of_drivers(self.ground.notes("n1"), driver)}


@pytest.fixture
def pair(ground: Ground) -> Iterator[Pair]:
    drivers = {(name, node): ground.driver(name, node) for name in (ALPHA, BETA) for node in ("n1", "n2")}
    sidecars = {key: ground.sidecar(driver, "--drain-autoscaler-annotations") for key, driver in drivers.items()}
    with all_of([*drivers.values()]), all_of([*sidecars.values()]):
        for node in ("n1", "n2"):
            ground.node(node, drivers[ALPHA, node], drivers[BETA, node])
        for sidecar in sidecars.values():
            sidecar.until_ready()
        found = Pair(ground, drivers, sidecars)
        for name, of in (("a", ALPHA), ("b", BETA)):
            ground.use(name, drivers[of, "n1"])
            ground.leave(name)
        for of in (ALPHA, BETA):
            found.await_verdict(drivers[of, "n1"], "False", "LastCopy")
            found.await_verdict(drivers[of, "n2"], "True", "NoVolumes")
        yield found
    for sidecar in sidecars.values():
        assert sidecar.records("EF") == []


def test_two_drivers_sidecars_report_side_by_side_and_then_rest(pair: Pair) -> None:
    ground = pair.ground
    for name, driver in (("a", pair.drivers[ALPHA, "n1"]), ("b", pair.drivers[BETA, "n1"])):
        assert [(item["reason"], item["name"]) for item in ground.report("n1", driver)["blockers"]] == [("LastCopy", name)]
        assert f"default/{name}" in ground.notes("n1")[names.of_driver(driver.driver, names.DRAIN_SUMMARY)]
    until(lambda: set(AUTOSCALERS) <= ground.notes("n1").keys(), "autoscalers are kept away")
    assert not set(AUTOSCALERS) & ground.notes("n2").keys()
    steady = still(ground.versions, seconds=5.0, within=30.0)
    time.sleep(30.0)
    assert ground.versions() == steady


def test_two_drivers_sidecars_serve_one_taint_and_each_undoes_its_own_part(pair: Pair) -> None:
    ground, alpha, beta = pair.ground, pair.drivers[ALPHA, "n1"], pair.drivers[BETA, "n1"]
    until(lambda: set(AUTOSCALERS) <= ground.notes("n1").keys(), "autoscalers are kept away")
    labels, notes = still(lambda: (ground.labels("n1"), undated(ground.notes("n1"))), seconds=3.0, within=20.0)
    ground.taint("n1")
    for driver in (alpha, beta):
        pair.await_state(driver, "InProgress")
    assert ground.leases() == [(ALPHA, "n1"), (BETA, "n1")]
    pair.sidecars[BETA, "n1"].stop()
    during = pair.marks(beta)
    ground.taint("n1", on=False)
    pair.await_state(alpha, "")
    pair.await_leases((BETA, "n1"))
    assert pair.marks(beta) == during
    pair.sidecars[BETA, "n1"].start()
    pair.await_state(beta, "")
    pair.await_leases()
    until(lambda: (ground.labels("n1"), undated(ground.notes("n1"))) == (labels, notes), "all is as it was", seconds=20)


def undated(notes: Mapping[str, str]) -> Mapping[str, str]:
    """Until when a verdict holds is written anew by a sidecar that starts."""
    return {key: re.sub(r'"validUntil":"[^"]*"', "", note) for key, note in notes.items()}


def test_what_two_drivers_sidecars_tell_autoscalers_goes_with_the_last_reason(pair: Pair) -> None:
    ground = pair.ground
    until(lambda: set(AUTOSCALERS) <= ground.notes("n1").keys(), "autoscalers are kept away")
    ground.give_up("a")
    pair.await_verdict(pair.drivers[ALPHA, "n1"], "True", "NoVolumes")
    assert not within(3.0, lambda: not set(AUTOSCALERS) <= ground.notes("n1").keys())
    ground.give_up("b")
    until(lambda: not set(AUTOSCALERS) & ground.notes("n1").keys(), "autoscalers may come again", seconds=20)


# --- concurrent writers -----------------------------------------------------------------------------------------------

ODD = ' {"keys": ["\\u00e9", "é", "\t"],\n "n": 1.0}  '


class Writer(threading.Thread):
    """Somebody who never stops writing to the node: one number in a label, an annotation and a taint, and one in a condition."""

    def __init__(self, ground: Ground, node: str) -> None:
        super().__init__(daemon=True)
        self._ground, self._node, self._enough = ground, node, threading.Event()
        self.count = 0
        self.lost: list[str] = []

    def run(self) -> None:
        while not self._enough.wait(0.02):
            self.count += 1
            self._write(str(self.count))
            found = numbers(self._ground.get(self._node))
            if found != [self.count] * 4:
                self.lost.append(f"after {self.count} the node says {found}")

    def _write(self, number: str) -> None:
        meta = {"labels": {"example.com/count": number}, "annotations": {"example.com/count": number}}
        self._ground.patch(self._node, {"metadata": meta})
        self._ground.put_taint(self._node, {"key": "example.com/count", "value": number, "effect": "PreferNoSchedule"})
        condition = {"type": "example.com/Count", "status": "True", "reason": "Counting", "message": number}
        self._ground.patch(self._node, {"status": {"conditions": [condition]}}, status=True)

    def stop(self) -> None:
        self._enough.set()
        self.join(10)


def numbers(node: Json) -> list[int]:
    meta, key = node["metadata"], "example.com/count"
    taint = [item["value"] for item in node["spec"].get("taints", ()) if item["key"] == key]
    condition = [item["message"] for item in node["status"].get("conditions", ()) if item["type"] == "example.com/Count"]
    found = [(meta.get(field) or {}).get(key) for field in ("labels", "annotations")]
    return [int(text) for text in (*found, *taint, *condition) if text is not None]


def test_G4_what_others_write_stays_byte_for_byte_while_the_node_is_marked(ground: Ground) -> None:
    driver = ground.driver(ALPHA, "n1")
    sidecar = ground.sidecar(driver, "--drain-autoscaler-annotations")
    with driver, sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.use("a", driver)
        ground.leave("a")
        until(lambda: ground.condition("n1", driver) == ("False", "LastCopy"), "the volume blocks", seconds=AFTER_USE)
        theirs = {
            "metadata": {"labels": {"example.com/odd": "A-b_c.1", "alpha.example.com/x": "y"}, "annotations": {"example.com/odd": ODD}},
            "spec": {"taints": [{"key": "example.com/kept", "effect": "PreferNoSchedule"}]},
        }
        before = foreign(ground.patch("n1", theirs))
        since = str(ground.get("n1")["metadata"]["resourceVersion"])
        writer = Writer(ground, "n1")
        writer.start()
        try:
            for _ in range(3):
                ground.taint("n1")
                until(lambda: ground.state("n1", driver) == "InProgress", "the evacuation is under way", seconds=20)
                ground.taint("n1", on=False)
                until(lambda: not ground.state("n1", driver), "it is undone", seconds=20)
            ground.give_up("a")
            until(lambda: ground.condition("n1", driver)[0] == "True", "nothing blocks", seconds=20)
            until(lambda: not set(AUTOSCALERS) & ground.notes("n1").keys(), "autoscalers may come", seconds=20)
        finally:
            writer.stop()
        assert writer.count > 20 and not writer.lost, writer.lost[:5]
        assert foreign(ground.get("n1")) == before
        history = [event["object"] for event in ground.cluster.history(NODES, since) if event["object"]["metadata"]["name"] == "n1"]
        assert {json.dumps(foreign(node), sort_keys=True) for node in history} == {json.dumps(before, sort_keys=True)}
        states = [node["metadata"]["labels"].get(names.of_driver(ALPHA, names.EVACUATION_STATE), "") for node in history]
        assert sum(one != other for one, other in pairwise(states)) >= 6
        print(f"{writer.count} writes of somebody else's, {len(history)} states of the node in between")


def foreign(node: Json) -> Json:
    """All that neither the sidecar nor the writer has to do with, nor anybody's heartbeat."""
    meta, ours = node["metadata"], (f"{ALPHA}.{names.GROUP}/", "example.com/count")
    taints = [item for item in node["spec"].get("taints", ()) if item["key"] not in (names.EVACUATE_TAINT, "example.com/count")]
    kinds = {names.condition(ALPHA, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY)} | {"example.com/Count"}
    return {
        "labels": {key: value for key, value in meta["labels"].items() if not key.startswith(ours)},
        "annotations": {key: value for key, value in meta["annotations"].items() if not key.startswith(ours) and key not in AUTOSCALERS},
        "taints": taints,
        "conditions": [item for item in node["status"]["conditions"] if item["type"] not in kinds],
        "spec": {key: value for key, value in node["spec"].items() if key != "taints"},
    }


# --- what is read with the component's rights ---------------------------------------------------------------------------


def test_where_a_volume_could_go_is_found_out_with_the_rights_of_the_component(ground: Ground) -> None:
    """Capacity objects may be read in the sidecar's own namespace only."""
    drivers = [ground.driver(ALPHA, node) for node in ("n1", "n2")]
    publishing = ("--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-capacity-qps=50")
    sidecars = [ground.sidecar(driver, *publishing) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.use("a", drivers[0])
        ground.leave("a")
        ground.cluster.patch(CLAIMS, "a", {"metadata": {"annotations": {names.DRAIN_POLICY: "Migrate"}}})
        until(lambda: ground.condition("n1", drivers[0]) == ("False", "NotAvailableYet"), "the policy counts", seconds=20)
        ground.cordon("n1")
        until(lambda: ground.report("n1", drivers[0]).get("placement"), "somebody has looked where it could go", seconds=30)
        report = ground.report("n1", drivers[0])
        (place,) = report["placement"]
        assert place["node"] == "n2"
        assert [item["message"] for item in report["blockers"] if "would fit on n2" in item["message"]]


# --- explain node -----------------------------------------------------------------------------------------------------


@pytest.fixture
def applied(ground: Ground) -> OurDriver:
    """Two nodes, a StatefulSet with a volume on each, and a budget that lets one of its pods go. Nobody of ours runs."""
    drivers = [ground.driver(ALPHA, node) for node in ("n1", "n2")]
    for driver in drivers:
        ground.node(driver.node, driver)
    for number, node in enumerate(("n1", "n2")):
        volume, wish = stored_volume(f"pv-{number}", f"data-db-{number}", drivers[0], node)
        ground.cluster.create(VOLUMES, volume)
        ground.cluster.create(CLAIMS, wish)
        until(lambda number=number: ground.cluster.phase(CLAIMS, f"data-db-{number}") == "Bound", "the claim is bound")  # type: ignore[misc]
    ground.cluster.create(STATEFUL_SETS, stateful_set("db", drivers[0], 2))
    ground.cluster.create(BUDGETS, budget("db", {"app": "db"}, maxUnavailable=1))
    until(lambda: running(ground.cluster) == {"db-0": "n1", "db-1": "n2"}, "the pods run", seconds=30)
    until(lambda: ground.cluster.get(BUDGETS, "db").get("status", {}).get("disruptionsAllowed") == 1, "the budget is counted", seconds=30)
    return drivers[0]


def running(cluster: Cluster) -> dict[str, str]:
    pods = [item for item in cluster.items(PODS) if item["status"].get("phase") == "Running"]
    return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in pods}


def test_D2_D3_explain_tells_of_volumes_and_budgets_before_anybody_cordons(ground: Ground, applied: OurDriver) -> None:
    """Snapshots do not exist in this cluster, and that is no ignorance."""
    before = still(ground.versions, seconds=1.0, within=20.0)
    (said,) = judged(explain(ground.plane.kubeconfig, "n1", "-o", "json"))
    assert (said["node"], said["driver"]) == ("n1", ALPHA)
    verdicts = {key: (item["status"], item["reason"]) for key, item in said["verdicts"].items()}
    assert verdicts == {"drain": ("True", "NothingBlocks"), "retire": ("False", "VolumeInUse")}
    (pod,) = said["pods"]
    assert (pod["name"], pod["reboot"], pod["retire"]) == ("db-0", "ReturnsAfterUncordon", "StrandedUntilUncordon")
    assert said["budgets"] == [{"budget": "default/db", "allowedNow": 1, "stranded": 1, "pods": ["default/db-0"]}]
    table = explain(ground.plane.kubeconfig, "n1")
    assert (table.returncode, table.stderr) == (0, "")
    for word in (ALPHA, "default/data-db-0", "VolumeInUse", "ReturnsAfterUncordon", "StrandedUntilUncordon", "default/db allows 1 now"):
        assert word in table.stdout
    reboot = explain(ground.plane.kubeconfig, "n1", "--intent", "reboot", f"--driver={ALPHA}").stdout
    assert "ReturnsAfterUncordon" in reboot and "StrandedUntilUncordon" not in reboot and "VolumeInUse" not in reboot
    assert ground.versions() == before


def test_explain_of_a_node_that_does_not_exist(ground: Ground) -> None:
    for words in (("nowhere",), ("nowhere", "-o", "json")):
        done = explain(ground.plane.kubeconfig, *words)
        assert (done.returncode, done.stdout) == (1, "")
        (line,) = done.stderr.splitlines()
        assert 'nodes "nowhere" not found' in line


def test_explain_of_a_node_without_a_driver(ground: Ground) -> None:
    ground.node("n1")
    assert judged(explain(ground.plane.kubeconfig, "n1", "-o", "json")) == []
    assert "no CSI driver" in explain(ground.plane.kubeconfig, "n1").stdout


def test_who_may_not_look_is_told_that_nothing_is_known(ground: Ground, applied: OurDriver) -> None:
    reading = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}
    ground.plane.apply(accounts("nobody"))
    ground.plane.apply(accounts("looker", rules=[reading]))
    nobody, looker = (ground.plane.kubeconfig_for(namespace=NAMESPACE, service_account=name) for name in ("nobody", "looker"))
    until(
        lambda: ground.plane.kubectl("auth", "can-i", "list", "nodes", f"--as=system:serviceaccount:{NAMESPACE}:looker"), "the right counts"
    )

    refused = explain(nobody, "n1")
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert "forbidden" in line and "rights" in line

    (said,) = judged(explain(looker, "n1", "--driver", ALPHA, "-o", "json"))
    for verdict in said["verdicts"].values():
        assert (verdict["status"], verdict["reason"]) == ("Unknown", "NotKnown")
        assert "forbidden" in verdict["message"]
    assert "Unknown" in explain(looker, "n1", "--driver", ALPHA).stdout

    for words in (("n1",), ("n1", "-o", "json")):
        unnamed = explain(looker, *words)
        assert (unnamed.returncode, unnamed.stdout) == (1, "")
        (line,) = unnamed.stderr.splitlines()
        assert "name one with --driver" in line and "forbidden" in line


# --- what a drain is for ----------------------------------------------------------------------------------------------


def test_a_reboot_is_announced_by_command_for_one_cordon_and_counts_for_both_drivers(ground: Ground) -> None:
    drivers = [ground.driver(ALPHA, "n1"), ground.driver(BETA, "n1")]
    marks = [names.of_driver(driver.driver, names.REBOOT_INTENT) for driver in drivers]
    sidecars = [ground.sidecar(driver) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        ground.node("n1", *drivers)
        for sidecar in sidecars:
            sidecar.until_ready()

        def noted() -> list[str | None]:
            return [ground.notes("n1").get(mark) for mark in marks]

        untold = command(ground.plane.kubeconfig, "node", "reboot", "n1")
        assert untold.returncode == 1 and "no terminal" in untold.stderr and names.DRAIN_INTENT not in ground.notes("n1")
        for _ in range(2):
            done = command(ground.plane.kubeconfig, "node", "reboot", "n1", "--yes")
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            assert "kubectl drain n1" in done.stdout
            until(lambda: noted() == [None, None], "nothing of an earlier cordon is noted", seconds=20)
            ground.cordon("n1")
            until(lambda: noted() == ["InEffect"] * 2, "it is in effect", seconds=20)
            until(lambda: ground.report("n1", drivers[1]).get("intent") == "reboot", "the report says so", seconds=20)
            ground.cordon("n1", on=False)
            until(lambda: noted() == ["Spent"] * 2, "it is spent", seconds=20)
            until(lambda: "intent" not in ground.report("n1", drivers[0]), "it counts no more", seconds=20)
        released = command(ground.plane.kubeconfig, "node", "release", "n1", "--yes")
        assert released.returncode == 0 and names.DRAIN_INTENT not in ground.notes("n1")
        until(lambda: noted() == [None, None], "nothing is left", seconds=20)


# --- a node that goes -------------------------------------------------------------------------------------------------


def test_E5_A13_all_that_was_made_for_a_node_goes_with_it(ground: Ground) -> None:
    """By the garbage collector: nobody of ours is alive there any more."""
    driver = ground.driver(ALPHA, "n1")
    gate = ("--node-drain-policy=Evacuate", "--drain-gate", "--drain-gate-image=pause")
    cluster, collections = ground.cluster, (REPORTS, BUDGETS, LEASES, DEPLOYMENTS)
    with driver, ground.sidecar(driver, *gate) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.use("a", driver)
        ground.leave("a")
        ground.taint("n1")
        until(lambda: all(_of_node(ground, path) for path in collections), "report, gate and lease are there", seconds=30)
    cluster.delete(NODES, "n1")
    until(lambda: not any(_owned(ground, path) for path in collections), "all of it is gone", seconds=90)


def _of_node(ground: Ground, path: str) -> bool:
    uid = ground.get("n1")["metadata"]["uid"]
    return any(ref["uid"] == uid for ref in _owned(ground, path))


def _owned(ground: Ground, path: str) -> list[Json]:
    """References to the node, as objects of ours bear them."""
    return [ref for item in ground.cluster.items(path) for ref in item["metadata"].get("ownerReferences") or () if ref["name"] == "n1"]
