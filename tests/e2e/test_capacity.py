"""Published free space: the scheduler goes by it, it has an owner, it passes between peer and program, others' is left alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.patience import patient
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Peer, Sidecar, all_of, claim, pod, storage_class, within
from sidecar.model.names import CAPACITY_DRIVER_LABEL, CAPACITY_MANAGER_LABEL
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, DAEMON_SETS, DEPLOYMENTS, DRIVERS, PODS, Cluster

SELECTED = "volume.kubernetes.io/selected-node"
NO_ROOM = "did not have enough free storage"
# Polling is what must not be needed for any of this.
PUBLISH = ("--enable-capacity", "--capacity-poll-interval=1h")
# A second's pause is by design; the rest is for a machine that has other things to do too.
PROMPT = 3.0
# The scheduler looks at a pod again at the latest this long after what might help it has happened.
LONGEST_BACK_OFF = 10.0
# The peer queues a class more than once while it starts, and may make a twin then, which it removes when its watch shows it.
NO_MORE_TWINS = 1.0


def publisher(driver: OurDriver, cluster: Cluster, *, level: int = -1, pod: str = "", namespace: str = "default") -> Sidecar:
    args = [*PUBLISH, f"--capacity-ownerref-level={level}"]
    environ = {"NAMESPACE": namespace, "POD_NAME": pod}
    return Sidecar(driver.log.parent, node=driver.node, address=driver.socket, kubeconfig=cluster.role, args=args, environ=environ)


def managed(driver: OurDriver) -> dict[str, str]:
    """The labels by which peer and program know their own."""
    return {CAPACITY_DRIVER_LABEL: driver.driver, CAPACITY_MANAGER_LABEL: f"external-provisioner-{driver.node}"}


def own(cluster: Cluster, driver: OurDriver) -> list[Json]:
    return [item for item in cluster.items(CAPACITIES) if item["metadata"].get("labels") == managed(driver)]


def published(cluster: Cluster, driver: OurDriver) -> list[str]:
    return [item["capacity"] for item in own(cluster, driver)]


def uids(objects: list[Json]) -> set[str]:
    return {item["metadata"]["uid"] for item in objects}


def bound(cluster: Cluster, name: str) -> None:
    until(lambda: cluster.phase(CLAIMS, name) == "Bound", f"{name} is bound", seconds=30)


def take_a_gigabyte(cluster: Cluster, name: str, class_: str = "late") -> None:
    cluster.create(CLAIMS, claim(name, class_, annotations={SELECTED: "n1"}))
    bound(cluster, name)


# ---- the scheduler ----


@contextlib.contextmanager
def nodes_with(cluster: Cluster, work: Path, **sizes: str) -> Iterator[dict[str, OurDriver]]:
    """Nodes with pools of these sizes, each with its driver and its sidecar, all published."""
    drivers = {node: OurDriver(work, node=node, pools={"main": size}) for node, size in sizes.items()}
    name = next(iter(drivers.values())).driver
    cluster.create(DRIVERS, {"metadata": {"name": name}, "spec": {"storageCapacity": True, "attachRequired": False}})
    cluster.create(CLASSES, storage_class("late", name, LATE))
    for node, driver in drivers.items():
        cluster.plane.add_node(node, {driver.key: node})
        cluster.plane.add_csinode(node, name, node, [driver.key])
    with all_of([*drivers.values()]), all_of([publisher(driver, cluster) for driver in drivers.values()]):
        for node, driver in drivers.items():
            until(lambda: published(cluster, driver) == [sizes[node]], f"{node} has published", seconds=30)  # noqa: B023 - waited for here
        yield drivers


def use(cluster: Cluster, name: str, size: str, **spec: object) -> None:
    """A claim of that size and a pod that wants it."""
    cluster.create(CLAIMS, claim(name, "late", size=size))
    cluster.create(PODS, pod(name, name, **spec))


def runs(cluster: Cluster, name: str) -> bool:
    return cluster.phase(PODS, name) == "Running"


def refused(cluster: Cluster, name: str) -> bool:
    return any(event["reason"] == "FailedScheduling" and NO_ROOM in event["message"] for event in cluster.events(name))


def ever_selected(cluster: Cluster, since: str) -> dict[str, set[str]]:
    """Every node that ever was selected for a claim."""
    selected: dict[str, set[str]] = {}
    for event in cluster.history(CLAIMS, since):
        meta = event["object"]["metadata"]
        selected.setdefault(meta["name"], set()).update(filter(None, [meta.get("annotations", {}).get(SELECTED)]))
    return selected


def created(driver: OurDriver) -> set[str]:
    return {call["name"] for call in driver.recorded("CreateVolume")}


def volume_names(cluster: Cluster, *claims: str) -> set[str]:
    return {f"pvc-{cluster.get(CLAIMS, name)['metadata']['uid']}" for name in claims}


def test_a_claim_larger_than_what_a_node_publishes_never_meets_that_node(cluster: Cluster, tmp_path: Path) -> None:
    """Not even for a moment. What fits goes there."""
    big = [f"big-{number}" for number in range(4)]
    with nodes_with(cluster, tmp_path, n1="2Gi", n2="20Gi", n3="20Gi") as drivers:
        begin = cluster.revision(CLAIMS)
        for name in big:
            use(cluster, name, "5Gi")
        use(cluster, "small", "1Gi", nodeSelector={"kubernetes.io/hostname": "n1"})
        until(lambda: all(runs(cluster, name) for name in (*big, "small")), "all pods run", seconds=60)
        selected = ever_selected(cluster, begin)
        assert selected["small"] == {"n1"}
        for name in big:
            assert selected[name] <= {"n2", "n3"}
            assert cluster.get(PODS, name)["spec"]["nodeName"] in selected[name]
        assert created(drivers["n1"]) == volume_names(cluster, "small")


def test_a_claim_larger_than_every_node_stays_pending_and_no_driver_hears_of_it(cluster: Cluster, tmp_path: Path) -> None:
    """Others that come and go while it waits, and change what is published, do not get it through."""
    with nodes_with(cluster, tmp_path, n1="2Gi", n2="20Gi") as drivers:
        begin = cluster.revision(CLAIMS)
        use(cluster, "huge", "50Gi")
        until(lambda: refused(cluster, "huge"), "the pod is told why")
        use(cluster, "other", "5Gi")
        until(lambda: runs(cluster, "other"), "another pod runs", seconds=30)
        cluster.delete(PODS, "other")
        cluster.delete(CLAIMS, "other")
        until(lambda: drivers["n2"].recorded("DeleteVolume"), "and is gone", seconds=30)
        assert not within(LONGEST_BACK_OFF + 2, lambda: cluster.phase(PODS, "huge") != "Pending")
        assert ever_selected(cluster, begin) == {"huge": set(), "other": {"n2"}}
        assert created(drivers["n1"]) == set()
        assert volume_names(cluster, "huge").isdisjoint(created(drivers["n2"]))


def test_space_that_is_freed_is_published_at_once_and_lets_the_waiting_pod_through(cluster: Cluster, tmp_path: Path) -> None:
    with nodes_with(cluster, tmp_path, n1="2Gi", n2="20Gi") as drivers:
        driver = drivers["n2"]
        use(cluster, "filler", "15Gi")
        until(lambda: runs(cluster, "filler"), "the first pod runs", seconds=30)
        until(lambda: published(cluster, driver) == ["5Gi"], "what is left is published")
        use(cluster, "patient", "10Gi")
        until(lambda: refused(cluster, "patient"), "the second is told why it waits")
        begin = cluster.revision(CAPACITIES)
        cluster.delete(PODS, "filler")
        cluster.delete(CLAIMS, "filler")
        until(lambda: published(cluster, driver) in (["20Gi"], ["10Gi"]), "the freed space is published", seconds=30)
        seen, (deletion,) = time.time(), driver.recorded("DeleteVolume")
        assert seen - deletion["at"] < patient(PROMPT)
        until(lambda: runs(cluster, "patient"), "the second pod runs", seconds=LONGEST_BACK_OFF + 5)
        print(f"published {seen - deletion['at']:.1f} s after the deletion, the pod ran {time.time() - seen:.1f} s later")
        assert cluster.get(PODS, "patient")["spec"]["nodeName"] == "n2"
        assert "20Gi" in [event["object"]["capacity"] for event in cluster.history(CAPACITIES, begin)]
        until(lambda: published(cluster, driver) == ["10Gi"], "what is left now is published")


def test_without_topology_one_object_is_for_every_node_and_stays_it(cluster: Cluster, tmp_path: Path) -> None:
    """An object without any selector is for no node; the server keeps the one that selects all."""
    driver = OurDriver(tmp_path, node="n1", args=["--no-topology"])
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with driver:
        with publisher(driver, cluster):
            until(lambda: published(cluster, driver) == ["100Gi"], "it has published", seconds=30)
        begin, (before,) = cluster.revision(CAPACITIES), own(cluster, driver)
        with publisher(driver, cluster) as second:
            until(lambda: has_looked(second, 1), "it has looked", seconds=30)
            assert not within(1.5, lambda: bool(cluster.history(CAPACITIES, begin)))
    assert before["nodeTopology"] == {}
    assert uids(own(cluster, driver)) == uids([before])


# ---- owners ----


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Iterator[OurDriver]:
    """On a node that exists: pods of nodes that do not are collected."""
    with OurDriver(tmp_path, node="n1") as driver:
        cluster.plane.add_node("n1", {driver.key: "n1"})
        cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
        yield driver


def workload(cluster: Cluster, path: str) -> Json:
    """A DaemonSet or a Deployment named plugin, of one pod."""
    labels = {"app": "plugin"}
    template = {"metadata": {"labels": labels}, "spec": pod("plugin")["spec"]}
    return cluster.create(path, {"metadata": {"name": "plugin"}, "spec": {"selector": {"matchLabels": labels}, "template": template}})


def pod_of_workload(cluster: Cluster, *, other_than: str = "") -> str:
    """Its name, once it runs."""

    def running() -> list[str]:
        pods = [item for item in cluster.items(f"{PODS}?labelSelector=app%3Dplugin") if item["metadata"]["name"] != other_than]
        return [item["metadata"]["name"] for item in pods if item["status"]["phase"] == "Running"]

    return until(running, "the pod runs", seconds=30)[0]


def owner(kind: str, obj: Json, api_version: str) -> Json:
    """As the owner of a capacity object: the controller, and nothing besides that would hold up its deletion."""
    meta = obj["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def may_get(cluster: Cluster, group: str, resource: str) -> bool:
    attributes = {"namespace": "default", "verb": "get", "group": group, "resource": resource}
    review = {"spec": {"user": "system:serviceaccount:default:csi-provisioner", "resourceAttributes": attributes}}
    answer = cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(
    ("level", "kind", "path"),
    [
        pytest.param(0, "Pod", DAEMON_SETS, id="C23-level-0"),
        pytest.param(1, "DaemonSet", DAEMON_SETS, id="C23-level-1"),
        pytest.param(2, "Deployment", DEPLOYMENTS, id="C23-level-2"),
    ],
)
def test_the_object_is_owned_by_what_the_level_says_and_goes_with_it(
    cluster: Cluster, driver: OurDriver, level: int, kind: str, path: str
) -> None:
    """The owner itself need not be readable; at level 2 the ReplicaSet in between is."""
    made = workload(cluster, path)
    name = pod_of_workload(cluster)
    expected = owner("Pod", cluster.get(PODS, name), "v1") if level == 0 else owner(kind, made, "apps/v1")
    assert not may_get(cluster, "apps", path.rpartition("/")[2])
    with publisher(driver, cluster, level=level, pod=name):
        until(lambda: published(cluster, driver) == ["100Gi"], "published")
        (item,) = own(cluster, driver)
        assert item["metadata"]["ownerReferences"] == [expected]
    if level == 0:
        cluster.delete(PODS, name)
    else:
        cluster.delete(path, "plugin")
    until(lambda: not own(cluster, driver), "the object is collected", seconds=30)


def ends_for_want_of_an_owner(driver: OurDriver, cluster: Cluster, *words: str, level: int, pod: str, namespace: str = "default") -> None:
    with publisher(driver, cluster, level=level, pod=pod, namespace=namespace) as sidecar:
        assert sidecar.wait() == 1
        (line,) = sidecar.records("EF")
        for word in (f"--capacity-ownerref-level={level}", *words):
            assert word in line.replace('\\"', '"')
    assert cluster.items(CAPACITIES) == []


def test_C23_a_pod_without_controller_has_no_level_1(cluster: Cluster, driver: OurDriver) -> None:
    cluster.create(PODS, pod("alone", nodeName="n1"))
    ends_for_want_of_an_owner(driver, cluster, "alone has no controller", level=1, pod="alone")


def test_C23_a_daemon_set_has_no_level_2_for_want_of_rights(cluster: Cluster, driver: OurDriver) -> None:
    """What is in the middle must be readable; the message names it."""
    workload(cluster, DAEMON_SETS)
    ends_for_want_of_an_owner(driver, cluster, "daemonsets", "forbidden", level=2, pod=pod_of_workload(cluster))


def test_C23_level_2_fails_when_the_object_in_the_middle_is_gone(cluster: Cluster, driver: OurDriver) -> None:
    """A finalizer keeps the garbage collector from taking the pod away too."""
    middle = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "0", "controller": True}
    orphan = pod("orphan", nodeName="n1")
    orphan["metadata"] |= {"ownerReferences": [middle], "finalizers": ["example.com/stay"]}
    cluster.create(PODS, orphan)
    ends_for_want_of_an_owner(driver, cluster, 'replicasets.apps "gone" not found', level=2, pod="orphan")


@pytest.mark.parametrize(
    ("name", "namespace", "word"),
    [
        pytest.param("nobody", "default", 'pods "nobody" not found', id="C23-no-such-pod"),
        pytest.param("alone", "kube-system", 'in the namespace "kube-system"', id="C23-wrong-namespace"),
    ],
)
def test_a_pod_that_cannot_be_found_is_named(cluster: Cluster, driver: OurDriver, name: str, namespace: str, word: str) -> None:
    cluster.create(PODS, pod("alone", nodeName="n1"))
    ends_for_want_of_an_owner(driver, cluster, word, "POD_NAME", "NAMESPACE", level=0, pod=name, namespace=namespace)


# ---- from the peer and back ----


def has_looked(sidecar: Sidecar, classes: int) -> bool:
    """Found the object of each class, and asked the driver what to compare it with."""
    asked = sidecar.metric("csi_sidecar_operations_seconds_count", method_name="/csi.v1.Controller/GetCapacity")
    return sidecar.metric("csistoragecapacities_desired_current") == classes and asked >= classes


def has_settled(cluster: Cluster, driver: OurDriver, capacities: list[str]) -> bool:
    """These are published, and nothing else for a while after."""
    return published(cluster, driver) == capacities and not within(NO_MORE_TWINS, lambda: published(cluster, driver) != capacities)


def next_pod(cluster: Cluster, level: int) -> str:
    """Another image is put into the pod as it is, or the DaemonSet replaces the pod."""
    if level < 1:
        return "plugin-0"
    old = pod_of_workload(cluster)
    cluster.delete(PODS, old)
    return pod_of_workload(cluster, other_than=old)


@pytest.mark.parametrize("level", [-1, 0, 1])
def test_the_objects_pass_from_the_peer_to_ours_and_back(
    cluster: Cluster, driver: OurDriver, peer_binary: Path, tmp_path: Path, level: int
) -> None:
    """The very same ones, one for each class at every moment, and always right. A class that binds at once has none."""
    cluster.create(CLASSES, storage_class("late-too", driver.driver, LATE))
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    made = workload(cluster, DAEMON_SETS) if level == 1 else cluster.create(PODS, pod("plugin-0", nodeName="n1"))
    owners = {-1: [], 0: [owner("Pod", made, "v1")], 1: [owner("DaemonSet", made, "apps/v1")]}[level]

    def peer() -> Peer:
        args = (*PUBLISH, f"--capacity-ownerref-level={level}")
        environ = {"NAMESPACE": "default", "POD_NAME": next_pod(cluster, level)}
        places = {"node": "n1", "address": driver.socket, "kubeconfig": cluster.role}
        return Peer(tmp_path, binary=peer_binary, args=args, environ=environ, **places)

    def are_published(size: str) -> Callable[[], bool]:
        return lambda: published(cluster, driver) == [size, size]

    with peer():
        until(lambda: has_settled(cluster, driver, ["100Gi", "100Gi"]), "the peer publishes", seconds=30)
        before = own(cluster, driver)
        begin = cluster.revision(CAPACITIES)
    assert {item["storageClassName"] for item in before} == {"late", "late-too"}
    with publisher(driver, cluster, level=level, pod=next_pod(cluster, level)) as ours:
        until(lambda: has_looked(ours, 2), "ours has looked", seconds=30)
        assert {event["object"]["capacity"] for event in cluster.history(CAPACITIES, begin)} <= {"100Gi"}
        take_a_gigabyte(cluster, "through-ours")
        until(are_published("99Gi"), "ours publishes what is left", seconds=PROMPT)
    with peer():
        take_a_gigabyte(cluster, "through-the-peer")
        until(are_published("98Gi"), "the peer publishes what is left")
    assert uids(own(cluster, driver)) == uids(before)
    events = cluster.history(CAPACITIES, begin)
    assert {event["type"] for event in events} == {"MODIFIED"}
    of_class = {item["metadata"]["uid"]: item["storageClassName"] for item in before}
    for item in (*before, *(event["object"] for event in events)):
        assert of_class[item["metadata"]["uid"]] == item["storageClassName"]
        assert item["metadata"]["labels"] == managed(driver)
        assert item["metadata"].get("ownerReferences", []) == owners
        assert item["nodeTopology"] == {"matchLabels": {driver.key: "n1"}}


def test_C6_objects_that_the_peer_left_without_an_owner_get_one(
    cluster: Cluster, driver: OurDriver, peer_binary: Path, tmp_path: Path
) -> None:
    made = cluster.create(PODS, pod("plugin-0", nodeName="n1"))
    args, environ = (*PUBLISH, "--capacity-ownerref-level=-1"), {"NAMESPACE": "default"}
    with Peer(tmp_path, binary=peer_binary, node="n1", address=driver.socket, kubeconfig=cluster.role, args=args, environ=environ):
        until(lambda: has_settled(cluster, driver, ["100Gi"]), "the peer publishes", seconds=30)
    (before,) = own(cluster, driver)
    assert "ownerReferences" not in before["metadata"]
    with publisher(driver, cluster, level=0, pod="plugin-0"):
        until(lambda: own(cluster, driver)[0]["metadata"].get("ownerReferences"), "it has an owner")
        (after,) = own(cluster, driver)
    assert after["metadata"]["ownerReferences"] == [owner("Pod", made, "v1")]
    assert (after["metadata"]["uid"], after["capacity"]) == (before["metadata"]["uid"], "100Gi")


def test_an_object_stays_when_the_pod_that_owned_it_is_replaced(cluster: Cluster, driver: OurDriver) -> None:
    """At level 0: it has the new pod for its controller, and no longer the old one."""
    cluster.create(PODS, pod("old", nodeName="n1"))
    with publisher(driver, cluster, level=0, pod="old"):
        until(lambda: own(cluster, driver), "it has published", seconds=30)
    (before,) = own(cluster, driver)
    new = owner("Pod", cluster.create(PODS, pod("new", nodeName="n1")), "v1")
    with publisher(driver, cluster, level=0, pod="new"):
        until(lambda: new in own(cluster, driver)[0]["metadata"]["ownerReferences"], "the new pod owns it", seconds=30)
        cluster.delete(PODS, "old")
        until(lambda: own(cluster, driver)[0]["metadata"]["ownerReferences"] == [new], "and nobody else", seconds=30)
    assert uids(own(cluster, driver)) == uids([before])


def test_what_was_published_for_the_daemon_set_goes_with_the_pod_once_the_level_is_0(cluster: Cluster, driver: OurDriver) -> None:
    """Also what was published before: the node is gone, and the DaemonSet is not."""
    workload(cluster, DAEMON_SETS)
    name = pod_of_workload(cluster)
    with publisher(driver, cluster, level=1, pod=name):
        until(lambda: own(cluster, driver), "it has published", seconds=30)
    (before,) = own(cluster, driver)
    with publisher(driver, cluster, level=0, pod=name):
        mine = owner("Pod", cluster.get(PODS, name), "v1")
        until(lambda: own(cluster, driver)[0]["metadata"]["ownerReferences"] == [mine], "the pod owns it, and nobody else", seconds=30)
    assert uids(own(cluster, driver)) == uids([before])
    cluster.delete("/api/v1/nodes", driver.node)
    cluster.delete(PODS, name)
    until(lambda: not own(cluster, driver), "the object is collected", seconds=30)
    assert cluster.get(DAEMON_SETS, "plugin")


def test_at_level_0_a_pod_that_is_replaced_publishes_anew(cluster: Cluster, driver: OurDriver) -> None:
    """As a DaemonSet replaces it: the new one starts when the old one is gone. Until then nobody could make a volume either."""
    workload(cluster, DAEMON_SETS)
    old = pod_of_workload(cluster)
    with publisher(driver, cluster, level=0, pod=old):
        until(lambda: own(cluster, driver), "it has published", seconds=30)
    (before,) = own(cluster, driver)
    deleted = time.monotonic()
    cluster.delete(PODS, old)
    until(lambda: not own(cluster, driver), "the object is collected", seconds=30)
    collected = time.monotonic()
    new = pod_of_workload(cluster, other_than=old)
    with publisher(driver, cluster, level=0, pod=new) as sidecar:
        sidecar.until_ready()
        ready = time.monotonic()
        until(lambda: published(cluster, driver) == ["100Gi"], "it has published", seconds=PROMPT)
        anew = time.monotonic()
    print(f"collected {collected - deleted:.1f} s after the pod was deleted, published anew {anew - ready:.1f} s after it was ready")
    assert uids(own(cluster, driver)).isdisjoint(uids([before]))


# ---- what others do ----


@pytest.fixture
def at_work(cluster: Cluster, driver: OurDriver) -> Iterator[Sidecar]:
    """It has published what is free, and knows that it has."""
    with publisher(driver, cluster) as sidecar:
        until(lambda: has_looked(sidecar, 1), "it has published", seconds=30)
        yield sidecar


def capacity_object(driver: OurDriver, labels: dict[str, str], **meta: str) -> Json:
    """For the same class and node as the program's own, with another figure."""
    return {
        "metadata": {"generateName": "csisc-", **meta, "labels": labels},
        "storageClassName": "late",
        "nodeTopology": {"matchLabels": {driver.key: "n1"}},
        "capacity": "7Gi",
    }


