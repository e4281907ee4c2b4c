"""What happens in a world and when, drawn from a seed and from nothing else. A plan may be changed by hand to study one thing.

Each kind of trouble has its own dice, so that leaving one out changes nothing about the others: `hack/fire --seed N --without KIND`
finds the kind that matters in a failing seed. A seed takes only some of the kinds, because a world in which everything goes wrong at
once hides what one kind does alone. Here is the trouble that worlds of every theme may have; themes add their own.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hack.sim.driver.faults import Fault
from hack.sim.world.network import Latency, Weather

TROUBLED: Final = 90.0
"""For so many seconds things go wrong in worlds of claims."""
SETTLE: Final = 700.0
"""More than twice the longest back-off."""
GATED: Final = ("--drain-report", "--drain-gate", "--drain-gate-image=pause")

LATE: Final = "late"
LATE_TOO: Final = "late-too"
"""It shares a pool with the one before, as classes do that differ only in their file system."""
IMMEDIATE_CLASS: Final = "immediate"
LAX: Final = "lax"
FIRM: Final = "firm"
KEPT: Final = "kept"
_STRETCH: Final = 6.0


@dataclass(frozen=True, slots=True)
class PlannedEvent:
    """One event: its time, what happens, and to which node, object or class."""

    at: float
    what: str
    whom: str = ""
    number: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        number = f"{self.number:g}" if self.number else ""
        return " ".join(part for part in (self.what, self.whom, number, self.detail) if part)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything in a world that the product does not do itself."""

    seed: int
    nodes: tuple[str, ...]
    theme: str = "claims"
    """How the world comes to rest, and what must be so then."""
    pool: str = "100Gi"
    weather: Weather = field(default_factory=Weather)
    events: tuple[PlannedEvent, ...] = ()
    faults: tuple[tuple[str, Fault], ...] = ()
    """Faults of the drivers, by node."""
    troubles: tuple[str, ...] = ()
    """The kinds of trouble that were drawn."""
    args: tuple[str, ...] = ()
    """Further flags of the sidecars."""
    placements: tuple[tuple[str, str], ...] = ()
    """By node; who is not named has the default."""
    settle: float = SETTLE
    """Time to come to rest after the last event."""
    rest: float = 300.0
    """Time in which a world of claims must then be at rest."""


@dataclass(slots=True)
class Draft:
    """A plan that is being drawn."""

    nodes: tuple[str, ...]
    claims: int
    pool: str = "100Gi"
    weather: dict[str, Any] = field(default_factory=dict)
    events: list[PlannedEvent] = field(default_factory=list)
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    placements: dict[str, str] = field(default_factory=dict)

    def add(self, at: float, what: str, whom: str = "", number: float = 0.0, *, detail: str = "") -> None:
        self.events.append(PlannedEvent(at, what, whom, number, detail))

    def named(self, what: str) -> list[str]:
        """Whom these events are about."""
        return [item.whom for item in self.events if item.what == what]


Trouble = Callable[[random.Random, Draft], None]


@dataclass(frozen=True, slots=True)
class Theme:
    """A kind of worlds: who lives in them, and what may go wrong."""

    name: str
    salt: str
    """Of the dice. Themes of one salt have the same worlds but for their flags and sets."""
    nodes: tuple[int, int]
    claims: tuple[int, int]
    """At least and at most so many claims, workloads or sets."""
    share: float
    """Of the kinds of trouble that a seed takes."""
    flags: Trouble
    people: Callable[[int, Draft], None]
    troubles: Mapping[str, Trouble]
    settle: float = SETTLE


def times(dice: random.Random, most: int) -> Iterator[float]:
    """Draws between one and so many moments."""
    for _ in range(dice.randint(1, most)):
        yield dice.uniform(1.0, TROUBLED)


def at_times(what: str, most: int) -> Trouble:
    """Of one node or another."""

    def draw(dice: random.Random, draft: Draft) -> None:
        for at in times(dice, most):
            draft.add(at, what, dice.choice(draft.nodes))

    return draw


def spans(begins: str, ends: str, most: int, *, longest: float, of_all: bool = False, numbers: Sequence[float] = ()) -> Trouble:
    """Of one node or another, or `of_all` at once."""

    def draw(dice: random.Random, draft: Draft) -> None:
        for _ in range(dice.randint(1, most)):
            whom, number = "" if of_all else dice.choice(draft.nodes), dice.choice(numbers) if numbers else 0.0
            start = dice.uniform(2.0, TROUBLED)
            draft.add(start, begins, whom, number)
            draft.add(start + dice.uniform(0.5, longest), ends, whom)

    return draw


def weather(shares: Sequence[float], *of: str) -> Trouble:
    def draw(dice: random.Random, draft: Draft) -> None:
        draft.weather |= dict.fromkeys(of, dice.choice(shares))

    return draw


def stretched(kind: str) -> Trouble:
    """Drains take minutes, not seconds."""

    def draw(dice: random.Random, draft: Draft) -> None:
        before = len(draft.events)
        SHARED[kind](dice, draft)
        draft.events[before:] = [replace(item, at=60.0 + _STRETCH * item.at) for item in draft.events[before:]]

    return draw


def _dooms(dice: random.Random, draft: Draft) -> None:
    """Some sidecars die at a crossing of their first life, some of a later one, some in one life after the other."""
    for _ in range(dice.randint(1, 4)):
        node, at = dice.choice(draft.nodes), dice.choice((0.0, dice.uniform(1.0, TROUBLED)))
        for again in range(dice.choice((1, 1, 3))):
            draft.add(at + 12.0 * again, "doom", node, dice.randint(1, 30))


def _storms(dice: random.Random, draft: Draft) -> None:
    """The server's history is compacted again and again, so that every watch ends with 410 more than once."""
    at = dice.uniform(2.0, TROUBLED)
    for _ in range(dice.randint(1, 6)):
        draft.add(at, "compact")
        at += dice.uniform(0.5, 8.0)


def _slow_watches(dice: random.Random, draft: Draft) -> None:
    draft.weather |= {"watch": Latency(dice.choice((0.01, 0.1)), dice.choice((0.5, 2.0, 10.0)))}


SHARED: Final[dict[str, Trouble]] = {
    "kills": at_times("kill", 4),
    "dooms": _dooms,
    "stops": at_times("stop", 3),
    "outages": spans("outage", "recovery", 2, longest=40.0, of_all=True),
    "partitions": spans("partition", "healed", 3, longest=60.0),
    "410 storms": _storms,
    "cuts": at_times("cut", 5),
    "losses": weather((0.02, 0.1, 0.3), "lost_requests", "lost_answers"),
    "strays": weather((0.02, 0.1, 0.3), "straying"),
    "overload": weather((0.05, 0.3), "refused"),
    "slow watches": _slow_watches,
    "lags": spans("lag", "lag over", 3, longest=60.0, numbers=(2.0, 10.0, 30.0)),
}
"""Of every theme."""
