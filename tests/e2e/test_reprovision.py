"""Replicas made anew on a real control plane, beside what `tests/smoke/test_reprovision.py` shows: undone and killed in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import yaml

from hack.lib.control_plane import until
from sidecar.kube.api import CLAIMS as CLAIM
from sidecar.kube.api import NAMESPACES
from sidecar.model import names
from sidecar.rights.rights import Right
from tests.harness.accounts import naming, without
from tests.harness.cluster import BUDGETS, after_looks
from tests.harness.drains import Ground, component
from tests.harness.replicas import Replicas


@pytest.fixture
def db(ground: Ground) -> Iterator[Replicas]:
    with ExitStack() as running:
        yield Replicas(ground, running)


def test_nothing_happens_while_the_budget_allows_none(db: Replicas, ground: Ground) -> None:
    before, pod = db.claims(), db.on("n1")
    ground.patch(BUDGETS, "db", {"spec": {"maxUnavailable": 0}})
    db.await_allowed(0)
    ground.taint("n1")
    ground.await_state(db.drivers[0], "InProgress")
    after_looks(db.sidecars[0], at="drain")
    assert (len(ground.ready()), db.claims(), db.leases()) == (3, before, [])
    ground.patch(BUDGETS, "db", {"spec": {"maxUnavailable": 1}})
    assert db.fewest_until(lambda: db.has_left(pod, "n1") and db.at_rest(), "it leaves") >= 2


STEPS: dict[str, Callable[[Replicas], bool]] = {
    "taken": lambda db: bool(db.leases()),
    "evicting": lambda db: "Evicting" in str(db.leases()),
}


@pytest.mark.parametrize("step", STEPS)
def test_undone_before_the_deletion_the_pod_keeps_its_data(db: Replicas, ground: Ground, step: str) -> None:
    before, pod = db.claims(), db.on("n1")
    ground.taint("n1")
    until(lambda: STEPS[step](db), step)
    ground.taint("n1", False)
    # Where the step was recorded and its eviction may be on its way, the Lease is kept for a while.
    until(lambda: db.at_rest() and len(ground.ready()) == 3, "all are ready, and no Lease or mark is left")
    if before == db.claims():
        assert ground.ready()[pod] == "n1"
    else:
        # The undo came after the Node had been looked at for the last time: then it is told what was made anew.
        assert db.told(names.CLAIM_REPROVISIONED)


def test_undone_while_the_cordon_stays_the_pod_keeps_its_data(db: Replicas, ground: Ground) -> None:
    """Announced by an annotation, so that the cordon alone keeps pods off, which asks for nothing. The undo comes while no process runs."""
    before, pod, (_, sidecar) = db.claims(), db.on("n1"), db.of("n1")
    ground.cordon("n1")
    ground.change("n1", {"metadata": {"annotations": {names.DRAIN_INTENT: "retire"}}})
    until(lambda: bool(db.leases()), "the Lease of the workload is taken")
    sidecar.kill()
    late = "Deleting" in str(db.leases())
    ground.change("n1", {"metadata": {"annotations": {names.DRAIN_INTENT: None}}})
    sidecar.start()
    until(db.at_rest, "no Lease or mark is left")
    after_looks(sidecar, at="drain")
    assert before == db.claims() or late
    if not late:
        ground.cordon("n1", False)
        until(lambda: ground.ready().get(pod) == "n1", "it is on its data, or back on it")


@pytest.mark.parametrize("step", ["Taken", "Evicting", "Deleting"])
def test_killed_in_a_step_it_goes_on_rightly(db: Replicas, ground: Ground, step: str) -> None:
    pod, (driver, sidecar) = db.on("n1"), db.of("n1")
    ground.taint("n1")
    until(lambda: step in str(db.leases()), step)
    sidecar.kill()
    sidecar.start()
    assert db.fewest_until(lambda: db.has_left(pod, "n1") and db.at_rest(), f"{pod} leaves n1") >= 2
    ground.await_state(driver, "Success")
    assert len(db.told(names.CLAIM_REPROVISIONED)) <= 1


@pytest.mark.parametrize("right", [Right("patch", CLAIM), Right("delete", CLAIM), Right("get", NAMESPACES)], ids=str)
def test_without_a_right_no_pod_is_evicted_for_it(db: Replicas, ground: Ground, right: Right) -> None:
    """Of the last step too the API server says so in a dry run, before the pod is away for nothing."""
    before, pod, (_, sidecar) = db.claims(), db.on("n1"), db.of("n1")
    manifest = component("drain", "reprovision", "node-loss")
    lacking = list(yaml.safe_load_all(manifest))
    for item in lacking:
        if item["kind"] == "ClusterRole":
            item["rules"] = without(right, item["rules"])
    ground.plane.apply(yaml.safe_dump_all(lacking))
    try:
        ground.taint("n1")
        until(lambda: naming(right, sidecar.records("WEF")), "the log names the right")
        after_looks(sidecar, at="drain")
        assert (len(ground.ready()), db.claims()) == (3, before)
    finally:
        ground.plane.apply(manifest)
    db.fewest_until(lambda: db.has_left(pod, "n1"), "it leaves once the right is granted")
