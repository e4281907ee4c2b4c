"""The simulated API server's verbs. What the contract suite holds against the real server is not repeated here."""

import pytest

from hack.sim.cluster.deletion import Options
from hack.sim.cluster.reading import Query
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CONFIG_MAPS, MERGE_PATCH, NAMESPACES, NODES, PODS, STRATEGIC_MERGE_PATCH, VOLUMES
from sidecar.model.objects import Json
from tests.contract.objects import capacity, claim, config_map, pod, storage_class, volume
from tests.harness.cluster_tools import T0, Clock, new_cluster, refusal


def _everything() -> list[Json]:
    cluster = new_cluster()
    cluster.create(CLAIMS, claim("a"), namespace="default")
    cluster.create(CAPACITIES, capacity(), namespace="default")
    cluster.patch(CLAIMS, "a", {"metadata": {"labels": {"x": "y"}}}, content_type=MERGE_PATCH, namespace="default")
    return [stored.obj for resource in (CLAIMS, CAPACITIES) for stored in cluster.list(resource, Query()).items]


def test_the_same_dice_give_the_same_world() -> None:
    assert _everything() == _everything()


def test_time_is_the_clock_s() -> None:
    made = new_cluster().create(CONFIG_MAPS, config_map("a"), namespace="default").obj
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_bodies_are_not_shared_with_those_who_hand_them_in() -> None:
    cluster, body = new_cluster(), config_map("a", x="1")
    cluster.create(CONFIG_MAPS, body, namespace="default")
    body["data"]["x"] = "2"
    assert cluster.get(CONFIG_MAPS, "a", namespace="default").obj["data"] == {"x": "1"}
    assert "uid" not in body["metadata"]


def test_what_a_claim_gets_by_itself() -> None:
    made = new_cluster().create(CLAIMS, claim("a", storage="1024Mi"), namespace="default").obj
    assert made["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert (made["spec"]["volumeMode"], made["status"]) == ("Filesystem", {"phase": "Pending"})
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


def test_what_a_volume_and_a_class_get_by_themselves() -> None:
    cluster = new_cluster()
    bare = volume("pv")
    del bare["spec"]["persistentVolumeReclaimPolicy"]
    made = cluster.create(VOLUMES, bare).obj
    assert (made["spec"]["persistentVolumeReclaimPolicy"], made["spec"]["volumeMode"]) == ("Retain", "Filesystem")
    assert made["status"] == {"phase": "Pending", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}
    body = storage_class("fast")
    del body["volumeBindingMode"]
    fast = cluster.create(CLASSES, body).obj
    assert (fast["reclaimPolicy"], fast["volumeBindingMode"]) == ("Delete", "Immediate")


def test_a_claim_without_a_class_gets_the_default_one() -> None:
    cluster, body = new_cluster(), claim("a")
    del body["spec"]["storageClassName"]
    default = storage_class("chosen")
    default["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    cluster.create(CLASSES, storage_class("other"))
    cluster.create(CLASSES, default)
    assert cluster.create(CLAIMS, body, namespace="default").obj["spec"]["storageClassName"] == "chosen"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"capacity": {}}, "spec.capacity: Required value"),
        ({"accessModes": []}, "spec.accessModes: Required value"),
        ({"csi": None}, "must specify a volume type"),
        ({"hostPath": {"path": "/x"}}, "may not specify more than 1 volume type"),
        ({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, "must have at least one node selector term"),
        ({"nodeAffinity": {}}, "must specify required node constraints"),
        ({"csi": {"driver": "d"}}, "spec.csi.volumeHandle: Required value"),
        ({"persistentVolumeReclaimPolicy": "x"}, 'Unsupported value: "x"'),
        ({"capacity": {"storage": "0"}}, "must be greater than zero"),
    ],
)
def test_volumes_that_cannot_be(spec: Json, message: str) -> None:
    body = volume("pv")
    code, reason, text = refusal(lambda: new_cluster().create(VOLUMES, body | {"spec": body["spec"] | spec}))
    assert (code, reason) == (422, "Invalid")
    assert text.startswith('PersistentVolume "pv" is invalid: ') and message in text


def test_a_claim_s_volume_is_set_once_and_its_size_grows_when_it_is_bound() -> None:
    cluster = new_cluster()
    made = cluster.create(CLAIMS, claim("a"), namespace="default").obj

    def put(body: Json, subresource: str = "", **spec: object) -> Json:
        body = body | {"spec": body["spec"] | spec}
        return cluster.replace(CLAIMS, body, name="a", namespace="default", subresource=subresource).obj

    named = put(made, volumeName="pv")
    assert "spec is immutable" in refusal(lambda: put(named, volumeName="other"))[2]
    larger = {"requests": {"storage": "2Gi"}}
    assert "spec is immutable" in refusal(lambda: put(named, resources=larger))[2]
    bound = put(named | {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}, "status")
    assert refusal(lambda: put(bound, resources=larger))[:2] == (403, "Forbidden")
    cluster.create(CLASSES, storage_class("fast") | {"allowVolumeExpansion": True})
    grown = put(bound, resources=larger)
    assert "less than status.capacity" in refusal(lambda: put(grown, resources={"requests": {"storage": "1Gi"}}))[2]


