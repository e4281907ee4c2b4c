"""What holds for all tests: no chance by day, and signals as in a terminal."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from sidecar.observe import logs

# How long an example takes says more of the machine than of the program. By day the same examples are tried each time: who changes one
# thing must not meet a counterexample of another. At night they are drawn anew, and hack/test prints the seed.
settings.register_profile("day", deadline=None, derandomize=True, database=None)
settings.register_profile("night", deadline=None, print_blob=True)
settings.load_profile("night" if os.environ.get("CSI_NODE_SIDECAR_SEEDS") == "night" else "day")

# A background job of a shell without job control is started with SIGINT ignored, and so would be each program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# grpc.aio has one poller for the process, and tells what it has heard for the loop of an earlier test, which is closed by then. The
# program has one loop.
logging.getLogger("asyncio").addFilter(lambda record: "PollerCompletionQueue" not in record.getMessage())


ON_REAL_SERVERS = ("tests/smoke/", "tests/e2e/", "tests/night/", "tests/cluster/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder says what a test needs, and when it runs. In contract*, deploy and others single tests say so themselves:
    `grep -r real_api tests`."""
    for item in items:
        if item.nodeid.startswith(ON_REAL_SERVERS):
            item.add_marker(pytest.mark.real_api)


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """Commands set how much is logged and who hears signals, for their process; tests share one, in any order.

    What the program ignores at its end would be ignored by each program that a later test starts.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    logs.teardown()
    logging.getLogger(logs.OUR_ROOT).setLevel(logging.NOTSET)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Full garbage collections need not walk through all tests again and again; some tests ask for one to find leaks."""
    gc.collect()
    gc.freeze()
    # Worlds make millions of objects and drop most of them at once: a fifth of their time went into looking for others.
    gc.set_threshold(20_000, 20, 50)