def how_many(events: list[Json], living: set[str]) -> set[int]:
    """Every number of the program's own objects there was at any moment."""
    numbers = {len(living)}
    for event in events:
        uid = event["object"]["metadata"]["uid"]
        living = living - {uid} if event["type"] == "DELETED" else living | {uid}
        numbers.add(len(living))
    return numbers


def test_C10_an_object_that_somebody_deletes_is_made_again(cluster: Cluster, driver: OurDriver, at_work: Sidecar) -> None:
    """Each time, at once, and only one."""
    for _ in range(2):
        (old,) = own(cluster, driver)
        begin = cluster.revision(CAPACITIES)
        cluster.delete(CAPACITIES, old["metadata"]["name"])
        until(lambda: own(cluster, driver), "it is made again", seconds=PROMPT)
        (new,) = own(cluster, driver)
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        assert [new[key] for key in ("capacity", "nodeTopology", "storageClassName")] == ["100Gi", old["nodeTopology"], "late"]
        time.sleep(2)  # for what must not happen: another one
        assert [event["type"] for event in cluster.history(CAPACITIES, begin)] == ["DELETED", "ADDED"]


def test_C10_an_object_that_is_deleted_the_moment_it_was_made_is_made_again(cluster: Cluster, driver: OurDriver) -> None:
    """Later than usual: the program still waits for its own creation to show."""
    with publisher(driver, cluster):
        until(lambda: own(cluster, driver), "it has published", seconds=30)
        begin = cluster.revision(CAPACITIES)
        cluster.delete(CAPACITIES, own(cluster, driver)[0]["metadata"]["name"])
        until(lambda: published(cluster, driver) == ["100Gi"], "it is made again", seconds=20)
        time.sleep(2)
    assert [event["type"] for event in cluster.history(CAPACITIES, begin)] == ["DELETED", "ADDED"]


