"""Which claims are traced. A tenant may take its claims out, and put few in."""

import random
import uuid

import pytest

from sidecar.tracing.parents import Parent, trace_id_of
from sidecar.tracing.sampling import Sampler, Sampling

ASKS, DECLINES = Parent("1" * 32, "1" * 16, True), Parent("1" * 32, "1" * 16, False)
UIDS = [str(uuid.UUID(int=random.Random(number).getrandbits(128), version=4)) for number in range(4000)]


def taken(sampler: Sampler, parent: Parent | None = None, *, uids: list[str] = UIDS, now: float = 0.0) -> int:
    sampling = Sampling(sampler)
    return sum(sampling.takes(trace_id_of(uid), parent, now=now) for uid in uids)


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.25, 0.5, 0.9, 1.0])
def test_the_ratio_holds_for_uids_as_the_api_server_makes_them(ratio: float) -> None:
    """Six bits of such a UID are fixed, and must not be those that the chance is drawn from."""
    for by_parent in (True, False):
        share = taken(Sampler(ratio, by_parent)) / len(UIDS)
        assert abs(share - ratio) <= 0.03
        assert ratio not in (0.0, 1.0) or share == ratio


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_without_parentbased_a_parent_decides_nothing(ratio: float) -> None:
    assert taken(Sampler(ratio, False), ASKS) == taken(Sampler(ratio, False), DECLINES) == taken(Sampler(ratio, False))


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_with_parentbased_a_parent_may_decline(ratio: float) -> None:
    assert taken(Sampler(ratio, True), DECLINES) == 0


def test_what_parents_ask_for_beyond_the_ratio_is_limited() -> None:
    assert taken(Sampler(0.0, True), ASKS) == 20
    sampling = Sampling(Sampler(0.0, True))
    hour = [sampling.takes(trace_id_of(uid), ASKS, now=second) for second, uid in enumerate(UIDS[:3600])]
    assert 70 <= sum(hour) <= 81
