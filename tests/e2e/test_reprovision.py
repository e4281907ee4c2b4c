"""Replicas made anew on a real control plane: a StatefulSet of three under a budget, one after the other, and undone in each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar, within
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.e2e.conftest import CLAIMS, NODES, PODS, VOLUMES, Cluster
from tests.e2e.draining import BUDGETS, EVENTS, LEASES, STATEFUL_SETS, Ground, budget, component, installed, stateful_set
from tests.e2e.lacking import naming
from tests.e2e.rights_stories import MAKES_ANEW

ALPHA = "alpha.example.com"
EVICTING, ANEW = "emptying/rbac.yaml", "reprovision/rbac.yaml"
FLAGS = ("--evacuation-evict", "--allow-reprovision", "--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=2s")
THERE = ("n1", "n2", "n3", "n4")


@pytest.fixture(scope="module")
def rights(plane: ControlPlane) -> Iterator[None]:
    with installed(plane, EVICTING, ANEW):
        yield


class Scene:
    """Four nodes, and db with three replicas on n1 to n3."""

    def __init__(self, ground: Ground, running: ExitStack) -> None:
        self.ground, self.cluster = ground, ground.cluster
        self.drivers = [ground.driver(ALPHA, node) for node in THERE]
        self.sidecars = [ground.sidecar(driver, *FLAGS) for driver in self.drivers]
        for process in (*self.drivers, *self.sidecars):
            running.enter_context(process)
        for driver, sidecar in zip(self.drivers, self.sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.cordon("n4")
        self.cluster.patch("/apis/storage.k8s.io/v1/csidrivers", ALPHA, {"spec": {"storageCapacity": True}})
        body = stateful_set("db", self.drivers[0], 3)
        body["spec"]["template"]["spec"]["affinity"] = apart()
        body["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = {names.DRAIN_POLICY_RETIRE: "Reprovision"}
        self.cluster.create(STATEFUL_SETS, body)
        until(lambda: len(self.ready()) == 3, "all replicas are ready", seconds=90)
        ground.cordon("n4", False)
        self.cluster.create(BUDGETS, budget("db", {"app": "db"}, maxUnavailable=1))
        until(lambda: self.cluster.get(BUDGETS, "db").get("status", {}).get("disruptionsAllowed") == 1, "the budget is counted", seconds=30)

    def ready(self) -> dict[str, str]:
        """By replica that is ready: its node."""
        found = {}
        for pod in self.cluster.items(PODS):
            ready = any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions") or ())
            if ready and not pod["metadata"].get("deletionTimestamp"):
                found[pod["metadata"]["name"]] = pod["spec"]["nodeName"]
        return found

    def on(self, node: str) -> str:
        return next(pod for pod, where in self.ready().items() if where == node)

    def of(self, node: str) -> tuple[OurDriver, Sidecar]:
        place = THERE.index(node)
        return self.drivers[place], self.sidecars[place]

    def claims(self) -> dict[str, str]:
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.cluster.items(CLAIMS)}

    def leases(self) -> list[Json]:
        return [item for item in self.cluster.items(LEASES) if names.REPROVISION_FOR in (item["metadata"].get("labels") or {})]

    def at_rest(self) -> bool:
        marked = any(names.REPROVISIONED_BY in (item["metadata"].get("annotations") or {}) for item in self.cluster.items(CLAIMS))
        return not marked and not self.leases()

    def told(self, reason: str) -> list[str]:
        return sorted(event["involvedObject"]["name"] for event in self.cluster.items(EVENTS) if event["reason"] == reason)

    def fewest_until(self, done: Callable[[], bool], what: str, *, seconds: float = 120.0) -> int:
        """The fewest ready replicas meanwhile."""
        fewest, end = 3, time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"{what}: {self.ready()} {self.leases()}"
            fewest = min(fewest, len(self.ready()))
            time.sleep(0.1)
        return fewest


def apart() -> Json:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.fixture
def scene(cluster: Cluster, rights: None, tmp_path: Path) -> Iterator[Scene]:
    ground = Ground(cluster, tmp_path)
    with ExitStack() as running:
        yield Scene(ground, running)
    ground.clean()
    for lease in ground.cluster.items(LEASES):
        if names.REPROVISION_FOR in (lease["metadata"].get("labels") or {}):
            ground.cluster.delete(LEASES, lease["metadata"]["name"])


def test_one_replica_after_the_other_is_made_anew_and_never_are_two_away(scene: Scene) -> None:
    before, told = scene.claims(), [len(scene.told(reason)) for reason in (names.CLAIM_REPROVISIONED, names.REPLICA_READY)]
    for node, spare in (("n1", "n4"), ("n2", "n1")):
        pod, (driver, sidecar) = scene.on(node), scene.of(node)
        scene.ground.taint(node)

        def done(pod: str = pod, node: str = node, driver: OurDriver = driver) -> bool:
            elsewhere = scene.ready().get(pod, node) != node
            return elsewhere and scene.ground.state(node, driver) == "Success"

        assert scene.fewest_until(done, f"{pod} leaves {node}") >= 2
        until(lambda: len(scene.ready()) == 3 and scene.at_rest(), "all are ready, and no Lease or mark is left", seconds=30)
        assert scene.ready()[pod] == spare
        assert sidecar.metric("csi_node_sidecar_reprovisions_total", result="ready") == 1
        until(lambda: len(scene.cluster.items(VOLUMES)) == 3, "the old volume is gone", seconds=30)
        scene.ground.taint(node, False)
    after = scene.claims()
    for reason, earlier in zip((names.CLAIM_REPROVISIONED, names.REPLICA_READY), told, strict=True):
        until(lambda: len(scene.told(reason)) == earlier + 2, f"{reason} is told once for each", seconds=20)  # noqa: B023
    assert sum(before[name] != after[name] for name in before) == 2


def test_nothing_happens_while_a_replica_is_not_ready_or_the_budget_allows_none(scene: Scene) -> None:
    before, node = scene.claims(), "n1"
    scene.cluster.patch(BUDGETS, "db", {"spec": {"maxUnavailable": 0}})
    until(lambda: scene.cluster.get(BUDGETS, "db")["status"]["disruptionsAllowed"] == 0, "the budget allows none", seconds=20)
    scene.ground.taint(node)
    until(lambda: scene.ground.state(node, scene.drivers[0]) == "InProgress", "it is in progress", seconds=30)
    assert not within(8.0, lambda: len(scene.ready()) < 3 or scene.claims() != before or bool(scene.leases()))
    scene.cluster.patch(BUDGETS, "db", {"spec": {"maxUnavailable": 1}})
    pod = scene.on(node)
    scene.fewest_until(lambda: scene.ready().get(pod, node) != node and scene.at_rest(), "it leaves")


STEPS: dict[str, Callable[[Scene], bool]] = {
    "taken": lambda scene: bool(scene.leases()),
    "evicting": lambda scene: "Evicting" in str(scene.leases()),
}


@pytest.mark.parametrize("step", STEPS)
def test_undone_before_the_deletion_the_pod_keeps_its_data(scene: Scene, step: str) -> None:
    before, pod = scene.claims(), scene.on("n1")
    scene.ground.taint("n1")
    until(lambda: STEPS[step](scene), step, seconds=60)
    scene.ground.taint("n1", False)
    # Where the step was recorded and its eviction may be on its way, the Lease is kept for 90 seconds.
    until(lambda: scene.at_rest() and len(scene.ready()) == 3, "all are ready, and no Lease or mark is left", seconds=150)
    after = scene.claims()
    if before == after:
        assert scene.ready()[pod] == "n1"
    else:
        # The undo came after the Node had been looked at for the last time: then it is told what was made anew.
        assert scene.told(names.CLAIM_REPROVISIONED)


@pytest.mark.parametrize("step", ["Taken", "Evicting", "Deleting"])
def test_killed_in_a_step_it_goes_on_rightly(scene: Scene, step: str) -> None:
    before, pod, (driver, sidecar) = scene.told(names.CLAIM_REPROVISIONED), scene.on("n1"), scene.of("n1")
    scene.ground.taint("n1")
    until(lambda: step in str(scene.leases()), step, seconds=90)
    sidecar.kill()
    sidecar.start()
    done = lambda: scene.ready().get(pod, "n1") != "n1" and scene.at_rest()  # noqa: E731
    assert scene.fewest_until(done, f"{pod} leaves n1") >= 2
    until(lambda: scene.ground.state("n1", driver) == "Success", "it succeeds", seconds=60)
    assert len(scene.told(names.CLAIM_REPROVISIONED)) <= len(before) + 1


def test_without_the_rights_nothing_is_made_anew_which_is_told_until_they_are_granted(scene: Scene, plane: ControlPlane) -> None:
    before, pod, (_, sidecar) = scene.claims(), scene.on("n1"), scene.of("n1")
    manifest = component(ANEW)
    plane.kubectl("delete", "--wait=true", "-f", "-", input=manifest)
    try:
        scene.ground.taint("n1")
        lacking = lambda: any(naming(right, sidecar.records("WEF")) for right in MAKES_ANEW)  # noqa: E731
        until(lacking, "the log names a right", seconds=60)
        assert not within(5.0, lambda: scene.claims() != before or len(scene.ready()) < 3)
    finally:
        plane.apply(manifest)
    scene.fewest_until(lambda: scene.ready().get(pod, "n1") != "n1", "it leaves once the rights are granted")
    assert NODES


def test_without_the_right_to_delete_claims_no_pod_is_evicted_for_it(scene: Scene, plane: ControlPlane) -> None:
    """The API server says so in a dry run, before the pod is away for nothing."""
    before, pod, (_, sidecar) = scene.claims(), scene.on("n1"), scene.of("n1")
    manifest = component(ANEW)
    lacking = manifest.replace("  - delete\n", "")
    assert lacking != manifest
    plane.apply(lacking)
    try:
        scene.ground.taint("n1")
        until(lambda: naming(Right("delete", CLAIM), sidecar.records("WEF")), "the log names the right", seconds=90)
        assert not within(5.0, lambda: scene.claims() != before or len(scene.ready()) < 3)
    finally:
        plane.apply(manifest)
    scene.fewest_until(lambda: scene.ready().get(pod, "n1") != "n1", "it leaves once the right is granted", seconds=240)
