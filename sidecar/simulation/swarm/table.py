"""The numbers of races as a table: a row for each number, a column for each race."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from sidecar.simulation.swarm.counts import Summary
from sidecar.simulation.swarm.rows import aligned

Cell = Callable[[Summary], str]


def _seconds(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f} s"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _chance(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


_ROWS: Final[tuple[tuple[str, Cell], ...]] = (
    ("nodes", lambda it: f"{it.nodes:,}"),
    ("model", lambda it: it.model),
    ("claims", lambda it: f"{it.claims:,}"),
    ("  have an owner", lambda it: f"{it.owned:,}"),
    ("  have a volume", lambda it: f"{it.bound:,}"),
    ("  have none but would fit", lambda it: f"{it.fits:,}"),
    ("claim to owner, mean", lambda it: _seconds(it.mean)),
    ("  median", lambda it: _seconds(it.p50)),
    ("  99th percentile", lambda it: _seconds(it.p99)),
    ("  longest", lambda it: _seconds(it.longest)),
    ("claim to volume, median", lambda it: _seconds(it.bound_p50)),
    ("  99th percentile", lambda it: _seconds(it.bound_p99)),
    ("  longest", lambda it: _seconds(it.bound_longest)),
    ("writes to a claim", lambda it: f"{it.claim_writes:.2f}"),
    ("conflicts per claim", lambda it: f"{it.conflicts:.4f}"),
    ("failed creations per claim", lambda it: f"{it.failed:.4f}"),
    ("spread by space: chi-square p", lambda it: _chance(it.spread_p)),
    ("  furthest node from its share", lambda it: _share(it.spread_furthest)),
    ("API requests per claim", lambda it: f"{it.requests:.2f}"),
    ("watch events per claim and node", lambda it: f"{it.events_per_node:.2f}"),
    ("GetCapacity calls per claim", lambda it: f"{it.measured:.2f}"),
    ("simulated", lambda it: f"{it.simulated:.0f} s"),
    ("took", lambda it: f"{it.took:.1f} s"),
)


def table(summaries: Sequence[Summary]) -> str:
    return aligned([(name, *(cell(summary) for summary in summaries)) for name, cell in _ROWS])
