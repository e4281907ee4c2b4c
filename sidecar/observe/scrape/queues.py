"""The `workqueue_…` series: what the loops over a queue count, as upstream names it."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, Protocol

from sidecar.engine.loop import Ending
from sidecar.engine.queue import Counts
from sidecar.observe.exposition import Family, Histogram, counter, gauge
from sidecar.observe.labels import OURS

# 10 ns to 10 s, with the rounding errors that client-go's `le` labels have.
BUCKETS: Final = (1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10)


class QueueNumbers(Protocol):
    """What is read of a queue at a scrape; `engine.loop.Loop` has it."""

    def counts(self) -> Counts: ...

    @property
    def retries(self) -> int: ...


class QueueObserver:
    """Observes the loops over one queue for its `workqueue_…` series. Two loops may share a name, and then this observer.

    It is called for every key that is handled, every claim of the cluster among them.
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
        self.count = 0
        self.seconds = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self.count += times
        self.seconds += seconds * times

    def buckets(self) -> list[tuple[float, float]]:
        """For each bound, the number of durations up to it."""
        return list(zip((*self._bounds, math.inf), itertools.accumulate(self._counts), strict=True))


class Queues:
    """The numbers of all queues, read at a scrape. A name without a loop has 0, so that its series exist from the start."""

    def __init__(self, queues: dict[str, QueueObserver], looks: dict[str, int]) -> None:
        self._queues = queues
        self._looks = looks
        """Those that no queue asks for, by what is looked at."""

    def collect(self) -> Iterator[Family]:
        adds = counter("workqueue_adds_total", "Keys added.", "name")
        queued = _seconds("queue_duration_seconds", "How long a key was due before it was taken.")
        worked = _seconds("work_duration_seconds", "How long handling a key took.")
        depth = _gauge("depth", "Keys that wait for a worker.")
        unfinished = _gauge("unfinished_work_seconds", "For how long the keys at work have been, summed up.")
        longest = _gauge("longest_running_processor_seconds", "For how long the longest key at work has been.")
        retries = counter("workqueue_retries_total", "Failures after which a key was put back.", "name")
        looks = counter(f"{OURS}looks_total", "Looks that have ended, by queue, or by what is looked at without one.", "name")
        for name, times in self._looks.items():
            looks.add((name,), times)
        for name, queue in self._queues.items():
            looks.add((name,), queue.worked.count)
            counts = [source.counts() for source in queue.sources]
            adds.add((name,), queue.adds)
            queued.add_histogram((name,), queue.queued.buckets(), queue.queued.seconds)
            worked.add_histogram((name,), queue.worked.buckets(), queue.worked.seconds)
            depth.add((name,), sum(count.depth for count in counts))
            unfinished.add((name,), sum(count.unfinished_seconds for count in counts))
            longest.add((name,), max((count.longest_seconds for count in counts), default=0.0))
            retries.add((name,), sum(source.retries for source in queue.sources))
        yield from (adds, queued, worked, depth, unfinished, longest, retries, looks)


def _seconds(name: str, text: str) -> Histogram:
    return Histogram(f"workqueue_{name}", text, "name")


def _gauge(name: str, text: str) -> Family:
    return gauge(f"workqueue_{name}", text, "name")
