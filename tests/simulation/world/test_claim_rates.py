import asyncio

import pytest

from hack.sim.clock import run_virtual
from hack.sim.world.claim_rates import (
    CREATIONS,
    DELETIONS,
    HURRIED,
    MEASURES,
    MOST,
    WRITES,
    Asker,
    ClaimRates,
    judge,
    most_in_a_minute,
)
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import World, play
from sidecar.engine.backoff import Backoff
from sidecar.engine.loop import Loop


@pytest.mark.parametrize(
    ("times", "most"),
    [
        ([], 0),
        ([5.0], 1),
        ([0.0, 60.0], 2),
        ([0.0, 60.1], 1),
        ([0.0, 1.0, 59.0, 61.0, 200.0, 201.0], 3),
        ([float(at) for at in range(600)], 61),
    ],
)
def test_the_busiest_minute(times: list[float], most: int) -> None:
    assert most_in_a_minute(times) == most


def test_who_asks_is_told_from_the_task_of_a_loop() -> None:
    async def story() -> dict[Asker, int]:
        rates = ClaimRates(asyncio.get_running_loop().time)

        async def handle(key: str) -> None:
            rates.called("n0", 1, "CreateVolume", f"pvc-{key}")
            rates.called("n0", 1, "GetCapacity", "")
            rates.wrote("n0", 2)
            await asyncio.create_task(other())

        async def other() -> None:
            rates.wrote("n0", 1)  # such as an event
            rates.called("n0", 1, "GetCapacity", "")
            rates.called("n0", 1, "ListVolumes", "")
            rates.called("n0", 1, "DeleteVolume", "vol-1")

        loop: Loop[str] = Loop("claims", handle, workers=1, deadline=10.0, backoff=Backoff(1.0, 1.0))
        running = asyncio.create_task(loop.run())
        loop.add("a")
        await asyncio.sleep(5)
        running.cancel()
        return dict(rates.busiest())

    assert run_virtual(story()) == {
        Asker("n0", 1, "claims a", CREATIONS): 1,
        Asker("n0", 1, "claims a", MEASURES): 1,
        Asker("n0", 2, "claims a", WRITES): 1,
        Asker("n0", 1, "vol-1, for which no loop asks", DELETIONS): 1,
    }


def test_a_world_counts_what_its_nodes_ask() -> None:
    worlds: list[World] = []
    made = [PlannedEvent(1.0, "claim", name, 1, class_) for name, class_ in (("a", "late"), ("b", "immediate"))]
    assert play(Plan(1, ("n0",), events=(*made, PlannedEvent(30.0, "delete", "a"))), before=worlds.append).ok
    counted = {(asker.subject.split()[0], asker.what): count for asker, count in worlds[0].request_log.rates.busiest()}
    assert counted == {
        ("claims", CREATIONS): 1,
        ("claims", MEASURES): 1,
        ("claims", WRITES): 2,
        ("volumes", DELETIONS): 1,
        ("volumes", WRITES): 2,
    }


@pytest.mark.parametrize("over", [0, 1])
def test_too_many_are_a_finding(over: int) -> None:
    async def story() -> list[str]:
        rates, found = ClaimRates(lambda: 7.0), list[str]()
        asyncio.current_task().set_name("claims a")  # type: ignore[union-attr]
        for life in (1, 2):
            for _ in range(MOST[WRITES] + over * (life == 2)):
                rates.wrote("n0", life)
        judge(rates, lambda kind, what: found.append(f"{kind}: {what}"))
        return found

    wanted = [f"{HURRIED}: life 2 of n0 asked {MOST[WRITES] + 1} times in a minute for claims a: {WRITES}"]
    assert run_virtual(story()) == (wanted if over else [])
