"""The reckoning of what a volume costs the API server, held to what `hack/bench scale` has measured, and to who hears what."""

import math
from itertools import product

import pytest

from sidecar.cli import main
from sidecar.frozen import frozen
from sidecar.simulation.swarm.server_cost import ALL, LABELLED, SCOPES, SIZES, ServerCost, server_cost

NEAR = 0.2
BURST, LATE = True, False
UNKNOWN = math.nan


@frozen
class Measured:
    """A row of hack/benchmarks/scale/README.md; what was not measured there is no number. Each is for one volume."""

    nodes: int
    scope: str
    immediate: bool
    events: float
    requests: float
    milliseconds: float = UNKNOWN
    filtered: float = UNKNOWN
    kilobytes: float = UNKNOWN
    keeps_up: bool = True
    """Otherwise nodes have asked again and again, and how often is taken from the measurement."""


# CPU is measured on a quiet machine and where the server keeps up, or left out. What stands for 30 nodes was measured on 40.
ROWS = [
    Measured(10, LABELLED, BURST, events=36.2, requests=4.12, filtered=111, kilobytes=48.4),
    Measured(10, LABELLED, LATE, events=16.2, requests=3.00, filtered=110, kilobytes=24.2),
    Measured(40, ALL, BURST, events=UNKNOWN, requests=4.3),
    Measured(40, ALL, LATE, events=162, requests=UNKNOWN),
    Measured(40, LABELLED, LATE, events=15, requests=UNKNOWN),
    Measured(100, ALL, BURST, events=498, requests=6.8, milliseconds=47.3, keeps_up=False),
    Measured(100, LABELLED, BURST, events=34, requests=4.5, milliseconds=31.3),
    Measured(100, LABELLED, LATE, events=17, requests=3.1, milliseconds=24.3),
    Measured(100, ALL, BURST, events=518, requests=6.34, filtered=393, kilobytes=686, keeps_up=False),
    Measured(100, ALL, LATE, events=413, requests=3.11, filtered=394, kilobytes=580, milliseconds=35.9),
    Measured(100, LABELLED, BURST, events=33, requests=4.34, filtered=1375, kilobytes=44.1, milliseconds=32.8),
    Measured(100, LABELLED, LATE, events=17, requests=3.15, filtered=1190, kilobytes=24.7),
]


def cost(nodes: int, scope: str, immediate: bool, requests: float | None = None) -> ServerCost:
    return server_cost(nodes, scope=scope, immediate=immediate, requests=requests)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.nodes}-{row.scope}-{'immediate' if row.immediate else 'late'}")
@pytest.mark.parametrize("figure", ["events", "filtered", "kilobytes", "requests", "milliseconds"])
def test_what_is_reckoned_is_what_was_measured(row: Measured, figure: str) -> None:
    reckoned = cost(row.nodes, row.scope, row.immediate, None if row.keeps_up else row.requests)
    measured = getattr(row, figure)
    assert math.isnan(measured) or getattr(reckoned, figure) == pytest.approx(measured, rel=NEAR)


@pytest.mark.parametrize(("scope", "immediate"), list(product(SCOPES, (BURST, LATE))))
def test_what_a_watch_is_offered_it_is_sent_or_it_is_filtered(scope: str, immediate: bool) -> None:
    """One node more has one watch of claims, or two by label, and two of volumes."""
    offered = [cost(nodes, scope, immediate).events + cost(nodes, scope, immediate).filtered for nodes in (1000, 1001)]
    changes = 5 if immediate else 4
    assert offered[1] - offered[0] == changes * (1 if scope == ALL else 2) + 2 * 2


def test_by_label_what_is_sent_does_not_grow_with_the_cluster() -> None:
    for immediate in (BURST, LATE):
        assert cost(5000, LABELLED, immediate).events == cost(30, LABELLED, immediate).events
        assert cost(5000, ALL, immediate).events > 150 * cost(30, ALL, immediate).events


def test_open_claims_that_are_not_shared_out_are_heard_by_all() -> None:
    shared, random = (server_cost(1000, scope=LABELLED, immediate=True, ranked=ranked) for ranked in (True, False))
    assert random.events - shared.events == 2 * (1000 - 8)
    assert cost(10, LABELLED, BURST).events - cost(9, LABELLED, BURST).events == 2


def test_a_request_more_costs_as_much_wherever_it_is_made() -> None:
    each = [cost(nodes, ALL, LATE, 4.0).milliseconds - cost(nodes, ALL, LATE, 3.0).milliseconds for nodes in (30, 5000)]
    assert each == pytest.approx([2.5, 2.5])


def test_the_table_has_a_column_for_each_size_and_nothing_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "race", "--costs", "--placement=ranked"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split()[-len(SIZES) :] == ["30", "100", "300", "1,000", "5,000"]
    late = rows[rows.index("a volume, late, claims by label") :]
    assert late[1].split()[-len(SIZES) :] == [f"{cost(nodes, LABELLED, LATE).events:,.0f}" for nodes in SIZES]
    assert "conflicts" not in "".join(rows)


def test_a_race_is_told_with_its_own_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "race", "--sweep=3,8", "--claims=5", "--model=thin"]) == 0
    heads = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("reckoned"))
    assert heads.split()[-2:] == ["3", "8"]
