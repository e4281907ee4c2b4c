"""Who asked how often when asking was no use: while the API server was away, and once the world had come to rest."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
    """One outage or partition as one node had it."""

    node: str
    begun: float
    ended: float | None = None
    starts: int = 1
    """Fresh starts in it: the sidecar itself, and each time its driver came back. Each may ask anew what was asked before."""
    asked: Counter[str] = field(default_factory=Counter)


class Ledger:
    """Counts only what the invariants look at; the transcript tells the rest."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, Window] = {}
        self.windows: list[Window] = []
        self.resting: Counter[tuple[str, str]] | None = None
        """Requests by node and text, from the moment in which the world should be at rest."""

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
        if not up and (window := self._open.get(node)):
            window.asked[what] += 1
        if self.resting is not None:
            self.resting[node, what] += 1

    def begin_rest(self) -> None:
        self.resting = Counter()
