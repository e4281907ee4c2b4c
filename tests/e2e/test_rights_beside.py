"""What the token of one node's sidecar can do beside volumes and claims: events, capacity, snapshots. As in `test_rights`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from hack.parities import crds
from sidecar.kube.api import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE
from tests.harness.persons import person_on
from tests.harness.policies import Abuse, Secured, allowed, create, delete, in_force, patch, put, secured
from tests.harness.policy_samples import FOREIGN, OWNER, event, space


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[Secured]:
    with secured(plane, DEPLOY / "overlays" / "own-node") as made:
        yield made


# --- events -----------------------------------------------------------------------------------------------------------

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def events(cluster: Secured) -> Secured:
    for obj in (event("mine.1"), event("theirs.1", node="n2"), event("foreign.1", driver=FOREIGN)):
        cluster.make(EVENTS, obj)
    in_force(create(EVENTS, event()), cluster.nobody, "bound to no pod")
    return cluster


def source(component: str = f"{DRIVER}_x", host: str = "n1") -> Json:
    return {"source": {"component": component, "host": host}}


def with_meta(obj: Json, **meta: Any) -> Json:
    return {**obj, "metadata": {**obj["metadata"], **meta}}


TELLING: dict[str, tuple[Json, str]] = {
    "as the kubelet": (event(reportingComponent="kubelet"), "in its own name only"),
    "as the kubelet, by the old field": (event(**source("kubelet")), "in its own name only"),
    "as a driver whose name begins like its own": (event(driver=f"{DRIVER}.example"), "in its own name only"),
    "from another node": (event(reportingInstance="n2"), "from that node only"),
    "from another node, by the old field": (event(**source(host="n2")), "from that node only"),
    "from nowhere": (event(reportingInstance=""), "from that node only"),
    "about anything": (event(about={"kind": "Secret"}), "about claims, PersistentVolumes and nodes, and"),
    "about a pod, as the kubelet might": (event(about={"kind": names.POD}, reason="Killing"), "that it has to do with"),
    # Nobody could delete the namespace of the first, nor wait for the deletion of the owner of the second.
    "with a finalizer": (with_meta(event(), finalizers=["a.b/c"]), "neither finalizers nor an owner"),
    "with an owner": (with_meta(event(), ownerReferences=[OWNER]), "neither finalizers nor an owner"),
}


@pytest.mark.parametrize(("obj", "says"), TELLING.values(), ids=TELLING.keys())
def test_no_event_is_told(events: Secured, obj: Json, says: str) -> None:
    Abuse(create(EVENTS, obj), says).check(events, events.n1)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("theirs.1", {"reportingInstance": "n1", **source()}),
        ("foreign.1", {"reportingComponent": f"{DRIVER}_x", **source()}),
    ],
)
def test_no_event_of_others_is_told_anew(events: Secured, name: str, change: Json) -> None:
    says = "counts up events that it has written itself"
    Abuse(patch(f"{EVENTS}/{name}", {"count": 7, "message": "not so", **change}), says).check(events, events.n1)


def test_no_event_is_turned_to_another_object(events: Secured) -> None:
    change = {"involvedObject": {**event()["involvedObject"], "name": "another"}}
    Abuse(patch(f"{EVENTS}/mine.1", change), "about the same object").check(events, events.n1)


def test_its_own_events_are_told_and_counted(events: Secured) -> None:
    count = patch(f"{EVENTS}/mine.1", {"count": 2, "message": "and so"}, content_type=STRATEGIC_MERGE_PATCH)
    for request in (create(EVENTS, event()), count):
        allowed(request, events.n1)
        Abuse(request, "bound to no pod of a node").check(events, events.nobody)


OF_PODS = (names.POD_EVICTED, names.REPLICA_READY, names.POD_FAILED_OVER, names.FAILOVER_BLOCKED)


@pytest.mark.parametrize(("kind", "reason"), [*((names.POD, reason) for reason in OF_PODS), (names.ATTACHMENT, names.VOLUME_DETACHED)])
def test_of_pods_and_attachments_is_told_what_the_program_does_with_them(events: Secured, kind: str, reason: str) -> None:
    allowed(create(EVENTS, event(about={"kind": kind}, reason=reason)), events.n1)
    other = names.VOLUME_DETACHED if kind == names.POD else names.POD_EVICTED
    Abuse(create(EVENTS, event(about={"kind": kind}, reason=other)), "that it has to do with").check(events, events.n1)


def test_no_event_is_deleted(events: Secured) -> None:
    Abuse(delete(f"{EVENTS}/mine.1"), "deletes no events").check(events, events.n1)


def test_the_other_door_to_events_is_no_way_round(events: Secured) -> None:
    new = {
        "metadata": {"name": "new.1", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Told",
        "reason": "Told",
        "type": "Normal",
        "reportingController": "kubelet",
        "reportingInstance": "n1",
        "regarding": {"kind": names.CLAIM, "namespace": "default", "name": "x"},
    }
    until(lambda: create(NEW_EVENTS, new).by(events.unrestricted)[0] == 201, "the right is given")
    code, said, _ = create(NEW_EVENTS, new).by(events.n1)
    assert code == 422 and "in its own name only" in said


# --- capacity ---------------------------------------------------------------------------------------------------------

CAPACITIES = f"/apis/storage.k8s.io/v1/namespaces/{NAMESPACE}/csistoragecapacities"
LONG = f"{'a-node-with-a-name-of-some-length.' * 2}example.com"


@pytest.fixture(scope="module")
def capacities(cluster: Secured) -> Secured:
    for obj in (space("mine"), space("theirs", "n2"), space("foreign", driver=FOREIGN), space("former", topology="former-name")):
        cluster.make(CAPACITIES, obj)
    in_force(create(CAPACITIES, space()), cluster.nobody, "bound to no pod")
    return cluster


PUBLISHING: dict[str, tuple[Json, str]] = {
    "of another node": (space(node="n2"), "on that node only"),
    "of another node in its own name": (space(topology="n2"), "no label of this nodeTopology names it"),
    "of all nodes": ({**space(), "nodeTopology": {}}, "no label of this nodeTopology names it"),
    "of another driver": (space(driver=FOREIGN), "on that node only"),
    "without labels": (space(labels={}), "on that node only"),
    "with a finalizer": (space(finalizers=["a.b/c"]), "no finalizers"),
}


@pytest.mark.parametrize(("obj", "says"), PUBLISHING.values(), ids=PUBLISHING.keys())
def test_no_capacity_is_published(capacities: Secured, obj: Json, says: str) -> None:
    Abuse(create(CAPACITIES, obj), says).check(capacities, capacities.n1)


@pytest.mark.parametrize("name", ["theirs", "foreign"])
def test_no_capacity_of_others_is_changed_or_deleted(capacities: Secured, name: str) -> None:
    for request in (
        delete(f"{CAPACITIES}/{name}"),
        patch(f"{CAPACITIES}/{name}", {"capacity": "0"}),
        patch(f"{CAPACITIES}/{name}", {"metadata": {"labels": space()["metadata"]["labels"]}}),
        patch(f"{CAPACITIES}/{name}", {"metadata": {"ownerReferences": [OWNER]}}),
    ):
        Abuse(request, "on that node only").check(capacities, capacities.n1)


def test_its_own_capacity_is_published_and_withdrawn(capacities: Secured) -> None:
    for request in (
        create(CAPACITIES, space()),
        patch(f"{CAPACITIES}/mine", {"capacity": "2Gi"}),
        delete(f"{CAPACITIES}/mine"),
        delete(f"{CAPACITIES}/former"),
    ):
        allowed(request, capacities.n1)
        Abuse(request, "bound to no pod").check(capacities, capacities.nobody)


@pytest.mark.parametrize("name", ["n" * 43, LONG[:60]], ids=["its base is shortened", "it is shortened to a hash"])
def test_a_node_with_a_long_name_publishes_too(capacities: Secured, name: str) -> None:
    capacities.plane.add_node(name)
    try:
        allowed(create(CAPACITIES, space(node=name)), person_on(capacities.plane, name))
        assert create(CAPACITIES, space(node=name)).by(capacities.n1)[0] == 422
    finally:
        capacities.plane.request("DELETE", f"/api/v1/nodes/{name}")


# --- snapshots --------------------------------------------------------------------------------------------------------

SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots"


@pytest.fixture(scope="module")
def snapshots(cluster: Secured) -> Iterator[Secured]:
    types = next(file for file in crds.manifests() if file.stem.endswith("_volumesnapshots")).read_text()
    cluster.plane.apply(types)
    until(lambda: cluster.plane.serves(SNAPSHOTS), "snapshots are served")
    kept = {"name": "kept", "labels": {"team": "a"}, "finalizers": ["example.com/backup"]}
    source = {"source": {"persistentVolumeClaimName": "x"}, "volumeSnapshotClassName": "c"}
    cluster.make(SNAPSHOTS, {"apiVersion": f"{names.SNAPSHOT_GROUP}/v1", "kind": "VolumeSnapshot", "metadata": kept, "spec": source})
    in_force(put(f"{SNAPSHOTS}/kept", protect), cluster.nobody, "bound to no pod")
    yield cluster
    path = cluster.made.pop()
    cluster.plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    cluster.plane.kubectl("delete", "-f", "-", input=types)


def protect(obj: Json) -> None:
    obj["metadata"]["finalizers"] = [*obj["metadata"]["finalizers"], names.SNAPSHOT_FINALIZER]


def meta(**changes: Any) -> Callable[[Json], None]:
    return lambda obj: obj["metadata"].update(changes)


def respecify(obj: Json) -> None:
    obj["spec"]["volumeSnapshotClassName"] = "another"


APPLIED = {
    "manager": "gitops",
    "operation": "Apply",
    "apiVersion": f"{names.SNAPSHOT_GROUP}/v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}},
}
CHANGING: dict[str, tuple[Callable[[Json], None], str]] = {
    "spec": (respecify, "but its own finalizer"),
    "label": (meta(labels={"team": "b"}), "but its own finalizer"),
    "annotation": (meta(annotations={"a": "b"}), "but its own finalizer"),
    # The garbage collector deletes what has no owner any more.
    "owner": (meta(ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "x"}]), "but its own finalizer"),
    "finalizer of others": (meta(finalizers=[]), "no finalizer of a snapshot"),
    "another finalizer": (meta(finalizers=["example.com/backup", "a.b/c"]), "no finalizer of a snapshot"),
    "fields that somebody applies": (meta(managedFields=[APPLIED]), "those who apply it own"),
}


@pytest.mark.parametrize(("change", "says"), CHANGING.values(), ids=CHANGING.keys())
def test_of_a_snapshot_nothing_is_changed(snapshots: Secured, change: Callable[[Json], None], says: str) -> None:
    Abuse(put(f"{SNAPSHOTS}/kept", change), says).check(snapshots, snapshots.n1)


def test_but_its_protection(snapshots: Secured) -> None:
    allowed(put(f"{SNAPSHOTS}/kept", protect), snapshots.n1)
    Abuse(put(f"{SNAPSHOTS}/kept", protect), "bound to no pod").check(snapshots, snapshots.nobody)