@pytest.mark.parametrize("name", [pytest.param("csisc-", id="C10-sorted-before"), pytest.param("csisc-zzzzzzzz", id="C10-sorted-after")])
def test_a_duplicate_that_somebody_makes_is_removed(cluster: Cluster, driver: OurDriver, at_work: Sidecar, name: str) -> None:
    """One is left, with the right figure, whichever of the two; there never is none, and a second duplicate goes as well."""
    begin, living = cluster.revision(CAPACITIES), uids(own(cluster, driver))
    for number in range(2):
        cluster.create(CAPACITIES, capacity_object(driver, managed(driver), name=f"{name.removesuffix('-')}-{number}"))
        until(lambda: published(cluster, driver) == ["100Gi"], "one is left, and right")
    assert not within(2, lambda: published(cluster, driver) != ["100Gi"])
    assert how_many(cluster.history(CAPACITIES, begin), living) == {1, 2}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({CAPACITY_DRIVER_LABEL: None, CAPACITY_MANAGER_LABEL: None}, id="C11-both-gone"),
        pytest.param({CAPACITY_DRIVER_LABEL: None}, id="C11-driver-gone"),
        pytest.param({CAPACITY_MANAGER_LABEL: "external-provisioner-n2"}, id="C11-given-to-another-node"),
    ],
)
def test_an_object_that_somebody_takes_the_labels_of_is_left_to_him(
    cluster: Cluster, driver: OurDriver, at_work: Sidecar, change: Json
) -> None:
    """The program makes itself another one, and never touches the first again."""
    (old,) = own(cluster, driver)
    name = old["metadata"]["name"]
    lost = cluster.patch(CAPACITIES, name, {"metadata": {"labels": change}})
    until(lambda: published(cluster, driver) == ["100Gi"], "there is another one", seconds=PROMPT)
    take_a_gigabyte(cluster, "data")
    until(lambda: published(cluster, driver) == ["99Gi"], "which is kept right", seconds=PROMPT)
    cluster.delete(CLASSES, "late")
    until(lambda: not own(cluster, driver), "and goes with its class")
    assert cluster.get(CAPACITIES, name) == lost


