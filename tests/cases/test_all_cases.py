"""Every acceptance case of provisioning has a test that bears its name, or stands in a table here that says why it has none.

A test bears a case's name when it begins with it, as `test_R39_…` and `test_R43_R46_…` do, or when the id of one of its
parameters does, as in `id="R40-empty-name"`. Whether the test is a good one no table can say; that it is lost, this one does.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]

# The numbers that the cases have. What is not there was taken out when the cases were drawn up, and is not to be used again.
_NUMBERS: Final = {
    "F": "1 2 3 4 5 7 8 10 12 13 14 15",
    "S": "1 3 6 7 8 10",
    "M": "1 2 3 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30",
    "P": "1 2 3 4 5 6",
    "N": "1 2 3 5 6 7 9 10 11 12 13 14 16 17 18 20 21 22 23 25 26 27 28 29 30 31",
    "R": "2 3 4 5 6 7 8 10 12 13 14 15 16 17 18 19 20 23 24 25 26 27 31 32 33 34 35 36 37 39 40 41 42 43 44 46 47 48 49 50 51 52 53 54",
    "V": "1 2 3 4 5 6 7 8 9 10 11",
    "D": "1 2 3 4 5 6 8 10 11 12 14 15 17 18",
    "C": "2 3 4 5 6 7 9 10 11 12 13 15 16 17 20 21 23 24 25 26 27",
    "E": "1 2 3 4 5 6 7",
    "B": "1 2 4",
    "K": "1 2 3 4 5 7 8 9",
    "X": "1 2 3 4 5 6",
}
CASES: Final = [f"{letter}{number}" for letter, numbers in _NUMBERS.items() for number in numbers.split()]

CENTRAL_ONLY: Final = {
    "F14": "the lease of leader election: a program that runs on every node elects nobody",
    "N21": "the tick of a poll: nothing polls, a wait is a time in the queue",
    "R31": "topology of claims that nobody selected a node for: here a claim is always this node's when it is created",
    "R32": "spreading over zones by the claim's name: the only segment here is this node's own",
    "R34": "the CSINode of a selected node: this node knows its topology from its driver and reads no CSINode",
    "R35": "a cache of requirements for nodes that vanish: a node that vanishes takes this program along",
    "R36": "labels of other nodes that come later: no node labels are read",
    "R37": "lists of that cache in callers' hands: there is no such cache, and requests are frozen tuples",
}
NOT_YET: Final = {
    "X4": "comes with the drain work",
}

EXCUSED: Final = {*CENTRAL_ONLY, *NOT_YET}


@cache
def borne() -> dict[str, str]:
    """By case, where a test bears it."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path != Path(__file__):
            for name in _names(ast.parse(path.read_text(), str(path))):
                found |= dict.fromkeys(leading_cases(name), f"{path.relative_to(TESTS)}: {name}")
    return found


def _names(module: ast.Module) -> Iterator[str]:
    """The names of tests, without `test_`, and the ids of their parameters, wherever these are written."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name.removeprefix("test_")
        elif isinstance(node, ast.keyword) and node.arg in ("id", "ids"):
            yield from (item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant) and isinstance(item.value, str))


def leading_cases(name: str) -> list[str]:
    """The cases that a name begins with."""
    match = re.match(r"(?:[A-Z][0-9]+(?:[-_ ]|$))+", name)
    return re.findall(r"[A-Z][0-9]+", match[0]) if match else []


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("R39_a_snapshot", ["R39"]),
        ("R43_R46_a_driver", ["R43", "R46"]),
        ("S1-F5-path", ["S1", "F5"]),
        ("X2", ["X2"]),
        ("N_a_claim", []),
        ("the_case_of_R39_is_told_elsewhere", []),
        ("R390x", []),
    ],
)
def test_a_name_bears_the_cases_it_begins_with(name: str, cases: list[str]) -> None:
    assert leading_cases(name) == cases


@pytest.mark.parametrize("case", [case for case in CASES if case not in EXCUSED])
def test_a_case_has_a_test(case: str) -> None:
    assert case in borne(), f"no test under tests/ bears {case}; if it applies no longer, say why in a table here"


@pytest.mark.parametrize("case", sorted(EXCUSED))
def test_what_has_a_test_needs_no_excuse(case: str) -> None:
    assert case in CASES, f"{case} is no case"
    assert case not in borne(), f"{case} has a test by now ({borne().get(case)}); take it out of the table"


def test_a_case_has_one_excuse() -> None:
    assert len(EXCUSED) == len(CENTRAL_ONLY) + len(NOT_YET)
    assert len(CASES) == len(set(CASES)) == 193
