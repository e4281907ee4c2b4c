"""What drain decisions come to, in numbers."""

import math
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.frozen import frozen
from sidecar.observe.labels import OURS


@frozen
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


class Drain(Collector):
    def __init__(self, numbers: Callable[[], DrainNumbers | None]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers()
        if numbers is None:
            return
        ready = GaugeMetricFamily(f"{OURS}node_ready_for", "Whether the node may be emptied: 1, 0, NaN if not known.", labels=["intent"])
        for intent, state in numbers.ready.items():
            ready.add_metric([intent], math.nan if state is None else float(state))
        blockers = GaugeMetricFamily(f"{OURS}drain_blockers", "What blocks the node from being retired.", labels=["reason"])
        for reason, count in numbers.blockers.items():
            blockers.add_metric([reason], count)
        gate = GaugeMetricFamily(f"{OURS}drain_gate", "Whether drainers are held back.", labels=["state"])
        gate.add_metric([numbers.gate], 1.0)
        left = GaugeMetricFamily(f"{OURS}drain_bytes_remaining", "Bytes of volumes that block the node from being retired.")
        left.add_metric([], numbers.bytes_remaining)
        stranded = GaugeMetricFamily(f"{OURS}stranded_pods_predicted", "Pods that could run nowhere while the node is away.")
        stranded.add_metric([], numbers.stranded_pods)
        yield from (ready, blockers, gate, left, stranded)
        if numbers.evacuation_seconds is not None:
            age = GaugeMetricFamily(f"{OURS}evacuation_seconds", "For how long the node has been evacuated.")
            age.add_metric([], numbers.evacuation_seconds)
            yield age