def test_objects_of_others_are_never_touched(cluster: Cluster, driver: OurDriver) -> None:
    """Of another driver, another node or nobody, though for the same class and place: at the start, at a change, when the class goes."""
    labels = managed(driver)
    foreign = [
        cluster.create(CAPACITIES, capacity_object(driver, item))
        for item in (
            labels | {CAPACITY_DRIVER_LABEL: "other.example.com"},
            labels | {CAPACITY_MANAGER_LABEL: "external-provisioner-n2"},
            labels | {CAPACITY_MANAGER_LABEL: "external-provisioner"},
            {},
        )
    ]
    with publisher(driver, cluster):
        until(lambda: published(cluster, driver) == ["100Gi"], "its own is made", seconds=30)
        take_a_gigabyte(cluster, "data")
        until(lambda: published(cluster, driver) == ["99Gi"], "its own is changed", seconds=PROMPT)
        cluster.delete(CLASSES, "late")
        until(lambda: not own(cluster, driver), "its own goes with the class")
    by_name = {item["metadata"]["name"]: item for item in cluster.items(CAPACITIES)}
    assert by_name == {item["metadata"]["name"]: bare(item) for item in foreign}


def bare(item: Json) -> Json:
    """As it stands in a list."""
    return {key: value for key, value in item.items() if key not in {"apiVersion", "kind"}}
