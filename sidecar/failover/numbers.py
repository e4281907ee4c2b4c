"""What fail-over comes to, in numbers, and how long each of its stages took."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.failover.brakes import DEBOUNCE
from sidecar.failover.survivor import Step
from sidecar.observe.exposition import Family, gauge
from sidecar.observe.labels import OURS
from sidecar.observe.scrape.counted import Counts, Durations

GUARDS: Final = ("policy", "owner", "other writers", "others who act", "target", "proof", "debounce", "brakes", "mode")
BUCKETS: Final = (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300, 600)
_LONGEST: Final = 600.0  # seconds that a replacement is waited for
_MANY: Final = 500


@dataclass(slots=True)
class _Course:
    """Of one volume."""

    victim: str
    wrote_at: float
    gone_at: float | None = None
    detached: bool = False


class Numbers:
    """`state`: seconds since the evidence was read (None: there is none), its disagreements, whether we are frozen, and whether this node
    has our taint."""

    def __init__(self, clock: Callable[[], float], state: Callable[[], tuple[float | None, int, bool, bool]]) -> None:
        self._clock, self._state = clock, state
        self._acts = Counts(f"{OURS}failover_acts_total", "Writes of fail-over, by how they ended.", "act", "result")
        for step in (Step.TAINT, Step.EVICT, Step.DELETE, Step.DETACH):
            self._acts.add((step, "done"), 0.0)
        self._seconds = Durations(f"{OURS}failover_seconds", "Stages of fail-over.", "stage", buckets=BUCKETS)
        self._guards: Mapping[str, Mapping[str, str]] = {}
        self._courses: dict[str, _Course] = {}  # by claim, `namespace/name`

    # --- what happens -----------------------------------------------------------------------------------------------------

    def acted(self, act: str, result: str) -> None:
        self._acts.add((act, result))

    def stands(self, node: str, guards: Mapping[str, str]) -> None:
        """By what of this node would fail over: the guard that keeps it; empty: none does."""
        self._guards = {**self._guards, node: guards}

    def over(self, nodes: Iterable[str]) -> None:
        """Only these nodes are looked at yet."""
        self._guards = {node: self._guards[node] for node in nodes if node in self._guards}

    def began(self, claims: Iterable[str], victim: str, *, proven_for: float) -> None:
        """The first write for the pod that uses these claims."""
        for claim in claims:
            if claim not in self._courses and len(self._courses) < _MANY:
                self._courses[claim] = _Course(victim, self._clock())
                self._seconds.observe(("detect",), DEBOUNCE)
                self._seconds.observe(("decide",), max(0.0, proven_for - DEBOUNCE))

    def gone(self, claims: Iterable[str]) -> None:
        """The pod object is."""
        for course in (self._courses[claim] for claim in claims if claim in self._courses):
            if course.gone_at is None:
                course.gone_at = self._clock()
                self._seconds.observe(("delete",), course.gone_at - course.wrote_at)

    def detached(self, claim: str) -> None:
        course = self._courses.get(claim)
        if course is not None and course.gone_at is not None and not course.detached:
            course.detached = True
            self._seconds.observe(("detach",), self._clock() - course.gone_at)

    def waited_for(self) -> dict[str, str]:
        """Claims whose pod is to run again, each with the node on which it did."""
        now = self._clock()
        self._courses = {claim: course for claim, course in self._courses.items() if now - course.wrote_at < _LONGEST}
        return {claim: course.victim for claim, course in self._courses.items()}

    def runs(self, claim: str) -> None:
        if (course := self._courses.pop(claim, None)) is not None:
            self._seconds.observe(("running",), self._clock() - course.wrote_at)

    # --- what is shown ----------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Family]:
        yield from self._acts.collect()
        yield from self._seconds.collect()
        blocked = gauge(f"{OURS}failover_blocked", "Pods and attachments that would fail over but for this guard.", "guard")
        stand = Counter(guard.partition(" of ")[0] for one in self._guards.values() for guard in one.values())
        for guard in GUARDS:
            blocked.add((guard,), stand[guard])
        age, disagreements, is_frozen, is_tainted = self._state()
        frozen = gauge(f"{OURS}failover_frozen", "Whether nothing is done because too much seems lost at once.")
        frozen.add((), float(is_frozen))
        disagree = gauge(f"{OURS}failover_disagreements", "Resources of whose state two reads say different things.")
        disagree.add((), disagreements)
        tainted = gauge(f"{OURS}failover_tainted", "Whether this node has the taint that its storage is lost.")
        tainted.add((), float(is_tainted))
        yield from (blocked, frozen, disagree, tainted)
        if age is not None:
            read = gauge(f"{OURS}failover_evidence_age_seconds", "Since when what the storage shows was not read again.")
            read.add((), age)
            yield read
