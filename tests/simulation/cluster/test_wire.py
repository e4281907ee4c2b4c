"""What stands between the simulated API server and its clients: paths, roles, discovery, protobuf, tables."""

import json

import pytest
from hack.sim.cluster.http import discovery, tables
from hack.sim.cluster.http.protobuf import as_json
from hypothesis import given
from hypothesis import strategies as st

from hack.sim.cluster import Refused
from hack.sim.cluster.access import ADMIN, ANONYMOUS, Access, User, Wish, service_account
from hack.sim.cluster.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, TABLE
from hack.sim.cluster.reading import Query
from hack.sim.cluster.routes import NoPath, Target, target
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES, PODS
from tests.contract.objects import claim, pod
from tests.harness.cluster_tools import new_cluster, refusal


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/namespaces", Target(NAMESPACES, "list")),
        ("GET", "/api/v1/namespaces/a/", Target(NAMESPACES, "get", name="a")),
        ("PUT", "/api/v1/namespaces/a/finalize", Target(NAMESPACES, "update", name="a", subresource="finalize")),
        ("GET", "/api/v1/namespaces/a/pods", Target(PODS, "list", "a")),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", Target(PODS, "create", "a", "p", "eviction")),
        ("GET", "/api/v1/persistentvolumeclaims", Target(CLAIMS, "list")),
        ("DELETE", "/apis/storage.k8s.io/v1/storageclasses", Target(CLASSES, "deletecollection")),
        ("PATCH", "/api/v1/namespaces/a/pods/x%20y/status", Target(PODS, "patch", "a", "x y", "status")),
    ],
)
def test_paths(method: str, path: str, expected: Target) -> None:
    assert target(method, path, {}, TABLE) == expected


@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
    parts=st.lists(
        st.sampled_from(["api", "apis", "v1", "apps", "namespaces", "pods", "nodes", "status", "x", "..", "", "%2F"]), max_size=8
    ),
)
def test_any_path_is_a_target_a_refusal_or_nowhere(method: str, parts: list[str]) -> None:
    try:
        found = target(method, "/" + "/".join(parts), {}, TABLE)
    except NoPath:
        return
    except Refused as refused:
        assert refused.code in (400, 404, 405)
        return
    assert found.resource in {kind.resource for kind in TABLE}
    assert not found.namespace or found.resource.namespaced


def test_every_kind_is_discovered() -> None:
    for kind in TABLE:
        folder = "api" if not kind.resource.group else "apis"
        document = discovery.document(f"/{folder}/{kind.resource.api_version}", TABLE)
        assert document is not None
        assert kind.resource.plural in [entry["name"] for entry in document["resources"]]


def _rights() -> Access:
    cluster = new_cluster()
    read = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"]}
    evict = {"verbs": ["*"], "apiGroups": [""], "resources": ["pods/eviction"]}
    for resource, namespace in ((ROLES, "default"), (CLUSTER_ROLES, "")):
        cluster.create(resource, {"metadata": {"name": "reader"}, "rules": [read]}, namespace=namespace)
    cluster.create(CLUSTER_ROLES, {"metadata": {"name": "evictor"}, "rules": [evict]})
    jane = {"kind": "User", "name": "jane"}
    account = {"kind": "ServiceAccount", "name": "a", "namespace": "default"}
    role, cluster_role = {"kind": "Role", "name": "reader"}, {"kind": "ClusterRole", "name": "evictor"}
    cluster.create(ROLE_BINDINGS, {"metadata": {"name": "r"}, "subjects": [jane], "roleRef": role}, namespace="default")
    cluster.create(ROLE_BINDINGS, {"metadata": {"name": "e"}, "subjects": [account], "roleRef": cluster_role}, namespace="default")
    team = {"kind": "Group", "name": "team"}
    cluster.create(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": "c"}, "subjects": [team], "roleRef": cluster_role | {"name": "reader"}})
    return Access(cluster.store)


JANE, TEAM = User("jane"), User("joe", ("team",))


@pytest.mark.parametrize(
    ("user", "wish", "may"),
    [
        (JANE, Wish(verb="get", resource="pods", namespace="default", name="p"), True),
        (JANE, Wish(verb="get", resource="pods", namespace="default", name="other"), False),
        (JANE, Wish(verb="get", resource="pods", namespace="kube-system", name="p"), False),
        (JANE, Wish(verb="delete", resource="pods", namespace="default", name="p"), False),
        (JANE, Wish(verb="get", group="apps", resource="pods", namespace="default", name="p"), False),
        (TEAM, Wish(verb="get", resource="pods", namespace="kube-system", name="p"), True),
        (service_account("default", "a"), Wish(verb="create", resource="pods/eviction", namespace="default", name="p"), True),
        (service_account("default", "a"), Wish(verb="create", resource="pods/eviction", namespace="kube-system"), False),
        (service_account("other", "a"), Wish(verb="create", resource="pods/eviction", namespace="default"), False),
        (ANONYMOUS, Wish(verb="get", path="/version"), True),
        (ANONYMOUS, Wish(verb="get", path="/api"), False),
        (JANE, Wish(verb="get", path="/api"), True),
        (JANE, Wish(verb="post", path="/version"), False),
        (ADMIN, Wish(verb="delete", resource="nodes"), True),
    ],
    ids=str,
)
def test_roles(user: User, wish: Wish, may: bool) -> None:
    if may:
        _rights().demand(user, wish)
    else:
        assert refusal(lambda: _rights().demand(user, wish))[:2] == (403, "Forbidden")


def test_without_tokens_everybody_is_the_admin() -> None:
    access = _rights()
    assert access.user(None) == ADMIN
    access.add("secret", JANE)
    assert access.user(None) == ANONYMOUS
    assert access.user("Bearer secret") == JANE
    assert refusal(lambda: access.user("Bearer other"))[:2] == (401, "Unauthorized")


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def _packed(kind: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + _field(1, _field(1, b"v1") + _field(2, kind)) + _field(2, raw) + _field(4, b"")


def test_what_kubectl_sends_as_protobuf() -> None:
    labels = _field(11, _field(1, b"a") + _field(2, b"b"))
    meta = _field(1, _field(1, b"p") + _field(2, b"") + labels)
    assert as_json(_packed(b"Eviction", meta + _field(2, _field(1, 5)))) == {
        "apiVersion": "v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "deleteOptions": {"gracePeriodSeconds": 5},
    }
    assert refusal(lambda: as_json(_packed(b"Pod", meta)))[:2] == (415, "UnsupportedMediaType")


@given(raw=st.binary(max_size=60))
def test_protobuf_that_is_broken(raw: bytes) -> None:
    for data in (b"k8s\x00" + raw, _packed(b"Eviction", raw)):
        try:
            as_json(data)
        except (ValueError, Refused):
            pass


def test_tables_of_what_is_there() -> None:
    cluster = new_cluster()
    cluster.create(CLAIMS, claim("a"), namespace="default")
    cluster.create(PODS, pod("p"), namespace="default")
    for kind in TABLE:
        objects = [item.obj for item in cluster.list(kind.resource, Query()).items]
        table = json.loads(tables.table(kind.resource, objects, {}, now="2026-01-01T03:00:00Z"))
        assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])
        assert all(row["cells"][-1] == "3h" for row in table["rows"])
