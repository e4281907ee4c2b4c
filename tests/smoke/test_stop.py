"""It is told to stop, and nothing is lost or left undone."""

from __future__ import annotations

import signal

from hack.lib.control_plane import until
from tests.harness.cluster import CLAIMS, Cluster, late, selected


def test_X3_a_stop_lets_the_call_in_flight_end_and_takes_no_new_work(cluster: Cluster) -> None:
    """The PersistentVolume is stored, the exit code is 0, and a claim that comes after SIGTERM is left to the next process."""
    driver = cluster.driver()
    cluster.classes(driver)
    driver.misbehave({"method": "CreateVolume", "delay": 3})
    with driver, cluster.sidecar(driver) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data", late(driver)))
        until(lambda: driver.recorded("CreateVolume"), "the driver is creating a volume")
        sidecar.signal(signal.SIGTERM)
        until(lambda: "Stopping" in sidecar.output(), "it has heard")
        cluster.create(CLAIMS, selected("too-late", late(driver)))
        assert sidecar.wait() == 0
        cluster.bound("data")
    assert len(driver.recorded("CreateVolume")) == 1
    assert sidecar.records("WEF") == []
