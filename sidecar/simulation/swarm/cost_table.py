"""What the API server does for each volume, as a table: a row for each number, a column for each size of the cluster."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final

from sidecar.simulation.swarm.rows import aligned
from sidecar.simulation.swarm.server_cost import ALL, SCOPES, ServerCost, server_cost

Cell = Callable[[ServerCost], str]

_ROWS: Final[tuple[tuple[str, Cell], ...]] = (
    ("watch events sent", lambda it: f"{it.events:,.0f}"),
    ("events offered and filtered", lambda it: f"{it.filtered:,.0f}"),
    ("kB of watches", lambda it: f"{it.kilobytes:,.0f}"),
    ("requests of nodes", lambda it: f"{it.requests:.1f}"),
    ("CPU ms of the API server", lambda it: f"{it.milliseconds:,.0f}"),
)


def cost_table(sizes: Sequence[int], *, ranked: bool) -> str:
    """Both kinds of claims, heard by all nodes and by label."""
    heads = ("reckoned, for each volume: nodes", *(f"{nodes:,}" for nodes in sizes))
    return aligned([heads, *_rows(sizes, ranked=ranked)])


def _rows(sizes: Sequence[int], *, ranked: bool) -> Iterator[tuple[str, ...]]:
    for immediate, scope in product((True, False), SCOPES):
        kind = "Immediate" if immediate else "late"
        yield f"{kind} claims, {'heard by all' if scope == ALL else 'by label'}", *("" for _ in sizes)
        costs = [server_cost(nodes, scope=scope, immediate=immediate, ranked=ranked) for nodes in sizes]
        for name, cell in _ROWS:
            yield f"  {name}", *(cell(cost) for cost in costs)
