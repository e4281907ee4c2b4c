"""A test file that costs three times its budget fails the run, and a busy machine fails nobody."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import group_of
from tests.time_budgets import DEFAULT, FEWEST_LONG, LONG, SLACK, TIMES_ALLOWED, Bookkeeper, Spent


def kept(*spent: tuple[str, Spent], renew: bool = False) -> Bookkeeper:
    config: Any = SimpleNamespace(getoption=lambda name: name == "--budgets" or (renew and name == "--renew-budgets"))
    books = Bookkeeper(config)
    for file, each in spent:
        books.pytest_runtest_logreport(SimpleNamespace(spent=list(vars(each).values()), tier="unit", nodeid=f"{file}::test_it"))
    return books


def ended(books: Bookkeeper) -> int:
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    books.pytest_sessionfinish(session)
    return int(session.exitstatus)


MOST = {kind: TIMES_ALLOWED * DEFAULT[kind] + SLACK[kind] for kind in DEFAULT}


@pytest.mark.parametrize(
    ("spent", "code"),
    [
        (Spent(cpu=MOST["cpu"]), 0),
        (Spent(cpu=MOST["cpu"] + 0.1), 1),
        (Spent(wall=MOST["waits"]), 0),
        (Spent(wall=MOST["waits"] + 0.1), 1),
        (Spent(cpu=1.0, wall=100.0, ran=1.0, starved=99.0), 0),
        (Spent(cpu=1.0, wall=3.0 + 2 * MOST["waits"], ran=1.5, starved=1.5), 0),
        (Spent(cpu=1.0, wall=3.1 + 2 * MOST["waits"], ran=1.5, starved=1.5), 1),
    ],
    ids=["CPU", "too much CPU", "waits", "waits too long", "the process waited for a CPU", "a busy machine", "more than that explains"],
)
def test_what_a_file_may_cost(spent: Spent, code: int) -> None:
    assert ended(kept(("tests/not_in_the_table.py", spent))) == code


def test_the_tests_of_a_file_are_added_up() -> None:
    half = Spent(cpu=MOST["cpu"] * 0.6)
    assert ended(kept(("tests/a.py", half), ("tests/b.py", half))) == 0
    assert ended(kept(("tests/a.py", half), ("tests/a.py", half))) == 1


def test_a_file_that_ran_while_the_machine_was_busiest_may_wait_longer() -> None:
    busy = Spent(cpu=1.0, wall=3.0 + 2 * MOST["waits"], ran=1.5, starved=1.5)
    alone = Spent(cpu=1000.0, wall=1000.0, ran=1000.0)
    books = kept(("tests/a.py", busy), ("tests/b.py", alone))
    books.pytest_sessionfinish(SimpleNamespace(exitstatus=pytest.ExitCode.OK))  # type: ignore[arg-type]
    assert books._excesses and all("tests/b.py" in excess for excess in books._excesses)


def long_files() -> list[tuple[str, float]]:
    table = Bookkeeper(SimpleNamespace(getoption=lambda name: False))._budgets["unit"]  # type: ignore[arg-type]
    return [(file, budget["cpu"]) for file, budget in table.items() if budget["cpu"] >= LONG]


@pytest.mark.parametrize(
    ("pace", "used", "code"),
    [(1.0, 1.1, 1), (0.5, 1.1, 1), (1.5, 1.4, 0), (1.5, 1.6, 1), (9.0, 1.9, 1)],
    ids=["a machine as usual", "a quick machine allows no less", "a slow machine", "more than that explains", "all take far too much"],
)
def test_on_a_slow_machine_each_file_may_use_more_cpu(pace: float, used: float, code: int) -> None:
    others = [(file, Spent(cpu=budget * pace)) for file, budget in long_files()]
    assert ended(kept(("tests/a.py", Spent(cpu=MOST["cpu"] * used)), *others)) == code


def test_few_long_files_do_not_show_how_slow_the_machine_is() -> None:
    others = [(file, Spent(cpu=budget * 1.9)) for file, budget in long_files()[: FEWEST_LONG - 1]]
    assert ended(kept(("tests/a.py", Spent(cpu=MOST["cpu"] * 1.1)), *others)) == 1


def test_a_run_that_failed_says_why_it_failed() -> None:
    session: Any = SimpleNamespace(exitstatus=pytest.ExitCode.INTERRUPTED)
    kept(("tests/a.py", Spent(cpu=1000.0))).pytest_sessionfinish(session)
    assert session.exitstatus == pytest.ExitCode.INTERRUPTED


def test_tests_that_share_a_server_share_a_process() -> None:
    aging, tokens = (group_of(f"tests/cluster/test_scenario_{name}.py::test_it", real=True) for name in ("aging", "tokens"))
    assert aging == tokens
    assert len({group_of(f"tests/e2e/test_{name}.py::test_it", real=True) for name in ("drain", "capacity")}) == 1
    assert group_of("tests/kube/test_wire.py::test_a", real=False) == group_of("tests/kube/test_wire.py::test_b[x]", real=False)
    assert group_of("tests/world/test_worlds.py::test_a", real=False) != group_of("tests/world/test_worlds.py::test_b", real=False)
