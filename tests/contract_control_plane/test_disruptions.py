"""What a disruption budget allows: counted by what the owners of its pods are scaled to, or by the pods that are there."""

from sidecar.kube.api import BUDGETS, MERGE_PATCH, PODS
from tests.contract_control_plane.land import Land

PARALLEL = {"podManagementPolicy": "Parallel"}


async def running(land: Land, count: int) -> None:
    async def all_run() -> bool:
        pods = await land.pods()
        return len(pods) == count and all(pod["status"]["phase"] == "Running" for pod in pods)

    await land.until(all_run, f"{count} pods run")


async def allows(land: Land, *expected: int, budget: str = "db") -> None:
    async def counted() -> bool:
        return await land.allows(budget) == expected

    await land.until(counted, f"expected, healthy, desired, allowed: {expected}")


async def make_ready(land: Land, pod: str, status: str) -> None:
    found = await land.get_pod(pod)
    others = [item for item in found["status"]["conditions"] if item["type"] != "Ready"]
    patch = {"status": {"conditions": [*others, {"type": "Ready", "status": status}]}}
    await land.api.patch(PODS, pod, patch, content_type=MERGE_PATCH, namespace=land.namespace, subresource="status")


async def three_ready(land: Land) -> None:
    await land.begin("n1")
    await land.stateful_set("db", replicas=3, **PARALLEL)
    await running(land, 3)


async def three_of_which_one_may_go(land: Land) -> None:
    await three_ready(land)
    await land.budget("db", "db", maxUnavailable=1)
    await allows(land, 3, 3, 2, 1)


# Each with how many pods are wanted to be ready, and how many may be evicted, of three.
SPECS: list[tuple[dict[str, int | str], int, int]] = [
    ({"maxUnavailable": 1}, 2, 1),
    ({"maxUnavailable": "50%"}, 1, 2),
    ({"maxUnavailable": 5}, 0, 3),
    ({"maxUnavailable": "0%"}, 3, 0),
    ({"minAvailable": 2}, 2, 1),
    ({"minAvailable": "50%"}, 2, 1),
    ({"minAvailable": 5}, 5, 0),
]


async def test_what_three_ready_pods_allow(land: Land) -> None:
    await three_ready(land)
    for spec, desired, allowed in SPECS:
        await land.budget("db", "db", **spec)
        await allows(land, 3, 3, desired, allowed)
        await land.api.delete(BUDGETS, "db", namespace=land.namespace)


async def test_a_pod_that_is_not_ready_uses_the_budget_up(land: Land) -> None:
    await three_of_which_one_may_go(land)
    await make_ready(land, "db-1", "False")
    await allows(land, 3, 2, 2, 0)
    assert "disruption budget" in await land.evict("db-0")
    await make_ready(land, "db-1", "True")
    await allows(land, 3, 3, 2, 1)


async def test_a_pod_that_is_missing_counts_by_the_scale_of_its_owner_and_not_by_pods(land: Land) -> None:
    await three_of_which_one_may_go(land)
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": True}})
    await land.api.delete(PODS, "db-2", namespace=land.namespace)
    await allows(land, 3, 2, 2, 0)
    await land.patch_set("db", {"replicas": 2})
    await allows(land, 2, 2, 1, 1)


async def test_a_number_that_must_be_there_is_held_against_the_pods_that_are_there(land: Land) -> None:
    """An ordered set of three makes no more than its first pod as long as that one waits for a node."""
    await land.begin("n1")
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": True}})
    await land.stateful_set("db", replicas=3)
    await land.until(lambda: land.exists(PODS, "db-0"), "the first is made")
    for spec, expected, desired in (({"minAvailable": 1}, 1, 1), ({"maxUnavailable": 1}, 3, 2), ({"minAvailable": "100%"}, 3, 3)):
        await land.budget("db", "db", **spec)
        await allows(land, expected, 0, desired, 0)
        await land.api.delete(BUDGETS, "db", namespace=land.namespace)


async def test_after_an_eviction_the_next_one_waits_until_the_pod_is_ready_again(land: Land) -> None:
    await three_of_which_one_may_go(land)
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": True}})
    assert await land.evict("db-0") == ""
    assert "disruption budget" in await land.evict("db-1")
    await allows(land, 3, 2, 2, 0)
    found = await land.api.get(BUDGETS, "db", namespace=land.namespace)
    assert not found["status"].get("disruptedPods"), "the eviction has been seen"
    await land.patch_node(land.own("n1"), {"spec": {"unschedulable": None}})
    await allows(land, 3, 3, 2, 1)
    assert await land.evict("db-1") == ""


async def test_a_pod_that_was_allowed_to_go_does_not_count_though_it_stays(land: Land) -> None:
    await three_of_which_one_may_go(land)
    now = (await land.api.create(PODS, {"metadata": {"name": "clock"}, "spec": {"containers": [{"name": "a", "image": "none"}]}},
                                 namespace=land.namespace))["metadata"]["creationTimestamp"]  # fmt: skip
    noted = {"status": {"disruptionsAllowed": 0, "disruptedPods": {"db-0": now, "never-was": now}}}
    await land.api.patch(BUDGETS, "db", noted, content_type=MERGE_PATCH, namespace=land.namespace, subresource="status")
    await allows(land, 3, 2, 2, 0)
    found = await land.api.get(BUDGETS, "db", namespace=land.namespace)
    assert found["status"]["disruptedPods"] == {"db-0": now}


async def test_pods_that_nobody_owns_count_only_where_a_number_must_be_there(land: Land) -> None:
    await land.begin("n1")
    spec = {"containers": [{"name": "a", "image": "none"}]}
    for number in range(2):
        meta = {"name": f"bare-{number}", "labels": {"app": "bare"}}
        await land.api.create(PODS, {"metadata": meta, "spec": spec}, namespace=land.namespace)
    await running(land, 2)
    await land.budget("db", "bare", maxUnavailable=1)
    await land.budget("number", "bare", minAvailable=1)
    await allows(land, 0, 2, 0, 0)
    await allows(land, 2, 2, 1, 1, budget="number")


async def test_a_budget_without_pods_allows_nothing(land: Land) -> None:
    await land.begin("n1")
    await land.budget("db", "nobody", minAvailable=0)
    await allows(land, 0, 0, 0, 0)
