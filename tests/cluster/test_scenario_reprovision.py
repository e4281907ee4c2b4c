"""Replicas are made anew elsewhere on real kubelets: one after the other, whatever stops it meanwhile, and undone in each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.patience import patient
from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from tests.cluster.draining import MAY_BE
from tests.cluster.replicated import MADE_ANEW, REPLICAS, Database, Retiring

CLAIMS = "persistentvolumeclaims"


@pytest.fixture(scope="module")
def db(retiring: Retiring) -> Iterator[Database]:
    found = Database(retiring.installation)
    found.start()
    yield found
    found.stop()
    retiring.installation.check_books()


@pytest.fixture(autouse=True)
def _let_be(retiring: Retiring, db: Database) -> Iterator[None]:
    yield
    retiring.let_be()
    retiring.await_open()
    retiring.await_rest()
    db.await_whole()


@contextmanager
def nothing_happens(retiring: Retiring, db: Database) -> Iterator[None]:
    before = db.claims(), db.pod_uids()
    yield
    assert (db.claims(), db.pod_uids()) == before
    assert not retiring.leases()
    assert not retiring.marks()


def tells(retiring: Retiring, hindrance: Hindrance, *nodes: str) -> None:
    for node in nodes:
        until(lambda node=node: f"shut, {hindrance}" in retiring.told(node), f"{node} tells {hindrance}", seconds=60)  # type: ignore[misc]


def told(retiring: Retiring, reason: str) -> set[str]:
    """Uids of the objects that such an event is about."""
    found = retiring.installation.items("events", "--namespace=default", f"--field-selector=reason={reason}")
    return {item["involvedObject"]["uid"] for item in found}


def await_anew(db: Database, pod: str, before: str) -> None:
    until(lambda: db.claims().get(pod, before) != before, f"the claim of {pod} is made again", seconds=MADE_ANEW)


def drained(retiring: Retiring, node: str, log: Path) -> None:
    until(lambda: retiring.state(node) == "Success", f"the evacuation of {node} succeeds", seconds=60)
    with retiring.drain(node, seconds=patient(60), log=log) as drain:
        assert drain.await_end(patient(70)) == 0, drain.said()


def test_one_replica_after_the_other_is_made_anew_whatever_stops_it_meanwhile(retiring: Retiring, db: Database, tmp_path: Path) -> None:
    """Two nodes at once are to be emptied, and there is one node more than replicas."""
    claims, nodes = db.claims(), db.ready()
    both = nodes["db-0"], nodes["db-1"]
    with db.watched(tmp_path) as seen:
        # Not while the budget allows none, nor while a replica is not ready.
        with nothing_happens(retiring, db):
            db.budget(0)
            for node in both:
                retiring.taint(node)
            retiring.await_in_progress(*both)
            tells(retiring, Hindrance.PDB_BLOCKED, *both)
            db.sicken("db-2", True)
            db.budget(1)
            tells(retiring, Hindrance.REPLICA_NOT_READY, *both)

        # Then one of them. Its sidecar is killed once the Lease is taken, and again while the pod ends.
        with retiring.without_right("patch", CLAIMS):
            db.sicken("db-2", False)
            record = until(retiring.record, "the Lease of the set is taken", seconds=60)
            pod, first = record["pod"], db.ready()[record["pod"]]
            retiring.kill_sidecar(first)
            assert (retiring.record()["stage"], retiring.marks(), db.claims()) == ("Taken", {}, claims)
        until(lambda: db.is_ending(pod), f"{pod} is evicted", seconds=60)
        retiring.kill_sidecar(first)
        await_anew(db, pod, claims[pod])
        retiring.await_rest()
        drained(retiring, first, tmp_path / "first.log")

        # The other one has nowhere to go until the first node is back. Its sidecar is killed once the claim is marked, and once it is gone.
        (second,) = {*both} - {first}
        other = db.on(second)
        tells(retiring, Hindrance.NO_NODE_FITS, second)
        assert "anti-affinity" in retiring.told(second)
        with retiring.without_right("create", "pods/eviction"):
            retiring.let_be(first)
            mark = f"{second}/{retiring.node(second)['metadata']['uid']}"
            # What the sidecar knows of other nodes is up to a minute old.
            until(lambda: retiring.marks() == {f"data-{other}": mark}, "the claim is marked", seconds=MADE_ANEW)
            retiring.kill_sidecar(second)
            assert db.claims()[other] == claims[other]
        await_anew(db, other, claims[other])
        retiring.kill_sidecar(second)
        retiring.await_rest()
        drained(retiring, second, tmp_path / "second.log")

        assert db.ready() == {**nodes, pod: db.ready()[pod], other: first}
        assert seen.fewest_ready() == REPLICAS - 1
        assert seen.claims() == dict.fromkeys(claims, 1) | {pod: 2, other: 2}
    # A process that was killed may have left an event out.
    assert told(retiring, names.CLAIM_REPROVISIONED) & {*claims.values()} <= {claims[pod], claims[other]}
    replacements = {uid for name, uid in db.pod_uids().items() if name in (pod, other)}
    until(lambda: replacements <= told(retiring, names.REPLICA_READY), "both are told to be ready", seconds=MAY_BE)


STEPS = {"taken": ("patch", CLAIMS), "marked": ("create", "pods/eviction"), "evicted": ()}


def test_undone_before_the_deletion_the_pod_has_its_data_and_after_it_nothing_more_is_begun(
    retiring: Retiring, db: Database, tmp_path: Path
) -> None:
    claims, node = db.claims(), db.ready()["db-0"]
    born = db.born("db-0")
    with db.watched(tmp_path) as seen:
        for step, right in STEPS.items():
            with retiring.without_right(*right) if right else nullcontext():
                retiring.taint(node)
                until(retiring.record, f"{step}: the Lease of the set is taken", seconds=60)
                if step == "marked":
                    until(retiring.marks, "the claim is marked", seconds=MAY_BE)
                if step == "evicted":
                    until(lambda: db.is_ending("db-0"), "the pod is evicted", seconds=MAY_BE)
                retiring.let_be(node)
                retiring.await_rest(seconds=60)
            db.await_whole()
            retiring.await_open()
            assert (db.ready()["db-0"], db.born("db-0"), db.claims()) == (node, born, claims), step

        retiring.taint(node)
        await_anew(db, "db-0", claims["db-0"])
        retiring.let_be(node)
        assert retiring.record()["stage"] == "Deleting"
        db.await_whole()
        retiring.await_rest()
        assert db.born("db-0") != born
        assert seen.claims() == dict.fromkeys(claims, 1) | {"db-0": 2}
        assert seen.fewest_ready() == REPLICAS - 1


def test_a_drain_that_is_there_from_the_start_ends_when_the_replica_is_elsewhere(retiring: Retiring, db: Database, tmp_path: Path) -> None:
    """The drainer evicts the pod itself, and it waits for a node until its claim is made anew; the gate holds the drainer until then."""
    node = db.ready()["db-1"]
    with db.watched(tmp_path) as seen:
        retiring.await_gate(node)
        retiring.taint(node)
        with retiring.drain(node, seconds=patient(MADE_ANEW), log=tmp_path / "drain.log") as drain:
            assert drain.await_end(patient(MADE_ANEW + 10)) == 0, drain.said()
        assert len(db.ready()) == REPLICAS
        until(lambda: retiring.state(node) == "Success", "the evacuation succeeds", seconds=60)
        assert node not in db.ready().values()
        assert seen.claims() == {"db-0": 1, "db-1": 2, "db-2": 1}
        assert seen.fewest_ready() == REPLICAS - 1
