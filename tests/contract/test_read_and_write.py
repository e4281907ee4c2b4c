"""Create, get, list, replace: names, versions, conflicts, and what the server adds by itself."""

import json

import pytest

from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CONFIG_MAPS, NAMESPACES, PODS, VOLUMES, KubeApi
from sidecar.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from sidecar.model import names
from sidecar.model.label_syntax import flaw_of_label
from sidecar.model.objects import Claim
from tests.contract.objects import capacity, claim, config_map, storage_class, volume

_63 = "a" * 63
PLACES = [
    ("node", "n1", True), ("node", "", True), ("A_b.c-1", "1.b_C-2", True), (_63, _63, True), (f"a.example.com/{_63}", "0", True),
    ("a" * 253 + "/a", "0", True), ("a" * 254 + "/a", "0", False), ("", "0", False), ("a/", "0", False), ("/a", "0", False),
    ("a/b/c", "0", False), ("a b", "0", False), ("-a", "0", False), (f"a{_63}", "0", False), ("Example.com/a", "0", False),
    ("node", f"a{_63}", False), ("node", "a b", False), ("node", "-a", False), ("node", "ä", False), ("node", "a\n", False),
]  # fmt: skip


async def test_create_returns_the_object_as_stored(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    assert made["metadata"]["uid"] and made["metadata"]["resourceVersion"] and made["metadata"]["creationTimestamp"]
    assert made["metadata"]["namespace"] == namespace
    assert made == await api.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_a_name_is_given_once(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(AlreadyExists, match=rf'create configmaps {namespace}/a: configmaps "a" already exists'):
        await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)


async def test_generate_name_gives_different_names(api: KubeApi, namespace: str) -> None:
    made = [await api.create(CAPACITIES, capacity(), namespace=namespace) for _ in range(3)]
    found = {each["metadata"]["name"] for each in made}
    assert len(found) == 3
    assert all(name.startswith("csisc-") and len(name) > len("csisc-") for name in found)


async def test_what_is_not_there_is_not_found(api: KubeApi, namespace: str) -> None:
    with pytest.raises(NotFound, match=f"get persistentvolumeclaims {namespace}/none: .* not found"):
        await api.get(CLAIMS, "none", namespace=namespace)
    with pytest.raises(NotFound):
        await api.replace(CONFIG_MAPS, config_map("none"), name="none", namespace=namespace)
    with pytest.raises(NotFound):
        await api.patch(CONFIG_MAPS, "none", {"data": {}}, content_type="application/merge-patch+json", namespace=namespace)
    with pytest.raises(NotFound):
        await api.delete(CONFIG_MAPS, "none", namespace=namespace)


async def test_a_namespace_must_exist_first(api: KubeApi) -> None:
    with pytest.raises(NotFound, match="namespaces"):
        await api.create(CONFIG_MAPS, config_map("a"), namespace="contract-never-made")


async def test_a_body_for_another_namespace_is_refused(api: KubeApi, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["namespace"] = "default"
    with pytest.raises(BadRequest, match="namespace"):
        await api.create(CONFIG_MAPS, body, namespace=namespace)


async def test_objects_that_break_a_rule_are_invalid(api: KubeApi, namespace: str) -> None:
    with pytest.raises(Invalid, match="Not_A_Name"):
        await api.create(CONFIG_MAPS, config_map("Not_A_Name"), namespace=namespace)
    broken = claim("a")
    broken["spec"]["accessModes"] = []
    with pytest.raises(Invalid, match="accessModes"):
        await api.create(CLAIMS, broken, namespace=namespace)


async def test_what_is_no_object_of_this_kind_is_a_bad_request(api: KubeApi, namespace: str) -> None:
    with pytest.raises(BadRequest):
        await api.create(CLAIMS, config_map("a"), namespace=namespace)


async def test_every_write_gives_a_new_version_and_a_write_of_the_same_does_not(api: KubeApi, namespace: str) -> None:
    first = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    second = await api.replace(CONFIG_MAPS, first | {"data": {"x": "2"}}, name="a", namespace=namespace)
    same = await api.replace(CONFIG_MAPS, second, name="a", namespace=namespace)
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert same["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


async def test_replacing_an_old_version_is_a_conflict_and_writes_nothing(api: KubeApi, namespace: str) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    new = await api.replace(CONFIG_MAPS, old | {"data": {"x": "2"}}, name="a", namespace=namespace)
    with pytest.raises(Conflict, match=r"update configmaps .*/a: .*has been modified"):
        await api.replace(CONFIG_MAPS, old | {"data": {"x": "3"}}, name="a", namespace=namespace)
    assert await api.get(CONFIG_MAPS, "a", namespace=namespace) == new


async def test_replacing_an_object_that_was_made_anew_is_a_conflict(api: KubeApi, namespace: str) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Conflict):
        await api.replace(CONFIG_MAPS, old, name="a", namespace=namespace)
    versionless = config_map("a")
    versionless["metadata"]["uid"] = old["metadata"]["uid"]
    with pytest.raises(Conflict):
        await api.replace(CONFIG_MAPS, versionless, name="a", namespace=namespace)


async def test_replacing_without_a_version_overwrites_where_the_kind_allows_it(api: KubeApi, namespace: str) -> None:
    await api.create(CLAIMS, claim("a"), namespace=namespace)
    body = claim("a")
    body["metadata"]["annotations"] = {"x": "1"}
    written = await api.replace(CLAIMS, body, name="a", namespace=namespace)
    assert written["metadata"]["annotations"] == {"x": "1"}


async def test_a_capacity_cannot_be_replaced_without_a_version(api: KubeApi, namespace: str) -> None:
    await api.create(CAPACITIES, capacity(name="a"), namespace=namespace)
    with pytest.raises(Invalid, match="resourceVersion"):
        await api.replace(CAPACITIES, capacity(name="a", free="1Gi"), name="a", namespace=namespace)


async def test_a_body_must_have_the_name_of_the_path(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(BadRequest):
        await api.replace(CONFIG_MAPS, config_map("b"), name="a", namespace=namespace)


async def test_a_claim_written_whole_keeps_its_managed_fields(api: KubeApi, namespace: str) -> None:
    made = await api.create(CLAIMS, claim("a"), namespace=namespace)
    assert made["metadata"]["managedFields"]
    whole = json.loads(Claim.of(made, keep_whole=True).whole)
    assert "managedFields" not in whole["metadata"]
    whole["metadata"].setdefault("annotations", {})[names.SELECTED_NODE] = "n1"
    written = await api.replace(CLAIMS, json.dumps(whole).encode(), name="a", namespace=namespace)
    assert written["spec"] == made["spec"] and written["status"] == made["status"]
    assert written["metadata"]["managedFields"]
    assert written["metadata"]["finalizers"] == made["metadata"]["finalizers"]
    assert Claim.of(written).selected_node == "n1"
    with pytest.raises(Conflict):
        await api.replace(CLAIMS, Claim.of(made, keep_whole=True).whole, name="a", namespace=namespace)


async def test_what_a_claim_asks_for_cannot_be_changed(api: KubeApi, namespace: str) -> None:
    made = await api.create(CLAIMS, claim("a"), namespace=namespace)
    made["spec"]["storageClassName"] = "slow"
    with pytest.raises(Invalid, match="immutable"):
        await api.replace(CLAIMS, made, name="a", namespace=namespace)


async def test_a_claim_is_born_pending_and_protected(api: KubeApi, namespace: str) -> None:
    made = await api.create(CLAIMS, claim("a"), namespace=namespace)
    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


async def test_where_a_volume_lives_cannot_be_changed(api: KubeApi, namespace: str) -> None:
    made = await api.create(VOLUMES, volume(f"pv-{namespace}"))
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    for change in ({"csi": made["spec"]["csi"] | {"volumeHandle": "other"}}, {"nodeAffinity": None}):
        with pytest.raises(Invalid):
            await api.replace(VOLUMES, made | {"spec": made["spec"] | change}, name=made["metadata"]["name"])
    kept = await api.replace(VOLUMES, made | {"spec": made["spec"] | {"persistentVolumeReclaimPolicy": "Retain"}}, name=f"pv-{namespace}")
    assert kept["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


@pytest.mark.parametrize(("key", "value", "taken"), PLACES)
async def test_where_a_volume_lives_is_named_as_labels_are(api: KubeApi, namespace: str, key: str, value: str, taken: bool) -> None:
    """So says `label_syntax` too, by which volumes are undone that no PersistentVolume could name."""
    assert (flaw_of_label(key, value) == "") is taken
    body = volume(f"pv-{namespace}")
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    body["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if taken:
        assert (await api.create(VOLUMES, body))["spec"]["nodeAffinity"] == body["spec"]["nodeAffinity"]
    else:
        with pytest.raises(Invalid):
            await api.create(VOLUMES, body)


async def test_the_status_of_a_volume_is_written_apart(api: KubeApi, namespace: str) -> None:
    name = f"pv-{namespace}"
    made = await api.create(VOLUMES, volume(name) | {"status": {"phase": "Bound"}})
    assert made["status"]["phase"] == "Pending"
    written = await api.replace(VOLUMES, made | {"status": {"phase": "Released"}}, name=name)
    assert written["status"]["phase"] == "Pending"
    changed = written | {"spec": written["spec"] | {"persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Released"}}
    written = await api.replace(VOLUMES, changed, name=name, subresource="status")
    assert written["status"]["phase"] == "Released"
    assert written["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


async def test_capacities_are_made_and_replaced(api: KubeApi, namespace: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "plugin", "uid": "some-uid", "controller": True}
    made = await api.create(CAPACITIES, capacity(owner=owner), namespace=namespace)
    assert made["metadata"]["ownerReferences"] == [owner]
    name = made["metadata"]["name"]
    written = await api.replace(CAPACITIES, made | {"capacity": "5Gi", "maximumVolumeSize": "1Gi"}, name=name, namespace=namespace)
    assert (written["capacity"], written["maximumVolumeSize"]) == ("5Gi", "1Gi")
    with pytest.raises(Conflict):
        await api.replace(CAPACITIES, made | {"capacity": "4Gi"}, name=name, namespace=namespace)
    with pytest.raises(Invalid, match="immutable"):
        await api.replace(CAPACITIES, written | {"storageClassName": "slow"}, name=name, namespace=namespace)


async def test_classes_are_cluster_wide(api: KubeApi, namespace: str) -> None:
    made = await api.create(CLASSES, storage_class(f"class-{namespace}"))
    assert "namespace" not in made["metadata"]
    assert made["reclaimPolicy"] == "Delete"


async def test_namespaces(api: KubeApi, namespace: str) -> None:
    assert (await api.get(NAMESPACES, namespace))["status"]["phase"] == "Active"
    assert (await api.get(NAMESPACES, "default"))["status"]["phase"] == "Active"


async def test_discovery_knows_kinds(api: KubeApi) -> None:
    assert await api.resource_for("v1", "Pod") == PODS
    assert await api.resource_for("storage.k8s.io/v1", "CSIStorageCapacity") == CAPACITIES
    assert await api.resource_for("storage.k8s.io/v1", "StorageClass") == CLASSES
    assert (await api.resource_for("apps/v1", "DaemonSet")).plural == "daemonsets"
    with pytest.raises(NotFound):
        await api.resource_for("v1", "Nothing")
    with pytest.raises(NotFound):
        await api.resource_for("nobody.example/v1", "Nothing")


async def test_the_version(api: KubeApi) -> None:
    assert (await api.server_version()).startswith("v1.")
