"""What holds for all tests: which of them share a process when several run side by side, and what they may cost."""

from __future__ import annotations

import gc
import logging
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from sidecar.observe import logs
from tests.time_budgets import Bookkeeper, Stopwatch, budgets

# How long an example takes says more of the machine than of the program; what a test costs has a budget of its own.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Tests on real servers that share them, and so run one after the other in one process. The scenarios on real kubelets are two
# groups, with a cluster each; the one whose token grows old waits ten minutes and does nothing else, and the one with replicated data
# has four nodes, which come and go. The end-to-end tests are two groups with a control plane each: with more of them the processors would
# be busy until the end, and unit tests, which give way, would not come to an end beside them.
SERVERS = {
    "tests/cluster/test_scenario_aging": "a token grows old",
    "tests/cluster/test_scenario_tokens": "a token grows old",
    "tests/cluster/test_scenario_disturbed": "the first cluster",
    "tests/cluster/test_scenario_drain_policies": "the first cluster",
    "tests/cluster/test_scenario_install": "the first cluster",
    "tests/cluster/test_scenario_limits": "the first cluster",
    "tests/cluster/test_scenario_node_loss": "replicated data",
    "tests/cluster/test_scenario_reprovision": "replicated data",
    "tests/cluster/": "the second cluster",
    "tests/e2e/test_mixed": "claims by the hundred",
    "tests/e2e/test_no_leak": "claims by the hundred",
    "tests/e2e/test_parity": "claims by the hundred",
    "tests/e2e/test_robustness": "claims by the hundred",
    "tests/e2e/test_thin_slice": "claims by the hundred",
    "tests/e2e/": "the control plane with upstream's role",
    "tests/": "other control planes",
}
# Their tests share nothing and take long: they are dealt out one by one.
DEALT_OUT = ("tests/world/",)
ONLY_REAL = "real_api"
"""The choice of marks by which hack/test runs the tests on real servers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budgets", action="store_true", help="fail when a test file costs twice its time (tests/time_budgets.toml)")
    parser.addoption("--renew-budgets", action="store_true", help="write what test files cost in this run into that table")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Stopwatch())
    if not hasattr(config, "workerinput"):  # with xdist, the process that starts the others
        config.pluginmanager.register(Bookkeeper(config))


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Commands set how much is logged, for their process; tests share one, in any order."""
    yield
    logs.teardown()
    logging.getLogger(logs.OUR_ROOT).setLevel(logging.NOTSET)


def group_of(nodeid: str, *, real: bool) -> str:
    """Tests with the same answer run in one process."""
    file = nodeid.partition("::")[0]
    if real or file.startswith(("tests/cluster/", "tests/e2e/")):
        return next(group for start, group in SERVERS.items() if file.startswith(start))
    return nodeid if file.startswith(DEALT_OUT) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadscope` with our groups. `--dist loadgroup` would do if xdist 3.8 could mark the tests of pytest 9.2."""
    if config.getoption("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    real = config.getoption("markexpr") == ONLY_REAL

    class Groups(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid, real=real)

    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With xdist groups are begun in this order: what takes longest comes first, so that nobody is left with it in the end."""
    if not hasattr(config, "workerinput"):
        return
    real = config.getoption("markexpr") == ONLY_REAL
    files = {(item.nodeid.partition("::")[0], group_of(item.nodeid, real=real)) for item in items}
    weights: dict[str, float] = defaultdict(float)
    for file, group in files:
        weights[group] += budgets().get(("real" if real else "unit", file), 0.0)

    def order(item: pytest.Item) -> float:
        group = group_of(item.nodeid, real=real)
        if group == item.nodeid:
            return -math.inf if item.get_closest_marker("slow") else math.inf
        return -weights[group]

    items.sort(key=order)


def pytest_collection_finish() -> None:
    """Full garbage collections need not walk through all tests again and again; some tests ask for one to find leaks."""
    gc.collect()
    gc.freeze()
    # Worlds make millions of objects and drop most of them at once: a fifth of their time went into looking for others.
    gc.set_threshold(20_000, 20, 50)
