"""Counts requests made at times when they are useless: while the API server is away, and after the world has come to rest."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hack.sim.world.claim_rates import ClaimRates

_SECRET: Final = "get secrets "


@dataclass(slots=True)
class Window:
    """One outage or partition, as one node saw it."""

    node: str
    begun: float
    ended: float | None = None
    starts: int = 1
    """How often the sidecar started, or its driver came back, in this window. After each of them everything may be asked again."""
    asked: Counter[str] = field(default_factory=Counter)


class RequestLog:
    """Counts only what the invariants check; the transcript holds the rest."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.rates = ClaimRates(clock)
        self._open: dict[str, Window] = {}
        self.windows: list[Window] = []
        self.resting: Counter[tuple[str, str]] | None = None
        """Requests by node and text, from the moment at which the world should be at rest."""
        self.secrets: set[tuple[str, str]] = set()
        """Node and name of each Secret that was asked for."""

    def went_down(self, node: str) -> None:
        if node not in self._open:
            self._open[node] = Window(node, self._clock())
            self.windows.append(self._open[node])

    def came_up(self, node: str) -> None:
        if window := self._open.pop(node, None):
            window.ended = self._clock()

    def started(self, node: str) -> None:
        if window := self._open.get(node):
            window.starts += 1

    def asked(self, node: str, what: str, *, up: bool) -> None:
        if what.startswith(_SECRET):
            self.secrets.add((node, what.removeprefix(_SECRET)))
        if not up and (window := self._open.get(node)):
            window.asked[what] += 1
        if self.resting is not None:
            self.resting[node, what] += 1

    def begin_rest(self) -> None:
        self.resting = Counter()
