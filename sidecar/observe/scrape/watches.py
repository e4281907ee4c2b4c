"""What is counted at every event of a watch, by resource."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.observe.labels import OURS


class Watches(Collector):
    """What is counted at every watch event, by resource."""

    def __init__(self, events: dict[str, int], heard: dict[str, float]) -> None:
        self._events = events
        self._heard = heard

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(f"{OURS}reflector_events_total", "Watch events received, with bookmarks.", labels=["resource"])
        heard = GaugeMetricFamily(
            f"{OURS}reflector_last_heard_timestamp_seconds",
            "When the API server last told something about this resource.",
            labels=["resource"],
        )
        for resource, count in self._events.items():
            events.add_metric([resource], count)
        for resource, at in self._heard.items():
            heard.add_metric([resource], at)
        yield from (events, heard)
