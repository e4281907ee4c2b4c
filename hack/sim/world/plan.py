"""What happens in a world and when, drawn from a seed and from nothing else. A plan may be changed by hand to study one thing.

Each kind of trouble has its own dice, so that leaving one out changes nothing about the others: `hack/fire --seed N --without KIND`
finds the kind that matters in a failing seed. A seed takes only some of the kinds, because a world in which everything goes wrong at
once hides what one kind does alone. Here is the trouble that worlds of every theme may have; `themes` adds the others.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hack.sim.driver.calls import Fault
from hack.sim.world.network import Latency, Weather

TROUBLED: Final = 90.0
"""For so many seconds things go wrong in worlds of claims."""
SETTLE: Final = 700.0
"""More than twice the longest back-off."""
GATED: Final = ("--drain-report", "--drain-gate-image=pause")

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


@dataclass(slots=True)
class Plan:
    """Everything in a world that the product does not do itself."""

    seed: int
    nodes: tuple[str, ...]
    theme: str = "claims"
    """How the world comes to rest, and what must be so then."""
    claims: int = 0
    """How many claims, workloads or sets are drawn."""
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

    def add(self, at: float, what: str, whom: str = "", number: float = 0.0, *, detail: str = "") -> None:
        self.events += (PlannedEvent(at, what, whom, number, detail),)

    def named(self, what: str) -> list[str]:
        """Whom these events are about."""
        return [item.whom for item in self.events if item.what == what]

    @property
    def slack(self) -> float:
        """What late requests and watches of this plan add to the time that a verdict may be behind."""
        lags, weather = [item.number for item in self.events if item.what == "lag"], self.weather
        # Where requests fail, what takes back a True is tried again every 10 s.
        late = 60.0 if weather.straying or weather.lost_requests or weather.refused else 0.0
        # Where a third goes astray and a third is refused, half of all tries fail; a look with two that hang lasts a minute.
        late *= 2.0 if weather.straying + weather.refused > 0.5 else 1.0
        return max(lags, default=0.0) + 3.0 * weather.watch.p99 + late


Trouble = Callable[[random.Random, Plan], None]
Events = Iterable[tuple[Any, ...]]
"""The fields of PlannedEvent, as far as they are given."""
Lasts = Callable[[random.Random], float]
Draw = Callable[[random.Random, str], Events]
"""What happens to somebody."""


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
    people: tuple[Trouble, ...]
    troubles: Mapping[str, Trouble]
    settle: float


def of_each(kind: str, draw: Draw, *, share: float = 1.0) -> Trouble:
    """What happens to some of those whom events of this kind have made."""

    def drawn(dice: random.Random, plan: Plan) -> None:
        for name in plan.named(kind):
            for event in draw(dice, name) if dice.random() < share else ():
                plan.events += (PlannedEvent(*event),)

    return drawn


def of_nodes(draw: Draw, least: int = 1, most: int = 1) -> Trouble:
    """What happens so many times to one node or another."""

    def drawn(dice: random.Random, plan: Plan) -> None:
        for _ in range(dice.randint(least, most)):
            plan.events += tuple(PlannedEvent(*event) for event in draw(dice, dice.choice(plan.nodes)))

    return drawn


def lasting(begins: str, ends: str, at: tuple[float, float], lasts: Lasts, numbers: Sequence[float] = ()) -> Draw:
    """It begins within that span of time, and ends."""

    def draw(dice: random.Random, whom: str) -> Events:
        begun = dice.uniform(*at)
        yield begun, begins, whom, dice.choice(numbers) if numbers else 0.0
        yield begun + lasts(dice), ends, whom

    return draw


def death_at(span: tuple[float, float], *hows: str) -> Draw:
    """A sidecar is killed at its next effect, such as an eviction: before that is carried out, or after it and before its answer; or the
    machine that it clears up after is back right before it."""
    return lambda dice, _: [(dice.uniform(*span), "dies at an effect", "", 0.0, dice.choice(hows))]


def at_times(what: str, most: int) -> Trouble:
    return of_nodes(lambda dice, node: [(dice.uniform(1.0, TROUBLED), what, node)], 1, most)


def spans(begins: str, ends: str, most: int, *, longest: float, of_all: bool = False, numbers: Sequence[float] = ()) -> Trouble:
    """Of one node or another, or `of_all` at once."""

    def draw(dice: random.Random, plan: Plan) -> None:
        for _ in range(dice.randint(1, most)):
            whom, number = "" if of_all else dice.choice(plan.nodes), dice.choice(numbers) if numbers else 0.0
            start = dice.uniform(2.0, TROUBLED)
            plan.add(start, begins, whom, number)
            plan.add(start + dice.uniform(0.5, longest), ends, whom)

    return draw


def weather(shares: Sequence[float], *of: str) -> Trouble:
    def draw(dice: random.Random, plan: Plan) -> None:
        changed: dict[str, Any] = dict.fromkeys(of, dice.choice(shares))
        plan.weather = replace(plan.weather, **changed)

    return draw


def stretched(kind: str) -> Trouble:
    """Drains take minutes, not seconds."""

    def draw(dice: random.Random, plan: Plan) -> None:
        before = len(plan.events)
        SHARED[kind](dice, plan)
        plan.events = plan.events[:before] + tuple(replace(item, at=60.0 + _STRETCH * item.at) for item in plan.events[before:])

    return draw


def _dooms(dice: random.Random, plan: Plan) -> None:
    """Some sidecars die at a crossing of their first life, some of a later one, some in one life after the other."""
    for _ in range(dice.randint(1, 4)):
        node, at = dice.choice(plan.nodes), dice.choice((0.0, dice.uniform(1.0, TROUBLED)))
        for again in range(dice.choice((1, 1, 3))):
            plan.add(at + 12.0 * again, "doom", node, dice.randint(1, 30))


def _storms(dice: random.Random, plan: Plan) -> None:
    """The server's history is compacted again and again, so that every watch ends with 410 more than once."""
    at = dice.uniform(2.0, TROUBLED)
    for _ in range(dice.randint(1, 6)):
        plan.add(at, "compact")
        at += dice.uniform(0.5, 8.0)


def _slow_watches(dice: random.Random, plan: Plan) -> None:
    plan.weather = replace(plan.weather, watch=Latency(dice.choice((0.01, 0.1)), dice.choice((0.5, 2.0, 10.0))))


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
