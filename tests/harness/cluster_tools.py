"""A small cluster with a clock that stands still and dice that are known."""

import random
from collections.abc import Callable

import pytest

from hack.sim.cluster import ApiServer, Refused
from sidecar.model.objects import Json
from tests.harness.clock import Clock

T0 = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def new_cluster(*, clock: Callable[[], float] | None = None) -> ApiServer:
    return ApiServer(clock=clock or Clock(T0), rng=random.Random(1).random)


def refusal(act: Callable[[], object]) -> tuple[int, str, str]:
    """Code, reason and message of what the act is refused with."""
    with pytest.raises(Refused) as caught:
        act()
    return caught.value.code, str(caught.value.status.get("reason", "")), str(caught.value)


def owned(obj: Json, *owners: Json) -> Json:
    references = [
        {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]
    return obj | {"metadata": obj["metadata"] | {"ownerReferences": references}}
