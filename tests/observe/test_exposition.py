"""What is written of metrics is what Prometheus' library for Python writes, but for what Go's client writes otherwise."""

import math
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sidecar.observe.exposition import Histogram, counter, gauge, number, page
from sidecar.observe.scrape.process import Process

NUMBERS = st.floats() | st.integers(min_value=-(2**70), max_value=2**70)
TEXTS = st.text(alphabet=st.sampled_from('aB ="\\\n{},é\u2028'))
LABELS = st.lists(st.sampled_from(["class", "source", "kind", "zone"]), unique=True, max_size=3)
SERIES = st.dictionaries(st.tuples(TEXTS, TEXTS, TEXTS), NUMBERS, max_size=3)
BOUNDS = st.lists(st.floats(min_value=1e-9, max_value=1e9), unique=True, max_size=4).map(lambda bounds: [*sorted(bounds), math.inf])


def theirs(*families: Metric) -> bytes:
    class Told(Collector):
        def collect(self) -> list[Metric]:
            return [*families]

    registry = CollectorRegistry()
    registry.register(Told())
    return generate_latest(registry)


def of(labels: list[str], values: tuple[str, ...]) -> tuple[str, ...]:
    return values[: len(labels)]


@given(NUMBERS)
def test_a_number_is_written_as_the_library_writes_it(value: float) -> None:
    assert number(value) == floatToGoString(value)


@given(TEXTS, LABELS, SERIES)
def test_counters_and_gauges_are_what_the_library_writes(text: str, labels: list[str], series: dict[tuple[str, ...], float]) -> None:
    ours = [counter("one_total", text, *labels), gauge("other", text, *labels)]
    others = [CounterMetricFamily("one_total", text, labels=labels), GaugeMetricFamily("other", text, labels=labels)]
    for values, value in series.items():
        for family in ours:
            family.add(of(labels, values), value)
        for metric in others:
            metric.add_metric(of(labels, values), value)
    assert page(ours) == (theirs(*others) if series else b"")


@given(TEXTS, LABELS, SERIES, BOUNDS)
def test_histograms_are_what_the_library_writes_but_for_bounds_that_are_whole(
    text: str, labels: list[str], series: dict[tuple[str, ...], float], bounds: list[float]
) -> None:
    ours, other = Histogram("of", text, *labels), HistogramMetricFamily("of", text, labels=labels)
    for values, value in series.items():
        ours.add_histogram(of(labels, values), [(bound, value) for bound in bounds], value)
        other.add_metric(of(labels, values), [(floatToGoString(bound), value) for bound in bounds], value)
    expected = re.sub(rb'le="(\d+)\.0"', rb'le="\1"', theirs(other)) if series else b""
    assert page([ours]) == expected


def test_what_the_kernel_says_of_the_process_is_what_the_library_shows() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    ours, other = page(Process().collect()).decode().splitlines(), generate_latest(registry).decode().splitlines()
    assert ours and len(ours) == len(other)
    for line, expected in zip(ours, other, strict=True):
        (name, value), (named, expected_value) = line.rsplit(" ", 1), expected.rsplit(" ", 1)
        assert name == named
        if not line.startswith("#"):  # between the two a page or a moment may pass
            assert math.isclose(float(value), float(expected_value), rel_tol=0.2)


def test_where_the_kernel_says_nothing_nothing_is_shown(tmp_path: Path) -> None:
    assert page(Process(tmp_path).collect()) == b""
