"""Acceptance cases S and F5 as a process shows them: real sockets, exit codes and log lines, with no API server behind it.

That the start limit is 30 s is proven with a handed-in clock in tests/csi/test_link.py. What needs an API server is in tests/e2e.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hack.lib.control_plane import until
from hack.lib.programs import OurDriver, Process, Sidecar

NO_API = "http://127.0.0.1:1"


def sidecar_at(address: Path | str, work: Path, *args: str) -> Sidecar:
    return Sidecar(work, node="n1", address=address, kubeconfig="", args=[f"--master={NO_API}", *args])


def says(process: Process, text: str) -> None:
    until(lambda: text in process.output(), f"{process.name} says {text!r}", seconds=30)


@pytest.mark.parametrize("form", ["{}", "unix://{}"], ids=["S1-F5-path", "S1-F5-unix"])
def test_a_socket_that_appears_later_is_used(form: str, tmp_path: Path) -> None:
    """Until then it is alive, not ready, and says which socket it waits for."""
    driver = OurDriver(tmp_path, node="n1")
    with sidecar_at(form.format(driver.socket), tmp_path) as sidecar:
        until(lambda: f"driver: Degraded: {driver.socket} does not exist" in sidecar.page("/readyz")[1], "the missing socket is named")
        assert sidecar.page("/readyz")[0] == 503
        assert sidecar.page("/healthz") == (200, "ok")
        with driver:
            says(sidecar, '"Driver is ready"')
            assert f'driver="{driver.driver}"' in sidecar.output()
            assert "driver:" not in sidecar.page("/readyz")[1]
    assert sidecar.child.returncode == 0
    assert sidecar.records("EF") == []


def test_a_driver_that_is_not_available_is_told_with_since_when_and_until_when(tmp_path: Path) -> None:
    driver = OurDriver(tmp_path, node="n1")
    driver.misbehave({"method": "Probe", "fail": "UNAVAILABLE", "message": "the pool is imported"})
    with driver, sidecar_at(driver.socket, tmp_path) as sidecar:
        said = "driver: Degraded: Probe failed with Unavailable; this process ends if that lasts for 30 s (since 20"
        until(lambda: said in sidecar.page("/readyz")[1], "the reason in our words, since when, and until when")
        assert "the pool is imported" not in sidecar.page("/readyz?verbose")[1], "what the driver says is for the log"
        says(sidecar, "the pool is imported; this process ends if that lasts for 30 s")


@pytest.mark.parametrize(
    ("args", "faults", "reason"),
    [
        pytest.param((), [{"method": "GetPluginInfo", "fail": "INTERNAL", "message": "no disk"}], "Internal desc = no disk", id="S3-error"),
        pytest.param(["--name="], [], "answered GetPluginInfo with an empty name", id="S3-empty-name"),
    ],
)
def test_a_driver_that_cannot_say_its_name_ends_the_start(args: Sequence[str], faults: list[Any], reason: str, tmp_path: Path) -> None:
    driver = OurDriver(tmp_path, node="n1", args=args)
    driver.misbehave(*faults)
    with driver, sidecar_at(driver.socket, tmp_path) as sidecar:
        assert sidecar.wait() == 1
        (line,) = sidecar.records("EF")
        assert reason in line
        assert str(driver.socket) in line


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"name": "other.csi-node-sidecar.io"}, "its name was 'ours.csi-node-sidecar.io' and is now 'other.", id="S8-name"),
        pytest.param({"args": ["--topology=zone=b"]}, "the node's topology was ", id="S8-topology"),
    ],
)
def test_a_driver_that_comes_back_as_another_one_ends_the_process(changed: dict[str, object], reason: str, tmp_path: Path) -> None:
    """Everything this process holds was built on the old answer."""
    first = OurDriver(tmp_path, node="n1")
    with first, sidecar_at(first.socket, tmp_path) as sidecar:
        says(sidecar, '"Driver is ready"')
        first.kill()
        second = OurDriver(tmp_path, node="n1", **changed)  # type: ignore[arg-type]
        with second:
            assert sidecar.wait() == 1
    (line,) = sidecar.records("EF")
    assert reason in line


def test_SIGTERM_while_it_waits_for_the_socket_ends_it_well(tmp_path: Path) -> None:
    with sidecar_at(tmp_path / "none.sock", tmp_path) as sidecar:
        says(sidecar, "does not exist")
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait() == 0
    assert sidecar.records("WEF") == []
