"""Claims of generic ephemeral volumes."""

from sidecar.kube.api import CLAIMS, PODS
from tests.contract_control_plane.land import LATE, Json, Land


def scratch(land: Land) -> Json:
    spec = {"storageClassName": land.own("late"), "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"labels": {"of": "template"}}, "spec": spec}
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}


async def test_a_pod_owns_the_claim_that_is_made_for_it_and_takes_it_along(land: Land) -> None:
    await land.begin("n1", capacity=False)
    await land.storage_class("late", LATE)
    made = await land.pod("app", volumes=[scratch(land)])
    await land.until(lambda: land.exists(CLAIMS, "app-scratch"), "the claim is made")
    meta = (await land.get_claim("app-scratch"))["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "app", "uid": made["metadata"]["uid"]}
    assert meta["ownerReferences"] == [owner | {"controller": True, "blockOwnerDeletion": True}]
    assert meta["labels"] == {"of": "template"}
    await land.until(lambda: land.selected("app-scratch"), "a node is selected for it, as for any other")
    await land.volume(await land.get_claim("app-scratch"), node="n1")

    async def runs() -> bool:
        return await land.phase(PODS, "app") == "Running"

    await land.until(runs, "the pod runs")
    await land.api.delete(PODS, "app", namespace=land.namespace)

    async def gone() -> bool:
        return not await land.exists(CLAIMS, "app-scratch")

    await land.until(gone, "the claim is gone")


async def test_a_claim_of_that_name_that_is_not_the_pods_keeps_it_waiting(land: Land) -> None:
    await land.begin("n1", capacity=False)
    await land.storage_class("late", LATE)
    other = await land.claim("app-scratch", "late")
    await land.select("app-scratch", "n1")
    await land.volume(other, node="n1")

    async def bound() -> bool:
        return await land.phase(CLAIMS, "app-scratch") == "Bound"

    await land.until(bound, "the other claim is bound")
    await land.pod("app", volumes=[scratch(land)])

    async def untouched() -> bool:
        meta = (await land.get_claim("app-scratch"))["metadata"]
        return meta["uid"] == other["metadata"]["uid"] and "ownerReferences" not in meta and await land.phase(PODS, "app") == "Pending"

    await land.until(lambda: land.refused("app", "was not created for pod"), "the scheduler says why")
    await land.always(untouched, "and the pod waits")
