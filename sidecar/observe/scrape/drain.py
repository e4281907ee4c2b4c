"""What drain decisions come to, and what gone nodes have left, in numbers."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sidecar.observe.exposition import Family, gauge
from sidecar.observe.labels import OURS


@dataclass(frozen=True, slots=True)
class DrainNumbers:
    """The numbers of drain decisions. None means not known."""

    ready: Mapping[str, bool | None]
    """By intent, `reboot` or `retire`; None: not known."""
    blockers: Mapping[str, int]
    """By reason, those of retiring."""
    bytes_remaining: int
    stranded_pods: int
    evacuation_seconds: float | None
    gate: str
    """`off`, `open` or `closed`."""
    maintenances: Sequence[Mapping[str, Any]] = ()
    """That select this node, as the report tells of them."""


STAGES: Final = ("Idle", "Cordon", "Drain")
"""One that is complete is not there any more."""


class Drain:
    def __init__(self, numbers: Callable[[], DrainNumbers | None]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Family]:
        numbers = self._numbers()
        if numbers is None:
            return
        ready = gauge(f"{OURS}node_ready_for", "Whether the node may be emptied: 1, 0, NaN if not known.", "intent")
        for intent, state in numbers.ready.items():
            ready.add((intent,), math.nan if state is None else float(state))
        blockers = gauge(f"{OURS}drain_blockers", "What blocks the node from being retired.", "reason")
        for reason, count in numbers.blockers.items():
            blockers.add((reason,), count)
        gate = gauge(f"{OURS}drain_gate", "Whether drainers are held back.", "state")
        gate.add((numbers.gate,), 1.0)
        left = gauge(f"{OURS}drain_bytes_remaining", "Bytes of volumes that block the node from being retired.")
        left.add((), numbers.bytes_remaining)
        stranded = gauge(f"{OURS}stranded_pods_predicted", "Pods that could run nowhere while the node is away.")
        stranded.add((), numbers.stranded_pods)
        yield from (ready, blockers, gate, left, stranded)
        stages = gauge(f"{OURS}maintenances", "PlannedMaintenances that select this node, by what is done for them.", "stage")
        for stage in STAGES:
            stages.add((stage,), sum(one.get("stage") == stage for one in numbers.maintenances))
        pods = gauge(f"{OURS}maintenance_pods_left", "Pods that are to be drained yet, by the maintenance that has most of them.")
        pods.add((), max((one.get("left", 0) for one in numbers.maintenances), default=0))
        late = gauge(f"{OURS}maintenance_late", "Whether the deadline of a maintenance is over, and the node is not drained.")
        late.add((), float(any(one.get("late") and not one.get("drained") for one in numbers.maintenances)))
        yield from (stages, pods, late)
        if numbers.evacuation_seconds is not None:
            age = gauge(f"{OURS}evacuation_seconds", "For how long the node has been evacuated.")
            age.add((), numbers.evacuation_seconds)
            yield age


EVIDENCE: Final = ("Announced", "Acknowledged", "None", "Unproven")
"""That the disks do not come back."""


class NodeLoss:
    def __init__(self, lost: Callable[[], Mapping[str, int] | None], *, driver: str) -> None:
        self._lost, self._driver = lost, driver

    def collect(self) -> Iterator[Family]:
        lost = self._lost()
        # Each sidecar says this of itself, whoever the Lease names: a Lease that somebody renews without looking has nobody that says 1.
        looks = gauge(f"{OURS}looks_after_gone_nodes", "Whether this sidecar is the one that looks after gone nodes.", "driver_name")
        looks.add((self._driver,), 0.0 if lost is None else 1.0)
        yield looks
        if lost is None:
            return
        volumes = gauge(f"{OURS}lost_volumes", "Volumes on nodes that are gone; told by the sidecar that looks after these.", "evidence")
        for evidence in EVIDENCE:
            volumes.add((evidence,), lost.get(evidence, 0))
        yield volumes
