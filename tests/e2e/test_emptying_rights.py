"""deploy/components/emptying on a real API server: an eviction names the judged pod and takes nothing of its grace period."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane
from hack.lib.programs import Json
from sidecar.eviction.attempt_io import body
from sidecar.eviction.rules import May
from tests.deploy.manifests import DEPLOY
from tests.harness.policies import Abuse, Secured, allowed, built, create, in_force, secured

APPS = "/api/v1/namespaces/default/pods"
EVICTION = f"{APPS}/evicted/eviction"


@pytest.fixture(scope="module")
def uid(cluster: Secured) -> str:
    pod = {"metadata": {"name": "evicted"}, "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}}
    return str(cluster.make(APPS, pod)["metadata"]["uid"])


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    overlay = built(tmp_path_factory.mktemp("overlay"), "drain", "emptying")
    with secured(plane, overlay) as made:
        pod = {"metadata": {"name": "first"}, "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "none"}]}}
        made.make(APPS, pod)
        in_force(create(f"{APPS}/first/eviction", eviction("first", preconditions={"uid": "x"})), made.nobody, "bound to no pod")
        yield made


def eviction(name: str = "evicted", **options: Any) -> Json:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def test_what_the_program_sends_is_let_through(cluster: Secured, uid: str) -> None:
    sent = body(May("default", "evicted", uid))
    allowed(create(EVICTION, sent), cluster.n1)
    Abuse(create(EVICTION, sent), "bound to no pod").check(cluster, cluster.nobody)


def test_what_the_policy_cannot_see_is_told_in_the_readme(cluster: Secured, uid: str) -> None:
    """On which node the pod is, and whose."""
    allowed(create(EVICTION, body(May("default", "evicted", uid))), cluster.n2)
    told = (DEPLOY / "components/own-node/README.md").read_text()
    assert "| pods of other nodes, as far as their budgets allow: a policy does not see where a pod runs |" in told


def test_an_eviction_of_whatever_pod_has_the_name(cluster: Secured, uid: str) -> None:
    for options in ({}, {"preconditions": {}}, {"preconditions": {"resourceVersion": "0"}}):
        code, said, broken = create(EVICTION, eviction(**options)).by(cluster.n1)
        assert code == 422 and "the one that it has judged" in said and len(broken) == 1, (code, said, broken)
    bare = {key: value for key, value in eviction().items() if key != "deleteOptions"}
    Abuse(create(EVICTION, bare), "the one that it has judged").check(cluster, cluster.n1)


@pytest.mark.parametrize("seconds", [0, 1, 3600])
def test_an_eviction_with_another_grace_period(cluster: Secured, uid: str, seconds: int) -> None:
    Abuse(create(EVICTION, eviction(preconditions={"uid": uid}, gracePeriodSeconds=seconds)), "its own grace period").check(
        cluster, cluster.n1
    )


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"propagationPolicy": "Foreground"}, {"orphanDependents": True}])
def test_an_eviction_that_leaves_something_behind(cluster: Secured, uid: str, options: Json) -> None:
    """Without its pod a generic ephemeral claim would stay for ever, and its volume on the node."""
    Abuse(create(EVICTION, eviction(preconditions={"uid": uid}, **options)), "go with it").check(cluster, cluster.n1)


def test_no_pod_is_deleted(cluster: Secured, uid: str) -> None:
    """The role does not allow it."""
    code, _ = cluster.n1.ask("DELETE", f"{APPS}/evicted?dryRun=All")
    assert code == 403
