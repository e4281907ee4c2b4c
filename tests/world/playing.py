"""Plays a plan and gives the world beside its report; and the sets of three that stories of emptied nodes begin with."""

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.effects import SENDER
from hack.sim.world.network import Latency
from hack.sim.world.plan import GATED, Plan
from hack.sim.world.world import Report, World, play
from sidecar.kube.errors import ApiError

NODES: Final = ("n0", "n1", "n2", "n3")
EMPTYING: Final = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", "--max-concurrent-evacuations=0")
QUICK: Final = Latency(0.02, 0.05)
SLOW: Final = Latency(0.1, 0.4)
"""Between a look and what follows from it something happens."""


def nothing_before(world: World) -> None:
    pass


def played(plan: Plan, before: Callable[[World], None] = nothing_before) -> tuple[Report, World]:
    worlds: list[World] = []

    def watch(world: World) -> None:
        worlds.append(world)
        before(world)

    return play(plan, before=watch), worlds[0]


def at_request(world: World, does: Callable[[Call], Awaitable[None]]) -> None:
    """`does` is called with each request right before it is carried out."""
    assert isinstance(world.api, InProcessApi)
    before = world.api.before

    async def asked(call: Call) -> None:
        await before(call)
        await does(call)

    world.api.before = asked


def by_itself(doing: Awaitable[None]) -> "asyncio.Task[Any]":
    """As nobody's sidecar. What the API server refuses is given up."""

    async def quietly() -> None:
        with contextlib.suppress(ApiError):
            await doing

    context = contextvars.copy_context()
    context.run(SENDER.set, "")
    return asyncio.get_running_loop().create_task(quietly(), context=context)
