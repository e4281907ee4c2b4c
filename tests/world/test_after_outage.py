"""The API server is away, or refuses all, just after Immediate claims have come: soon after it is back each of them has its volume."""

import asyncio
import random
from collections.abc import Collection
from dataclasses import replace

import pytest

from hack.sim.world.plan import IMMEDIATE_CLASS, Plan, PlannedEvent
from hack.sim.world.world import World, play
from sidecar.kube.api import VOLUMES
from sidecar.ownership.roster import Roster

CLAIMS = 20
GOES = 5.3
BACK = 75.0
AWAY = (PlannedEvent(GOES, "outage"), PlannedEvent(BACK, "recovery"))


async def refusing_all(world: World) -> None:
    """As an overloaded server does, with 429."""
    await asyncio.sleep(GOES)
    before = world.network.weather
    world.network.weather = replace(before, refused=1.0)
    await asyncio.sleep(BACK - GOES)
    world.network.weather = before


def longest_wait(seed: int, *, nodes: Collection[str] = ("n0", "n1"), outage: tuple[PlannedEvent, ...] = (), dead: str = "") -> float:
    """Seconds from the end of the outage until the last claim has a volume. Without an outage all is refused for as long."""
    made: dict[str, float] = {}

    async def look(world: World) -> None:
        if not outage:
            world.spawn("refusing", refusing_all(world))
        if dead:
            world.nodes[dead].lay_down()
        while len(made) < CLAIMS and world.clock() < BACK + 500.0:
            await asyncio.sleep(0.5)
            for volume in (await world.api.list_page(VOLUMES)).items:
                if (name := volume["spec"]["claimRef"]["name"]).startswith("data-"):
                    made.setdefault(name, world.clock())

    events = [PlannedEvent(5.0 + number / 100, "claim", f"data-{number}", 1, IMMEDIATE_CLASS) for number in range(CLAIMS)]
    if dead:
        events.append(PlannedEvent(BACK + 500.0, "gets up", dead))
    plan = Plan(seed, tuple(nodes), events=(*events, *outage), placements=tuple((node, "ranked") for node in nodes))
    report = play(plan, before=lambda world: world.spawn("look", look(world)))
    assert report.ok, report
    assert len(made) == CLAIMS
    return max(made.values()) - BACK


@pytest.mark.parametrize("outage", (AWAY, ()), ids=["away", "refuses all"])
@pytest.mark.parametrize("seed", (8, 17, 21))
def test_also_where_each_node_thinks_that_another_comes_first(
    seed: int, outage: tuple[PlannedEvent, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of different times give different orders. The writes that had waited for the server made each node think that all lag as far
    behind, so both left such claims to the other: for up to 238 s after an outage of 70 s, and for 169 s where it had refused all."""

    def rank(self: Roster, node: str, uid: str, needed: int, *, exact: int, last: Collection[str] = (), real=Roster.rank) -> int:  # type: ignore[no-untyped-def]
        return 1 if random.Random(uid).random() < 0.5 else real(self, node, uid, needed, exact=exact, last=last)

    monkeypatch.setattr(Roster, "rank", rank)
    assert longest_wait(seed, outage=outage) <= (30.0 if outage else 60.0)


@pytest.mark.parametrize("outage", (AWAY, ()), ids=["away", "refuses all"])
@pytest.mark.parametrize("seed", (8, 17))
def test_also_where_the_first_node_is_dead(seed: int, outage: tuple[PlannedEvent, ...]) -> None:
    """A bid that had been refused made its node lag, so it was put off itself, and by that it made its node lag: for up to 160 s."""
    assert longest_wait(seed, nodes=("n0", "n1", "n2"), outage=outage, dead="n0") <= 60.0
