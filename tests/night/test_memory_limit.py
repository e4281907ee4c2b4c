"""In the 128 MiB that deploy/ allows, as a real limit, the program outlives the largest objects that an API server takes, and names them.

The thousand here are read three times, and none is kept.
"""

from __future__ import annotations

import signal
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json, OurDriver, Sidecar
from sidecar.model import names
from tests.e2e.test_maintenance_types import PLANNED, declared
from tests.harness.drains import Ground, component
from tests.harness.hostile import LARGEST, PEAK, REFUSING, Cage, Scene, a_cage, a_scene, largest_claim, largest_volume
from tests.harness.left_objects import CLAIMS, VOLUMES

DRIVER = "large.csi-node-sidecar.io"
PATIENCE = 60.0
"""Seconds: the simulated API server takes so long over a thousand fat objects."""


@pytest.fixture
def cage() -> Iterator[Cage]:
    with a_cage() as made:
        yield made


def until_or_ended(scene: Scene, condition: Callable[[], bool], what: str) -> None:
    until(lambda: scene.sidecar.child.poll() is not None or condition(), what, seconds=PATIENCE)
    assert scene.sidecar.child.poll() is None, scene.sidecar.output()[-2000:]


def test_ten_thousand_claims_and_volumes_with_the_largest_among_them(tmp_path: Path, cage: Cage) -> None:
    """Listed at the start and again, and then all large ones change at once; on the simulated API server."""
    with a_scene(tmp_path, cage, fill=LARGEST, count=1000) as scene:
        sidecar = scene.sidecar.start()
        until_or_ended(scene, sidecar.ready, "everything is listed")
        scene.compact()
        lists, kinds = "csi_node_sidecar_reflector_relists_total", ("persistentvolumeclaims", "persistentvolumes")
        until_or_ended(scene, lambda: all(sidecar.metric(lists, resource=kind) >= 2 for kind in kinds), "everything is listed again")
        heard = scene.large_ones_heard()
        assert len(scene.large_ones_named()) == 1000
        scene.change_largest()
        until_or_ended(scene, lambda: scene.large_ones_heard() >= heard + 1000, "all changes arrive")
        assert sidecar.ready() and scene.peak() <= PEAK


def test_long_answers_of_a_driver_of_which_persistent_volumes_are_made_that_the_api_server_refuses(tmp_path: Path, cage: Cage) -> None:
    flags = ("--kube-api-qps=100", "--kube-api-burst=100")
    with a_scene(tmp_path, cage, fill=REFUSING, count=256, manner="long contexts", flags=flags) as scene:
        scene.sidecar.start()
        until_or_ended(scene, lambda: len(scene.driver.recorded("CreateVolume")) >= 2 * 256, "the driver is asked twice for each")
        assert scene.peak() <= PEAK


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


def test_a_program_that_reads_whole_pages_is_ended_by_the_kernel(tmp_path: Path, cage: Cage) -> None:
    """Pages do not shrink, and objects are handed over when a page is complete. If that lived, this limit would be none."""
    with a_scene(tmp_path, cage, fill=LARGEST, count=100) as scene:
        sidecar = scene.sidecar
        at = sidecar.command.index("-m")
        assert sidecar.command[at + 1] == "sidecar"
        sidecar.command[at : at + 2] = ["-c", WHOLE_PAGES]
        sidecar.start()
        until(lambda: sidecar.child.poll() is not None, "it is ended", seconds=PATIENCE)
        assert sidecar.child.poll() == -signal.SIGKILL, sidecar.output()[-2000:]


def test_the_largest_that_a_real_api_server_takes(plane: ControlPlane, role: Path, tmp_path: Path, cage: Cage) -> None:
    large = [*((CLAIMS, body) for body in map(largest_claim, range(10))), *((VOLUMES, body) for body in map(largest_volume, range(40)))]
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
        sidecar.until_ready()
        for path, name in made:
            kind = path.rpartition("/")[2]
            assert any("An object is large" in line and kind in line and name in line for line in sidecar.records("W")), name
        heard = _heard(sidecar)
        for path, name in made:
            patch = {"metadata": {"annotations": {"seen-by": str(sidecar.child.pid)}}}
            plane.request("PATCH", f"{path}/{name}", patch, content_type="application/merge-patch+json")
        until(lambda: sidecar.child.poll() is not None or _heard(sidecar) >= heard + len(made), "all changes arrive", seconds=60)
        assert sidecar.child.poll() is None, sidecar.output()[-2000:]


def _heard(sidecar: Sidecar) -> float:
    return sidecar.metric("csi_node_sidecar_large_objects_total")


# --- declared maintenance, at rest ------------------------------------------------------------------------------------

AT_REST_MORE = 2.0
"""MiB that a sidecar may take more with `--maintenance` while nothing is declared."""


def test_at_rest_a_maintenance_costs_little_memory_and_no_watch(ground: Ground) -> None:
    """Medians of three programs of each kind, once those with the flag have listed twice. Then something is declared, and watched."""
    plane, planned = ground.plane, {"resource": f"plannedmaintenances.{names.GROUP}"}
    plane.apply(component("maintenance"))
    until(lambda: plane.serves(PLANNED), "the API server serves maintenances")
    compile_bytecode()
    resident: dict[str, list[float]] = {"": [], "--maintenance": []}
    with ExitStack() as running:
        found: list[tuple[str, Sidecar]] = []
        for number in range(6):
            flag, name = ("", "--maintenance")[number % 2], f"n{number}"
            driver = running.enter_context(ground.driver(name, name=name))
            ground.node(name, driver)
            sidecar = ground.judge(driver, *filter(None, [flag]), speed=1.0)
            put_into_a_pod(sidecar, ground.role)
            found.append((flag, running.enter_context(sidecar)))
        asked = "csi_node_sidecar_api_requests_total"
        with_it = [sidecar.until_ready() for flag, sidecar in found if flag]

        def lists() -> list[float]:
            """Of all programs: what they are asked takes memory too."""
            return [sidecar.metric(asked, verb="list", **planned) for _, sidecar in found]

        until(lambda: sum(count >= 2 for count in lists()) == len(with_it), "they have listed twice", seconds=150)
        for flag, sidecar in found:
            resident[flag].append(sidecar.cost().resident)
        without, more = (statistics.median(group) for group in resident.values())
        print(f"resident MiB, medians of three: {without:.1f} without --maintenance, {more:.1f} with it")
        assert more - without <= AT_REST_MORE, resident
        assert sum(each.metric(asked, verb="watch", **planned) for each in with_it) == 0
        try:
            ground.request("POST", PLANNED, declared(PLANNED, {"nodes": ["n1"], "intent": "reboot"}))
            until(lambda: with_it[0].metric(asked, verb="watch", **planned) > 0, "it is watched", seconds=90)
            assert sum(each.metric(asked, verb="watch", **planned) for each in with_it[1:]) == 0, "on its node alone"
        finally:
            ground.request("DELETE", PLANNED)
