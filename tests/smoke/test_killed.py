"""kill -9 at any moment, and no volume is left without an owner, and none is made twice."""

from __future__ import annotations

from tests.harness.cluster import Cluster
from tests.harness.kill_loop import JOURNALS, NOTHING_WRONG, kill_loop, volume_names


def test_no_volume_leaks_and_none_is_made_twice_under_kill_9(cluster: Cluster) -> None:
    """Eight processes, one after the other. A journal that still told of a creation would outlive the last one, which ends in order."""
    driver = cluster.driver(pools={"main": "10Ti"})
    with driver:
        assert kill_loop(cluster, driver, "killed", times=8, claims=32, seed=37) == NOTHING_WRONG
        assert len(volume_names(driver)) == 8
        assert len(driver.recorded("CreateVolume")) >= 32
    assert list(driver.socket.parent.glob(JOURNALS)) == []
