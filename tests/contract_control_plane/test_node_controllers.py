"""What becomes of pods and attachments of a node that has gone silent: by the node lifecycle and attach-detach controllers."""

from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, MERGE_PATCH, NODES, PODS
from tests.contract_control_plane.conftest import MANAGED
from tests.contract_control_plane.land import LOST, Json, Land, bound

OTHER = "other"
UNREACHABLE, OUT_OF_SERVICE = "node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"
BY_CONTROLLER = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
EVERYTHING = [{"operator": "Exists", "effect": "NoSchedule"}]


async def say_ready(land: Land, node: str, status: str, **also: object) -> None:
    body = {"conditions": [{"type": "Ready", "status": status, "reason": "said", "message": "by a test"}], **also}
    await land.api.patch(NODES, land.own(node), {"status": body}, content_type=MERGE_PATCH, subresource="status")


async def use(land: Land, pod: str, node: str) -> None:
    await land.pod(pod, "data", nodeName=land.own(node), tolerations=EVERYTHING)


async def is_attached(land: Land, volume: str, node: str) -> Json | None:
    name = attachment_name(volume, land.driver, land.own(node))
    return await land.api.get(ATTACHMENTS, name) if await land.exists(ATTACHMENTS, name) else None


async def silent(land: Land) -> str:
    """Pod `before` runs on a node whose kubelet has fallen silent with the volume mounted. The volume."""
    await land.begin(LOST, OTHER, attached=True)
    for node in (LOST, OTHER):
        await land.patch_node(land.own(node), {"metadata": {"annotations": BY_CONTROLLER}})
        await say_ready(land, node, "True")
    _, volume = await bound(land)
    await use(land, "before", LOST)
    await land.until(lambda: is_attached(land, volume, LOST), "it is attached, under the name that we expect")
    made = await is_attached(land, volume, LOST)
    assert made and made["spec"]["source"] == {"persistentVolumeName": volume}
    status = {"status": {"attached": True}}
    await land.api.patch(ATTACHMENTS, made["metadata"]["name"], status, content_type=MERGE_PATCH, subresource="status")

    async def runs() -> bool:
        return await land.phase(PODS, "before") == "Running"

    await land.until(runs, "the pod runs")
    await land.patch_node(land.own(LOST), {"metadata": {"labels": dict.fromkeys(MANAGED)}})
    await say_ready(land, LOST, "Unknown", volumesInUse=[f"kubernetes.io/csi/{land.driver}^{volume}"])

    async def tainted() -> bool:
        taints = (await land.api.get(NODES, land.own(LOST)))["spec"].get("taints") or ()
        return {taint["effect"] for taint in taints if taint["key"] == UNREACHABLE} == {"NoSchedule", "NoExecute"}

    await land.until(tainted, "it is tainted")
    return volume


async def test_a_silent_node_keeps_its_attachment_and_one_deleted_behind_the_controllers_back_is_noticed(land: Land) -> None:
    volume = await silent(land)
    await land.api.delete(PODS, "before", namespace=land.namespace, grace_period_seconds=0)
    await use(land, "after", OTHER)

    async def only_there() -> bool:
        return bool(await is_attached(land, volume, LOST)) and not await is_attached(land, volume, OTHER)

    await land.always(only_there, "nobody detaches it for minutes, and so nobody attaches it elsewhere", seconds=10.0)
    name = attachment_name(volume, land.driver, land.own(LOST))
    await land.api.patch(ATTACHMENTS, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    await land.api.delete(ATTACHMENTS, name)
    await land.until(lambda: is_attached(land, volume, OTHER), "within a minute that is noticed")
    assert not await is_attached(land, volume, LOST)


async def test_out_of_service_ends_pods_that_are_being_deleted_and_detaches_at_once(land: Land) -> None:
    volume = await silent(land)
    await land.api.delete(PODS, "before", namespace=land.namespace)
    await use(land, "after", OTHER)

    async def ending() -> bool:
        return "deletionTimestamp" in (await land.get_pod("before"))["metadata"]

    await land.always(ending, "its kubelet does not end it, and nobody else does")
    taints = (await land.api.get(NODES, land.own(LOST)))["spec"]["taints"]
    taints.append({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})
    await land.patch_node(land.own(LOST), {"spec": {"taints": taints}})

    async def gone() -> bool:
        return not await land.exists(PODS, "before")

    await land.until(gone, "the pod is ended")
    await land.until(lambda: is_attached(land, volume, OTHER), "it is attached elsewhere")
    assert not await is_attached(land, volume, LOST)
