"""Each node publishes the free capacity of its driver, and the scheduler goes by it."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of, claim, pod
from tests.harness.cluster import CAPACITIES, CLAIMS, OWN_PODS, PODS, Cluster, late

ARGS = ("--enable-capacity", "--capacity-ownerref-level=0", "--capacity-poll-interval=2s", "--kube-api-capacity-qps=50")


def test_each_instance_publishes_its_capacity_and_a_pod_is_not_put_where_it_is_too_small(cluster: Cluster) -> None:
    sizes = {"n1": "1Gi", "n2": "20Gi"}
    drivers = [cluster.driver(node, pools={"main": size}) for node, size in sizes.items()]
    owner, key = cluster.create(OWN_PODS, pod("owner", nodeName="n1")), drivers[0].key
    sidecars = [cluster.sidecar(driver, *ARGS, environ={"POD_NAME": "owner"}) for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver in drivers:
            cluster.node(driver.node, driver, capacity=True)
        until(lambda: len(cluster.items(CAPACITIES)) == 2, "two capacity objects")
        objects = {item["nodeTopology"]["matchLabels"][key]: item for item in cluster.items(CAPACITIES)}
        assert {node: item["capacity"] for node, item in objects.items()} == sizes
        for node, item in objects.items():
            assert item["metadata"]["labels"] == {
                "csi.storage.k8s.io/drivername": cluster.driver_name,
                "csi.storage.k8s.io/managed-by": f"external-provisioner-{node}",
            }
            (ref,) = item["metadata"]["ownerReferences"]
            assert (ref["kind"], ref["uid"], ref["controller"]) == ("Pod", owner["metadata"]["uid"], True)
        for number in range(3):
            name = f"big-{number}"
            cluster.create(CLAIMS, claim(name, late(drivers[0]), size="5Gi"))
            cluster.create(PODS, pod(name, name))
            until(lambda name=name: cluster.phase(PODS, name) == "Running", "the pod runs")  # type: ignore[misc]
            assert cluster.get(PODS, name)["spec"]["nodeName"] == "n2"
        until(lambda: sorted(item["capacity"] for item in cluster.items(CAPACITIES)) == ["1Gi", "5Gi"], "the figure follows")
        assert drivers[0].recorded("CreateVolume") == []
