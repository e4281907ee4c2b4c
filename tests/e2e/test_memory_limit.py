"""In the 128 MiB that deploy/ allows, as a real limit, the program outlives the largest objects that an API server takes, and names them.

The thousand here are read three times, and none is kept. `hack/bench hostile` has figures.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.benchmarks.hostile import acts, objects
from hack.benchmarks.hostile.attacks import ATTACKS
from hack.benchmarks.hostile.bounds import LIMIT
from hack.benchmarks.hostile.cage import Cage, a_cage
from hack.benchmarks.hostile.command import measure
from hack.benchmarks.hostile.driver import POLITE
from hack.benchmarks.hostile.scene import a_scene
from hack.benchmarks.pod import put_into_a_pod
from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar
from tests.e2e.conftest import CLAIMS, VOLUMES

DRIVER = "large.csi-node-sidecar.io"
PATIENCE = 180.0


@pytest.fixture
def cage() -> Iterator[Cage]:
    with a_cage("memory-limit", mebibytes=LIMIT) as made:
        if made is None:
            pytest.skip("no cgroup can be made here, which takes root")
        yield made


def test_ten_thousand_claims_and_volumes_with_the_largest_among_them(tmp_path: Path, cage: Cage) -> None:
    """Listed at the start and again, and then all large ones change at once; on the simulated API server."""
    with a_scene(tmp_path, fill="largest", count=1000, manner=POLITE, faults=(), flags=()) as scene:
        assert acts.list_and_watch_the_largest(scene) == 1000
        assert scene.sidecar.child.poll() is None, scene.sidecar.output()[-2000:]
        assert scene.sidecar.ready()
    assert not scene.endings


@pytest.mark.parametrize("name", ["big-answers", "refused-volumes"])
@pytest.mark.usefixtures("cage")
def test_a_hundred_large_answers_of_a_driver_at_a_time(name: str) -> None:
    """Those that gRPC refuses, and those of which a PersistentVolume is made that the API server refuses."""
    result = measure(ATTACKS[name])
    assert result.caged and not result.endings
    assert result.figures.peak <= ATTACKS[name].bounds.peak


WHOLE_PAGES = """
import runpy
from sidecar.kube import page_sizes
from sidecar.kube.list_reader import ListReader

feed, finish = ListReader.feed, ListReader.finish

def keep(self, piece):
    self.__dict__.setdefault("kept", []).extend(feed(self, piece))
    return iter(())

def hand_over(self):
    left, version, token = finish(self)
    return [*self.__dict__.get("kept", ()), *left], version, token

ListReader.feed, ListReader.finish = keep, hand_over
page_sizes.next_limit = lambda limit, **seen: limit
page_sizes.is_too_large = lambda limit, **seen: False
runpy.run_module("sidecar", run_name="__main__", alter_sys=True)
"""


@pytest.mark.usefixtures("cage")
def test_a_program_that_reads_whole_pages_is_ended_by_the_kernel(tmp_path: Path) -> None:
    """Pages do not shrink, and objects are handed over when a page is complete. If that lived, this limit would be none."""
    with a_scene(tmp_path, fill="largest", count=100, manner=POLITE, faults=(), flags=()) as scene:
        sidecar = scene.sidecar
        at = sidecar.command.index("-m")
        assert sidecar.command[at + 1] == "sidecar"
        sidecar.command[at : at + 2] = ["-c", WHOLE_PAGES]
        scene.start()
        until(lambda: sidecar.child.poll() is not None, "it is ended", seconds=PATIENCE)
        assert sidecar.child.poll() == -signal.SIGKILL, sidecar.output()[-2000:]


def test_the_largest_that_a_real_api_server_takes(plane: ControlPlane, role: Path, tmp_path: Path, cage: Cage) -> None:
    large = [*((CLAIMS, body) for body in objects.largest_claims(10)), *((VOLUMES, body) for body in objects.largest_volumes(40))]
    made = [(path, _create(plane, path, body)) for path, body in large]
    try:
        with OurDriver(tmp_path, node="large-1", name=DRIVER) as driver:
            for _life in range(2):
                _live(plane, _caged(driver, role, tmp_path, cage), made)
    finally:
        for path, name in made:
            plane.request("DELETE", f"{path}/{name}")


def _create(plane: ControlPlane, path: str, body: Json) -> str:
    stored = plane.request("POST", path, {key: value for key, value in body.items() if key != "status"})
    return str(stored["metadata"]["name"])


def _caged(driver: OurDriver, role: Path, work: Path, cage: Cage) -> Sidecar:
    environ = {"NAMESPACE": "default"}
    sidecar = Sidecar(work, node="large-1", address=driver.socket, kubeconfig=role, args=("--kube-api-qps=-1",), environ=environ)
    put_into_a_pod(sidecar, role)
    cage.put(sidecar)
    return sidecar


def _live(plane: ControlPlane, sidecar: Sidecar, made: list[tuple[str, str]]) -> None:
    """From the first list to a change of all of them."""
    sidecar.log.unlink(missing_ok=True)
    with sidecar:
        sidecar.until_ready(seconds=PATIENCE)
        for path, name in made:
            kind = path.rpartition("/")[2]
            assert any("An object is large" in line and kind in line and name in line for line in sidecar.records("W")), name
        heard = _heard(sidecar)
        for path, name in made:
            patch = {"metadata": {"annotations": {"seen-by": str(sidecar.child.pid)}}}
            plane.request("PATCH", f"{path}/{name}", patch, content_type="application/merge-patch+json")
        until(lambda: sidecar.child.poll() is not None or _heard(sidecar) >= heard + len(made), "all changes arrive", seconds=PATIENCE)
        assert sidecar.child.poll() is None, sidecar.output()[-2000:]


def _heard(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_large_objects_total")
