"""No tenant makes another wait for all of its claims, in however many namespaces it has them.

Without turns in the queue the first of these took a minute, and without groups the second one 135 s.
"""

import asyncio
import random

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.grouped_line import CURRENT, Group, Whose
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.transport import Limiter
from tests.harness.tenants import Crowd, seconds_of_the_quiet

_SECRET = "csi.storage.k8s.io/provisioner-secret-"
_MISSING_SECRET = {f"{_SECRET}name": "none", f"{_SECRET}namespace": "${pvc.namespace}"}

CROWDS = {
    "too large for the node that they name": Crowd(claims=300, size="1Ti", selected=True),
    "with a secret that nobody makes": Crowd(claims=300, selected=True, parameters=_MISSING_SECRET),
    "at which the driver hangs": Crowd(claims=300, size="1Ti", selected=True, hanging=60.0),
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_claims_that_can_never_be_made_delay_those_of_others_by_turns_at_the_rate_limit_alone(crowd: Crowd):
    """The last moments are those of back-offs that are due together. A turn is two requests at the most, and a claim needs two turns."""
    alone, *later = seconds_of_the_quiet(crowd, after=(0.5, 5.0, 20.0, 40.0, 60.0))
    assert max(later) <= 2 * alone + 2 * 2 / crowd.qps


@pytest.mark.parametrize("selected", [False, True])
def test_where_the_rate_is_no_limit_they_take_no_longer_than_twice_as_long(selected: bool):
    crowd = Crowd(claims=300, size="1Ti", selected=selected, qps=-1.0)
    alone, *later = seconds_of_the_quiet(crowd, after=(0.0, 0.5, 5.0, 20.0))
    assert max(later) <= 2 * alone


@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(Crowd(claims=500, namespaces=500, selected=True, parameters=_MISSING_SECRET), id="without their Secret"),
        pytest.param(Crowd(claims=150, namespaces=150, selected=True, size="1Ti", hanging=60.0), id="at which the driver hangs"),
        pytest.param(Crowd(claims=150, namespaces=150, parameters=_MISSING_SECRET), id="Immediate, without their Secret"),
    ],
)
def test_claims_of_many_namespaces_that_have_failed_once_delay_those_of_others_no_more_than_if_they_were_of_one(crowd: Crowd):
    """Before each has been tried once, nothing tells them from any other. That takes 130 s at five requests a second."""
    alone, *later = seconds_of_the_quiet(crowd, after=(150.0, 160.0, 200.0))
    assert max(later) <= min(2 * alone + 2 * 2 / crowd.qps, 2.0)


def _seconds_at_the_limit(whose: Whose, *, beside: Group) -> float:
    """One request beside those of a hundred namespaces, each of which always has another, at five a second."""

    async def story() -> float:
        now = asyncio.get_running_loop().time
        bucket = TokenBucket(5.0, 10)
        limiter = Limiter(bucket, clock=now, sleep=asyncio.sleep, rng=random.Random(1).random, on_throttled=lambda _: None)

        async def busy(number: int) -> None:
            CURRENT.set(Whose(f"namespace-{number}", beside))
            while True:
                await limiter.admit()

        tasks = [asyncio.create_task(busy(number)) for number in range(100)]
        await asyncio.sleep(30.0)
        CURRENT.set(whose)
        begun = now()
        await limiter.admit()
        for task in tasks:
            task.cancel()
        return now() - begun

    return run_virtual(story())


@pytest.mark.parametrize("beside", [Group.NEW, Group.LATER])
def test_the_program_itself_waits_for_less_than_a_second_beside_a_hundred_namespaces(beside: Group):
    """Life signs, Leases and capacity: without a group of its own, twenty seconds."""
    assert _seconds_at_the_limit(Whose(), beside=beside) < 1.0


def test_a_request_for_what_is_new_waits_for_less_than_a_second_beside_those_for_what_has_failed():
    assert _seconds_at_the_limit(Whose("quiet", Group.NEW), beside=Group.LATER) < 1.0


def test_a_request_for_what_has_failed_has_its_turn_beside_those_for_what_is_new():
    assert _seconds_at_the_limit(Whose("quiet", Group.LATER), beside=Group.NEW) < 1.0