def test_what_is_not_its_own_a_path_leaves_alone() -> None:
    cluster = new_cluster()
    made = cluster.create(NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4000m"}}}).obj
    assert made["status"]["capacity"] == {"cpu": "4"}, "a kubelet brings its status along"
    both = {"spec": {"unschedulable": True}, "status": {"phase": "x"}}
    assert cluster.patch(NODES, "n", both, content_type=STRATEGIC_MERGE_PATCH).obj["status"] == made["status"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    patched = cluster.patch(
        NODES, "n", {"spec": {"unschedulable": False}, "status": ready}, content_type=STRATEGIC_MERGE_PATCH, subresource="status"
    )
    assert (patched.obj["spec"]["unschedulable"], patched.obj["status"]["conditions"]) == (True, ready["conditions"])


def test_a_new_node_is_tainted_until_somebody_says_it_is_ready() -> None:
    made = new_cluster().create(NODES, {"metadata": {"name": "n"}}).obj
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


def test_two_owners_cannot_both_control() -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "ab"]
    body = config_map("x")
    body["metadata"]["ownerReferences"] = owners
    assert "Only one reference can have Controller" in refusal(lambda: new_cluster().create(CONFIG_MAPS, body, namespace="default"))[2]


def test_a_pod_on_a_node_gets_its_time_and_a_second_deletion_can_only_shorten_it() -> None:
    clock = Clock()
    cluster = new_cluster(clock=clock)
    cluster.create(PODS, pod("p") | {"spec": pod("p")["spec"] | {"nodeName": "n"}}, namespace="default")

    def delete(grace: int | None = None) -> tuple[Json, bool]:
        stored, gone = cluster.delete(PODS, "p", namespace="default", options=Options(grace=grace))
        return stored.obj["metadata"], gone

    meta, gone = delete()
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"], gone) == ("2026-01-01T00:00:30Z", 30, False)
    assert delete(60)[0] == meta
    clock.now = T0 + 1
    assert delete(5)[0]["deletionTimestamp"] == "2026-01-01T00:00:06Z"
    assert delete(0)[1]
    assert refusal(lambda: cluster.get(PODS, "p", namespace="default"))[:2] == (404, "NotFound")


def test_a_pod_nobody_runs_goes_at_once() -> None:
    cluster = new_cluster()
    cluster.create(PODS, pod("p"), namespace="default")
    assert cluster.delete(PODS, "p", namespace="default")[1]


def test_binding_a_pod() -> None:
    cluster = new_cluster()
    cluster.create(PODS, pod("p"), namespace="default")
    cluster.post(PODS, "p", "binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}, namespace="default")
    assert cluster.get(PODS, "p", namespace="default").obj["spec"]["nodeName"] == "n"
    again = refusal(lambda: cluster.post(PODS, "p", "binding", {"target": {"name": "m"}}, namespace="default"))
    assert again[:2] == (409, "Conflict")


def test_the_first_namespaces_stay() -> None:
    assert refusal(lambda: new_cluster().delete(NAMESPACES, "default"))[:2] == (403, "Forbidden")


def test_a_trial_changes_nothing() -> None:
    cluster = new_cluster()
    before = cluster.revision
    cluster.create(CONFIG_MAPS, config_map("a"), namespace="default", dry_run=True)
    assert cluster.revision == before


def test_names_that_are_made_up_are_not_taken_twice() -> None:
    cluster = new_cluster()
    made = {cluster.create(CAPACITIES, capacity(), namespace="default").obj["metadata"]["name"] for _ in range(200)}
    assert len(made) == 200


def test_a_generation_counts_changes_of_the_spec() -> None:
    cluster = new_cluster()
    cluster.create(PODS, pod("p"), namespace="default")

    def generation(patch: Json) -> int:
        patched = cluster.patch(PODS, "p", patch, content_type=STRATEGIC_MERGE_PATCH, namespace="default")
        return int(patched.obj["metadata"]["generation"])

    assert generation({"metadata": {"labels": {"a": "b"}}}) == 1
    assert generation({"spec": {"containers": [{"name": "main", "image": "other"}]}}) == 2
    assert "pod updates may not change fields" in refusal(lambda: generation({"spec": {"nodeName": "n"}}))[2]
