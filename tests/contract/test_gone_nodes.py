"""What the proof that a node is gone asks a server for, and what it answers."""

from typing import Any

from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.kube.api import CAPACITIES, CSI_NODES, NODES, find
from sidecar.kube.client import KubeClient
from sidecar.model import names
from tests.harness.doors import tools

KEY = "topology.gone.example.com/node"


async def test_only_what_a_node_that_is_gone_has_left_goes(api: KubeClient, namespace: str) -> None:
    driver, there, gone, renamed = f"{namespace}.example.com", f"{namespace}-there", f"{namespace}-gone", f"{namespace}-renamed"

    async def publish(driver: str, node: str) -> None:
        labels = {names.CAPACITY_DRIVER_LABEL: driver, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(node)}
        body: dict[str, Any] = {"metadata": {"name": f"{driver}-{node}", "labels": labels}, "storageClassName": "fast"}
        await api.create(CAPACITIES, body | {"nodeTopology": {"matchLabels": {KEY: node}}, "capacity": "1Gi"}, namespace=namespace)

    await api.create(NODES, {"metadata": {"name": there, "labels": {KEY: there}}})
    await api.create(CSI_NODES, {"metadata": {"name": there}, "spec": {"drivers": []}})
    await api.create(NODES, {"metadata": {"name": f"{renamed}-now", "labels": {KEY: renamed}}})
    for node in (there, gone, renamed):
        await publish(driver, node)
    await publish("other.example.com", gone)

    await GoneNodes(tools(kube=api), driver=driver, namespace=namespace, node=there).look()

    left = {node for node in (there, gone, renamed) if await find(api, CAPACITIES, f"{driver}-{node}", namespace=namespace)}
    assert left == {there, renamed}
    assert await find(api, CAPACITIES, f"other.example.com-{gone}", namespace=namespace)
    for resource, name in ((NODES, there), (CSI_NODES, there), (NODES, f"{renamed}-now")):
        await api.delete(resource, name)
