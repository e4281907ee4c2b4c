"""Pods of DaemonSets."""

from sidecar.kube.api import DAEMON_SETS
from sidecar.kube.api import NODES, PODS
from tests.contract_control_plane.land import Land


async def running_on(land: Land, nodes: set[str]) -> bool:
    pods = await land.pods()
    wanted = sorted(land.own(node) for node in nodes)
    return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["status"]["phase"] == "Running") == wanted


async def test_every_node_has_one_pod_that_its_daemon_set_controls(land: Land) -> None:
    await land.begin("n1", "n2")
    made = await land.daemon_set("agent")
    await land.until(lambda: running_on(land, {"n1", "n2"}), "one pod runs on each node")
    for pod in await land.pods():
        assert pod["metadata"]["name"].startswith("agent-")
        assert pod["metadata"]["labels"]["app"] == "agent"
        assert pod["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "agent",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    await land.always(lambda: running_on(land, {"n1", "n2"}), "and no more")


async def test_only_nodes_that_match_have_a_pod(land: Land) -> None:
    await land.begin("n1", "n2")
    await land.daemon_set("agent", nodeSelector={land.key: "n2"})
    await land.until(lambda: running_on(land, {"n2"}), "the pod runs")
    await land.always(lambda: running_on(land, {"n2"}), "and no other")


async def test_a_pod_that_is_deleted_is_made_again(land: Land) -> None:
    await land.begin("n1")
    await land.daemon_set("agent")
    await land.until(lambda: running_on(land, {"n1"}), "the pod runs")
    first = (await land.pods())[0]["metadata"]
    await land.api.delete(PODS, first["name"], namespace=land.namespace)

    async def another() -> bool:
        return await running_on(land, {"n1"}) and all(pod["metadata"]["uid"] != first["uid"] for pod in await land.pods())

    await land.until(another, "another one runs")


async def test_nodes_that_come_and_cease_to_match_are_followed(land: Land) -> None:
    await land.begin("n1")
    await land.daemon_set("agent", nodeSelector={"kubernetes.io/os": "linux"})
    await land.patch_node(land.own("n1"), {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    await land.until(lambda: running_on(land, {"n1"}), "the pod runs")
    await land.node("n2")
    await land.patch_node(land.own("n2"), {"metadata": {"labels": {"kubernetes.io/os": "linux"}}})
    await land.until(lambda: running_on(land, {"n1", "n2"}), "the new node has a pod")
    await land.patch_node(land.own("n1"), {"metadata": {"labels": {"kubernetes.io/os": None}}})
    await land.until(lambda: running_on(land, {"n2"}), "the pod of the node that does not match any more is gone")


async def test_the_pod_of_a_node_that_is_gone_is_left_to_others(land: Land) -> None:
    await land.begin("n1")
    await land.daemon_set("agent")
    await land.until(lambda: running_on(land, {"n1"}), "the pod runs")
    await land.api.delete(NODES, land.own("n1"))
    await land.always(lambda: running_on(land, {"n1"}), "the pod is still there")


async def test_the_pods_go_with_their_daemon_set(land: Land) -> None:
    await land.begin("n1")
    await land.daemon_set("agent")
    await land.until(lambda: running_on(land, {"n1"}), "the pod runs")
    await land.api.delete(DAEMON_SETS, "agent", namespace=land.namespace, propagation="Background")
    await land.until(lambda: running_on(land, set()), "no pod is left")
