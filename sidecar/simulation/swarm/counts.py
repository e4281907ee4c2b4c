"""What is counted during a race, and its summary at the end."""

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sidecar.frozen import frozen
from sidecar.simulation.swarm.scenario import Scenario

_CLAIM_WRITES: Final = ("update persistentvolumeclaims", "bid", "give back")
"""As the full and the thin model call them."""


@dataclass(slots=True)
class Counts:
    """What either model counts."""

    latencies: list[float] = field(default_factory=list)
    """Seconds from a claim's creation until the write that names its first owner is done, in the order of those writes."""
    bound: list[float] = field(default_factory=list)
    """Seconds from a claim's creation until it is bound. The thin model leaves it empty."""
    conflicts: int = 0
    """Writes of a selected node that were answered with 409."""
    failed: int = 0
    """Creations that their owner's driver had no space for."""
    volumes: Counter[str] = field(default_factory=Counter)
    """By node."""
    fits: int = 0
    """Claims that got no volume though some running node has room for them."""
    requests: Counter[str] = field(default_factory=Counter)
    """Requests to the API server by kind, of all nodes together, without those of starting up."""
    events: int = 0
    """Watch events of claims and volumes, for all nodes together."""
    measured: int = 0
    """GetCapacity calls."""
    ended: float = 0.0
    """Virtual time."""


@frozen
class Spread:
    """How far the distribution of volumes is from the distribution of space."""

    p: float
    """The chance of such a distance by accident, by a chi-square test against shares of space."""
    furthest: float
    """The largest distance of one node from its share, as a part of it."""


@frozen(kw_only=True)
class Summary:
    """One race in numbers. Times are seconds, counts are per claim unless they say otherwise."""

    model: str
    nodes: int
    claims: int
    placement: str
    owned: int
    bound: int
    fits: int
    mean: float
    p50: float
    p99: float
    longest: float
    bound_p50: float
    bound_p99: float
    bound_longest: float
    claim_writes: float
    conflicts: float
    failed: float
    spread_p: float
    spread_furthest: float
    requests: float
    events_per_node: float
    measured: float
    simulated: float
    took: float

    def json(self) -> dict[str, Any]:
        return asdict(self)


def summarize(scenario: Scenario, counts: Counts, *, model: str, took: float) -> Summary:
    """`took`: seconds of real time."""
    ordered, bound, claims = sorted(counts.latencies), sorted(counts.bound), scenario.claims
    spread = spread_of(scenario, counts)
    running = sum(not part.dead for part in scenario.cast())
    return Summary(
        model=model,
        nodes=scenario.nodes,
        claims=claims,
        placement=scenario.placement,
        owned=len(ordered),
        bound=counts.volumes.total(),
        fits=counts.fits,
        mean=sum(ordered) / len(ordered) if ordered else math.nan,
        p50=quantile(ordered, 0.5),
        p99=quantile(ordered, 0.99),
        longest=ordered[-1] if ordered else math.nan,
        bound_p50=quantile(bound, 0.5),
        bound_p99=quantile(bound, 0.99),
        bound_longest=bound[-1] if bound else math.nan,
        claim_writes=sum(counts.requests[what] for what in _CLAIM_WRITES) / claims,
        conflicts=counts.conflicts / claims,
        failed=counts.failed / claims,
        spread_p=spread.p,
        spread_furthest=spread.furthest,
        requests=counts.requests.total() / claims,
        events_per_node=counts.events / claims / max(running, 1),
        measured=counts.measured / claims,
        simulated=counts.ended,
        took=took,
    )


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.nan


def spread_of(scenario: Scenario, counts: Counts) -> Spread:
    """Compares the volumes of each node that can take some with its share of the space."""
    shares = {part.name: part.usable for part in scenario.cast() if part.usable}
    space, volumes = sum(shares.values()), counts.volumes.total()
    if len(shares) < 2 or not volumes:
        return Spread(math.nan, math.nan)
    expected = {name: share * volumes / space for name, share in shares.items()}
    distances = {name: counts.volumes[name] - mean for name, mean in expected.items()}
    square = sum(distance**2 / expected[name] for name, distance in distances.items())
    return Spread(chance_of(square, len(shares) - 1), max(abs(distance) / expected[name] for name, distance in distances.items()))


def chance_of(square: float, freedom: int) -> float:
    """The chance that chi-square is at least so large, by Wilson and Hilferty's approximation."""
    part = 2.0 / (9.0 * freedom)
    return 0.5 * math.erfc(((square / freedom) ** (1.0 / 3.0) - (1.0 - part)) / math.sqrt(2.0 * part))
