"""Fail-over in worlds: how long it takes, what the referee notices, what is not enough for it, and people who say things in the middle."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

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
    assert "two writers" in kinds(report)


@pytest.mark.parametrize(("resource", "kind"), [(PODS, "healthy writer touched"), (ATTACHMENTS, "attachment before its pod")])
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
    assert {kind, "healthy writer touched", "without the Lease"} <= kinds(report)


def each_node(*steps: tuple[float, str, str], begins: float = 100.0, every: float = 150.0) -> list[PlannedEvent]:
    """These steps for one node after the other: when, what, and to it or to all `others`."""
    found = list[PlannedEvent]()
    for number, node in enumerate(NODES):
        for at, what, detail in steps:
            whom = [other for other in NODES if other != node] if what.startswith("reader") else [node]
            found += [PlannedEvent(begins + every * number + at, what, each, detail=detail) for each in whom]
    return found


def test_a_node_that_is_not_ready_has_lost_nothing_by_that() -> None:
    """Its pod on storage that forbids nothing runs on, while another one's volume is proven to be lost there."""
    steps = [(0.0, "kubelet dies", ""), (60.0, "isolated", ""), (100.0, "joined", ""), (101.0, "kubelet lives", "")]
    report, world = play(app(0), app(1, "shared"), app(2, "shared"), app(3), *each_node(*steps))
    assert report.ok, report
    assert world.failed_over.acts


def test_evidence_that_is_too_old_permits_nothing() -> None:
    steps = [(0.0, "isolated", ""), (13.0, "reader fails", "hangs"), (15.0, "joined", ""), (120.0, "reader works", "")]
    spoken = [(145.0 + 150.0 * number + at, word) for number in range(3) for at, word in ((0.0, ""), (80.0, "Ignore"))]
    words = [PlannedEvent(at, "failover word", name, detail=word) for at, word in spoken for name in ("app-0", "app-1")]
    report, _ = play(app(0, word="Ignore"), app(1, word="Ignore"), *each_node(*steps), *words)
    assert report.ok, report


def test_a_pod_whose_storage_goes_again_and_again_is_failed_over_twice_at_most() -> None:
    flaps = [(35.0 * n + at, what, "") for n in range(6) for at, what in ((0.0, "isolated"), (25.0, "joined"))]
    report, world = play(app(0), app(1), app(2), *each_node(*flaps, every=220.0))
    assert report.ok, report
    assert world.failed_over.acts


def test_one_volume_of_two_that_is_lost_is_not_enough() -> None:
    steps = [(0.0, "isolated", ""), (60.0, "joined", "")]
    report, world = play(app(0, "majority", "shared"), app(1, "majority", "off"), app(2), *each_node(*steps))
    assert report.ok, report
    assert world.failed_over.acts
