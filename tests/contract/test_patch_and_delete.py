"""Patches by their three types, deletes by their preconditions, and finalizers, which stand between the two."""

import pytest

from sidecar.kube.api import CLAIMS, CONFIG_MAPS, JSON_PATCH, MERGE_PATCH, NAMESPACES, NODES, STRATEGIC_MERGE_PATCH, VOLUMES, KubeApi
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from tests.contract.objects import claim, config_map, volume


async def test_a_json_patch_whose_test_holds(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "add", "path": "/data/y", "value": "3"},
    ]
    patched = await api.patch(CONFIG_MAPS, "a", patch, content_type=JSON_PATCH, namespace=namespace)
    assert patched["data"] == {"x": "2", "y": "3"}


async def test_a_json_patch_whose_test_fails_is_invalid_and_writes_nothing(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    patch = [{"op": "test", "path": "/data/x", "value": "9"}, {"op": "replace", "path": "/data/x", "value": "2"}]
    with pytest.raises(Invalid):
        await api.patch(CONFIG_MAPS, "a", patch, content_type=JSON_PATCH, namespace=namespace)
    patch = [{"op": "remove", "path": "/data/none"}]
    with pytest.raises(Invalid):
        await api.patch(CONFIG_MAPS, "a", patch, content_type=JSON_PATCH, namespace=namespace)
    assert await api.get(CONFIG_MAPS, "a", namespace=namespace) == made


async def test_a_json_patch_escapes_slashes(api: KubeApi, namespace: str) -> None:
    body = config_map("a")
    body["metadata"]["annotations"] = {"example.io/a": "1"}
    await api.create(CONFIG_MAPS, body, namespace=namespace)
    patch = [{"op": "remove", "path": "/metadata/annotations/example.io~1a"}]
    patched = await api.patch(CONFIG_MAPS, "a", patch, content_type=JSON_PATCH, namespace=namespace)
    assert "annotations" not in patched["metadata"]


async def test_a_merge_patch_sets_and_removes(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a", x="1", y="2"), namespace=namespace)
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"x": None, "z": "3"}}, content_type=MERGE_PATCH, namespace=namespace)
    assert patched["data"] == {"y": "2", "z": "3"}


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
async def test_a_patch_of_an_old_version_is_a_conflict(api: KubeApi, namespace: str, content_type: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    new = await api.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, content_type=content_type, namespace=namespace)
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "3"}}
    with pytest.raises(Conflict):
        await api.patch(CONFIG_MAPS, "a", stale, content_type=content_type, namespace=namespace)
    assert await api.get(CONFIG_MAPS, "a", namespace=namespace) == new


@pytest.mark.parametrize("content_type", [JSON_PATCH, STRATEGIC_MERGE_PATCH])
async def test_a_patch_of_an_old_version_of_a_status_is_a_conflict(api: KubeApi, namespace: str, content_type: str) -> None:
    name = f"node-{namespace}"
    made = await api.create(NODES, {"metadata": {"name": name}})

    def says(status: str) -> object:
        conditions, version = [{"type": "example.io/A", "status": status}], made["metadata"]["resourceVersion"]
        if content_type == STRATEGIC_MERGE_PATCH:
            return {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
        guard = {"op": "add", "path": "/metadata/resourceVersion", "value": version}
        return [guard, {"op": "add", "path": "/status", "value": {"conditions": conditions}}]

    await api.patch(NODES, name, says("True"), content_type=content_type, subresource="status")
    with pytest.raises(Conflict):
        await api.patch(NODES, name, says("False"), content_type=content_type, subresource="status")
    found = (await api.get(NODES, name))["status"]["conditions"]
    assert [item["status"] for item in found if item["type"] == "example.io/A"] == ["True"]
    await api.delete(NODES, name)


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
async def test_a_patch_for_another_uid_is_invalid(api: KubeApi, namespace: str, content_type: str) -> None:
    """Not a conflict: the server takes it for a wish to change the uid."""
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Invalid, match="uid"):
        await api.patch(CONFIG_MAPS, "a", {"metadata": {"uid": "other"}}, content_type=content_type, namespace=namespace)


