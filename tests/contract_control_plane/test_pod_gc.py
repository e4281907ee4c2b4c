"""Pods that nobody ends any more. A node must have been missing for 40 s, and the collector looks every 20 s."""

from typing import Any

from sidecar.kube.api import NODES, PODS
from tests.contract_control_plane.land import Land


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
