"""One plain case of each duty on the real control plane, under upstream's role, with both drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import IMMEDIATE, LATE, GoDriver, OurDriver, Sidecar, all_of, claim, pod, storage_class
from tests.e2e.conftest import CAPACITIES, CLAIMS, CLASSES, DRIVERS, PODS, VOLUMES, Cluster

Driver = OurDriver | GoDriver
SELECTED_NODE = "volume.kubernetes.io/selected-node"


@pytest.fixture(params=["our-driver", "go-driver"])
def driver(request: pytest.FixtureRequest, tmp_path: Path, bin_dir: Path) -> Iterator[Driver]:
    made: Driver = (
        OurDriver(tmp_path, node="n1") if request.param == "our-driver" else GoDriver(tmp_path, node="n1", binary=bin_dir / "mock-driver")
    )
    with made:
        yield made


def value_of(driver: Driver) -> str:
    return driver.topology if isinstance(driver, GoDriver) else driver.node


def test_a_late_binding_claim_becomes_a_bound_volume_and_goes_again(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    """Real scheduler, kwok node: the pod is scheduled, the claim Bound; deleting the claim deletes PV and volume."""
    cluster.plane.add_node("n1", {driver.key: value_of(driver)})
    cluster.plane.add_csinode("n1", driver.driver, "n1", [driver.key])
    cluster.create(CLASSES, storage_class("late", driver.driver, LATE))
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=cluster.role) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("data", "late"))
        cluster.create(PODS, pod("consumer", "data"))
        until(lambda: cluster.phase(CLAIMS, "data") == "Bound", "the claim is bound")
        until(lambda: cluster.phase(PODS, "consumer") == "Running", "the pod runs")
        bound = cluster.get(CLAIMS, "data")
        volume = cluster.get(VOLUMES, bound["spec"]["volumeName"])
        assert volume["metadata"]["name"] == f"pvc-{bound['metadata']['uid']}"
        assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
        assert volume["spec"]["csi"]["driver"] == driver.driver
        assert volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == driver.driver
        assert "external-provisioner.volume.kubernetes.io/finalizer" in volume["metadata"]["finalizers"]
        terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert terms == [{"matchExpressions": [{"key": driver.key, "operator": "In", "values": [value_of(driver)]}]}]
        until(lambda: any(event["reason"] == "ProvisioningSucceeded" for event in cluster.events("data")), "the success event")
        cluster.delete(PODS, "consumer")
        cluster.delete(CLAIMS, "data")
        until(lambda: not cluster.exists(VOLUMES, volume["metadata"]["name"]), "the volume is gone")
        assert sidecar.metric("controller_persistentvolumeclaim_provision_total", **{"class": "late"}) == 1
        assert sidecar.metric("controller_persistentvolume_delete_total", **{"class": "late"}) == 1
        assert sidecar.metric("controller_persistentvolumeclaim_provision_failed_total") == 0
    if isinstance(driver, OurDriver):
        assert len(driver.recorded("CreateVolume")) == 1
        assert len(driver.recorded("DeleteVolume")) == 1


def test_an_immediate_claim_is_taken_and_bound(cluster: Cluster, driver: Driver, tmp_path: Path) -> None:
    cluster.create(CLASSES, storage_class("now", driver.driver, IMMEDIATE))
    args = ["--node-deployment-base-delay=500ms", "--node-deployment-max-delay=2s"]
    with Sidecar(tmp_path, node="n1", address=driver.socket, kubeconfig=cluster.role, args=args) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("data", "now"))
        until(lambda: cluster.phase(CLAIMS, "data") == "Bound", "the claim is bound")
        assert cluster.get(CLAIMS, "data")["metadata"]["annotations"][SELECTED_NODE] == "n1"
        cluster.delete(CLAIMS, "data")
        until(lambda: not cluster.items(VOLUMES), "the volume is gone")


def test_ten_instances_own_and_create_each_of_a_hundred_claims_exactly_once(cluster: Cluster, tmp_path: Path) -> None:
    drivers = [OurDriver(tmp_path, node=f"n{number}") for number in range(10)]
    args = ["--node-deployment-base-delay=5s", "--node-deployment-max-delay=15s", "--kube-api-qps=100", "--kube-api-burst=200"]
    sidecars = [Sidecar(tmp_path, node=item.node, address=item.socket, kubeconfig=cluster.role, args=args) for item in drivers]
    cluster.create(CLASSES, storage_class("now", drivers[0].driver, IMMEDIATE))
    with all_of(drivers), all_of(sidecars):
        for sidecar in sidecars:
            sidecar.until_ready()
        for number in range(100):
            cluster.create(CLAIMS, claim(f"data-{number}", "now", size="1Gi"))
        until(lambda: all(item["status"]["phase"] == "Bound" for item in cluster.items(CLAIMS)), "all claims are bound", seconds=90)
        owners = {
            item["metadata"]["uid"]: item["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] for item in cluster.items(CLAIMS)
        }
        created = Counter(call["request"]["name"] for item in drivers for call in item.recorded("CreateVolume"))
        assert created == {f"pvc-{uid}": 1 for uid in owners}
        for item in drivers:
            for call in item.recorded("CreateVolume"):
                assert owners[call["request"]["name"].removeprefix("pvc-")] == item.node
        assert len({volume["spec"]["csi"]["volumeHandle"] for volume in cluster.items(VOLUMES)}) == 100
        bids = sum(sidecar.metric("csi_node_sidecar_ownership_bids_total") for sidecar in sidecars)
        print(f"100 Immediate claims, 10 instances: {bids:.0f} bids, spread {sorted(Counter(owners.values()).values())}")
        for number in range(100):
            cluster.delete(CLAIMS, f"data-{number}")
        until(lambda: not cluster.items(VOLUMES), "all volumes are gone", seconds=90)
    for item in drivers:
        deleted = Counter(call["request"]["volume_id"] for call in item.recorded("DeleteVolume"))
        assert set(deleted.values()) <= {1}


def test_each_instance_publishes_its_capacity_and_a_pod_is_not_put_where_it_is_too_small(cluster: Cluster, tmp_path: Path) -> None:
    sizes = {"n1": "1Gi", "n2": "20Gi"}
    drivers = [OurDriver(tmp_path, node=node, pools={"main": size}) for node, size in sizes.items()]
    owner = cluster.create(PODS, pod("owner", nodeName="n1"))
    args = ["--enable-capacity", "--capacity-ownerref-level=0", "--capacity-poll-interval=5s", "--kube-api-capacity-qps=50"]
    environ = {"NAMESPACE": "default", "POD_NAME": "owner"}
    sidecars = [
        Sidecar(tmp_path, node=item.node, address=item.socket, kubeconfig=cluster.role, args=args, environ=environ) for item in drivers
    ]
    name, key = drivers[0].driver, drivers[0].key
    cluster.create(DRIVERS, {"metadata": {"name": name}, "spec": {"storageCapacity": True, "attachRequired": False}})
    cluster.create(CLASSES, storage_class("late", name, LATE))
    for node in sizes:
        cluster.plane.add_node(node, {key: node})
        cluster.plane.add_csinode(node, name, node, [key])
    with all_of(drivers), all_of(sidecars):
        until(lambda: len(cluster.items(CAPACITIES)) == 2, "two capacity objects", seconds=30)
        objects = {item["nodeTopology"]["matchLabels"][key]: item for item in cluster.items(CAPACITIES)}
        assert {node: item["capacity"] for node, item in objects.items()} == sizes
        for node, item in objects.items():
            assert item["metadata"]["labels"] == {
                "csi.storage.k8s.io/drivername": name,
                "csi.storage.k8s.io/managed-by": f"external-provisioner-{node}",
            }
            assert [(ref["kind"], ref["uid"], ref["controller"]) for ref in item["metadata"]["ownerReferences"]] == [
                ("Pod", owner["metadata"]["uid"], True)
            ]
        for number in range(3):
            cluster.create(CLAIMS, claim(f"big-{number}", "late", size="5Gi"))
            cluster.create(PODS, pod(f"big-{number}", f"big-{number}"))
            until(lambda number=number: cluster.phase(PODS, f"big-{number}") == "Running", "the pod runs")  # type: ignore[misc]
            assert cluster.get(PODS, f"big-{number}")["spec"]["nodeName"] == "n2"
        until(lambda: sorted(item["capacity"] for item in cluster.items(CAPACITIES)) == ["1Gi", "5Gi"], "the figure follows", seconds=20)
        assert drivers[0].recorded("CreateVolume") == []
