"""Makes what every room is handed: the tools, and loops over queues that report and wait as all do."""

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar import settings
from sidecar.config.config import Config
from sidecar.csi.careful_io import CarefulDriver
from sidecar.csi.losses import Losses
from sidecar.doors import Doors, Instruments
from sidecar.engine.backoff import Attempts
from sidecar.engine.fair_line import Party
from sidecar.engine.loop import WORK, Loop, NeedsWork, Observer
from sidecar.engine.queue import WorkQueue
from sidecar.kube.events.recorder import Recorder
from sidecar.tools import Tools

if TYPE_CHECKING:
    from sidecar.drain.watches import DrainPart
    from sidecar.failover.controller import Failover
    from sidecar.tracing.controller import Tracing

# A look at a key may need two calls to the driver, and beside them requests that wait for the client's own rate limit.
_LOOK_SLACK: Final = 120.0
# One of so many workers, and at least one of several, is kept for other namespaces, should what one asks for hang in the driver.
_PART_FOR_OTHERS: Final = 10


def tools_of(config: Config, doors: Doors, instruments: Instruments, recorder: Recorder) -> Tools:
    losses = Losses(settings.retry(config))
    tools = Tools(
        kube=doors.kube,
        driver=CarefulDriver(doors.driver, losses, clock=instruments.clock),
        recorder=recorder,
        narrator=instruments.narrator,
        metrics=instruments.metrics,
        health=instruments.health,
        retry=settings.retry(config),
        clock=instruments.clock,
        wall=instruments.wall,
        rng=instruments.rng,
        losses=losses,
        dry_run=config.dry_run,
    )
    return tools if instruments.tracing is None else instruments.tracing.tools(tools)


def identity_of(config: Config, tools: Tools, driver: str) -> str:
    """As upstream writes it into volumes: time, a random number, driver and node."""
    return f"{int(tools.wall() * 1000)}-{int(tools.rng() * 10000)}-{driver}-{config.node_name}"


class LoopMaker:
    """`tools.MakeLoop` for one process."""

    def __init__(self, tools: Tools, *, call_timeout: float, tracing: "Tracing | None" = None) -> None:
        self._tools = tools
        self._tracing = tracing
        self._usual_deadline = 2 * call_timeout + _LOOK_SLACK

    def __call__(
        self,
        name: str,
        handle: Callable[[str], Awaitable[float | None]],
        *,
        workers: int,
        attempts: Attempts[str],
        glance: Callable[[str], float | NeedsWork | None] = lambda key: WORK,
        deadline: float | None = None,
        party_of: Callable[[str], Party] | None = None,
    ) -> Loop[str]:
        counts = self._tools.metrics.queue(name)
        observer: Observer = counts
        if self._tracing is not None:
            handle, glance, observer = self._tracing.looks(name, handle, glance, observer)
        queue: WorkQueue[str] = WorkQueue(
            party_of or (lambda _: None),
            has_failed=lambda key: loop.failures(key) > 0,
            most_held=math.inf if party_of is None else max(1, workers - max(1, workers // _PART_FOR_OTHERS)),
        )
        loop: Loop[str] = Loop(
            name,
            handle,
            workers=workers,
            deadline=deadline or self._usual_deadline,
            backoff=self._tools.retry,
            glance=glance,
            queue=queue,
            attempts=attempts,
            clock=self._tools.clock,
            observer=observer,
        )
        counts.watch(loop)
        return loop


def make_failover(config: Config, tools: Tools, doors: Doors, drains: "DrainPart") -> "Failover":
    """Imported here, so that a process without it does not have the room in memory."""
    from sidecar.failover.controller import Failover
    from sidecar.failover.door_io import Door

    said, node = settings.failover(config, doors.driver.info.name), config.node_name
    door = doors.drbd or Door(Path(config.csi_address).parent / "drbd.sock", clock=tools.clock)
    failover = Failover(tools, doors.failover_kube or doors.kube, said, door, own_node=lambda: drains.nodes.get(node))
    drains.ask_storage(failover.copies)
    return failover
