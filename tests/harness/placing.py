"""Decides to which nodes the simulated scheduler sends the first replicas of a set."""

from typing import Any

import pytest

from hack.sim.stand_ins.scheduler import Scheduler
from sidecar.model.objects import Json


def place(patch: pytest.MonkeyPatch, *nodes: str) -> None:
    """Each replica of a world's only set goes to the node of its ordinal. Those that are made again may go anywhere."""
    placed: set[str] = set()

    async def choose(self: Scheduler, pod: Json, claims: list[Json], *, real: Any = Scheduler._choose) -> Any:
        name = pod["metadata"]["name"]
        if name in placed:
            return await real(self, pod, claims)
        placed.add(name)
        return nodes[int(name.rpartition("-")[2])]

    patch.setattr(Scheduler, "_choose", choose)
