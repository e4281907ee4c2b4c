"""The `workqueue_…` series: what the loops over a queue count, as upstream names it."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sidecar.engine.loop import Ending
from sidecar.engine.queue import Counts

# 10 ns to 10 s, with the rounding errors that client-go's `le` labels have.
BUCKETS: Final = (1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10)


class QueueNumbers(Protocol):
    """What is read of a queue at a scrape; `engine.loop.Loop` has it."""

    def counts(self) -> Counts: ...

    @property
    def retries(self) -> int: ...


class QueueObserver:
    """Observes the loops over one queue for its `workqueue_…` series. Two loops may share a name, and then this observer.

    It is called for every key that is handled, every claim of the cluster among them. The library's counters are slow for that, so it keeps
    plain numbers.
    """

    def __init__(self) -> None:
        self.adds = 0
        self.queued = Timings()
        self.worked = Timings()
        self.sources: list[QueueNumbers] = []

    def watch(self, source: QueueNumbers) -> None:
        """Read this queue at every scrape. A second step, since the loop is made after its observer."""
        self.sources.append(source)

    def added(self, key: object) -> None:
        self.adds += 1

    def started(self, key: object, *, queued: float) -> None:
        self.queued.observe(queued)

    def finished(self, key: object, *, worked: float, ending: Ending) -> None:
        self.worked.observe(worked)


class Timings:
    """A histogram of durations."""

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self.seconds += seconds * times

    def buckets(self) -> list[tuple[str, float]]:
        """For each bound, the number of durations up to it."""
        bounds = map(floatToGoString, (*self._bounds, math.inf))
        return list(zip(bounds, itertools.accumulate(self._counts), strict=True))


class Queues(Collector):
    """The numbers of all queues, read at a scrape. A name without a loop has 0, so that its series exist from the start."""

    def __init__(self, queues: dict[str, QueueObserver]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        adds = CounterMetricFamily("workqueue_adds_total", "Keys added.", labels=["name"])
        queued = _seconds("queue_duration_seconds", "How long a key was due before it was taken.")
        worked = _seconds("work_duration_seconds", "How long handling a key took.")
        depth = _gauge("depth", "Keys that wait for a worker.")
        unfinished = _gauge("unfinished_work_seconds", "For how long the keys at work have been, summed up.")
        longest = _gauge("longest_running_processor_seconds", "For how long the longest key at work has been.")
        retries = CounterMetricFamily("workqueue_retries_total", "Failures after which a key was put back.", labels=["name"])
        for name, queue in self._queues.items():
            counts = [source.counts() for source in queue.sources]
            adds.add_metric([name], queue.adds)
            queued.add_metric([name], queue.queued.buckets(), queue.queued.seconds)
            worked.add_metric([name], queue.worked.buckets(), queue.worked.seconds)
            depth.add_metric([name], sum(count.depth for count in counts))
            unfinished.add_metric([name], sum(count.unfinished_seconds for count in counts))
            longest.add_metric([name], max((count.longest_seconds for count in counts), default=0.0))
            retries.add_metric([name], sum(source.retries for source in queue.sources))
        yield from (adds, queued, worked, depth, unfinished, longest, retries)


def _seconds(name: str, text: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"workqueue_{name}", text, labels=["name"])


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"workqueue_{name}", text, labels=["name"])
