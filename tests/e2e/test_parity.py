"""This program beside its peer, field by field: a choice of cases; `hack/parity` plays them all. And that a difference is seen."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hack.lib.control_plane import REPOSITORY
from tests.e2e.conftest import from_hack

Json = dict[str, Any]
SECONDS = 240


@pytest.fixture(scope="module")
def parities() -> SimpleNamespace:
    """The parts of hack/parities, which no test finds by itself."""
    return SimpleNamespace(**{part: from_hack(f"parities.{part}") for part in ("cases", "compare", "differences", "report")})


def test_both_programs_do_the_same_with_the_same_claims(parities: SimpleNamespace) -> None:
    command = [sys.executable, str(REPOSITORY / "hack" / "parity"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f") | {len(parities.cases.SMOKE)} |" in done.stdout


def test_there_are_enough_cases_and_each_seed_gives_its_own(parities: SimpleNamespace) -> None:
    cases = parities.cases.all_cases(seed=1, generated=60)
    assert len(cases) >= 150
    assert {*parities.cases.SMOKE} <= {case.id for case in cases}
    assert cases == parities.cases.all_cases(seed=1, generated=60)
    assert cases != parities.cases.all_cases(seed=2, generated=60)


EVENT = {"message": ["told"], "host": [""], "component": ["driver_(host)_(uuid)"]}
CREATE = {"name": "pvc-(uid of claim)", "parameters": {"a": "b"}, "secrets": {"password": "digest"}}
TREE: Json = {
    "came of it": True,
    "claims": {"claim": {"metadata": {"annotations": {"x": "y"}, "finalizers": ["kubernetes.io/pvc-protection"]}}},
    "volumes": {"claim": {"metadata": {"finalizers": ["a", "b"]}, "spec": {"csi": {"fsType": "ext4"}}}},
    "events": {"claim Warning ProvisioningFailed": EVENT},
    "calls": {"CreateVolume": [CREATE]},
}


def without_finalizer(tree: Json) -> None:
    del tree["volumes"]["claim"]["metadata"]["finalizers"][1]


def without_annotation(tree: Json) -> None:
    del tree["claims"]["claim"]["metadata"]["annotations"]["x"]


def with_another_file_system(tree: Json) -> None:
    tree["volumes"]["claim"]["spec"]["csi"]["fsType"] = "xfs"


def with_a_parameter_more(tree: Json) -> None:
    tree["calls"]["CreateVolume"][0]["parameters"]["c"] = "d"


def with_another_secret(tree: Json) -> None:
    tree["calls"]["CreateVolume"][0]["secrets"]["password"] = "other"


def with_a_call_more(tree: Json) -> None:
    tree["calls"]["CreateVolume"].append({**CREATE, "parameters": {}})


def without_its_event(tree: Json) -> None:
    del tree["events"]["claim Warning ProvisioningFailed"]


def with_other_words_than_the_drivers(tree: Json) -> None:
    tree["events"]["claim Warning ProvisioningFailed"]["message"] = ["mumbled"]


@pytest.mark.parametrize(
    "change",
    [
        without_finalizer,
        without_annotation,
        with_another_file_system,
        with_a_parameter_more,
        with_another_secret,
        with_a_call_more,
        without_its_event,
        with_other_words_than_the_drivers,
    ],
)
@pytest.mark.parametrize("whose", ["ours", "peer"])
def test_a_difference_nobody_has_explained_is_told(parities: SimpleNamespace, change: Callable[[Json], None], whose: str) -> None:
    sides = {"peer": copy.deepcopy(TREE), "ours": copy.deepcopy(TREE)}
    change(sides[whose])
    pair = parities.compare.Pair(parities.cases.Case("some"), parities.compare.CREATED, **sides)
    verdict = parities.report.judge([(pair, 1)])
    assert [gap.case for gap in verdict.unexplained] == ["plain-some"]
    assert verdict.unexplained[0].path in parities.report.complaints(verdict)


def test_what_is_equal_is_told_to_be_so(parities: SimpleNamespace) -> None:
    pair = parities.compare.Pair(parities.cases.Case("some"), parities.compare.CREATED, TREE, copy.deepcopy(TREE))
    verdict = parities.report.judge([(pair, 1)])
    assert (verdict.equal, verdict.unexplained, verdict.explained) == (1, [], {})


def test_a_refusal_in_other_words_is_meant_only_as_long_as_neither_calls_the_driver(parities: SimpleNamespace) -> None:
    peer, ours = copy.deepcopy(TREE), copy.deepcopy(TREE)
    with_other_words_than_the_drivers(ours)
    for tree in (peer, ours):
        tree["calls"] = {}
    case = parities.cases.Case("some")
    pair = parities.compare.Pair(case, parities.compare.CREATED, peer, ours)
    verdict = parities.report.judge([(pair, 1)])
    assert (list(verdict.explained), verdict.unexplained) == (["words of a refusal"], [])
    ours["calls"] = {"CreateVolume": [CREATE]}
    assert len(parities.report.judge([(pair, 1)]).unexplained) == 2
