"""Counters, gauges and histograms that rooms write to: plain numbers, which become series at a scrape."""

from collections.abc import Callable, Iterator
from typing import Final

from sidecar.observe.exposition import Family, Histogram, counter, gauge
from sidecar.observe.scrape.queues import Timings

Labels = tuple[str, ...]
"""The labels' values, in the order in which the labels were named."""


class Counts:
    """`by` holds the counts. Without labels there is one series, from the start."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self.by: Final[dict[Labels, float]] = {} if labels else {(): 0.0}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        self.by[labels] = self.by.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Family]:
        family = counter(self._name, self._text, *self._labels)
        for labels, count in self.by.items():
            family.add(labels, count)
        yield family


class Gauges:
    """Numbers that are set, or that a callable tells at a scrape. Without labels there is one series, from the start."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._by: Final[dict[Labels, float | Callable[[], float]]] = {} if labels else {(): 0.0}

    def set(self, value: float | Callable[[], float], labels: Labels = ()) -> None:
        self._by[labels] = value

    def collect(self) -> Iterator[Family]:
        family = gauge(self._name, self._text, *self._labels)
        for labels, value in self._by.items():
            family.add(labels, value() if callable(value) else value)
        yield family


class Durations:
    """`by` holds the histograms."""

    def __init__(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> None:
        self._name, self._text, self._labels, self._buckets = name, text, labels, buckets
        self.by: Final[dict[Labels, Timings]] = {}

    def observe(self, labels: Labels, seconds: float) -> None:
        if (timings := self.by.get(labels)) is None:
            timings = self.by[labels] = Timings(self._buckets)
        timings.observe(seconds)

    def collect(self) -> Iterator[Family]:
        family = Histogram(self._name, self._text, *self._labels)
        for labels, timings in self.by.items():
            family.add_histogram(labels, timings.buckets(), timings.seconds)
        yield family
