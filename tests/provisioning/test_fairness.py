"""No tenant makes another wait for all of its claims, in however many namespaces it has them.

Without turns in the queue the first of these took a minute, and without groups the second one twenty seconds.
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


@pytest.mark.parametrize(
    ("crowd", "after"),
    [
        pytest.param(Crowd(claims=200, selected=True, parameters=_MISSING_SECRET), (0.5, 20.0), id="of one namespace"),
        # Before each has been tried once, nothing tells them from any other. That takes minutes at five requests a second.
        pytest.param(Crowd(claims=600, namespaces=600, selected=True, hanging=60.0), (200.0,), id="of many namespaces"),
    ],
)
def test_claims_that_can_never_be_made_delay_those_of_others_by_turns_at_the_rate_limit_alone(crowd: Crowd, after: tuple[float, ...]):
    """Their Secret is missing, or the driver hangs at them. A turn is two requests at the most, and a claim needs two turns."""
    alone, *later = seconds_of_the_quiet(crowd, after=after)
    assert max(later) <= 2 * alone + 2 * 2 / crowd.qps


def test_the_program_itself_waits_for_less_than_a_second_beside_a_hundred_namespaces():
    """Life signs, Leases and capacity: without a group of its own, twenty seconds. Each namespace always has another request."""

    async def story() -> float:
        now = asyncio.get_running_loop().time
        bucket = TokenBucket(5.0, 10)
        limiter = Limiter(bucket, clock=now, sleep=asyncio.sleep, rng=random.Random(1).random, on_throttled=lambda _: None)

        async def busy(number: int) -> None:
            CURRENT.set(Whose(f"namespace-{number}", Group.NEW))
            while True:
                await limiter.admit()

        tasks = [asyncio.create_task(busy(number)) for number in range(100)]
        await asyncio.sleep(30.0)
        begun = now()
        await limiter.admit()
        for task in tasks:
            task.cancel()
        return now() - begun

    assert run_virtual(story()) < 1.0
