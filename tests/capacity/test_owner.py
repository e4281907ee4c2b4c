"""C23: who owns the capacity objects, by level."""

import asyncio

import pytest

from sidecar.capacity.owner import find_owner
from sidecar.errors import Fatal
from sidecar.model.objects import Owner
from tests.harness.doors import ScriptedKube

SET_REF = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set-uid", "controller": True, "blockOwnerDeletion": True}
DEPLOYMENT_REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "dep", "uid": "dep-uid", "controller": True}


def kube() -> ScriptedKube:
    pod = {"kind": "Pod", "metadata": {"name": "pod", "uid": "pod-uid", "ownerReferences": [{"kind": "Other", "name": "x"}, SET_REF]}}
    replica_set = {"kind": "ReplicaSet", "metadata": {"name": "set", "uid": "set-uid", "ownerReferences": [DEPLOYMENT_REF]}}
    return ScriptedKube({("pods", "pod"): pod, ("replicasets", "set"): replica_set})


def find(level: int, *, pod: str = "pod", api: ScriptedKube | None = None) -> Owner | None:
    return asyncio.run(find_owner(api or kube(), namespace="ns", pod=pod, level=level))  # type: ignore[arg-type]


def test_C23_levels() -> None:
    for level, owner in [
        (-1, None),
        (0, Owner("v1", "Pod", "pod", "pod-uid", True)),
        (1, Owner("apps/v1", "ReplicaSet", "set", "set-uid", True)),
        (2, Owner("apps/v1", "Deployment", "dep", "dep-uid", True)),
    ]:
        assert find(level) == owner


def test_C23_the_object_at_the_last_level_is_not_fetched() -> None:
    api = kube()
    find(1, api=api)
    assert [(verb, plural) for verb, plural, _, _ in api.asked] == [("get", "pods")]


def test_C23_a_missing_pod_or_controller_ends_the_program_with_the_reason() -> None:
    with pytest.raises(Fatal, match="POD_NAME"):
        find(0, pod="other")
    api = kube()
    api.objects["replicasets", "set"]["metadata"]["ownerReferences"] = []
    with pytest.raises(Fatal, match="has no controller, so the level can be 1 at most"):
        find(2, api=api)
    del api.objects["replicasets", "set"]
    with pytest.raises(Fatal, match="--capacity-ownerref-level=2"):
        find(2, api=api)
