"""Nodes are emptied: each eviction hits the judged pod, while somebody asks, and never two replicas are away by our doing."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.world.effects import SENDER
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import KEPT, Plan, PlannedEvent
from hack.sim.world.themes import EPHEMERAL, EVACUATE, GIVEN_UP, SET, UNDONE
from hack.sim.world.world import World
from sidecar.kube.errors import ApiError, Unavailable
from tests.harness.placing import place
from tests.world.playing import EMPTYING, NODES, QUICK, SLOW, played


def plan(*events: PlannedEvent, write: Latency = QUICK, settle: float = 1200.0) -> Plan:
    order = tuple(sorted(events, key=lambda event: event.at))
    return Plan(1, NODES, "emptying", weather=Weather(read=QUICK, write=write), events=order, args=EMPTYING, settle=settle)


def set_of_three(*, starts: float = 3.0, kind: str = EPHEMERAL, budget: str = "maxUnavailable=1") -> PlannedEvent:
    return PlannedEvent(60.0, SET, "db", starts, f"Parallel {kind} {budget}")


def crowded(seed: int) -> Plan:
    """Four nodes, of which three are emptied at the same moment, again and again."""
    dice = random.Random(f"crowded {seed}")
    kinds = (EPHEMERAL, GIVEN_UP, EPHEMERAL, KEPT)
    events = [
        PlannedEvent(2.0 + number, SET, f"set-{number}", 8.0, f"Parallel {kind} maxUnavailable=1") for number, kind in enumerate(kinds)
    ]
    events += [PlannedEvent(90.0, "lag", node, dice.uniform(5.0, 20.0)) for node in NODES]
    for at in (100.0, 220.0, 340.0):
        emptied = dice.sample(NODES, 3)
        events += [PlannedEvent(at, EVACUATE, node) for node in emptied]
        events += [PlannedEvent(at + dice.choice((dice.uniform(3.0, 20.0), dice.uniform(41.0, 80.0))), UNDONE, node) for node in emptied]
        for number in range(3):
            off = at + dice.uniform(20.0, 50.0)
            events.append(PlannedEvent(off, "replica not ready", f"set-{number}", dice.randint(0, 2)))
            events += [PlannedEvent(at + 100.0, "replica ready", f"set-{number}", ordinal) for ordinal in range(3)]
    order = tuple(sorted(events, key=lambda event: event.at))
    return Plan(seed, NODES, "emptying", weather=Weather(read=SLOW, write=SLOW), events=order, args=EMPTYING, settle=600.0)


def test_where_much_happens_at_once_each_eviction_is_right() -> None:
    report, world = played(crowded(0))
    assert report.ok, report
    assert world.effects.evictions > 0, "nobody was evicted, so nothing was tried"


def test_where_pods_take_long_to_end_the_next_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, NODES[0], NODES[0], NODES[0])
    other = PlannedEvent(61.0, SET, "other", 3.0, f"Parallel {EPHEMERAL} maxUnavailable=1")
    hung = (PlannedEvent(155.0, "kubelet hangs", NODES[0]), PlannedEvent(160.0, EVACUATE, NODES[0]), PlannedEvent(300.0, "nothing"))
    evictions: list[int] = []

    def count(world: World) -> None:
        asyncio.get_running_loop().call_later(290.0, lambda: evictions.append(world.effects.evictions))

    report, _ = played(plan(set_of_three(), other, *hung, settle=900.0), count)
    assert report.ok, report
    assert evictions == [1]


def test_two_nodes_that_look_at_the_same_moment_send_one_replica_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is on its way for so long that whoever looks meanwhile does not see what it does: the budget refuses the later ones."""
    place(monkeypatch, *NODES[1:])
    at_once = (PlannedEvent(120.0, EVACUATE, node) for node in NODES[1:])
    report, world = played(plan(set_of_three(), *at_once, write=Latency(4.0, 4.5)))
    assert report.ok, report
    assert world.effects.evictions > 3, "nobody was refused, so nothing was tried"


def test_while_an_eviction_may_still_arrive_no_other_replica_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is not answered, and arrives all the same: after the next look, and before another replica that was sent away then is
    ready again."""

    late: list[asyncio.Task[None]] = []

    def the_first_arrives_late(world: World) -> None:
        ask = world.api.ask

        async def asked(call: Call, act: Callable[[], Any]) -> Any:
            async def arrives() -> None:
                await asyncio.sleep(80.0)
                with contextlib.suppress(ApiError):
                    await ask(call, act)

            if call.subresource == "eviction" and SENDER.get() and not late:
                late.append(asyncio.create_task(arrives()))
                raise Unavailable("the connection broke")
            return await ask(call, act)

        world.api.ask = asked  # type: ignore[method-assign]

    place(monkeypatch, NODES[1], NODES[1], NODES[2])
    report, world = played(plan(set_of_three(starts=40.0), PlannedEvent(160.0, EVACUATE, NODES[1])), the_first_arrives_late)
    assert report.ok, report
    assert late and world.effects.evictions >= 2
