"""The first half of test_scenario_tokens: what is to grow old begins before the other scenarios. And whose token it is."""

from __future__ import annotations

import time

from tests.cluster.aging import LIFETIME, MOUNT, Aging
from tests.cluster.scenes import claim


def test_it_works_with_a_token_that_lives_ten_minutes(aging: Aging) -> None:
    for token in aging.first.values():
        assert token.expires < time.time() + LIFETIME + 5
    aging.installation.apply(claim("young-0"))
    aging.installation.await_bound("young-", 1)


def test_the_driver_beside_it_has_no_token(aging: Aging) -> None:
    """Both run under one account, and a volume of the kubelet's with its token would be in both."""
    installation = aging.installation
    for node in installation.cluster.nodes:
        root = f"/proc/{installation.process_of(node.name, 'driver')}/root"
        assert node.run("sh", "-c", f"ls -d {root}/csi {root}{MOUNT} 2>/dev/null || true").split() == [f"{root}/csi"]
