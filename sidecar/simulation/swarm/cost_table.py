"""What the API server does, as a table: a row for each number, a column for each size of the cluster."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from sidecar.simulation.swarm.rows import aligned
from sidecar.simulation.swarm.server_cost import ALL, SCOPES, server_cost
from sidecar.simulation.swarm.upkeep_cost import rest_cost, roll_cost

VOLUMES_EACH: Final = 10
"""On each node, with their claims, while nothing happens and while the DaemonSet is rolled."""

Row = tuple[str, ...]


def cost_table(sizes: Sequence[int], *, ranked: bool) -> str:
    """For each volume, at rest and per roll, where claims are heard by all nodes and where by label."""
    rows = [("reckoned: nodes", *(f"{nodes:,}" for nodes in sizes))]
    for immediate, scope in product((True, False), SCOPES):
        kind = "Immediate" if immediate else "late"
        rows += _section(f"a volume, {kind}, {_heard(scope)}", _of_volumes(sizes, scope, immediate=immediate, ranked=ranked), sizes)
    for scope in SCOPES:
        rows += _section(f"rest, {VOLUMES_EACH} volumes a node, {_heard(scope)}", _of_rest(sizes, scope, ranked=ranked), sizes)
    for scope in SCOPES:
        rows += _section(f"a roll, {VOLUMES_EACH} volumes a node, {_heard(scope)}", _of_rolls(sizes, scope, ranked=ranked), sizes)
    return aligned(rows)


def _heard(scope: str) -> str:
    return "claims heard by all" if scope == ALL else "claims by label"


def _section(title: str, rows: Iterator[Row], sizes: Sequence[int]) -> Iterator[Row]:
    yield title, *("" for _ in sizes)
    for name, *cells in rows:
        yield f"  {name}", *cells


def _of_volumes(sizes: Sequence[int], scope: str, *, immediate: bool, ranked: bool) -> Iterator[Row]:
    costs = [server_cost(nodes, scope=scope, immediate=immediate, ranked=ranked) for nodes in sizes]
    yield "watch events sent", *(f"{cost.events:,.0f}" for cost in costs)
    yield "events offered and filtered", *(f"{cost.filtered:,.0f}" for cost in costs)
    yield "kB of watches", *(f"{cost.kilobytes:,.0f}" for cost in costs)
    yield "requests of nodes", *(f"{cost.requests:.1f}" for cost in costs)
    yield "CPU ms of the API server", *(f"{cost.milliseconds:,.0f}" for cost in costs)


def _of_rest(sizes: Sequence[int], scope: str, *, ranked: bool) -> Iterator[Row]:
    costs = [rest_cost(nodes, scope=scope, volumes=VOLUMES_EACH * nodes, ranked=ranked) for nodes in sizes]
    yield "requests a second", *(f"{cost.requests:,.1f}" for cost in costs)
    yield "bookmarks a second", *(f"{cost.events:,.0f}" for cost in costs)
    yield "kB of lists a second", *(f"{cost.kilobytes:,.1f}" for cost in costs)
    yield "CPU of the API server, cores", *(f"{cost.cores:.3f}" for cost in costs)


def _of_rolls(sizes: Sequence[int], scope: str, *, ranked: bool) -> Iterator[Row]:
    costs = [roll_cost(nodes, scope=scope, volumes=VOLUMES_EACH * nodes, ranked=ranked) for nodes in sizes]
    yield "requests", *(f"{cost.requests:,.0f}" for cost in costs)
    yield "watches that begin anew", *(f"{cost.watches:,.0f}" for cost in costs)
    yield "MB of lists", *(f"{cost.megabytes:,.0f}" for cost in costs)
    yield "CPU s of the API server", *(f"{cost.seconds:,.0f}" for cost in costs)
