"""A small cluster with a clock that stands still and dice that are known."""

import random
from collections.abc import Callable

from hack.sim.cluster import ApiServer
from tests.harness.clock import Clock


def new_cluster(*, clock: Callable[[], float] | None = None) -> ApiServer:
    """At first it is 2026-01-01T00:00:00Z."""
    return ApiServer(clock=clock or Clock(1_767_225_600.0), rng=random.Random(1).random)
