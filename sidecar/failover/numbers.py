"""What fail-over comes to, in numbers, and how long each of its stages took."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sidecar.failover.survivor import Step
from sidecar.observe.exposition import Family, gauge
from sidecar.observe.labels import OURS
from sidecar.observe.scrape.counted import Counts, Durations

GUARDS: Final = ("policy", "owner", "other writers", "others who act", "target", "proof", "debounce", "brakes", "mode")
BUCKETS: Final = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class Shown:
    """How things are at this moment."""

    guards: Iterable[str]  # by pod or attachment that would fail over: the guard that keeps it; empty: none does
    age: float | None  # seconds since the evidence was read whole; None: it never was
    disagreements: int
    is_frozen: bool
    is_tainted: bool  # this node has our taint


class Numbers:
    def __init__(self, shown: Callable[[], Shown]) -> None:
        self._shown = shown
        self.acts = Counts(f"{OURS}failover_acts_total", "Writes of fail-over, by how they ended.", "act", "result")
        for step in (Step.TAINT, Step.EVICT, Step.DELETE, Step.DETACH):
            self.acts.add((step, "done"), 0.0)
        self.seconds = Durations(f"{OURS}failover_seconds", "Stages of fail-over.", "stage", buckets=BUCKETS)

    def collect(self) -> Iterator[Family]:
        yield from self.acts.collect()
        yield from self.seconds.collect()
        shown = self._shown()
        blocked = gauge(f"{OURS}failover_blocked", "Pods and attachments that would fail over but for this guard.", "guard")
        stand = Counter(guard.partition(" of ")[0] for guard in shown.guards)
        for guard in GUARDS:
            blocked.add((guard,), stand[guard])
        yield blocked
        rows = (
            ("frozen", "Whether nothing is done because too much seems lost at once.", shown.is_frozen),
            ("disagreements", "Resources of whose state two reads say different things.", shown.disagreements),
            ("tainted", "Whether this node has the taint that its storage is lost.", shown.is_tainted),
            ("evidence_age_seconds", "Since when what the storage shows was not read again.", shown.age),
        )
        for name, text, value in rows:
            if value is not None:
                family = gauge(f"{OURS}failover_{name}", text)
                family.add((), float(value))
                yield family
