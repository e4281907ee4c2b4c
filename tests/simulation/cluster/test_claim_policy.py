"""The one policy that the simulated API server carries out: in force only with its own words and its binding, and it says why it is not."""

from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.cluster import Cluster, claim_policy
from hack.sim.cluster.claim_policy import BINDINGS, POLICIES, Standing
from sidecar.kube.api import CLAIMS
from sidecar.model import names
from sidecar.model.objects import Json
from tests.contract.objects import claim
from tests.harness.cluster_tools import new_cluster

Change = Callable[[Json], Json]


def spec(**changed: Any) -> Change:
    return lambda obj: obj | {"spec": obj["spec"] | changed}


def matching(**more: Any) -> Change:
    return lambda obj: obj | {"spec": obj["spec"] | {"matchConstraints": obj["spec"]["matchConstraints"] | more}}


def as_it_is(obj: Json) -> Json:
    return obj


def broken_anew(obj: Json) -> Json:
    """As kustomize breaks the lines of an expression."""
    (condition,) = obj["spec"]["matchConditions"]
    return spec(matchConditions=[condition | {"expression": condition["expression"].replace(" ", "\n\n ")}])(obj)


def installed(policy: Change | None, binding: Change | None) -> Cluster:
    cluster = new_cluster()
    for resource, change, obj in zip((POLICIES, BINDINGS), (policy, binding), claim_policy.written(), strict=True):
        if change is not None:
            cluster.create(resource, change(obj))
    return cluster


STANDINGS = {
    "both": (as_it_is, as_it_is, Standing.IN_FORCE),
    "with the server's defaults": (
        matching(matchPolicy="Equivalent", namespaceSelector={}, objectSelector={}),
        as_it_is,
        Standing.IN_FORCE,
    ),
    "with other breaks of lines": (broken_anew, as_it_is, Standing.IN_FORCE),
    "nothing": (None, None, Standing.ABSENT),
    "no policy": (None, as_it_is, Standing.ABSENT),
    "no binding": (as_it_is, None, Standing.UNBOUND),
    "a binding for some claims": (as_it_is, spec(matchResources={"namespaceSelector": {"matchLabels": {"a": "b"}}}), Standing.UNBOUND),
    "a binding of another policy": (as_it_is, spec(policyName="another"), Standing.UNBOUND),
    "another mutation": (spec(mutations=[{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]), as_it_is, Standing.FOREIGN),
    "another condition": (spec(matchConditions=[{"name": "never", "expression": "false"}]), as_it_is, Standing.FOREIGN),
    "for some claims": (matching(objectSelector={"matchLabels": {"a": "b"}}), as_it_is, Standing.FOREIGN),
    "that refuses": (spec(failurePolicy="Fail"), as_it_is, Standing.FOREIGN),
}


@pytest.mark.parametrize(("policy", "binding", "standing"), STANDINGS.values(), ids=STANDINGS.keys())
def test_it_labels_claims_only_where_it_is_in_force(policy: Change | None, binding: Change | None, standing: Standing) -> None:
    cluster = installed(policy, binding)
    made = cluster.create(CLAIMS, claim("a"), namespace="default").obj
    assert claim_policy.standing(cluster.store) is standing
    assert (names.CLAIM_LABEL in made["metadata"].get("labels", {})) is (standing is Standing.IN_FORCE)


def test_the_stored_object_is_not_changed_by_a_trial() -> None:
    cluster = installed(as_it_is, as_it_is)
    before = cluster.create(CLAIMS, claim("a"), namespace="default").obj
    meta = {**before["metadata"], "annotations": {names.SELECTED_NODE: "n1"}}
    tried = cluster.replace(CLAIMS, before | {"metadata": meta}, name="a", namespace="default", dry_run=True).obj
    stored = cluster.get(CLAIMS, "a", namespace="default").obj
    labels = [item["metadata"]["labels"][names.CLAIM_LABEL] for item in (tried, stored)]
    assert labels == ["node.n1", "waiting"]
