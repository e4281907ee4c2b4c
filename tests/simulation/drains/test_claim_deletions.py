"""What the referee says of a deletion of a claim: nothing where all was as it must be, and of each lock that was open, that it was."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.drains.claim_deletions import ClaimDeletion, Replica, faults, is_rolling, stops_at
from sidecar.model import names

MARK = {names.REPROVISIONED_BY: "n1/uid-n1"}
OTHERS = (Replica("db-0", "n2", claims=frozenset({"data-db-0"})), Replica("db-2", "n3", claims=frozenset({"data-db-2"})))


def claim(*, finalizers: tuple[str, ...] = ("kubernetes.io/pvc-protection",), name: str = "data-db-1", **notes: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": "uid-claim", "resourceVersion": "7"}
    return {"metadata": meta | {"annotations": MARK | notes, "finalizers": list(finalizers)}}


def database(*, replicas: int = 3, start: int = 0, generation: int = 2, **status: Any) -> dict[str, Any]:
    templates = [{"metadata": {"name": "data"}, "spec": {}}]
    spec = {
        "replicas": replicas,
        "ordinals": {"start": start},
        "selector": {"matchLabels": {"app": "db"}},
        "volumeClaimTemplates": templates,
    }
    told = {"observedGeneration": 2, "currentRevision": "db-a", "updateRevision": "db-a"} | status
    return {"metadata": {"name": "db", "uid": "uid-db", "generation": generation}, "spec": spec, "status": told}


def noted(key: str, value: str) -> dict[str, Any]:
    made = claim()
    made["metadata"]["annotations"] = MARK | {key: value}
    return made


GOOD = ClaimDeletion(
    sender="n1",
    sender_uid="uid-n1",
    claim=claim(),
    workload=database(),
    ordinal=1,
    policy="Reprovision",
    allowed=True,
    preconditions={"uid": "uid-claim", "resourceVersion": "7"},
    others=OTHERS,
)
MINE = noted(names.ALLOW_CLAIM_DELETION, "true")
ONE_IS_ENOUGH = noted(names.REPROVISION_PEERS, "1")
AWAY = Replica("db-2", "", ready=False, away=60.0)


def test_where_all_is_as_it_must_be_nothing_is_said() -> None:
    assert faults(GOOD) == []


# What is otherwise, and what is said of it.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a pod with a node": ({"users": ("n1",)}, "a pod on n1 uses it"),
    "no uid": ({"preconditions": {"resourceVersion": "7"}}, "does not say the claim's uid"),
    "another uid": ({"preconditions": {"uid": "other", "resourceVersion": "7"}}, "does not say the claim's uid"),
    "no version": ({"preconditions": {"uid": "uid-claim"}}, "which version"),
    "an older version": ({"preconditions": {"uid": "uid-claim", "resourceVersion": "6"}}, "which version"),
    "no mark": ({"claim": {"metadata": claim()["metadata"] | {"annotations": {}}}}, "its mark is None"),
    "the mark of another node": ({"sender": "n4", "sender_uid": "uid-n4"}, "its mark is n1/uid-n1"),
    "the mark of an earlier machine of that name": ({"sender_uid": "uid-new"}, "its mark is n1/uid-n1"),
    "a node that is not there": ({"sender_uid": ""}, "its mark is n1/uid-n1"),
    "a flag": ({"allowed": False}, "not allowed by a flag"),
    "another policy": ({"policy": "Ignore"}, "its policy is Ignore"),
    "no policy": ({"policy": ""}, "nobody has said one"),
    "an undo": ({"asked": 3.0}, "nobody asks for its node to be retired"),
    "nobody ever asked": ({"asked": float("inf"), "late": 60.0}, "nobody asks for its node to be retired"),
    "no set": ({"workload": None}, "no StatefulSet makes it again"),
    "a claim of no template": ({"claim": claim(name="other-db-1")}, "do not make it"),
    "an ordinal that is scaled away": ({"workload": database(replicas=1)}, "no replica has the ordinal 1"),
    "an ordinal before the first": ({"workload": database(start=5)}, "no replica has the ordinal 1"),
    "a set that is rolling": ({"rolling": 3.0, "late": 1.0}, "rolling for 3.0 s"),
    "one away": ({"others": (OTHERS[0], AWAY)}, "db-2 has not been ready for 60.0 s"),
    "one that we evicted": ({"others": (OTHERS[0], replace(AWAY, away=0.0, by_us=True)), "late": 60.0}, "was evicted by a sidecar"),
    "one on the same node": ({"others": (OTHERS[0], replace(OTHERS[1], node="n1"))}, "db-2 is on the same node"),
    "one with the same claim": ({"others": (OTHERS[0], replace(OTHERS[1], claims=frozenset({"data-db-1"})))}, "has the same claim"),
    "a single replica": ({"others": ()}, "there is no other replica"),
    "a single replica, whatever the claim says": ({"others": (), "claim": ONE_IS_ENOUGH}, "there is no other replica"),
    "fewer than the claim says": (
        {"others": (AWAY, AWAY), "claim": ONE_IS_ENOUGH},
        "0 other replicas are ready elsewhere, and 1 are wanted",
    ),
    "a snapshot": ({"snapshots": ("snap",)}, "snapshot snap"),
    "a finalizer": ({"claim": claim(finalizers=("kubernetes.io/pvc-protection", "example.com/backup"))}, "example.com/backup"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_was_otherwise_is_said(name: str) -> None:
    changes, said = WRONG[name]
    found = faults(replace(GOOD, **changes))
    assert len(found) == (2 if name == "a single replica, whatever the claim says" else 1)
    assert any(said in each for each in found), found


# What is otherwise, and is right all the same.
RIGHT: dict[str, dict[str, Any]] = {
    "a pod without a node": {"users": ()},
    "an undo that came when the request was on its way": {"asked": 0.3, "late": 1.0},
    "another one that has not been ready for a moment": {"others": (OTHERS[0], replace(AWAY, away=0.3)), "late": 1.0},
    "as many others as the claim says": {"others": (OTHERS[0], AWAY), "claim": ONE_IS_ENOUGH},
    "a claim of no template that its owner makes again": {"claim": {"metadata": MINE["metadata"] | {"name": "other-db-1"}}},
    "a set that began to roll when the request was on its way": {"rolling": 0.3, "late": 1.0},
    "a set that begins elsewhere": {"workload": database(start=1)},
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_all_the_same(name: str) -> None:
    assert faults(replace(GOOD, **deepcopy(RIGHT[name]))) == []


@pytest.mark.parametrize("said", ["", "0", "-1", "all", "½", "1.5"])
def test_what_is_no_number_lowers_nothing(said: str) -> None:
    seen = replace(GOOD, claim=noted(names.REPROVISION_PEERS, said), others=(OTHERS[0], AWAY))
    assert faults(seen) == ["db-2 has not been ready for 60.0 s"]


def of_revision(revision: str) -> dict[str, Any]:
    return {"metadata": {"name": "db-0", "labels": {"controller-revision-hash": revision}}}


@pytest.mark.parametrize(
    ("workload", "revisions", "rolling"),
    [
        (database(), ("db-a", "db-a"), False),
        (database(updateRevision="db-b"), ("db-a", "db-b"), True),
        (database(updateRevision="db-b"), ("db-b", "db-b"), False),
        (database(generation=3), ("db-a",), True),
        (database(observedGeneration=0), (), True),
    ],
    ids=("all are of one revision", "of two", "of the new one, but not all ready", "a change was not seen yet", "nothing was seen yet"),
)
def test_when_a_set_is_rolling(workload: dict[str, Any], revisions: tuple[str, ...], rolling: bool) -> None:
    assert is_rolling(workload, map(of_revision, revisions)) is rolling


@pytest.mark.parametrize(
    ("managed", "revisions", "node", "stops"),
    [
        ("OrderedReady", ("db-a", "db-b", "db-a"), "", True),
        ("OrderedReady", ("db-a", "db-b", "db-a"), "n1", False),
        ("Parallel", ("db-a", "db-b", "db-b"), "", True),
        ("Parallel", ("db-a", "db-a", "db-b"), "", False),
        ("Parallel", ("db-a", "db-b", "db-a"), "", False),
        ("Parallel", ("db-a", "db-b"), "", False),
    ],
    ids=("in order", "it runs", "from the last one down", "it is replaced itself", "a later one is replaced", "a later one is not there"),
)
def test_at_which_replica_a_rollout_stops(managed: str, revisions: tuple[str, ...], node: str, stops: bool) -> None:
    """At db-1, of three."""
    workload = database(updateRevision="db-b")
    workload = workload | {"spec": workload["spec"] | {"podManagementPolicy": managed, "replicas": 3}}
    pods = {number: of_revision(revision) | {"spec": {"nodeName": node}} for number, revision in enumerate(revisions)}
    assert stops_at(workload, 1, pods) is stops
    assert not stops_at(workload | {"metadata": workload["metadata"] | {"generation": 99}}, 1, pods), "nobody knows what was changed"
