"""Stories of claims that seeds seldom draw: a death at the worst moment, data that somebody keeps, a volume that nobody sees, an outage."""

import asyncio
import random
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import pytest

from hack.sim.driver.calls import Fault
from hack.sim.stand_ins.binder import Binder
from hack.sim.world.actions import carry_out
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import IMMEDIATE_CLASS, LATE, Plan, PlannedEvent
from hack.sim.world.world import World
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.ownership.roster import Roster
from tests.world.playing import played

LINGERS = Fault(method="CreateVolume", times=1, linger=6.0)
"""The volume is made at once, and the answer comes when its caller is gone."""


def events(*rows: tuple[float, str, str] | tuple[float, str, str, str]) -> tuple[PlannedEvent, ...]:
    return tuple(PlannedEvent(row[0], row[1], row[2], 1, "".join(row[3:])) for row in rows)


def test_a_sidecar_that_dies_while_its_driver_works_leaves_no_volume_when_the_claim_goes() -> None:
    rows = events((2.0, "claim", "data", LATE), (4.0, "kill", "n0"), (4.1, "delete", "data"))
    report, world = played(Plan(1, ("n0",), events=rows, faults=(("n0", LINGERS),)))
    assert report.ok, report
    assert world.nodes["n0"].driver.volumes() == ()


def test_nothing_is_begun_while_the_disk_beside_the_socket_is_full() -> None:
    rows = events((2.0, "disk full", "n0"), (4.0, "claim", "data", LATE), (6.0, "kill", "n0"), (6.1, "delete", "data"))
    report, world = played(Plan(1, ("n0",), events=(*rows, *events((20.0, "disk free", "n0"))), faults=(("n0", LINGERS),)))
    assert report.ok, report
    assert world.nodes["n0"].driver.volumes() == ()


# --- a PersistentVolume that is gone before its node has seen it ------------------------------------------------------------


def test_a_claim_whose_volume_is_deleted_unseen_is_bound_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume controller is slow to bind. What is stored is gone before the watch has told of it, and the watch ends with 410."""
    gone: list[str] = []

    async def bind(self: Any, claim: Any, volume: Any, *, real: Any = Binder._bind) -> None:
        if gone:
            await real(self, claim, volume)

    async def somebody(world: World) -> None:
        def of_claim() -> list[str]:
            volumes = world.cluster.store.all_of(VOLUMES)
            return [each["metadata"]["name"] for each in volumes if (each["spec"].get("claimRef") or {}).get("name") == "data"]

        while not of_claim():
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.0)
        world.network.take_down("n0")
        (name,) = of_claim()
        await world.api.delete(VOLUMES, name)
        with suppress(NotFound):
            await world.api.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        gone.append(name)
        await asyncio.sleep(30.0)
        await carry_out(world, PlannedEvent(world.clock(), "compact"))
        world.bring_up("n0")

    monkeypatch.setattr(Binder, "_bind", bind)
    plan = Plan(1, ("n0",), weather=Weather(watch=Latency(5.0, 5.0)), events=events((2.0, "claim", "data", LATE), (95.0, "compact", "")))
    report, world = played(plan, lambda world: world.spawn("somebody", somebody(world)))
    assert report.ok, report
    assert len(world.nodes["n0"].driver.volumes()) == 1


# --- an outage just after claims have come ----------------------------------------------------------------------------------

CLAIMS = 20
GOES = 5.3
BACK = 75.0
AWAY = (PlannedEvent(GOES, "outage"), PlannedEvent(BACK, "recovery"))


async def refusing_all(world: World) -> None:
    """As an overloaded server does, with 429."""
    await asyncio.sleep(GOES)
    before, world.network.weather = world.network.weather, Weather(refused=1.0)
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
            for volume in world.cluster.store.all_of(VOLUMES):
                if (name := volume["spec"]["claimRef"]["name"]).startswith("data-"):
                    made.setdefault(name, world.clock())

    rows = [PlannedEvent(5.0 + number / 100, "claim", f"data-{number}", 1, IMMEDIATE_CLASS) for number in range(CLAIMS)]
    rows += [PlannedEvent(BACK + 500.0, "sidecar lives", dead)] if dead else []
    plan = Plan(seed, tuple(nodes), events=(*rows, *outage), placements=tuple((node, "ranked") for node in nodes), settle=100.0)
    report, _ = played(plan, lambda world: world.spawn("look", look(world)))
    assert report.ok, report
    assert len(made) == CLAIMS
    return max(made.values()) - BACK


@pytest.mark.parametrize("outage", (AWAY, ()), ids=["away", "refuses all"])
def test_after_it_each_claim_soon_has_its_volume_where_each_node_thinks_that_another_comes_first(
    outage: tuple[PlannedEvent, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of different times give different orders. The writes that had waited for the server made each node think that all lag as far
    behind, so both left such claims to the other: for up to 238 s after an outage of 70 s, and for 169 s where it had refused all."""

    def rank(self: Roster, node: str, uid: str, needed: int, *, exact: int, last: Collection[str] = (), real: Any = Roster.rank) -> Any:
        return 1 if random.Random(uid).random() < 0.5 else real(self, node, uid, needed, exact=exact, last=last)

    monkeypatch.setattr(Roster, "rank", rank)
    assert longest_wait(8, outage=outage) <= (30.0 if outage else 60.0)


@pytest.mark.parametrize("outage", (AWAY, ()), ids=["away", "refuses all"])
def test_after_it_each_claim_soon_has_its_volume_where_the_first_node_is_dead(outage: tuple[PlannedEvent, ...]) -> None:
    """A bid that had been refused made its node lag, so it was put off itself, and by that it made its node lag: for up to 160 s."""
    assert longest_wait(8, nodes=("n0", "n1", "n2"), outage=outage, dead="n0") <= 60.0
