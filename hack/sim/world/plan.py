"""What happens in a world and when, drawn from a seed and from nothing else. A plan may be changed by hand to study one thing.

Each kind of trouble has its own dice, so that leaving one out changes nothing about the others: `hack/fire --seed N --without KIND`
finds the kind that matters in a failing seed. A seed takes only some of the kinds, because a world in which everything goes wrong at
once hides what one kind does alone.
"""

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hack.sim.driver.faults import Fault
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan_hostile import (
    changed_flags,
    clock_jumps,
    crashing_drivers,
    direct_deletions,
    forged_lines,
    hostile_drivers,
    hostile_tenants,
    kept_data,
    late_successes,
    lying_drivers,
    relabelled_volumes,
    selected_node_flips,
    wobbling_drivers,
)
from hack.sim.world.plan_rolls import mixed, placements
from sidecar.csi.outcome import Code
from sidecar.frozen import frozen
from sidecar.ownership.shards import LISTENERS

LATE_CLASSES: Final = ("late", "late-too")
"""These classes share one pool, as classes do that differ only in their file system."""
IMMEDIATE_CLASS: Final = "immediate"
CLASSES: Final = (*LATE_CLASSES, IMMEDIATE_CLASS)
PASSING_CLASSES: Final = ("passing", "passing-too")
"""These classes come, go and change, and no claim uses them."""

PLACED: Final = "placements"

TROUBLED: Final = 90.0
"""For so many seconds things go wrong; claims are created in the first 60 of them."""

SETTLE: Final = 700.0
"""More than twice the longest back-off."""


@frozen
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


@frozen
class Plan:
    """Everything in a world that the product does not do itself."""

    seed: int
    nodes: tuple[str, ...]
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
    """Names of placements, by node; who is not named has the default."""
    upstream: tuple[str, ...] = ()
    """Nodes that begin with upstream's program."""
    joins: tuple[tuple[str, float], ...] = ()
    """When nodes begin that are not there from the start."""
    by_label: tuple[str, ...] = ()
    """Nodes that begin with watches of claims by label."""
    listeners: int = LISTENERS
    """How many nodes hear of each open claim, where claims are shared out. Few, so that a few nodes share them."""
    settle: float = SETTLE
    """Time to come to rest after the last event."""
    rest: float = 300.0
    """Time in which the world must then be at rest."""


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
    upstream: list[str] = field(default_factory=list)
    joins: dict[str, float] = field(default_factory=dict)
    settle: float = SETTLE

    def add(self, at: float, what: str, whom: str = "", number: float = 0.0, *, detail: str = "") -> None:
        self.events.append(PlannedEvent(at, what, whom, number, detail))

    def span(self, dice: random.Random, begins: str, ends: str, whom: str = "", *, longest: float, number: float = 0.0) -> None:
        start = dice.uniform(2.0, TROUBLED)
        self.add(start, begins, whom, number)
        self.add(start + dice.uniform(0.5, longest), ends, whom)


def planned(seed: int, draft: Draft, troubles: tuple[str, ...], *, settle: float) -> Plan:
    """What was drawn, for worlds whose nodes are all alike."""
    return Plan(
        seed,
        draft.nodes,
        weather=Weather(**draft.weather),
        events=tuple(sorted(draft.events, key=lambda item: item.at)),
        faults=tuple(draft.faults),
        troubles=troubles,
        args=tuple(draft.args),
        settle=settle,
    )


