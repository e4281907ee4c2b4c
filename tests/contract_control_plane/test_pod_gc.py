"""Pods that nobody ends any more. A node must have been missing for 40 s, and the collector looks every 20 s."""

from typing import Any

from sidecar.kube.api import NODES, PODS
from tests.contract_control_plane.land import Land

OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "gone", "effect": "NoExecute"}


async def put(land: Land, name: str, node: str) -> None:
    everything: Any = [{"operator": "Exists"}]
    await land.pod(name, nodeName=land.own(node), tolerations=everything)


async def test_pods_of_a_node_that_is_gone_are_taken_away(land: Land) -> None:
    await land.begin("n1", "n2")
    for number in (1, 2):
        await put(land, f"app-{number}", f"n{number}")
    await land.api.delete(NODES, land.own("n1"))

    async def only_the_other() -> bool:
        return await land.there(PODS) == ["app-2"]

    async def both() -> bool:
        return await land.there(PODS) == ["app-1", "app-2"]

    await land.always(both, "for a while nothing happens")
    await land.until(only_the_other, "it is gone")


async def test_a_pod_that_is_to_end_on_a_node_out_of_service_is_taken_away(land: Land) -> None:
    await land.begin()
    for node in ("n1", "n2"):
        await land.node(node, silent=True)
    await land.patch_node(land.own("n1"), {"spec": {"taints": [OUT_OF_SERVICE]}})
    for pod, node in (("ends", "n1"), ("stays", "n1"), ("ends-elsewhere", "n2")):
        await put(land, pod, node)
    for pod in ("ends", "ends-elsewhere"):
        await land.api.delete(PODS, pod, namespace=land.namespace)

    async def only_those_that_may_not_be() -> bool:
        return await land.there(PODS) == ["ends-elsewhere", "stays"]

    await land.until(only_those_that_may_not_be, "it is gone")
    await land.always(only_those_that_may_not_be, "and no other")
