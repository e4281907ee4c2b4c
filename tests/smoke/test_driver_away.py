"""The driver may restart at any time: the program finds it again, and lists nothing anew."""

from __future__ import annotations

from hack.lib.control_plane import until
from hack.lib.programs import claim
from tests.harness.cluster import CLAIMS, SOON, Cluster, now

RELISTS = "csi_node_sidecar_reflector_relists_total"


def test_a_killed_driver_is_found_again_without_a_relist(cluster: Cluster) -> None:
    """While it is away: alive, not ready, the reason told. Afterwards the same process goes on, with claims made meanwhile too."""
    driver = cluster.driver()
    cluster.classes(driver)
    with driver, cluster.sidecar(driver, *SOON) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("before", now(driver)))
        cluster.bound("before")
        lists = sidecar.metric(RELISTS)
        driver.kill()
        until(lambda: sidecar.page("/readyz")[0] == 503, "it is not ready")
        assert sidecar.page("/readyz")[1].startswith("driver: Degraded: ")
        assert str(driver.socket) in sidecar.page("/readyz")[1]
        assert sidecar.page("/healthz") == (200, "ok")
        cluster.create(CLAIMS, claim("meanwhile", now(driver)))
        driver.start()
        sidecar.until_ready()
        cluster.create(CLAIMS, claim("after", now(driver)))
        cluster.bound("meanwhile", "after")
        assert sidecar.metric(RELISTS) == lists
        assert sidecar.child.poll() is None
