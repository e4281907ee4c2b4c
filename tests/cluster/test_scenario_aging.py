"""The first half of test_scenario_tokens: what is to grow old begins before the other scenarios."""

from __future__ import annotations

import time

from tests.cluster.aging import LIFETIME, Aging
from tests.cluster.scenes import claim


def test_it_works_with_a_token_that_lives_ten_minutes(aging: Aging) -> None:
    for token in aging.first.values():
        assert token.expires < time.time() + LIFETIME + 5
    aging.installation.apply(claim("young-0"))
    aging.installation.await_bound("young-", 1)
