"""Published free space, beside what `tests/smoke/test_capacity.py` shows: it has an owner, passes between peer and program, and others'
is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import LATE, Json, OurDriver, Peer, Sidecar, all_of, claim, pod, storage_class
from sidecar.model import names
from sidecar.model.names import CAPACITY_DRIVER_LABEL, CAPACITY_MANAGER_LABEL
from tests.harness.cluster import (
    ACCOUNT,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    HOME,
    OWN_DAEMON_SETS,
    OWN_DEPLOYMENTS,
    OWN_PODS,
    PODS,
    Cluster,
    late,
    selected,
)

# Polling is what must not be needed for any of this.
PUBLISH = ("--enable-capacity", "--capacity-poll-interval=1h")


def publisher(driver: OurDriver, cluster: Cluster, *, level: int = -1, pod: str = "", namespace: str = "") -> Sidecar:
    environ = {"NAMESPACE": namespace or cluster.own_namespace, "POD_NAME": pod}
    return cluster.sidecar(driver, *PUBLISH, f"--capacity-ownerref-level={level}", environ=environ)


def managed(driver: OurDriver) -> dict[str, str]:
    """The labels by which peer and program know their own."""
    return {CAPACITY_DRIVER_LABEL: driver.driver, CAPACITY_MANAGER_LABEL: f"external-provisioner-{driver.node}"}


def own(cluster: Cluster, driver: OurDriver) -> list[Json]:
    return [item for item in cluster.items(CAPACITIES) if item["metadata"].get("labels") == managed(driver)]


def published(cluster: Cluster, driver: OurDriver) -> list[str]:
    return [item["capacity"] for item in own(cluster, driver)]


def await_published(cluster: Cluster, driver: OurDriver, *sizes: str) -> None:
    until(lambda: published(cluster, driver) == [*sizes], lambda: f"{sizes} is published: {published(cluster, driver)}")


def uids(objects: list[Json]) -> set[str]:
    return {item["metadata"]["uid"] for item in objects}


def take_a_gigabyte(cluster: Cluster, name: str, driver: OurDriver) -> None:
    cluster.create(CLAIMS, selected(name, late(driver)))
    cluster.bound(name)


# ---- the scheduler ----


@contextmanager
def nodes_with(cluster: Cluster, **sizes: str) -> Iterator[dict[str, OurDriver]]:
    """Nodes with pools of these sizes, each with its driver and its sidecar, all published."""
    drivers = {node: cluster.driver(node, pools={"main": size}) for node, size in sizes.items()}
    for node, driver in drivers.items():
        cluster.node(node, driver, capacity=True)
    with all_of([*drivers.values()]), all_of([publisher(driver, cluster) for driver in drivers.values()]):
        for node, driver in drivers.items():
            await_published(cluster, driver, sizes[node])
        yield drivers


def use(cluster: Cluster, name: str, driver: OurDriver, size: str) -> None:
    """A claim of that size and a pod that wants it."""
    cluster.create(CLAIMS, claim(name, late(driver), size=size))
    cluster.create(PODS, pod(name, name))


def runs(cluster: Cluster, name: str) -> None:
    until(lambda: cluster.phase(PODS, name) == "Running", f"{name} runs")


def refused(cluster: Cluster, name: str) -> None:
    """By its condition. Events may never say so: a scheduler that hears of the pod before its claim has another reason first, and of two
    events about one version of a pod only the first text is stored."""
    why = "did not have enough free storage"
    said = lambda: [one for one in cluster.get(PODS, name).get("status", {}).get("conditions", ()) if why in one.get("message", "")]  # noqa: E731
    until(said, f"the scheduler says why {name} waits")


def test_a_claim_larger_than_every_node_waits_and_freed_space_lets_another_through(cluster: Cluster) -> None:
    """No driver hears of the one. Freed space is published at once."""
    with nodes_with(cluster, n1="2Gi", n2="20Gi") as drivers:
        driver, begin = drivers["n2"], cluster.revision(CLAIMS)
        use(cluster, "huge", driver, "50Gi")
        refused(cluster, "huge")
        use(cluster, "filler", driver, "15Gi")
        runs(cluster, "filler")
        await_published(cluster, driver, "5Gi")
        use(cluster, "patient", driver, "10Gi")
        refused(cluster, "patient")
        since = cluster.revision(CAPACITIES)
        cluster.delete(PODS, "filler")
        cluster.delete(CLAIMS, "filler")
        runs(cluster, "patient")
        await_published(cluster, driver, "10Gi")
        assert "20Gi" in [event["object"]["capacity"] for event in cluster.history(CAPACITIES, since)]
        chosen: dict[str, set[str]] = {}
        for event in cluster.history(CLAIMS, begin):
            meta = event["object"]["metadata"]
            node = meta.get("annotations", {}).get(names.SELECTED_NODE)
            chosen.setdefault(meta["name"], set()).update({node} if node else ())
        assert chosen == {"huge": set(), "filler": {"n2"}, "patient": {"n2"}}
        assert drivers["n1"].recorded("CreateVolume") == []


# ---- owners ----


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[OurDriver]:
    """On a node that exists: pods of nodes that do not are collected."""
    with cluster.driver() as driver:
        cluster.node("n1", driver)
        yield driver


def workload(cluster: Cluster, path: str) -> Json:
    """A DaemonSet or a Deployment named plugin, of one pod."""
    labels = {"app": "plugin"}
    template = {"metadata": {"labels": labels}, "spec": {**pod("plugin")["spec"], "nodeSelector": {"kubernetes.io/hostname": "n1"}}}
    return cluster.create(path, {"metadata": {"name": "plugin"}, "spec": {"selector": {"matchLabels": labels}, "template": template}})


def pod_of_workload(cluster: Cluster, *, other_than: str = "") -> str:
    """Its name, once it runs."""

    def running() -> list[str]:
        pods = [item for item in cluster.items(f"{OWN_PODS}?labelSelector=app%3Dplugin") if item["metadata"]["name"] != other_than]
        return [item["metadata"]["name"] for item in pods if item["status"]["phase"] == "Running"]

    return until(running, "the pod runs")[0]


def owner(kind: str, obj: Json, api_version: str) -> Json:
    """As the owner of a capacity object: the controller, and nothing besides that would hold up its deletion."""
    meta = obj["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def may_get(cluster: Cluster, group: str, resource: str) -> bool:
    attributes = {"namespace": cluster.own_namespace, "verb": "get", "group": group, "resource": resource}
    review = {"spec": {"user": f"system:serviceaccount:{HOME}:{ACCOUNT}", "resourceAttributes": attributes}}
    return bool(cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


@pytest.mark.parametrize(
    ("level", "kind", "path"),
    [
        pytest.param(0, "Pod", OWN_DAEMON_SETS, id="C23-level-0"),
        pytest.param(1, "DaemonSet", OWN_DAEMON_SETS, id="C23-level-1"),
        pytest.param(2, "Deployment", OWN_DEPLOYMENTS, id="C23-level-2"),
    ],
)
def test_the_object_is_owned_by_what_the_level_says_and_goes_with_it(
    cluster: Cluster, driver: OurDriver, level: int, kind: str, path: str
) -> None:
    """The owner itself need not be readable; at level 2 the ReplicaSet in between is."""
    made = workload(cluster, path)
    name = pod_of_workload(cluster)
    expected = owner("Pod", cluster.get(OWN_PODS, name), "v1") if level == 0 else owner(kind, made, "apps/v1")
    assert not may_get(cluster, "apps", path.rpartition("/")[2])
    with publisher(driver, cluster, level=level, pod=name):
        await_published(cluster, driver, "100Gi")
        (item,) = own(cluster, driver)
        assert item["metadata"]["ownerReferences"] == [expected]
    cluster.delete(*((OWN_PODS, name) if level == 0 else (path, "plugin")))
    until(lambda: not own(cluster, driver), "the object is collected")


def test_C23_an_owner_that_cannot_be_found_is_named_in_one_line(cluster: Cluster, driver: OurDriver) -> None:
    """What is in the middle must be readable, and there. A finalizer keeps the garbage collector from taking the orphan away too."""
    cluster.create(OWN_PODS, pod("alone", nodeName="n1"))
    workload(cluster, OWN_DAEMON_SETS)
    orphan = pod("orphan", nodeName="n1")
    middle = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "0", "controller": True}
    orphan["metadata"] |= {"ownerReferences": [middle], "finalizers": ["example.com/stay"]}
    cluster.create(OWN_PODS, orphan)
    for level, name, namespace, words in (
        (1, "alone", "", ("alone has no controller",)),
        (2, pod_of_workload(cluster), "", ("daemonsets", "forbidden")),
        (2, "orphan", "", ('replicasets.apps "gone" not found',)),
        (0, "nobody", "", ('pods "nobody" not found', "POD_NAME", "NAMESPACE")),
        (0, "alone", "kube-system", ('in the namespace "kube-system"', "POD_NAME", "NAMESPACE")),
    ):
        with publisher(driver, cluster, level=level, pod=name, namespace=namespace) as sidecar:
            assert sidecar.wait() == 1
            (line,) = sidecar.records("EF")
            sidecar.log.unlink()
        for word in (f"--capacity-ownerref-level={level}", *words):
            assert word in line.replace('\\"', '"')
    assert cluster.items(CAPACITIES) == []


# ---- from the peer and back ----


def has_looked(sidecar: Sidecar, classes: int) -> bool:
    """Found the object of each class, and asked the driver what to compare it with."""
    if not sidecar.ready():
        return False
    asked = sidecar.metric("csi_sidecar_operations_seconds_count", method_name="/csi.v1.Controller/GetCapacity")
    return sidecar.metric("csistoragecapacities_desired_current") == classes and asked >= classes


def next_pod(cluster: Cluster, level: int) -> str:
    """Another image is put into the pod as it is, or the DaemonSet replaces the pod."""
    if level < 1:
        return "plugin-0"
    old = pod_of_workload(cluster)
    cluster.delete(OWN_PODS, old)
    return pod_of_workload(cluster, other_than=old)


@pytest.mark.parametrize("level", [-1, 0, 1])
def test_the_objects_pass_from_the_peer_to_ours_and_back(
    cluster: Cluster, driver: OurDriver, peer: Callable[..., Peer], level: int
) -> None:
    """The very same ones, one for each class at every moment, and always right. A class that binds at once has none."""
    too = f"too-{driver.driver}"
    cluster.create(CLASSES, storage_class(too, driver.driver, LATE))
    made = workload(cluster, OWN_DAEMON_SETS) if level == 1 else cluster.create(OWN_PODS, pod("plugin-0", nodeName="n1"))
    owners = {-1: [], 0: [owner("Pod", made, "v1")], 1: [owner("DaemonSet", made, "apps/v1")]}[level]
    with peer(level, next_pod(cluster, level)):
        await_published(cluster, driver, "100Gi", "100Gi")
    # It queues a class more than once while it starts, and may make a twin then, which it removes when its watch shows it, or not any more.
    one_each = {item["storageClassName"]: item["metadata"]["uid"] for item in own(cluster, driver)}
    for twin in [item["metadata"] for item in own(cluster, driver) if item["metadata"]["uid"] not in one_each.values()]:
        cluster.delete(CAPACITIES, twin["name"])
    before, begin = own(cluster, driver), cluster.revision(CAPACITIES)
    assert {item["storageClassName"] for item in before} == {late(driver), too}
    with publisher(driver, cluster, level=level, pod=next_pod(cluster, level)) as ours:
        until(lambda: has_looked(ours, 2), "ours has looked")
        assert {event["object"]["capacity"] for event in cluster.history(CAPACITIES, begin)} <= {"100Gi"}
        take_a_gigabyte(cluster, "through-ours", driver)
        await_published(cluster, driver, "99Gi", "99Gi")
    with peer(level, next_pod(cluster, level)):
        take_a_gigabyte(cluster, "through-the-peer", driver)
        await_published(cluster, driver, "98Gi", "98Gi")
    assert uids(own(cluster, driver)) == uids(before)
    events = cluster.history(CAPACITIES, begin)
    assert {event["type"] for event in events} == {"MODIFIED"}
    of_class = {item["metadata"]["uid"]: item["storageClassName"] for item in before}
    for item in (*before, *(event["object"] for event in events)):
        assert of_class[item["metadata"]["uid"]] == item["storageClassName"]
        assert item["metadata"]["labels"] == managed(driver)
        assert item["metadata"].get("ownerReferences", []) == owners
        assert item["nodeTopology"] == {"matchLabels": {driver.key: "n1"}}


@pytest.fixture
def peer(cluster: Cluster, driver: OurDriver, peer_binary: object) -> Callable[..., Peer]:
    def make(level: int, name: str) -> Peer:
        args, environ = (*PUBLISH, f"--capacity-ownerref-level={level}"), {"NAMESPACE": cluster.own_namespace, "POD_NAME": name}
        places = {"node": "n1", "address": driver.socket, "kubeconfig": cluster.role}
        return Peer(driver.log.parent, binary=peer_binary, args=args, environ=environ, **places)  # type: ignore[arg-type]

    return make


def test_C6_objects_that_the_peer_left_without_an_owner_get_one(cluster: Cluster, driver: OurDriver, peer: Callable[..., Peer]) -> None:
    made = cluster.create(OWN_PODS, pod("plugin-0", nodeName="n1"))
    with peer(-1, ""):
        await_published(cluster, driver, "100Gi")
    (before,) = own(cluster, driver)
    assert "ownerReferences" not in before["metadata"]
    with publisher(driver, cluster, level=0, pod="plugin-0"):
        until(lambda: own(cluster, driver)[0]["metadata"].get("ownerReferences"), "it has an owner")
        (after,) = own(cluster, driver)
    assert after["metadata"]["ownerReferences"] == [owner("Pod", made, "v1")]
    assert (after["metadata"]["uid"], after["capacity"]) == (before["metadata"]["uid"], "100Gi")


# ---- what others do ----


@pytest.fixture
def at_work(cluster: Cluster, driver: OurDriver) -> Iterator[Sidecar]:
    """It has published what is free, and knows that it has."""
    with publisher(driver, cluster) as sidecar:
        until(lambda: has_looked(sidecar, 1), "it has published")
        yield sidecar


def capacity_object(driver: OurDriver, labels: dict[str, str], **meta: str) -> Json:
    """For the same class and node as the program's own, with another figure."""
    return {
        "metadata": {"generateName": "csisc-", **meta, "labels": labels},
        "storageClassName": late(driver),
        "nodeTopology": {"matchLabels": {driver.key: "n1"}},
        "capacity": "7Gi",
    }