async def test_a_strategic_patch_joins_finalizers_and_a_merge_patch_replaces_them(api: KubeApi, namespace: str) -> None:
    name = f"pv-{namespace}"
    await api.create(VOLUMES, volume(name, finalizers=("example.io/a",)))

    async def finalizers(patch: object, content_type: str) -> list[str]:
        patched = await api.patch(VOLUMES, name, {"metadata": patch}, content_type=content_type)
        return sorted(patched["metadata"].get("finalizers", []))

    protection = "kubernetes.io/pv-protection"
    joined = await finalizers({"finalizers": ["example.io/b"]}, STRATEGIC_MERGE_PATCH)
    assert joined == ["example.io/a", "example.io/b", protection]
    less = await finalizers({"$deleteFromPrimitiveList/finalizers": ["example.io/a"]}, STRATEGIC_MERGE_PATCH)
    assert less == ["example.io/b", protection]
    assert await finalizers({"finalizers": ["example.io/c"]}, MERGE_PATCH) == ["example.io/c"]
    assert await finalizers({"finalizers": None}, STRATEGIC_MERGE_PATCH) == []


async def test_a_patch_that_changes_nothing_gives_no_new_version(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", x="1"), namespace=namespace)
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, content_type=MERGE_PATCH, namespace=namespace)
    assert patched["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_a_patch_of_the_status_leaves_the_spec(api: KubeApi, namespace: str) -> None:
    name = f"pv-{namespace}"
    await api.create(VOLUMES, volume(name))
    both = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Released"}}
    patched = await api.patch(VOLUMES, name, both, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
    assert (patched["spec"]["persistentVolumeReclaimPolicy"], patched["status"]["phase"]) == ("Delete", "Released")
    patched = await api.patch(VOLUMES, name, {**both, "status": {"phase": "Failed"}}, content_type=STRATEGIC_MERGE_PATCH)
    assert (patched["spec"]["persistentVolumeReclaimPolicy"], patched["status"]["phase"]) == ("Retain", "Released")


async def test_a_patch_type_that_is_unknown_is_refused(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(ApiError) as caught:
        await api.patch(CONFIG_MAPS, "a", {}, content_type="application/json", namespace=namespace)
    assert caught.value.status == 415


async def test_delete(api: KubeApi, namespace: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "a", namespace=namespace)
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_delete_by_uid_and_version(api: KubeApi, namespace: str) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Conflict, match=r"delete configmaps .*/a: .*UID"):
        await api.delete(CONFIG_MAPS, "a", namespace=namespace, uid="other")
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, "a", namespace=namespace, resource_version="1")
    meta = made["metadata"]
    with pytest.raises(Conflict):
        await api.delete(CONFIG_MAPS, "a", namespace=namespace, uid="other", dry_run=True)
    await api.delete(CONFIG_MAPS, "a", namespace=namespace, uid=meta["uid"], resource_version=meta["resourceVersion"], dry_run=True)
    await api.delete(
        CONFIG_MAPS, "a", namespace=namespace, uid=meta["uid"], resource_version=meta["resourceVersion"], propagation="Background"
    )
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, "a", namespace=namespace)


async def test_an_object_with_finalizers_goes_when_the_last_is_taken_away(api: KubeApi, namespace: str) -> None:
    name = f"pv-{namespace}"
    await api.create(VOLUMES, volume(name, finalizers=("example.io/a",)))
    await api.delete(VOLUMES, name)
    going = await api.get(VOLUMES, name)
    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0
    again = {"metadata": {"finalizers": ["example.io/late"]}}
    with pytest.raises(Invalid):
        await api.patch(VOLUMES, name, again, content_type=STRATEGIC_MERGE_PATCH)
    await api.delete(VOLUMES, name)  # once more is no error, and changes nothing
    assert (await api.get(VOLUMES, name))["metadata"] == going["metadata"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["kubernetes.io/pv-protection"]}}
    left = await api.patch(VOLUMES, name, patch, content_type=STRATEGIC_MERGE_PATCH)
    assert left["metadata"]["finalizers"] == ["example.io/a"]
    await api.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=STRATEGIC_MERGE_PATCH)
    with pytest.raises(NotFound):
        await api.get(VOLUMES, name)


async def test_a_put_that_takes_the_last_finalizer_deletes_too(api: KubeApi, namespace: str) -> None:
    await api.create(CLAIMS, claim("a"), namespace=namespace)
    await api.delete(CLAIMS, "a", namespace=namespace)
    going = await api.get(CLAIMS, "a", namespace=namespace)
    going["metadata"]["finalizers"] = []
    await api.replace(CLAIMS, going, name="a", namespace=namespace)
    with pytest.raises(NotFound):
        await api.get(CLAIMS, "a", namespace=namespace)


async def test_nothing_is_made_in_a_namespace_that_goes(api: KubeApi, namespace: str) -> None:
    await api.delete(NAMESPACES, namespace)
    assert (await api.get(NAMESPACES, namespace))["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="being terminated"):
        await api.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
