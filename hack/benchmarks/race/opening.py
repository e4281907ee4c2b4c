"""What was there when a phase began, so that what it used can be told at its end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hack.benchmarks.process_cost import cost_of
from hack.benchmarks.race.judge import Expense
from hack.benchmarks.race.served import Served
from hack.benchmarks.race.stage import Scene
from hack.lib.programs import Json


@dataclass(frozen=True)
class Opening:
    at: float
    """By the wall clock."""
    served: Served
    cpu: Mapping[str, float]
    logged_already: int
    """Bytes of the audit log."""
    busy: float
    own: float

    @classmethod
    def of(cls, scene: Scene) -> Self:
        already, served = scene.audit.stat().st_size if scene.audit.exists() else 0, scene.served()
        return cls(cpu=scene.cpu(), busy=_busy(), own=time.process_time(), at=time.time(), served=served, logged_already=already)

    def spent(self, scene: Scene) -> Expense:
        """A program that has died would look as if it cost nothing, so that is the end of the measurement."""
        used = {part: seconds - self.cpu[part] for part, seconds in scene.cpu().items()}
        others, seconds = _busy() - self.busy - sum(used.values()) - (time.process_time() - self.own), time.time() - self.at
        scene.check()
        return Expense(
            seconds=seconds,
            cpu=used,
            others=max(0.0, others) / seconds,
            load=os.getloadavg()[0],
            resident=[cost_of(item.child.pid).resident for item in scene.instances],
            served=scene.served().since(self.served),
        )

    def logged(self, scene: Scene) -> list[Json]:
        """What the programs have asked of the API server since then."""
        return logged(scene.audit, self.logged_already)


def logged(audit: Path, already: int) -> list[Json]:
    """What is in the audit log after so many bytes."""
    with suppress(FileNotFoundError), audit.open("rb") as file:
        file.seek(already)
        return [json.loads(line) for line in file]
    return []


def _busy() -> float:
    """CPU seconds that the whole machine has worked."""
    user, nice, system, _idle, _waiting, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
