"""The referee of replicas: who is away by a sidecar's doing."""

from types import SimpleNamespace
from typing import Any

from hack.sim.drains.replicas import ReplicaReferee
from sidecar.kube.api import STATEFUL_SETS
from sidecar.model.objects import Json

UID = "7a6b"


def pod(ordinal: int) -> Json:
    return {"metadata": {"name": f"db-{ordinal}", "namespace": "default", "uid": f"pod-{ordinal}", "ownerReferences": [{"uid": UID}]}}


def referee(replicas: int) -> tuple[ReplicaReferee, Json]:
    """Of a set of which no pod is there, and the set."""
    workload: Json = {"metadata": {"name": "db", "uid": UID, "namespace": "default"}, "spec": {"replicas": replicas}}
    store = SimpleNamespace(all_of=lambda kind: [workload] if kind is STATEFUL_SETS else [])
    world: Any = SimpleNamespace(cluster=SimpleNamespace(store=store), clock=lambda: 100.0)
    return ReplicaReferee(world, slack=0.0), workload


def test_a_replica_that_a_sidecar_has_evicted_is_away_by_its_doing() -> None:
    replicas, _ = referee(2)
    replicas.evicted(pod(1))
    assert list(replicas.not_whole(by_us=True)) == ["db-1"]
    assert list(replicas.not_whole()) == ["db-0", "db-1"]


def test_after_its_set_was_made_smaller_and_larger_again_it_is_not() -> None:
    replicas, workload = referee(2)
    replicas.evicted(pod(1))
    workload["spec"]["replicas"] = 1
    replicas.look()
    workload["spec"]["replicas"] = 2
    assert list(replicas.not_whole(by_us=True)) == []
