"""Counters and histograms of what happens several times for each volume. The library's own take a lock and check each value, so these are
plain numbers, which become series at a scrape."""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.observe.scrape.queues import Timings


class Counts(Collector):
    """`by` holds the counts, by the labels' values. Without labels there is one series, from the start."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self.by: Final[dict[tuple[str, ...], float]] = {} if labels else {(): 0.0}

    def add(self, labels: tuple[str, ...] = (), amount: float = 1.0) -> None:
        self.by[labels] = self.by.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self.by.items():
            family.add_metric(labels, count)
        yield family


class Durations(Collector):
    """`by` holds the histograms, by the labels' values."""

    def __init__(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> None:
        self._name, self._text, self._labels, self._buckets = name, text, labels, buckets
        self.by: Final[dict[tuple[str, ...], Timings]] = {}

    def observe(self, labels: tuple[str, ...], seconds: float) -> None:
        if (timings := self.by.get(labels)) is None:
            timings = self.by[labels] = Timings(self._buckets)
        timings.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, timings in self.by.items():
            family.add_metric(labels, timings.buckets(), timings.seconds)
        yield family