def plan_of(seed: int, *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    """The plan of a seed. `claims` replaces the drawn number of claims; `without` leaves out kinds of trouble, or with `PLACED` the drawn
    placement, so that all nodes have the default."""
    dice = random.Random(f"plan {seed}")
    draft = Draft(tuple(f"n{number}" for number in range(dice.randint(2, 5))), claims or dice.randint(6, 24))
    drawn = [kind for kind in TROUBLES if dice.random() < 0.4]
    troubles = tuple(kind for kind in drawn if kind not in without)
    _people(random.Random(f"people {seed}"), draft)
    if PLACED not in without:
        placements(random.Random(f"{PLACED} {seed}"), draft)
    for kind in troubles:
        TROUBLES[kind](random.Random(f"{kind} {seed}"), draft)
    return Plan(
        seed,
        draft.nodes,
        pool=draft.pool,
        weather=Weather(**draft.weather),
        events=tuple(sorted(draft.events, key=lambda item: item.at)),
        faults=tuple(draft.faults),
        troubles=troubles,
        args=tuple(draft.args),
        placements=tuple(draft.placements.items()),
        upstream=tuple(draft.upstream),
        joins=tuple(draft.joins.items()),
        settle=draft.settle,
    )


def crowd(*, claims: int, nodes: int, seed: int = 1) -> Plan:
    """Many claims in ten seconds and no trouble, to measure speed."""
    names = tuple(f"n{number}" for number in range(nodes))
    events = tuple(
        PlannedEvent(10.0 * number / claims, "claim", f"data-{number}", 1, CLASSES[number % len(CLASSES)]) for number in range(claims)
    )
    return Plan(seed, names, pool=f"{claims}Gi", events=events)


def _people(dice: random.Random, draft: Draft) -> None:
    """Users: they create claims and often delete them again."""
    for number in range(draft.claims):
        name, at = f"data-{number}", dice.uniform(1.0, 60.0)
        draft.add(at, "claim", name, dice.choice((1, 2, 5)), detail=dice.choice((*LATE_CLASSES, IMMEDIATE_CLASS, IMMEDIATE_CLASS)))
        if dice.random() < 0.4:
            draft.add(at + dice.expovariate(1 / 20.0), "delete", name)


def _times(dice: random.Random, most: int) -> Iterator[float]:
    """Draws between one and so many moments."""
    for _ in range(dice.randint(1, most)):
        yield dice.uniform(1.0, TROUBLED)


def _kills(dice: random.Random, draft: Draft) -> None:
    for at in _times(dice, 4):
        draft.add(at, "kill", dice.choice(draft.nodes))


def _dooms(dice: random.Random, draft: Draft) -> None:
    """Some sidecars die at a crossing of their first life, some of a later one, some in one life after the other."""
    for _ in range(dice.randint(1, 4)):
        node, at = dice.choice(draft.nodes), dice.choice((0.0, dice.uniform(1.0, TROUBLED)))
        for again in range(dice.choice((1, 1, 3))):
            draft.add(at + 12.0 * again, "doom", node, dice.randint(1, 30))


def _stops(dice: random.Random, draft: Draft) -> None:
    for at in _times(dice, 3):
        draft.add(at, "stop", dice.choice(draft.nodes))


def _driver_restarts(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 3)):
        draft.span(dice, "driver away", "driver back", dice.choice(draft.nodes), longest=40.0)


def _driver_faults(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 6)):
        method = dice.choice(("CreateVolume", "CreateVolume", "DeleteVolume", "GetCapacity"))
        draft.faults.append((dice.choice(draft.nodes), Fault(method=method, times=dice.randint(1, 6), **dice.choice(_FAULTS))))


# Without RESOURCE_EXHAUSTED: pools run full by themselves, and no driver may answer it for a volume that it has made.
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"fail": Code.INTERNAL},
    {"fail": Code.UNAVAILABLE},
    {"hang": 60.0},
    {"delay": 30.0},
    {"delay": 12.0},
    {"delay": 3.0},
    {"linger": 12.0},
    {"lose": Code.DEADLINE_EXCEEDED},
    {"lose": Code.INTERNAL},
)


def _outages(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 2)):
        draft.span(dice, "outage", "recovery", longest=40.0)


def _partitions(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 3)):
        draft.span(dice, "partition", "healed", dice.choice(draft.nodes), longest=60.0)


def _storms(dice: random.Random, draft: Draft) -> None:
    """The server's history is compacted again and again, so that every watch ends with 410 more than once."""
    at = dice.uniform(2.0, TROUBLED)
    for _ in range(dice.randint(1, 6)):
        draft.add(at, "compact")
        at += dice.uniform(0.5, 8.0)


def _cuts(dice: random.Random, draft: Draft) -> None:
    for at in _times(dice, 5):
        draft.add(at, "cut", dice.choice(draft.nodes))


def _losses(dice: random.Random, draft: Draft) -> None:
    share = dice.choice((0.02, 0.1, 0.3))
    draft.weather |= {"lost_requests": share, "lost_answers": share}


def _strays(dice: random.Random, draft: Draft) -> None:
    draft.weather |= {"straying": dice.choice((0.02, 0.1, 0.3))}


def _overload(dice: random.Random, draft: Draft) -> None:
    draft.weather |= {"refused": dice.choice((0.05, 0.3))}


def _slow_watches(dice: random.Random, draft: Draft) -> None:
    draft.weather |= {"watch": Latency(dice.choice((0.01, 0.1)), dice.choice((0.5, 2.0, 10.0)))}


def _lags(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 3)):
        draft.span(dice, "lag", "lag over", dice.choice(draft.nodes), longest=60.0, number=dice.choice((2.0, 10.0, 30.0)))


def _lost_classes(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 2)):
        draft.span(dice, "class away", "class back", dice.choice(CLASSES), longest=60.0)


