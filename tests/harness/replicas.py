"""Four nodes, and a StatefulSet of three replicas under a budget that allows one to be away; their claims may be made anew."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, Sidecar
from sidecar.model import names
from tests.harness.cluster import BUDGETS, CLAIMS, EVENTS, LEASES, STATEFUL_SETS
from tests.harness.drains import Ground, apart, budget, stateful_set

FLAGS = (
    "--evacuation-evict",
    "--allow-reprovision",
    "--reprovision-pause=0",
    "--enable-capacity",
    "--capacity-ownerref-level=-1",
    "--capacity-poll-interval=2s",
)
THERE = ("n1", "n2", "n3", "n4")


class Replicas:
    """db, on n1 to n3."""

    def __init__(self, ground: Ground, running: ExitStack) -> None:
        self.ground = ground
        self.drivers = [ground.driver(node) for node in THERE]
        self.sidecars = [ground.judge(driver, *FLAGS) for driver in self.drivers]
        for process in (*self.drivers, *self.sidecars):
            running.enter_context(process)
        for driver, sidecar in zip(self.drivers, self.sidecars, strict=True):
            ground.node(driver.node, driver, capacity=True)
            sidecar.until_ready()
        ground.cordon("n4")
        body = stateful_set("db", self.drivers[0], 3)
        body["spec"]["template"]["spec"]["affinity"] = apart("db")
        body["spec"]["volumeClaimTemplates"][0]["metadata"]["annotations"] = {names.DRAIN_POLICY_RETIRE: "Reprovision"}
        ground.create(STATEFUL_SETS, body)
        until(lambda: len(ground.ready()) == 3, "all replicas are ready")
        ground.cordon("n4", False)
        ground.create(BUDGETS, budget("db", {"app": "db"}, maxUnavailable=1))
        self.await_allowed(1)

    def await_allowed(self, many: int) -> None:
        until(lambda: self.ground.get(BUDGETS, "db").get("status", {}).get("disruptionsAllowed") == many, f"the budget allows {many}")

    def on(self, node: str) -> str:
        return next(pod for pod, where in self.ground.ready().items() if where == node)

    def has_left(self, pod: str, node: str) -> bool:
        return self.ground.ready().get(pod, node) != node

    def of(self, node: str) -> tuple[OurDriver, Sidecar]:
        place = THERE.index(node)
        return self.drivers[place], self.sidecars[place]

    def claims(self) -> dict[str, str]:
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.ground.items(CLAIMS)}

    def leases(self) -> list[Json]:
        return [item for item in self.ground.items(LEASES) if names.REPROVISION_FOR in (item["metadata"].get("labels") or {})]

    def at_rest(self) -> bool:
        marked = any(names.REPROVISIONED_BY in (item["metadata"].get("annotations") or {}) for item in self.ground.items(CLAIMS))
        return not marked and not self.leases()

    def told(self, reason: str) -> list[str]:
        return self.ground.told(reason, EVENTS)

    def fewest_until(self, done: Callable[[], bool], what: str) -> int:
        """The fewest ready replicas meanwhile."""
        seen = [3]

        def look() -> bool:
            seen.append(len(self.ground.ready()))
            return done()

        until(look, lambda: f"{what}: {self.ground.ready()} {self.leases()}")
        return min(seen)
