"""The first and the last moments of the process. Its life is tested on real control planes."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import Mock

import pytest

from sidecar import process
from sidecar.doors import Instruments, fitted, open_doors
from sidecar.kube.api import Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from tests.harness.config import parsed
from tests.harness.doors import ScriptedKube
from tests.harness.driver.in_loop import FakeDriver
from tests.harness.loops import run

LAST_MOMENTS = """
import asyncio, os, signal
from sidecar.process import ignore_signals

async def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, print, "heard")
    ignore_signals()
    os.kill(os.getpid(), signal.SIGTERM)

asyncio.run(main())
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGINT)
print("ends by itself")
"""


def test_a_signal_that_comes_when_all_is_done_is_not_heard() -> None:
    done = subprocess.run([sys.executable, "-c", LAST_MOMENTS], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends by itself\n", "")


@dataclass
class Discovered(ScriptedKube):
    error: ApiError | None = None
    looks: list[tuple[str, str]] = field(default_factory=list)

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        self.looks.append((api_version, kind))
        if self.error is not None:
            raise self.error
        return await super().resource_for(api_version, kind)


def attributes_classes(kube: Discovered, *argv: str) -> bool:
    config = asyncio.run(fitted(parsed(*argv).config, kube))  # type: ignore[arg-type]
    assert config.gate("Topology")
    return config.gate("VolumeAttributesClass")


@pytest.mark.parametrize(
    ("error", "on"),
    [(None, True), (NotFound("no such kind", status=404), False), (Unavailable("away"), True), (Forbidden("no", status=403), True)],
)
def test_a_cluster_without_attributes_classes_turns_their_gate_off(error: ApiError | None, on: bool) -> None:
    kube = Discovered(error=error)
    assert attributes_classes(kube) is on
    assert kube.looks == [("storage.k8s.io/v1", "VolumeAttributesClass")]


@pytest.mark.parametrize("on", [True, False])
def test_a_gate_that_was_named_stays_as_it_was_named(on: bool) -> None:
    kube = Discovered(error=NotFound("no such kind", status=404))
    assert attributes_classes(kube, f"--feature-gates=VolumeAttributesClass={on}") is on
    assert kube.looks == []


def test_calls_carry_the_drivers_name_from_the_moment_it_has_told_it(tmp_path: Path) -> None:
    async def main() -> str:
        driver, tools = FakeDriver(tmp_path / "csi.sock"), Instruments()
        await driver.start()
        config = parsed(f"--csi-address={driver.path}", "--master=http://127.0.0.1:1").config
        doors = await open_doors(config, tools, on_link=lambda _: None)
        link = asyncio.create_task(doors.connection.run())
        await doors.connection.first_ready()
        link.cancel()
        await asyncio.gather(link, return_exceptions=True)
        await doors.close()
        await driver.stop()
        return tools.metrics.render()[0].decode()

    counts = [line for line in run(main()).splitlines() if line.startswith("csi_sidecar_operations_seconds_count")]
    unnamed = {line.partition('method_name="')[2].partition('"')[0].rpartition("/")[2] for line in counts if "unknown-driver" in line}
    assert unnamed == {"Probe", "GetPluginInfo"} and len(counts) == 5


def test_threads_that_are_not_of_this_life_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Mock()
    monkeypatch.setattr("os._exit", left)
    monkeypatch.setattr("logging.shutdown", Mock())
    monkeypatch.setattr(process, "_LAST_MOMENTS", 0.01)
    over = threading.Event()
    others, own = threading.Thread(target=over.wait), threading.Thread(target=over.wait)
    others.start()
    life = process._Life(parsed("--csi-address=/csi.sock").config)
    life.leave_if_a_disk_hangs(3)
    left.assert_not_called()
    own.start()
    life.leave_if_a_disk_hangs(3)
    left.assert_called_once_with(3)
    over.set()
