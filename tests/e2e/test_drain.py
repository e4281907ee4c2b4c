"""Drain decisions on a real control plane: a closed node in the race, two drivers on one node, concurrent writers, and `explain node`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, all_of, claim
from sidecar.model import names
from tests.harness.cluster import CLAIMS, LEASES, NODES, OWN_BUDGETS, OWN_DEPLOYMENTS, REPORTS, VOLUMES, Cluster, after_looks, now
from tests.harness.drains import GATE, SWIFT, Ground, accounts, explain, judged

AUTOSCALERS = {names.SCALE_DOWN_DISABLED, names.DO_NOT_DISRUPT}


def chosen(cluster: Cluster, name: str) -> str:
    return cluster.notes(CLAIMS, name).get(names.SELECTED_NODE, "")


# --- a closed node ----------------------------------------------------------------------------------------------------


def test_D9_a_cordoned_node_never_wins_a_race_although_its_delay_is_over(ground: Ground) -> None:
    """One node alone has room for the second big claim, and only once the first is gone; by then it has been closed."""
    drivers = [ground.driver("n1", pools={"main": "6Gi"}), ground.driver("n2", pools={"main": "3Gi"})]
    delays = ("--node-deployment-base-delay=2s", "--node-deployment-max-delay=4s")
    sidecars = [ground.judge(driver, *delays) for driver in drivers]
    class_ = now(drivers[0])

    def closed() -> bool:
        record = ground.marks("n1").get(names.of_driver(drivers[0].driver, names.DRAIN_RECORD), "{}")
        return bool(json.loads(record).get("closedAt"))

    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.create(CLAIMS, claim("first", class_, size="5Gi"))
        ground.bound("first")
        ground.create(CLAIMS, claim("second", class_, size="5Gi"))
        after_looks(*sidecars, at="claims")
        assert chosen(ground, "second") == ""

        ground.cordon("n1")
        until(closed, "n1 is closed")
        bids = sidecars[0].metric("csi_node_sidecar_ownership_bids_total")
        ground.give_up("first")
        small = [f"small-{number}" for number in range(6)]
        for name in small:
            ground.create(CLAIMS, claim(name, class_, size="100Mi"))
        ground.bound(*small)
        assert {chosen(ground, name) for name in small} == {"n2"}
        assert chosen(ground, "second") == ""
        assert sidecars[0].metric("csi_node_sidecar_ownership_bids_total") == bids

        ground.cordon("n1", on=False)
        ground.bound("second")
        assert chosen(ground, "second") == "n1"
        until(lambda: not closed(), "n1 is noted as closed no more")
        assert len(drivers[0].recorded("CreateVolume")) == 2


# --- two drivers ------------------------------------------------------------------------------------------------------


def test_two_drivers_sidecars_judge_one_node_and_each_undoes_its_own_part(ground: Ground) -> None:
    """Each has a volume there that no pod uses. They rest, serve one taint, and tell autoscalers until the last reason is gone."""
    alpha, beta = drivers = [ground.driver(name=name) for name in ("alpha", "beta")]
    sidecars = [ground.judge(driver, "--drain-autoscaler-annotations") for driver in drivers]

    def blockers(driver: OurDriver) -> list[tuple[str, str]]:
        return [(item["reason"], item["name"]) for item in ground.report("n1", driver)["blockers"]]

    def marks() -> tuple[Mapping[str, str], Mapping[str, str]]:
        return ground.labels("n1"), ground.marks("n1")

    with all_of(drivers), all_of(sidecars):
        ground.node("n1", *drivers)
        for sidecar, driver, name in zip(sidecars, drivers, ("a", "b"), strict=True):
            sidecar.until_ready()
            ground.use(name, driver)
            ground.leave(name)
        for driver, name in zip(drivers, ("a", "b"), strict=True):
            ground.await_verdict(driver, "False", "LastCopy")
            until(lambda: blockers(driver) == [("LastCopy", name)], "the report says so too, a moment later")  # noqa: B023
        until(lambda: ground.marks("n1").keys() >= AUTOSCALERS, "autoscalers are kept away")
        after_looks(*sidecars, at="drain", looks=1)
        steady, before = ground.versions(REPORTS, LEASES, CLAIMS, VOLUMES), marks()
        after_looks(*sidecars, at="drain")
        assert ground.versions(REPORTS, LEASES, CLAIMS, VOLUMES).items() <= steady.items(), "they rest"
        assert marks() == before

        ground.taint("n1")
        for driver in drivers:
            ground.await_state(driver, "InProgress")
        sidecars[1].stop()
        ground.taint("n1", on=False)
        ground.await_state(alpha, "")
        assert ground.state("n1", beta) == "InProgress", "that is for the other one to undo"
        sidecars[1].start()
        ground.await_state(beta, "")
        until(lambda: marks() == before, lambda: f"all is as it was: {before}; {marks()}")

        ground.give_up("a")
        ground.await_verdict(alpha, "True")
        after_looks(sidecars[0], at="drain", looks=1)
        assert ground.marks("n1").keys() >= AUTOSCALERS, "the other one still has a reason"
        ground.give_up("b")
        until(lambda: not AUTOSCALERS & ground.marks("n1").keys(), "autoscalers may come again")
    for sidecar in sidecars:
        assert sidecar.records("EF") == []


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
            found = numbers(self._ground.get(NODES, self._node))
            if found != [self.count] * 4:
                self.lost.append(f"after {self.count} the node says {found}")

    def _write(self, number: str) -> None:
        meta = {"labels": {"example.com/count": number}, "annotations": {"example.com/count": number}}
        self._ground.change(self._node, {"metadata": meta})
        self._ground.put_taint(self._node, {"key": "example.com/count", "value": number, "effect": "PreferNoSchedule"})
        condition = {"type": "example.com/Count", "status": "True", "reason": "Counting", "message": number}
        self._ground.change(self._node, {"status": {"conditions": [condition]}}, status=True)

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
    driver = ground.driver()
    sidecar = ground.judge(driver, "--drain-autoscaler-annotations")
    with driver, sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.use("a", driver)
        ground.leave("a")
        ground.await_verdict(driver, "False", "LastCopy")
        theirs = {
            "metadata": {"labels": {"example.com/odd": "A-b_c.1", "alpha.example.com/x": "y"}, "annotations": {"example.com/odd": ODD}},
            "spec": {"taints": [{"key": "example.com/kept", "effect": "PreferNoSchedule"}]},
        }
        before = foreign(ground.change("n1", theirs), driver)
        since = str(ground.get(NODES, "n1")["metadata"]["resourceVersion"])
        writer = Writer(ground, "n1")
        writer.start()
        try:
            for _ in range(3):
                ground.taint("n1")
                ground.await_state(driver, "InProgress")
                ground.taint("n1", on=False)
                ground.await_state(driver, "")
            ground.give_up("a")
            ground.await_verdict(driver, "True")
            until(lambda: not AUTOSCALERS & ground.marks("n1").keys(), "autoscalers may come")
            until(lambda: writer.count > 20, "somebody has written often enough")
        finally:
            writer.stop()
        assert not writer.lost, writer.lost[:5]
        assert foreign(ground.get(NODES, "n1"), driver) == before
        history = [event["object"] for event in ground.history(NODES, since) if event["object"]["metadata"]["name"] == "n1"]
        assert {json.dumps(foreign(node, driver), sort_keys=True) for node in history} == {json.dumps(before, sort_keys=True)}
        state = names.of_driver(driver.driver, names.EVACUATION_STATE)
        states = [node["metadata"]["labels"].get(state, "") for node in history]
        assert sum(one != other for one, other in pairwise(states)) >= 6


def foreign(node: Json, driver: OurDriver) -> Json:
    """All that neither the sidecar nor the writer has to do with, nor anybody's heartbeat."""
    meta, ours = node["metadata"], (f"{driver.driver}.{names.GROUP}/", "example.com/count")
    taints = [item for item in node["spec"].get("taints", ()) if item["key"] not in (names.EVACUATE_TAINT, "example.com/count")]
    kinds = {names.condition(driver.driver, kind) for kind in (names.DRAIN_READY, names.RETIRE_READY)} | {"example.com/Count"}
    return {
        "labels": {key: value for key, value in meta["labels"].items() if not key.startswith(ours)},
        "annotations": {key: value for key, value in meta["annotations"].items() if not key.startswith(ours) and key not in AUTOSCALERS},
        "taints": taints,
        "conditions": [item for item in node["status"]["conditions"] if item["type"] not in kinds],
        "spec": {key: value for key, value in node["spec"].items() if key != "taints"},
    }


