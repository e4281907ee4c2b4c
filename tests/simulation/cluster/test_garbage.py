"""Dependents and their owners, and namespaces on their way out."""

from hack.sim.cluster import Cluster
from hack.sim.cluster.deletion import Options
from sidecar.kube.api import CAPACITIES, CONFIG_MAPS, MERGE_PATCH, NAMESPACES, PODS, VOLUMES, Resource
from sidecar.model.objects import Json
from tests.contract.objects import capacity, config_map, pod, volume
from tests.harness.cluster_tools import new_cluster, owned, refusal


def _make(cluster: Cluster, resource: Resource, body: Json, namespace: str = "default") -> Json:
    return cluster.create(resource, body, namespace=namespace).obj


def _there(cluster: Cluster, resource: Resource, name: str, namespace: str = "default") -> bool:
    return cluster.store.find(resource, name, namespace) is not None


def test_dependents_go_when_the_last_owner_has_gone() -> None:
    cluster = new_cluster()
    owners = [_make(cluster, CONFIG_MAPS, config_map(name)) for name in "ab"]
    _make(cluster, CAPACITIES, owned(capacity(name="c"), *owners))
    _make(cluster, CONFIG_MAPS, owned(config_map("grandchild"), cluster.get(CAPACITIES, "c", namespace="default").obj))
    cluster.delete(CONFIG_MAPS, "a", namespace="default")
    assert cluster.collect_garbage() == 0
    left = cluster.get(CAPACITIES, "c", namespace="default").obj["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in left] == ["b"]
    cluster.delete(CONFIG_MAPS, "b", namespace="default")
    assert cluster.collect_garbage() == 2
    assert not _there(cluster, CAPACITIES, "c") and not _there(cluster, CONFIG_MAPS, "grandchild")


def test_an_owner_made_anew_is_another() -> None:
    cluster = new_cluster()
    owner = _make(cluster, CONFIG_MAPS, config_map("a"))
    _make(cluster, CAPACITIES, owned(capacity(name="c"), owner))
    cluster.delete(CONFIG_MAPS, "a", namespace="default")
    _make(cluster, CONFIG_MAPS, config_map("a"))
    assert cluster.collect_garbage() == 1


def test_of_kinds_nobody_serves_nothing_is_said() -> None:
    cluster = new_cluster()
    stranger = {"apiVersion": "nobody.example/v1", "kind": "Thing", "metadata": {"name": "x", "uid": "u"}}
    _make(cluster, CAPACITIES, owned(capacity(name="c"), stranger))
    assert cluster.collect_garbage() == 0


def test_an_owner_may_wait_for_its_dependents_or_let_them_go() -> None:
    for propagation, left in (("Foreground", False), ("Orphan", True)):
        cluster = new_cluster()
        owner = _make(cluster, CONFIG_MAPS, config_map("a"))
        _make(cluster, CAPACITIES, owned(capacity(name="c"), owner))
        assert not cluster.delete(CONFIG_MAPS, "a", namespace="default", options=Options(propagation=propagation))[1]
        cluster.collect_garbage()
        assert not _there(cluster, CONFIG_MAPS, "a")
        assert _there(cluster, CAPACITIES, "c") is left


def test_a_dependent_with_finalizers_waits_for_them() -> None:
    cluster = new_cluster()
    owner = _make(cluster, VOLUMES, volume("owner"))
    child = owned(config_map("c"), owner)
    child["metadata"]["finalizers"] = ["example.io/a"]
    _make(cluster, CONFIG_MAPS, child)
    cluster.patch(VOLUMES, "owner", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    cluster.delete(VOLUMES, "owner")
    assert cluster.collect_garbage() == 0
    assert cluster.get(CONFIG_MAPS, "c", namespace="default").obj["metadata"]["deletionTimestamp"]


def test_a_namespace_goes_when_it_is_empty() -> None:
    cluster = new_cluster()
    cluster.create(NAMESPACES, {"metadata": {"name": "n"}})
    _make(cluster, CONFIG_MAPS, config_map("a"), "n")
    running = pod("p") | {"spec": pod("p")["spec"] | {"nodeName": "node"}}
    _make(cluster, PODS, running, "n")
    cluster.delete(NAMESPACES, "n")
    assert cluster.collect_garbage() == 1
    assert cluster.get(NAMESPACES, "n").obj["status"]["phase"] == "Terminating"
    cluster.delete(PODS, "p", namespace="n", options=Options(grace=0))
    cluster.collect_garbage()
    assert refusal(lambda: cluster.get(NAMESPACES, "n"))[:2] == (404, "NotFound")
