"""Volumes are made, bound and deleted, and each claim's once, however many instances there are."""

from __future__ import annotations

from collections import Counter

from hack.lib.control_plane import until
from hack.lib.programs import GoDriver, OurDriver, all_of, claim, pod
from sidecar.model import names
from tests.harness.cluster import CLAIMS, PODS, VOLUMES, Cluster, late, now


def test_a_late_binding_claim_becomes_a_bound_volume_and_goes_again(cluster: Cluster) -> None:
    driver = cluster.driver()
    with driver:
        cluster.node("n1", driver)
        comes_and_goes(cluster, driver, driver.node)
    assert len(driver.recorded("CreateVolume")) == len(driver.recorded("DeleteVolume")) == 1


def comes_and_goes(cluster: Cluster, driver: OurDriver | GoDriver, place: str) -> None:
    """`place`: the value of its topology. A pod is scheduled, the claim is bound; without it, PersistentVolume and volume go."""
    with cluster.sidecar(driver) as sidecar:  # type: ignore[arg-type]
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("data", late(driver)))  # type: ignore[arg-type]
        cluster.create(PODS, pod("consumer", "data"))
        cluster.bound("data")
        until(lambda: cluster.phase(PODS, "consumer") == "Running", "the pod runs")
        bound, volume = cluster.get(CLAIMS, "data"), cluster.volume_of("data")
        assert volume["metadata"]["name"] == f"pvc-{bound['metadata']['uid']}"
        assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
        assert volume["spec"]["csi"]["driver"] == volume["metadata"]["annotations"][names.PROVISIONED_BY] == driver.driver
        assert names.VOLUME_FINALIZER in volume["metadata"]["finalizers"]
        terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert terms == [{"matchExpressions": [{"key": driver.key, "operator": "In", "values": [place]}]}]
        until(lambda: any(event["reason"] == "ProvisioningSucceeded" for event in cluster.events("data")), "the success event")
        cluster.delete(PODS, "consumer")
        cluster.give_up("data")
        assert sidecar.metric("controller_persistentvolumeclaim_provision_total") == 1
        assert sidecar.metric("controller_persistentvolume_delete_total") == 1


def test_an_immediate_claim_is_taken_and_bound(cluster: Cluster) -> None:
    driver = cluster.driver()
    cluster.classes(driver)
    with driver, cluster.sidecar(driver, "--node-deployment-base-delay=500ms", "--node-deployment-max-delay=2s") as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("data", now(driver)))
        cluster.bound("data")
        assert cluster.notes(CLAIMS, "data")[names.SELECTED_NODE] == "n1"
        assert cluster.volume_of("data")["metadata"]["labels"][names.VOLUME_NODE] == "n1", "for kubectl get pv -l"
        cluster.give_up("data")


def test_four_instances_own_and_create_each_of_thirty_claims_exactly_once(cluster: Cluster) -> None:
    drivers = [cluster.driver(f"n{number}") for number in range(4)]
    args = ("--node-deployment-base-delay=1s", "--node-deployment-max-delay=3s", "--kube-api-qps=100", "--kube-api-burst=200")
    sidecars = [cluster.sidecar(driver, *args) for driver in drivers]
    cluster.classes(drivers[0])
    with all_of(drivers), all_of(sidecars):
        for sidecar in sidecars:
            sidecar.until_ready()
        for number in range(30):
            cluster.create(CLAIMS, claim(f"data-{number}", now(drivers[0])))
        until(lambda: all(item["status"]["phase"] == "Bound" for item in cluster.items(CLAIMS)), "all claims are bound")
        owners = {item["metadata"]["uid"]: item["metadata"]["annotations"][names.SELECTED_NODE] for item in cluster.items(CLAIMS)}
        created = Counter(call["request"]["name"] for driver in drivers for call in driver.recorded("CreateVolume"))
        assert created == {f"pvc-{uid}": 1 for uid in owners}
        for driver in drivers:
            made = {call["request"]["name"].removeprefix("pvc-") for call in driver.recorded("CreateVolume")}
            assert {owners[uid] for uid in made} <= {driver.node}
        assert len({volume["spec"]["csi"]["volumeHandle"] for volume in cluster.items(VOLUMES)}) == 30
        cluster.request("DELETE", CLAIMS)
        until(lambda: not cluster.items(VOLUMES), "all volumes are gone")
    deleted = Counter(call["request"]["volume_id"] for driver in drivers for call in driver.recorded("DeleteVolume"))
    assert len(deleted) == 30 and set(deleted.values()) == {1}
