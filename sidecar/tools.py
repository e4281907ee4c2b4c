"""What every room is handed at its start, as one value: the two doors, whom to tell, clocks and dice. `wiring` makes it.

What only some rooms need (caches, reserved space, the journal, settings) is handed beside it.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from sidecar.csi.api import Driver
from sidecar.csi.losses import Losses
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.engine.fair_line import Party
from sidecar.engine.health import Health
from sidecar.engine.loop import Loop, NeedsWork
from sidecar.engine.side_task import keep_running
from sidecar.kube.api import KubeApi
from sidecar.kube.events.recorder import Recorder
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """A room never makes these itself, so that a test or a simulated world can hand in its own."""

    kube: KubeApi
    driver: Driver
    recorder: Recorder
    """Kubernetes Events, for people."""
    narrator: Narrator
    """Every decision, for the metrics, the log and the debug page."""
    metrics: Metrics
    health: Health
    retry: Backoff
    """How long to wait after a failure, as the command line says."""
    clock: Callable[[], float]
    """Monotonic: for deadlines and pauses."""
    wall: Callable[[], float]
    """Seconds since 1970: for what is written down or compared with timestamps of others."""
    rng: Callable[[], float]
    """Between 0 and 1."""
    losses: Losses
    """Which calls the driver did not survive."""
    dry_run: bool = False
    """Decide and log, change nothing."""

    def keep_running(self, room: str, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """What the room can do without: a fault in it ends nothing else."""
        return keep_running(name, run, scope=self.health.scope(f"{room}: {name}", gates_ready=False), on_fault=self.metrics.fault)


class MakeLoop(Protocol):
    """Makes a queue with its workers, which reports to the metrics and waits after failures as all do."""

    def __call__(
        self,
        name: str,
        handle: Callable[[str], Awaitable[float | None]],
        *,
        workers: int,
        attempts: Attempts[str],
        glance: Callable[[str], float | NeedsWork | None] = ...,
        deadline: float | None = ...,
        party_of: Callable[[str], Party] = ...,
    ) -> Loop[str]: ...
