"""Writes metrics in Prometheus' text format 0.0.4, as Go's client does: `le="1"` and not `le="1.0"`, and no family without a series.

A dashboard's query for `le="1"` does not match `le="1.0"`. Prometheus' library for Python brings a web server, mail and forty more modules,
which were a tenth of what a start costs on every node of the cluster. Tests compare what is written here with what it writes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Sample:
    """A number of a family: that of a series, or one of a histogram's."""

    name: str
    labels: dict[str, str]
    value: float


class Family:
    """A counter or gauge with its series, as they are at a scrape."""

    def __init__(self, kind: str, name: str, text: str, *labels: str) -> None:
        self.name = name
        self.samples: list[Sample] = []
        self._kind = kind
        self._text = text
        self._labels = labels

    def add(self, labels: Sequence[str], value: float) -> None:
        self._add("", labels, value)

    def text(self) -> str:
        """Nothing, if it has no series."""
        if not self.samples:
            return ""
        head = f"# HELP {self.name} {self._text.translate(_IN_HELP)}\n# TYPE {self.name} {self._kind}\n"
        return head + "".join(map(_line, self.samples))

    def _add(self, suffix: str, labels: Sequence[str], value: float, **more: str) -> None:
        self.samples.append(Sample(self.name + suffix, dict(zip(self._labels, labels, strict=True)) | more, value))


class Histogram(Family):
    """A histogram with its series, each added with the number of what was observed up to each bound, the last of which is infinite."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__("histogram", name, text, *labels)

    def add_histogram(self, labels: Sequence[str], buckets: Sequence[tuple[float, float]], total: float) -> None:
        for bound, count in buckets:
            self._add("_bucket", labels, count, le=number(bound).removesuffix(".0"))
        self._add("_count", labels, buckets[-1][1])
        self._add("_sum", labels, total)


def counter(name: str, text: str, *labels: str) -> Family:
    """By what Prometheus expects its name ends with `_total`."""
    return Family("counter", name, text, *labels)


def gauge(name: str, text: str, *labels: str) -> Family:
    return Family("gauge", name, text, *labels)


def page(families: Iterable[Family]) -> bytes:
    return "".join(family.text() for family in families).encode()


def number(value: float) -> str:
    """As Python writes it, but from a million on with an exponent, as Go does."""
    value = float(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    text = repr(value)
    point = text.find(".")
    if value <= 0 or point <= 6:
        return text
    digits = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
    return f"{digits}e+{point - 1:02d}"


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{text.translate(_IN_LABEL)}"' for name, text in sorted(sample.labels.items()))
    return f"{sample.name}{{{labels}}} {number(sample.value)}\n" if labels else f"{sample.name} {number(sample.value)}\n"