def _namesakes(dice: random.Random, draft: Draft) -> None:
    """A claim is deleted and created again under the same name, as a StatefulSet would."""
    for item in [item for item in draft.events if item.what == "claim"]:
        if dice.random() < 0.3:
            at = item.at + dice.expovariate(1 / 15.0)
            draft.add(at, "delete", item.whom)
            draft.add(at + dice.choice((0.0, 0.5, 10.0)), "claim", item.whom, item.number, detail=item.detail)


def _full_pools(dice: random.Random, draft: Draft) -> None:
    draft.pool = dice.choice(("3Gi", "5Gi", "10Gi"))


def _class_churn(dice: random.Random, draft: Draft) -> None:
    """Classes are replaced under the same names. Of a class in use only the binding mode changes, because the other parameters tell
    the volumes of its claims apart."""
    for _ in range(dice.randint(1, 3)):
        draft.span(dice, "class bids", "class back", LATE_CLASSES[1], longest=30.0)
    for name in PASSING_CLASSES:
        at = dice.uniform(1.0, TROUBLED)
        for _ in range(dice.randint(1, 5)):
            draft.add(at, "class passes", name, detail=dice.choice(_PASSING))
            at += dice.choice((0.0, 0.01, 0.5, dice.uniform(0.5, 30.0)))
        if dice.random() < 0.5:
            draft.add(at, "class away", name)


_PASSING: Final = ("late main", "late spare", "late nowhere", "immediate main", "late spare", "nothing")
"""Mode and pool; with `nothing` it only goes."""


def _mute_drivers(dice: random.Random, draft: Draft) -> None:
    """A driver does not answer GetCapacity for longer than the poll interval."""
    if dice.random() < 0.4:
        draft.args.append("--capacity-stale-after=100s")
    for _ in range(dice.randint(1, 3)):
        node, at = dice.choice(draft.nodes), dice.uniform(0.0, TROUBLED)
        draft.add(at, "capacity mute", node, detail=dice.choice(("INTERNAL", "UNIMPLEMENTED", "UNAVAILABLE", "hangs")))
        draft.add(at + dice.choice((5.0, dice.uniform(60.0, 250.0))), "capacity told", node)


def _meddling(dice: random.Random, draft: Draft) -> None:
    """Others write capacity objects: their own, and ours."""
    for at in _times(dice, 4):
        draft.add(at, "foreign capacity", dice.choice(draft.nodes), detail=dice.choice(FOREIGN))
    for at in _times(dice, 8):
        node, what = dice.choice(draft.nodes), dice.choice(MEDDLING)
        for again in range(dice.choice((1, 1, 3))):
            draft.add(at + 0.3 * again, "meddle", node, detail=what)


FOREIGN: Final = ("other driver", "other manager", "unlabelled")
MEDDLING: Final = ("delete", "alter", "duplicate", "elsewhere", "unknown class", "recreate", "strip", "relabel", "mark", "annotate")


def _full_disks(dice: random.Random, draft: Draft) -> None:
    """A journal cannot be written, so nothing may be begun until there is room."""
    for _ in range(dice.randint(1, 2)):
        draft.span(dice, "disk full", "disk free", dice.choice(draft.nodes), longest=40.0)


TROUBLES: Final[dict[str, Callable[[random.Random, Draft], None]]] = {
    "kills": _kills,
    "dooms": _dooms,
    "stops": _stops,
    "driver restarts": _driver_restarts,
    "driver faults": _driver_faults,
    "outages": _outages,
    "partitions": _partitions,
    "410 storms": _storms,
    "cuts": _cuts,
    "losses": _losses,
    "strays": _strays,
    "overload": _overload,
    "slow watches": _slow_watches,
    "lags": _lags,
    "lost classes": _lost_classes,
    "namesakes": _namesakes,
    "full pools": _full_pools,
    "class churn": _class_churn,
    "mute drivers": _mute_drivers,
    "meddling": _meddling,
    "full disks": _full_disks,
    "hostile tenants": hostile_tenants,
    "hostile drivers": hostile_drivers,
    "clock jumps": clock_jumps,
    "forged lines": forged_lines,
    "direct deletions": direct_deletions,
    "crashing drivers": crashing_drivers,
    "kept data": kept_data,
    "late successes": late_successes,
    "changed flags": changed_flags,
    "lying drivers": lying_drivers,
    "wobbling drivers": wobbling_drivers,
    "mixed": mixed,
    "selected-node flips": selected_node_flips,
    "relabelled volumes": relabelled_volumes,
}
"""The kinds of trouble, by the name under which they are reported: each adds its events to a draft."""
