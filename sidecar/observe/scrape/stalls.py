"""For how long the event loop stood still, as `engine.stalls` measures it."""

from collections.abc import Iterator
from typing import Final

from sidecar.observe.exposition import Family, Histogram, gauge
from sidecar.observe.labels import OURS
from sidecar.observe.scrape.queues import Timings

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class StallObserver:
    """How long the event loop stood still, as a whole and without what it waited for a processor."""

    def __init__(self) -> None:
        self.whole, self.own = Timings(BUCKETS), Timings(BUCKETS)
        self.longest_whole = self.longest_own = 0.0

    def stalled(self, whole: float, own: float, moments: int = 1) -> None:
        self.whole.observe(whole, moments)
        self.own.observe(own, moments)

    def stood_still(self, whole: float, own: float) -> None:
        self.longest_whole = max(self.longest_whole, whole)
        self.longest_own = max(self.longest_own, own)


class Stalls:
    def __init__(self, seen: StallObserver) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Family]:
        of = "How long the event loop did not look up, from each of a hundred moments of a second on"
        whole = Histogram(f"{OURS}loop_stall_seconds", f"{of}.")
        own = Histogram(f"{OURS}loop_stall_own_seconds", f"{of}, without what it waited for a processor.")
        longest = gauge(
            f"{OURS}loop_longest_stall_seconds",
            "For how long the event loop stood still at most: wall time, and own, without what it waited for a processor.",
            "part",
        )
        for family, timings in ((whole, self._seen.whole), (own, self._seen.own)):
            family.add_histogram((), timings.buckets(), timings.seconds)
        longest.add(("wall",), self._seen.longest_whole)
        longest.add(("own",), self._seen.longest_own)
        yield from (whole, own, longest)
