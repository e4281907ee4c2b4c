"""The driver dies in a call, a call hangs, there is no topology: nothing is lost or done twice, and the token is told to nobody."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, claim
from sidecar.model import names
from tests.harness.cluster import CLAIMS, SOON, VOLUMES, Cluster, late, now, selected


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[OurDriver]:
    with cluster.driver() as driver:
        cluster.classes(driver)
        yield driver


def begun(driver: OurDriver) -> None:
    until(lambda: driver.recorded("CreateVolume"), "the driver is creating a volume")


# ---- the driver ----


def test_a_driver_killed_while_it_creates_leaves_one_volume(cluster: Cluster, driver: OurDriver) -> None:
    """Whether it had made the volume nobody knows, so it is asked again, by the same name."""
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})
    with cluster.sidecar(driver) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data", late(driver)))
        begun(driver)
        driver.kill()
        driver.misbehave()
        driver.start()
        cluster.bound("data")
    assert len({call["name"] for call in driver.recorded("CreateVolume")}) == 1
    assert len(cluster.items(VOLUMES)) == 1


# ---- stopping ----


def test_X3_a_hung_call_is_cut_at_the_shutdown_timeout_and_the_next_start_ends_it(cluster: Cluster, driver: OurDriver) -> None:
    """The call alone would have lasted for ever."""
    driver.misbehave({"method": "CreateVolume", "linger": "inf"})
    with cluster.sidecar(driver, "--timeout=1h", "--shutdown-timeout=1s") as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data", late(driver)))
        begun(driver)
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0
        (line,) = sidecar.records("WEF")
        assert "--shutdown-timeout" in line
    driver.misbehave()
    with cluster.sidecar(driver):
        cluster.bound("data")
    assert len({call["name"] for call in driver.recorded("CreateVolume")}) == 1


def test_a_second_signal_ends_it_at_once(cluster: Cluster, driver: OurDriver) -> None:
    """The first alone would have it wait for an hour."""
    driver.misbehave({"method": "CreateVolume", "hang": "inf"})
    with cluster.sidecar(driver, "--timeout=1h", "--shutdown-timeout=1h") as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("data", late(driver)))
        begun(driver)
        sidecar.signal(signal.SIGTERM)
        until(lambda: "Stopping" in sidecar.output(), "it has heard")
        assert sidecar.child.poll() is None
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 1


# ---- starting ----


@pytest.mark.parametrize(
    ("driver_args", "args"),
    [pytest.param(["--no-topology"], [], id="S6-N28"), pytest.param([], ["--feature-gates=Topology=false"], id="S7")],
)
def test_without_topology_neither_request_nor_volume_has_any(cluster: Cluster, driver_args: list[str], args: list[str]) -> None:
    """Who provisions still goes by the selected node: a claim of another node is left alone."""
    driver = cluster.driver(args=driver_args)
    cluster.classes(driver)
    with driver, cluster.sidecar(driver, *SOON, *args) as sidecar:
        sidecar.until_ready()
        cluster.create(CLAIMS, selected("foreign", late(driver), node="n2"))
        cluster.create(CLAIMS, selected("late", late(driver)))
        cluster.create(CLAIMS, claim("now", now(driver)))
        cluster.bound("late", "now")
        assert cluster.phase(CLAIMS, "foreign") == "Pending"
        assert cluster.notes(CLAIMS, "now")[names.SELECTED_NODE] == "n1"
    assert all("nodeAffinity" not in volume["spec"] for volume in cluster.items(VOLUMES))
    requests = [call["request"] for call in driver.recorded("CreateVolume")]
    assert len(requests) == 2
    assert all("accessibility_requirements" not in request for request in requests)


# ---- a token ----


def test_the_token_is_never_logged(cluster: Cluster, driver: OurDriver) -> None:
    """Not even at the highest verbosity."""
    token = json.loads(cluster.role.read_text())["users"][0]["user"]["token"]
    with cluster.sidecar(driver, "-v=9") as sidecar:
        cluster.create(CLAIMS, selected("data", late(driver)))
        cluster.bound("data")
        pages = "".join(sidecar.page(path)[1] for path in ("/readyz?verbose", "/debug/decisions", "/debug/queue", "/metrics"))
    assert "CreateVolume" in sidecar.output() and pages
    assert token not in sidecar.output() + pages
    assert token.split(".")[2] not in sidecar.output() + pages