# --- who may not read ---------------------------------------------------------------------------------------------------


def test_who_may_not_look_is_told_that_nothing_is_known(ground: Ground) -> None:
    ground.node("n1", driver := ground.driver())
    reading = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}
    ground.plane.apply(accounts(ground.namespace, "nobody"))
    ground.plane.apply(accounts(ground.namespace, "looker", rules=[reading]))
    nobody, looker = (ground.plane.kubeconfig_for(namespace=ground.namespace, service_account=name) for name in ("nobody", "looker"))
    who = f"--as=system:serviceaccount:{ground.namespace}:looker"
    until(lambda: ground.plane.kubectl("auth", "can-i", "list", "nodes", who), "the right counts")

    for kubeconfig, words in ((nobody, ("n1",)), (looker, ("n1",)), (looker, ("n1", "-o", "json"))):
        refused = explain(kubeconfig, *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        (line,) = refused.stderr.splitlines()
        assert "forbidden" in line
    (said,) = judged(explain(looker, "n1", "--driver", driver.driver, "-o", "json"))
    for verdict in said["verdicts"].values():
        assert (verdict["status"], verdict["reason"]) == ("Unknown", "NotKnown")
        assert "forbidden" in verdict["message"]


# --- a node that goes -------------------------------------------------------------------------------------------------


def test_E5_A13_all_that_was_made_for_a_node_goes_with_it(ground: Ground, drainer: Path) -> None:
    """By the garbage collector: nobody of ours is alive there any more."""
    driver, collections = ground.driver(), (REPORTS, OWN_BUDGETS, LEASES, OWN_DEPLOYMENTS)
    with driver, ground.sidecar(driver, "--drain-report", "--node-drain-policy=Evacuate", *GATE, speed=SWIFT) as sidecar:
        ground.node("n1", driver)
        sidecar.until_ready()
        ground.use("a", driver)
        ground.leave("a")
        until(lambda: all(owned(ground, path) for path in collections), "report, gate and the lease of the looker are there")
        uid = ground.get(NODES, "n1")["metadata"]["uid"]
        assert {each for path in collections for each in owned(ground, path)} == {uid}
    ground.forget_node("n1")
    until(lambda: not any(owned(ground, path) for path in collections), "all of it is gone")


def owned(ground: Ground, path: str) -> list[str]:
    """By the node, as objects of ours say: its uids."""
    return [ref["uid"] for item in ground.items(path) for ref in item["metadata"].get("ownerReferences") or () if ref["name"] == "n1"]
