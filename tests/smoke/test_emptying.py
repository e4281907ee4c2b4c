"""A node that is to be retired empties itself, and a budget is never overstepped."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import all_of
from sidecar.model import names
from tests.harness.cluster import BUDGETS, CLAIMS, DEPLOYMENTS, EVENTS, after_looks, late
from tests.harness.drains import Ground, budget, ephemeral


def test_replicas_leave_one_by_one_and_only_as_the_budget_allows(ground: Ground) -> None:
    drivers = [ground.driver(node) for node in ("n1", "n2")]
    sidecars = [ground.judge(driver, "--evacuation-evict") for driver in drivers]
    with all_of(drivers), all_of(sidecars):
        for driver, sidecar in zip(drivers, sidecars, strict=True):
            ground.node(driver.node, driver)
            sidecar.until_ready()
        ground.cordon("n2")  # so that what is made comes to the first
        ground.create(DEPLOYMENTS, ephemeral("app", late(drivers[0]), 3))
        until(lambda: [*ground.ready().values()] == ["n1"] * 3, "all replicas run on n1")
        ground.cordon("n2", False)

        ground.create(BUDGETS, budget("app", {"app": "app"}, minAvailable=3))
        until(lambda: ground.get(BUDGETS, "app").get("status", {}).get("expectedPods") == 3, "the budget is counted")
        ground.taint("n1")
        ground.await_state(drivers[0], "InProgress")
        after_looks(sidecars[0], at="drain")
        assert [*ground.ready().values()] == ["n1"] * 3, "the budget allows none"
        assert not ground.told(names.POD_EVICTED, EVENTS)

        ground.patch(BUDGETS, "app", {"spec": {"minAvailable": 2}})
        fewest: list[int] = []

        def have_moved() -> bool:
            ready = [*ground.ready().values()]
            fewest.append(len(ready))
            return ready == ["n2"] * 3

        until(have_moved, lambda: f"all run on n2: {ground.ready()}")
        assert min(fewest) >= 2, "never two at once"
        ground.await_state(drivers[0], "Success")
        until(lambda: len(ground.told(names.POD_EVICTED, EVENTS)) == 3, "each is told once")
        assert sidecars[0].metric("csi_node_sidecar_evictions_total", result="evicted") == 3
        until(lambda: len(ground.items(CLAIMS)) == 3, "the claims of the evicted went with their pods")
