"""What a cluster costs in which no volume is made: while nothing happens, and while a rolling update replaces all instances."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hack.benchmarks.process_cost import cpu_seconds
from hack.benchmarks.race.judge import Expense
from hack.benchmarks.race.opening import Opening
from hack.benchmarks.race.stage import Program, Scene, is_synced
from hack.lib.programs import Json, Process

SETTLE: Final = 15.0
"""Seconds in which what instances still do about the claims of the phase before comes to its end."""
AFTERMATH: Final = 10.0
"""The contenders are listed up to five seconds after a start, and belong to it."""
_LIMIT: Final = 180.0
_POLL: Final = 0.05


@dataclass(frozen=True)
class Start:
    """Of an instance, until everything it watches has been listed once. Seconds."""

    synced: float
    cpu: float


@dataclass(frozen=True)
class Upkeep:
    program: str
    nodes: int
    phase: str
    instances: int
    volumes: int
    """That were there, bound, with their claims."""
    requests: int
    """Of the programs, without watches."""
    requests_by_kind: Mapping[str, int]
    watches: int
    """That the programs have ended, or that were ended for them."""
    expense: Expense
    at_once: int = 0
    """Instances that were away at the same time."""
    starts: Sequence[Start] = ()


def rest(scene: Scene, program: Program, nodes: int, *, volumes: int, seconds: float) -> Upkeep:
    opening = _open(scene)
    time.sleep(seconds)
    return _upkeep(scene, program, nodes, "rest", volumes, opening)


def roll(scene: Scene, program: Program, nodes: int, *, volumes: int, at_once: int) -> Upkeep:
    opening, starts = _open(scene), list[Start]()
    for first in range(0, len(scene.instances), at_once):
        starts += _replaced(scene, scene.instances[first : first + at_once])
    time.sleep(AFTERMATH)
    return _upkeep(scene, program, nodes, "roll", volumes, opening, at_once=at_once, starts=starts)


def _open(scene: Scene) -> Opening:
    time.sleep(SETTLE)
    return Opening.of(scene)


def _replaced(scene: Scene, instances: Iterable[Process]) -> Iterator[Start]:
    """As a DaemonSet does: the next ones are ended when these are ready."""
    waiting: dict[Process, tuple[float, int]] = {}
    for instance in instances:
        scene.gone.append(cpu_seconds(instance.child.pid))
        instance.stop()
        waiting[instance] = time.monotonic(), instance.log.stat().st_size
        instance.start()
    while waiting:
        for instance, (began, already) in list(waiting.items()):
            took = time.monotonic() - began
            if instance.child.poll() is not None or took > _LIMIT:
                raise SystemExit(f"hack/bench: {instance.name} was replaced and is not ready:\n{instance.output()[-4000:]}")
            if is_synced(instance, _since(instance, already)):
                del waiting[instance]
                yield Start(took, cpu_seconds(instance.child.pid))
        time.sleep(_POLL)


def _since(instance: Process, already: int) -> str:
    with instance.log.open("rb") as log:
        log.seek(already)
        return log.read().decode(errors="replace")


def _upkeep(
    scene: Scene,
    program: Program,
    nodes: int,
    phase: str,
    volumes: int,
    opening: Opening,
    *,
    at_once: int = 0,
    starts: Sequence[Start] = (),
) -> Upkeep:
    expense = opening.spent(scene)
    asked, watches = asked_for(opening.logged(scene))
    return Upkeep(
        program=program.name,
        nodes=nodes,
        phase=phase,
        instances=len(scene.instances),
        volumes=volumes,
        requests=asked.total(),
        requests_by_kind=dict(asked.most_common()),
        watches=watches,
        expense=expense,
        at_once=at_once,
        starts=starts,
    )


def asked_for(events: Iterable[Json]) -> tuple[Counter[str], int]:
    """Requests by kind, and how many watches, from the audit log."""
    asked, watches = Counter[str](), 0
    for event in events:
        if event["verb"] == "watch":
            watches += 1
        else:
            about = event.get("objectRef", {"resource": event.get("requestURI", "")})
            asked[f"{event['verb']} {about.get('resource', '')}"] += 1
    return asked, watches
