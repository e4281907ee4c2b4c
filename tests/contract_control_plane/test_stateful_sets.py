"""StatefulSets of several replicas: which pods and claims are made, and when they are made again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, STATEFUL_SETS
from tests.contract_control_plane.land import LATE, Json, Land

PARALLEL = {"podManagementPolicy": "Parallel"}
KEPT_BACK = "example.com/kept-back"
UNREACHABLE: Json = {"nodeSelector": {"example.com/no": "such-node"}}


async def runs(land: Land, *pods: str) -> bool:
    """These and no others are there, and run."""
    there = {pod["metadata"]["name"]: pod for pod in await land.pods()}
    leaving = any("deletionTimestamp" in pod["metadata"] for pod in there.values())
    return set(there) == set(pods) and not leaving and all(pod["status"]["phase"] == "Running" for pod in there.values())


async def has(land: Land, pods: list[str], claims: list[str]) -> bool:
    return (await land.there(PODS), await land.there(CLAIMS)) == (pods, claims)


@asynccontextmanager
async def served(land: Land, *nodes: str) -> AsyncIterator[None]:
    """Nodes, and a class whose claims are bound late to a node that the scheduler has chosen."""
    await land.begin(*nodes, capacity=False)
    await land.storage_class("late", LATE)
    provisioner = asyncio.create_task(land.serve("late"))
    try:
        yield
    finally:
        provisioner.cancel()
        await asyncio.gather(provisioner, return_exceptions=True)


# --- making ----------------------------------------------------------------------------------------------------------------


async def test_an_ordered_set_makes_one_pod_after_the_other(land: Land) -> None:
    await land.begin("n1", capacity=False)
    await land.storage_class("late", LATE)
    await land.stateful_set("db", replicas=3, class_="late")
    await land.until(lambda: has(land, ["db-0"], ["data-db-0"]), "the first pod and its claim")
    await land.always(lambda: has(land, ["db-0"], ["data-db-0"]), "no other as long as the first is not ready")


async def test_a_parallel_set_makes_all_at_once(land: Land) -> None:
    await land.begin("n1", capacity=False)
    await land.storage_class("late", LATE)
    await land.stateful_set("db", replicas=3, class_="late", **PARALLEL)
    await land.until(lambda: has(land, ["db-0", "db-1", "db-2"], ["data-db-0", "data-db-1", "data-db-2"]), "all pods and claims")


async def test_pods_and_claims_say_whose_they_are(land: Land) -> None:
    async with served(land, "n1", "n2"):
        made = await land.stateful_set("db", replicas=2, class_="late")
        await land.until(lambda: runs(land, "db-0", "db-1"), "both run")
        pod, claim, status = await land.get_pod("db-1"), await land.get_claim("data-db-1"), (await land.get_set("db"))["status"]
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": made["metadata"]["uid"]}
        assert pod["metadata"]["ownerReferences"] == [owner | {"controller": True, "blockOwnerDeletion": True}]
        labels = pod["metadata"]["labels"]
        assert labels.pop("controller-revision-hash") == status["updateRevision"]
        assert labels == {"app": "db", "statefulset.kubernetes.io/pod-name": "db-1", "apps.kubernetes.io/pod-index": "1"}
        volumes = {volume["name"]: volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["spec"]["volumes"]}
        assert volumes["data"] == "data-db-1"
        assert claim["metadata"]["labels"] == {"app": "db", "of": "template"}
        assert "ownerReferences" not in claim["metadata"]


async def test_a_set_can_begin_at_another_ordinal(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=2, ordinals={"start": 5})
    await land.until(lambda: runs(land, "db-5", "db-6"), "both run")


# --- making again ------------------------------------------------------------------------------------------------------------


async def test_a_pod_that_is_gone_is_made_again_with_the_claim_it_had(land: Land) -> None:
    async with served(land, "n1"):
        await land.stateful_set("db", replicas=2, class_="late")
        await land.until(lambda: runs(land, "db-0", "db-1"), "both run")
        pod, claim = await land.uid(PODS, "db-0"), await land.uid(CLAIMS, "data-db-0")
        await land.api.delete(PODS, "db-0", namespace=land.namespace)

        async def another() -> bool:
            return await runs(land, "db-0", "db-1") and await land.uid(PODS, "db-0") != pod

        await land.until(another, "another one runs")
        assert await land.uid(CLAIMS, "data-db-0") == claim


async def test_the_claim_of_a_pending_pod_is_made_again_when_it_is_gone(land: Land) -> None:
    """So a replica is made anew elsewhere: its pod cannot return to its node, and its claim is deleted."""
    async with served(land, "n1", "n2"):
        await land.stateful_set("db", replicas=1, class_="late")
        await land.until(lambda: runs(land, "db-0"), "it runs")
        pod, claim = await land.get_pod("db-0"), await land.uid(CLAIMS, "data-db-0")
        await land.patch_node(pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
        await land.api.delete(PODS, "db-0", namespace=land.namespace)

        async def waits() -> bool:
            return await land.uid(PODS, "db-0") not in ("", pod["metadata"]["uid"]) and "FailedScheduling" in await land.reasons("db-0")

        await land.until(waits, "the new pod waits for the node of its data")
        waiting = await land.uid(PODS, "db-0")
        await land.api.delete(CLAIMS, "data-db-0", namespace=land.namespace)
        await land.until(lambda: runs(land, "db-0"), "it runs")
        assert await land.uid(CLAIMS, "data-db-0") not in ("", claim)
        assert await land.uid(PODS, "db-0") == waiting, "the pod is the same one"
        assert (await land.get_pod("db-0"))["spec"]["nodeName"] != pod["spec"]["nodeName"]


async def test_a_claim_that_is_gone_before_its_pod_is_made_with_the_next_one(land: Land) -> None:
    async with served(land, "n1"):
        await land.stateful_set("db", replicas=1, class_="late")
        await land.until(lambda: runs(land, "db-0"), "it runs")
        pod, claim = await land.uid(PODS, "db-0"), await land.uid(CLAIMS, "data-db-0")
        await land.api.delete(CLAIMS, "data-db-0", namespace=land.namespace)

        async def stays() -> bool:
            return (await land.uid(PODS, "db-0"), await land.uid(CLAIMS, "data-db-0")) == (pod, claim)

        await land.always(stays, "the claim stays under its pod")
        await land.api.delete(PODS, "db-0", namespace=land.namespace)
        await land.until(lambda: runs(land, "db-0"), "it runs")

        async def both_are_new() -> bool:
            return pod != await land.uid(PODS, "db-0") != "" and claim != await land.uid(CLAIMS, "data-db-0") != ""

        await land.until(both_are_new, "both are new")


async def test_no_pod_is_made_while_its_claim_is_being_deleted(land: Land) -> None:
    async with served(land, "n1"):
        await land.stateful_set("db", replicas=2, class_="late", **PARALLEL)
        await land.until(lambda: runs(land, "db-0", "db-1"), "both run")
        claim = await land.get_claim("data-db-0")
        held = {"metadata": {"finalizers": [*claim["metadata"]["finalizers"], KEPT_BACK]}}
        await land.api.patch(CLAIMS, "data-db-0", held, content_type=MERGE_PATCH, namespace=land.namespace)
        await land.api.delete(CLAIMS, "data-db-0", namespace=land.namespace)
        await land.api.delete(PODS, "db-0", namespace=land.namespace)
        await land.until(lambda: runs(land, "db-1"), "the pod is gone")
        await land.always(lambda: runs(land, "db-1"), "and none is made")
        free = {"metadata": {"finalizers": None}}
        await land.api.patch(CLAIMS, "data-db-0", free, content_type=MERGE_PATCH, namespace=land.namespace)
        await land.until(lambda: runs(land, "db-0", "db-1"), "both run again")
        assert await land.uid(CLAIMS, "data-db-0") != claim["metadata"]["uid"]


async def test_an_ordered_set_makes_pods_again_from_the_lowest(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=2)
    await land.until(lambda: runs(land, "db-0", "db-1"), "both run")
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": True}})
    for pod in ("db-0", "db-1"):
        await land.api.delete(PODS, pod, namespace=land.namespace)

    async def only_the_first() -> bool:
        return await land.there(PODS) == ["db-0"] and await land.phase(PODS, "db-0") == "Pending"

    await land.until(only_the_first, "the first waits for a node")
    await land.always(only_the_first, "and the second is not made")
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": None}})
    await land.until(lambda: runs(land, "db-0", "db-1"), "both run")


async def test_a_pod_that_has_failed_is_replaced(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=1)
    await land.until(lambda: runs(land, "db-0"), "it runs")
    first = await land.uid(PODS, "db-0")
    failed = {"status": {"phase": "Failed"}}
    await land.api.patch(PODS, "db-0", failed, content_type=MERGE_PATCH, namespace=land.namespace, subresource="status")

    async def another() -> bool:
        return await runs(land, "db-0") and await land.uid(PODS, "db-0") != first

    await land.until(another, "another one runs")


# --- fewer, others, none ---------------------------------------------------------------------------------------------------


async def test_scaled_down_the_highest_goes_and_its_claim_stays(land: Land) -> None:
    async with served(land, "n1"):
        await land.stateful_set("db", replicas=3, class_="late")
        await land.until(lambda: runs(land, "db-0", "db-1", "db-2"), "all run")
        await land.patch_set("db", {"replicas": 1})
        await land.until(lambda: runs(land, "db-0"), "one is left")
        assert await land.there(CLAIMS) == ["data-db-0", "data-db-1", "data-db-2"]


async def test_claims_outlive_their_set(land: Land) -> None:
    async with served(land, "n1"):
        await land.stateful_set("db", replicas=1, class_="late")
        await land.until(lambda: runs(land, "db-0"), "it runs")
        await land.api.delete(STATEFUL_SETS, "db", namespace=land.namespace, propagation="Background")
        await land.until(lambda: has(land, [], ["data-db-0"]), "the pod is gone")
        await land.always(lambda: has(land, [], ["data-db-0"]), "and its claim is there")


async def test_pods_of_an_older_revision_are_replaced_from_the_highest_down(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=3)
    await land.until(lambda: runs(land, "db-0", "db-1", "db-2"), "all run")
    keys = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas")

    async def has_status(*expected: int) -> bool:
        return await land.set_status("db", *keys) == expected

    await land.until(lambda: has_status(3, 3, 3, 3), "all is told")
    before = (await land.get_set("db"))["status"]["currentRevision"]
    stuck = {"template": {"spec": UNREACHABLE}}
    await land.patch_set("db", stuck)
    await land.until(lambda: has_status(3, 2, 2, 1), "the highest was replaced, and does not become ready")
    status = (await land.get_set("db"))["status"]
    assert status["currentRevision"] == before != status["updateRevision"], "the set is rolling"
    kept = [await land.uid(PODS, name) for name in ("db-0", "db-1")]

    async def they_wait() -> bool:
        return [await land.uid(PODS, name) for name in ("db-0", "db-1")] == kept

    await land.always(they_wait, "and the others wait for it")
    assert await land.phase(PODS, "db-2") == "Pending"


async def test_when_all_are_replaced_the_new_revision_is_the_current_one(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=2)
    await land.until(lambda: runs(land, "db-0", "db-1"), "both run")
    first = await land.uid(PODS, "db-0")
    await land.patch_set("db", {"template": {"metadata": {"annotations": {"example.com/new": "yes"}}}})

    async def done() -> bool:
        found = await land.get_set("db")
        status = found["status"]
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status["currentRevision"] == status["updateRevision"]
            and status["currentReplicas"] == status.get("updatedReplicas") == 2
        )

    await land.until(done, "the update is done")
    assert await land.uid(PODS, "db-0") != first
    assert (await land.get_pod("db-0"))["metadata"]["annotations"]["example.com/new"] == "yes"


async def test_pods_that_nobody_deletes_stay_where_updates_are_by_deletion(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=1, updateStrategy={"type": "OnDelete"})
    await land.until(lambda: runs(land, "db-0"), "it runs")
    first = await land.uid(PODS, "db-0")
    await land.patch_set("db", {"template": {"metadata": {"annotations": {"example.com/new": "yes"}}}})

    async def rolling() -> bool:
        status = (await land.get_set("db"))["status"]
        return status["currentRevision"] != status["updateRevision"] and await land.uid(PODS, "db-0") == first

    await land.until(rolling, "the pod is of an older revision")
    await land.always(rolling, "and stays")
    await land.api.delete(PODS, "db-0", namespace=land.namespace)

    async def another() -> bool:
        return await land.uid(PODS, "db-0") not in ("", first) and await runs(land, "db-0")

    await land.until(another, "another one runs")
