"""What became of spans, where they are sent to a collector."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sidecar.observe.exposition import Family, counter, gauge
from sidecar.observe.labels import OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanNumbers:
    """`dropped` is by reason."""

    sent: int
    dropped: Mapping[str, int]
    waiting: int


class Spans:
    def __init__(self, numbers: Callable[[], SpanNumbers]) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Family]:
        numbers = self._numbers()
        sent = counter(f"{OURS}spans_sent_total", "Spans that the trace collector has taken.")
        dropped = counter(f"{OURS}spans_dropped_total", "Spans that were lost, by reason.", "reason")
        waiting = gauge(f"{OURS}spans_waiting", "Spans that wait to be sent.")
        sent.add((), numbers.sent)
        for reason, count in numbers.dropped.items():
            dropped.add((reason,), count)
        waiting.add((), numbers.waiting)
        yield from (sent, dropped, waiting)
