"""Tables fit the terminal, say all that they say elsewhere, and are as wide as they like where no terminal reads."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.commands import tables
from sidecar.commands.explain.judged import judge
from sidecar.commands.explain.rows import NARROW
from sidecar.commands.tables import Fitted, table
from sidecar.commands.text import aligned, render
from sidecar.drain.snapshot import Own
from sidecar.model import names
from tests.harness.drain.listed_cluster import Lists, claim, look, node, pod, volume

HEADS = ("NODE", "SAYS", "NEVER", "WHY")
ROWS = [
    ("n1", "drain True for 6s; retire False for 4s", "", "somebody uses the volume, and has done so for quite a while"),
    ("n2", "nothing", "", "x"),
]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(tables, "terminal_width", lambda: 50)
    return monkeypatch


def test_a_cell_that_is_too_long_goes_on_below(terminal: pytest.MonkeyPatch) -> None:
    assert table(ROWS, heads=HEADS) == [
        "NODE  SAYS                 WHY",
        "n1    drain True for 6s;   somebody uses the",
        "      retire False for 4s  volume, and has done",
        "                           so for quite a while",
        "n2    nothing              x",
    ]


def test_what_fits_stays_as_it_is_also_without_a_terminal(terminal: pytest.MonkeyPatch) -> None:
    assert table(ROWS[1:], heads=HEADS) == aligned(ROWS[1:], heads=HEADS)
    terminal.setattr(tables, "terminal_width", lambda: 0)
    assert table(ROWS, heads=HEADS) == aligned(ROWS, heads=HEADS)


CELL = st.lists(st.text("abcß-", min_size=1, max_size=9), max_size=12).map(" ".join)


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=5), st.integers(1, 90))
def test_nothing_is_lost_and_it_fits_if_the_pieces_of_words_do(rows: list[tuple[str, str, str]], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "terminal_width", lambda: width)
        lines = table(rows, heads=("A", "B", "C"))
    assert sorted("".join("".join(lines[1:]).split())) == sorted("".join("".join(map("".join, rows)).split()))
    longest = max((len(piece) for row in rows for cell in row for piece in re.findall("[^ -]*-?", cell)), default=0)
    assert all(len(line) <= max(width, 3 * longest + 4) for line in lines)
    if width >= 3 * 9 + 4:
        assert sorted(word for line in lines[1:] for word in line.split()) == sorted(word for row in rows for word in " ".join(row).split())


def test_the_tables_of_explain_fit_a_hundred_columns_with_names_as_they_are(terminal: pytest.MonkeyPatch) -> None:
    terminal.setattr(tables, "terminal_width", lambda: 100)
    name, driver, claimed = "ip-10-0-1-23.eu-central-1.compute.internal", "local.csi-node-sidecar.io", "data-postgres-main-0"
    made = volume("pvc-7d1f2a3b-9c8d-4e5f-a6b7-c8d9e0f1a2b3", name, driver=driver, claim=claimed)
    user, bound = pod("postgres-main-0", claimed, node=name, phase="Running"), claim(claimed, volume_name=made["metadata"]["name"])
    for obj in (user, bound):
        obj["metadata"]["namespace"] = made["spec"]["claimRef"]["namespace"] = "shop-production"
    bound["metadata"]["annotations"] = {names.DRAIN_POLICY: "Block"}
    kube = Lists({"nodes": [node(name)], "pods": [user], "persistentvolumeclaims": [bound], "persistentvolumes": [made]})
    # No controller owns the pod: the sentence about that is the longest in the column that has no head.
    (judged,) = judge(look(kube, name), name, "", Own())
    fitted = render(judged.assessment, Fitted())
    assert "WouldStrand" in fitted and "IF DRAINED" in fitted
    own = "drain True for 36s; retire False for 36s"
    row = (name, driver, "Unknown", "Unknown", "12", "ProvisioningInFlight", "100Gi", "InProgress for 36s", own)
    for line in (*fitted.splitlines(), *table([row], heads=NARROW)):
        assert len(line) <= 100, line
