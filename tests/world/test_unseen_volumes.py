"""A PersistentVolume that is deleted before it is bound, while its node sees nothing: the claim is bound all the same, with one volume."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.stand_ins.binder import Binder
from hack.sim.world.invariants import LOST
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.plan_actions import carry_out
from hack.sim.world.world import Report, World, play
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.provisioning.progress import Stored
from sidecar.provisioning.progress_table import ProgressTable

SLOW = Weather(watch=Latency(5.0, 5.0))


async def of_claim(world: World, name: str) -> list[str]:
    volumes = (await world.api.list_page(VOLUMES)).items
    return [each["metadata"]["name"] for each in volumes if (each["spec"].get("claimRef") or {}).get("name") == name]


def unseen(monkeypatch: pytest.MonkeyPatch) -> tuple[Report, World]:
    """The volume controller is slow to bind. What is stored is gone before the watch has told of it, and the watch ends with 410."""
    worlds: list[World] = []
    gone: list[str] = []

    async def bind(self: Any, claim: Any, volume: Any, *, real: Any = Binder._bind) -> None:
        if gone:
            await real(self, claim, volume)

    async def somebody(world: World) -> None:
        while not (made := await of_claim(world, "data")):
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.0)
        world.take_down("n0")
        (name,) = made
        await world.api.delete(VOLUMES, name)
        with suppress(NotFound):
            await world.api.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        gone.append(name)
        await asyncio.sleep(30.0)
        await carry_out(world, PlannedEvent(world.clock(), "compact"))
        world.bring_up("n0")

    def before(world: World) -> None:
        worlds.append(world)
        world.spawn("somebody", somebody(world))

    monkeypatch.setattr(Binder, "_bind", bind)
    events = (PlannedEvent(2.0, "claim", "data", 1, "late"), PlannedEvent(95.0, "compact"))
    return play(Plan(1, ("n0",), weather=SLOW, events=events), before=before), worlds[0]


def by_list(patch: pytest.MonkeyPatch) -> None:
    def at(now: float, handle: str, *, real: Any = Stored.at) -> Stored:
        return replace(real(now, handle), doubt_from=float("inf"))

    patch.setattr(Stored, "at", at)


def by_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProgressTable, "doubt_stored", lambda *_, **__: None)


@pytest.mark.parametrize("noticed", [by_list, by_time])
def test_either_a_list_or_time_raises_the_doubt(noticed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    noticed(monkeypatch)
    report, world = unseen(monkeypatch)
    assert report.ok, report
    assert len(world.nodes["n0"].driver.volumes()) == 1


def test_believing_for_ever_what_was_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    by_list(monkeypatch)
    by_time(monkeypatch)
    report, _ = unseen(monkeypatch)
    assert LOST in report.kinds
