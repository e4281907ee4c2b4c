"""Which scopes of health keep the program from being ready."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.engine.health import OK, Row
from sidecar.observe.labels import OURS


class Ready(Collector):
    def __init__(self, rows: Callable[[], Iterable[Row]]) -> None:
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(f"{OURS}ready", "Whether this scope is OK.", labels=["scope"])
        for row in self._rows():
            if row.gates_ready:
                ready.add_metric([row.path], isinstance(row.state, OK))
        yield ready