def test_C10_an_object_that_somebody_deletes_is_made_again(cluster: Cluster, driver: OurDriver, at_work: Sidecar) -> None:
    """Each time, and only one. What the next claim takes shows that nothing else was under way."""
    for number in range(2):
        (old,) = own(cluster, driver)
        begin = cluster.revision(CAPACITIES)
        cluster.delete(CAPACITIES, old["metadata"]["name"])
        until(lambda old=old: own(cluster, driver) and uids(own(cluster, driver)).isdisjoint(uids([old])), "it is made again")  # type: ignore[misc]
        take_a_gigabyte(cluster, f"data-{number}", driver)
        await_published(cluster, driver, f"{99 - number}Gi")
        assert [event["type"] for event in cluster.history(CAPACITIES, begin)] == ["DELETED", "ADDED", "MODIFIED"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({CAPACITY_DRIVER_LABEL: None, CAPACITY_MANAGER_LABEL: None}, id="C11-both-gone"),
        pytest.param({CAPACITY_MANAGER_LABEL: "external-provisioner-n2"}, id="C11-given-to-another-node"),
    ],
)
def test_objects_of_others_are_never_touched(cluster: Cluster, driver: OurDriver, at_work: Sidecar, change: Json) -> None:
    """One whose labels somebody takes, and one of nobody: the program makes itself another, and leaves both to them."""
    (old,) = own(cluster, driver)
    name = old["metadata"]["name"]
    foreign = cluster.create(CAPACITIES, capacity_object(driver, {}))["metadata"]["name"]
    lost = cluster.patch(CAPACITIES, name, {"metadata": {"labels": change}})
    await_published(cluster, driver, "100Gi")
    take_a_gigabyte(cluster, "data", driver)
    await_published(cluster, driver, "99Gi")
    cluster.delete(CLASSES, late(driver))
    until(lambda: not own(cluster, driver), "its own goes with its class")
    assert cluster.get(CAPACITIES, name) == lost
    assert cluster.get(CAPACITIES, foreign)["capacity"] == "7Gi"
