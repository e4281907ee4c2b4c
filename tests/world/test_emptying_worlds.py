"""Nodes are emptied and that is undone again, by seed: each eviction hits the judged pod, while somebody asks, and no data that stays.

Each guard is taken away on purpose, and some seed notices.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.drains.drain_world import DrainWorld, play
from hack.sim.drains.evictions import WRONG_EVICTION, EvictionReferee
from hack.sim.drains.plan import GATED
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.emptying import controller, rules
from sidecar.drain.emptying.controller import EmptyingDuty
from sidecar.eviction import attempt_io
from sidecar.eviction.rules import May
from sidecar.model import names

SEEDS = range(6)
ARGS = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", "--max-concurrent-evacuations=0")
WORDS = (
    f"{names.DRAIN_POLICY}=Ignore",
    f"{names.DRAIN_POLICY_RETIRE}=Ignore",
    f"{names.DRAIN_POLICY}=Block",
    f"{names.DRAIN_POLICY_REBOOT}=Ignore",
)


def plan(seed: int) -> Plan:
    """What n0 hears is late, so that an undo is seen when it is long over."""
    dice = random.Random(f"emptying {seed}")
    events = [PlannedEvent(dice.uniform(2.0, 20.0), "app", f"app-{number}", 1.0, f"late {WORDS[number % 4]}") for number in range(8)]
    events.append(PlannedEvent(80.0, "lag", "n0", dice.uniform(4.0, 10.0)))
    at = 100.0
    for _ in range(4):
        events.append(PlannedEvent(at, "evacuate", "n0"))
        events.append(PlannedEvent(at + dice.uniform(8.0, 30.0), "evacuation undone", "n0"))
        if dice.random() < 0.5:
            events.append(PlannedEvent(at + dice.uniform(2.0, 30.0), "kill", "n0"))
        at += 90.0
    return Plan(seed, ("n0",), events=tuple(sorted(events, key=lambda event: event.at)), args=ARGS, settle=1500.0)


HANGS_AT = 95.0


def played(seed: int, *, hangs: bool = False) -> tuple[Report, int]:
    """The report, and how many evictions there were."""
    referees: list[EvictionReferee] = []

    def watch(world: DrainWorld) -> None:
        referee = EvictionReferee(world)
        sample = world.referee.sample
        world.referee.sample = lambda: (sample(), referee.sample())[0]  # type: ignore[method-assign, func-returns-value]
        referees.append(referee)
        if hangs:  # the kubelet of n0, so that who was asked to end stays
            asyncio.get_running_loop().call_later(HANGS_AT, world.silent.add, "n0")

    report = play(plan(seed), before=watch)
    return report, referees[0].count


@pytest.mark.parametrize("seed", SEEDS)
def test_each_eviction_is_right(seed: int) -> None:
    report, count = played(seed)
    assert report.ok, str(report)
    assert count > 0, "nobody was evicted, so nothing was tried"


def test_where_pods_take_long_to_end_the_next_one_waits() -> None:
    report, count = played(0, hangs=True)
    assert not {WRONG_EVICTION} & report.kinds, str(report)
    assert count == 1


def test_it_is_noticed_when_the_next_one_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(rules, "_leaves", lambda pod, view: False)
        assert WRONG_EVICTION in played(0, hangs=True)[0].kinds


def _without_uid(patch: pytest.MonkeyPatch) -> None:
    def body(pod: May) -> dict[str, Any]:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace}}

    patch.setattr(attempt_io, "body", body)


def _at_once(patch: pytest.MonkeyPatch, *, real: Any = attempt_io.body) -> None:
    patch.setattr(attempt_io, "body", lambda pod: real(pod) | {"deleteOptions": real(pod)["deleteOptions"] | {"gracePeriodSeconds": 0}})


def _undo_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, picture: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(EmptyingDuty, "_undone", nothing)


def _every_volume_may_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_may_leave", lambda item: True)


def _whatever_the_state(patch: pytest.MonkeyPatch) -> None:
    _undo_is_not_looked_for(patch)
    patch.setattr(controller, "is_under_way", lambda signals, picture: True)


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the uid is left out": _without_uid,
    "the grace period is taken": _at_once,
    "an undo is not looked for": _undo_is_not_looked_for,
    "every volume may leave": _every_volume_may_leave,
    "nobody need ask": _whatever_the_state,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_that_is_missing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        MUTATIONS[name](patch)
        assert any(WRONG_EVICTION in played(seed)[0].kinds for seed in SEEDS)
