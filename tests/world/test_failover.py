"""Fail-over in worlds: how long it takes, what the referee of its worlds notices, and people who say things in the middle."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.world import failed_over
from hack.sim.world.effects import SENDER
from hack.sim.world.failover import SET, stages
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import World
from sidecar.kube.api import ATTACHMENTS, PODS
from tests.world.playing import played

NODES = ("n0", "n1", "n2")
ARGS = ("--drain-report", "--node-drain-policy=NoSchedule", "--failover=Act")


def app(number: int, *kinds: str, word: str = "", bare: bool = False) -> PlannedEvent:
    drawn = {"kinds": kinds or ["majority"], "disks": NODES, "diskless": [], "word": word, "bare": bare}
    return PlannedEvent(5.0 + number, SET, f"app-{number}", detail=json.dumps(drawn))


def play(*events: PlannedEvent, before: Callable[[World], None] = lambda _: None) -> tuple[Any, World]:
    return played(Plan(1, NODES, "failover", events=tuple(sorted(events, key=lambda event: event.at)), args=ARGS), before)


def kinds(report: Any) -> set[str]:
    return {violation.kind for violation in report.violations}


@pytest.mark.parametrize(("word", "latest"), [("", 60.0), ("ForceOnExclusion", 28.0)])
def test_the_first_action_comes_11_to_21_s_after_a_crash_and_the_old_pod_is_gone_2_s_after_not_ready_or_28_s(
    word: str, latest: float
) -> None:
    for seed in range(3):
        after = stages(seed, word)
        assert 11.0 <= after["first action"] <= 21.0
        assert after["old pod gone"] <= (latest if word else after["node not Ready"] + 2.5)
        assert after["old pod gone"] < after["detached"] < after["running"] <= 180.0


def test_a_healthy_cluster_and_one_node_that_crashes_and_comes_back() -> None:
    report, world = play(app(0), app(1, "majority", "shared"), app(2, "shared"), app(3, word="Ignore"), app(4, bare=True))
    assert report.ok, report
    assert {act[1] for act in world.failed_over.acts} >= {"delete"}


def test_a_second_writer_on_shared_storage_is_seen() -> None:
    def meddle(world: World) -> None:
        async def two() -> None:
            await asyncio.sleep(40.0)
            uid, process = next(item for machine in world.machines.all.values() for item in machine.processes.items())
            for machine in world.machines.all.values():
                machine.processes.setdefault(uid, process)

        world.spawn("two", two())

    report, _ = play(app(0, "shared"), PlannedEvent(60.0, "nothing"), before=meddle)
    assert failed_over.TWO_WRITERS in kinds(report)


@pytest.mark.parametrize(("resource", "kind"), [(PODS, failed_over.HEALTHY), (ATTACHMENTS, failed_over.TOO_EARLY)])
def test_a_sidecar_that_touches_a_healthy_writer_is_noticed(resource: Any, kind: str) -> None:
    def meddle(world: World) -> None:
        async def touch() -> None:
            await asyncio.sleep(60.0)
            found = world.cluster.store.all_of(resource)[0]
            other = next(name for name in NODES if name != found["spec"]["nodeName"])
            SENDER.set(other)
            meta = found["metadata"]
            await world.api.delete(resource, meta["name"], namespace=meta.get("namespace", ""), uid=meta["uid"])

        world.spawn("touch", touch())

    report, _ = play(app(0), PlannedEvent(80.0, "nothing"), before=meddle)
    assert {kind, failed_over.HEALTHY, failed_over.NO_LEASE} <= kinds(report)
