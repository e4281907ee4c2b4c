"""`leftovers` between real doors: a driver on its socket, an API server over HTTP, the sidecar as a process, and journals on the disk."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.programs import LATE, OurDriver, Sidecar, claim, storage_class
from hack.sim.cluster import ApiServer
from hack.sim.cluster.reading import Query
from hack.sim.cluster.refusals import Refused
from hack.sim.cluster.serve import serving_cluster
from hack.sim.driver.state import read_state
from sidecar.kube.api import CLAIMS, CLASSES, EVENTS, MERGE_PATCH, NODES, VOLUMES
from sidecar.provisioning.creations import leftovers_io
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal_lines import begin_line, read_line

NODE = "n1"
LONG_AGO = 400.0


class Scene:
    def __init__(self, folder: Path, cluster: ApiServer, kubeconfig: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.folder = folder
        self.driver = OurDriver(folder, node=NODE)
        self.sidecar = Sidecar(folder, node=NODE, address=self.driver.socket, kubeconfig=kubeconfig, args=["--kube-api-qps=-1"])
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._loop = loop

    def api(self, verb: str, *args: Any, **more: Any) -> Any:
        async def there() -> Any:
            return getattr(self._cluster, verb)(*args, **more)

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(120)

    def volumes(self) -> dict[str, str]:
        """What the driver has: handles, by name."""
        return {volume.name: volume.id for volume in read_state(self.driver.state).volumes.values()}

    def leftovers(self, *words: str) -> tuple[int, str, str]:
        """As a person calls it in the sidecar's container."""
        places = (f"--csi-address={self.driver.socket}", f"--kubeconfig={self._kubeconfig}")
        command = [sys.executable, "-m", "sidecar", "leftovers", f"--driver={self.driver.driver}", *places, *words]
        environ = {"PATH": os.environ["PATH"], "NODE_NAME": NODE, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def listed(self) -> list[str]:
        code, out, _ = self.leftovers("-o", "json")
        assert code == 0
        return [row["volume"] for row in json.loads(out)["leftovers"]]

    def journals(self) -> set[Path]:
        return set(self.folder.glob(".csi-node-sidecar.*.journal"))

    def events(self) -> list[str]:
        items = [stored.obj for stored in self.api("list", EVENTS, Query()).items]
        return [item["message"] for item in items if item["reason"] == "VolumeLeakSuspected"]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    ready: Queue[tuple[Scene, asyncio.Event]] = Queue()

    async def serve() -> None:
        cluster, stop = ApiServer(clock=time.time, rng=random.random), asyncio.Event()
        async with serving_cluster(cluster) as served:
            ready.put((Scene(tmp_path, cluster, served.kubeconfig(tmp_path / "kubeconfig"), asyncio.get_running_loop()), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    found, stop = ready.get(timeout=120)
    with found.driver:
        found.api("create", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {found.driver.key: NODE}}})
        found.api("create", CLASSES, storage_class("late", found.driver.driver, LATE))
        try:
            yield found
        finally:
            found.sidecar.stop()
    found._loop.call_soon_threadsafe(stop.set)
    thread.join(120)


def made(scene: Scene) -> tuple[dict[str, Any], CreationRecord]:
    """A PersistentVolume that the sidecar has stored, and the record of its creation."""
    body = claim("data", "late", annotations={"volume.kubernetes.io/selected-node": NODE})
    body["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] = scene.driver.driver
    uid = scene.api("create", CLAIMS, body, namespace="default").obj["metadata"]["uid"]
    found: list[dict[str, Any]] = []

    def stored() -> bool:
        try:
            found.append(scene.api("get", VOLUMES, f"pvc-{uid}").obj)
        except Refused:
            return False
        return True

    until(stored, "its PersistentVolume is stored")
    until(lambda: not leftovers_io.read_all(scene.folder, scene.driver.driver), "that is written down")
    lines = [read_line(line)[0] for path in scene.journals() for line in path.read_bytes().splitlines()]
    return found[-1], next(line for line in lines if isinstance(line, CreationRecord) and line.uid == uid)


def keep(scene: Scene, volume: dict[str, Any], record: CreationRecord) -> None:
    """Somebody keeps the data and deletes the objects, and the process that has gone had not written down yet that it stored the volume."""
    name = volume["metadata"]["name"]
    patch = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}, "metadata": {"finalizers": None}}
    scene.api("patch", VOLUMES, name, patch, content_type=MERGE_PATCH)
    scene.api("patch", CLAIMS, "data", {"metadata": {"finalizers": None}}, namespace="default", content_type=MERGE_PATCH)
    scene.api("delete", CLAIMS, "data", namespace="default")
    scene.api("delete", VOLUMES, name)
    path = scene.folder / f".csi-node-sidecar.{scene.driver.driver}.0123456789abcdef.journal"
    path.write_bytes(begin_line(record) + b"\n")
    os.utime(path, (time.time() - LONG_AGO,) * 2)


def test_a_kept_volume_is_listed_and_goes_by_a_person_s_word_alone(scene: Scene) -> None:
    with scene.sidecar as sidecar:
        sidecar.until_ready()
        volume, record = made(scene)
        sidecar.kill()
    name, handle = volume["metadata"]["name"], volume["spec"]["csi"]["volumeHandle"]
    keep(scene, volume, record)
    with scene.sidecar as sidecar:
        sidecar.until_ready()
        until(lambda: sidecar.metric("csi_node_sidecar_suspected_leaks_total") == 1, "it is a suspect")
        until(lambda: bool(scene.events()), "it is told")
        assert scene.volumes() == {name: handle}, "nothing was deleted"

        # Event, log and list say the same words.
        code, out, _ = scene.leftovers()
        said = out.splitlines()[0]
        assert (code, said[: len(name) + 7]) == (0, f"volume {name}") and "may have come and gone since" in said
        assert scene.events()[0].startswith(f"{said}; ")
        assert any(said in record for record in sidecar.records("W"))
        assert scene.listed() == [name]

        # What nobody suspects, what nobody agrees to, and what any PersistentVolume has, stays.
        assert "none of the suspected leftovers" in scene.leftovers("--delete=pvc-another", "--yes")[2]
        assert "there is nobody to ask" in scene.leftovers(f"--delete={name}")[2]
        restored = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "by-hand"}}
        spec = {key: volume["spec"][key] for key in ("accessModes", "capacity", "csi")}
        scene.api("create", VOLUMES, {**restored, "spec": {**spec, "persistentVolumeReclaimPolicy": "Retain"}})
        code, _, err = scene.leftovers(f"--delete={name}", "--yes")
        assert code == 1 and "PersistentVolume by-hand has the same handle" in err
        assert scene.volumes() == {name: handle} and scene.listed() == [name]
        assert not scene.driver.recorded("DeleteVolume")

        # The sidecar runs meanwhile.
        scene.api("patch", VOLUMES, "by-hand", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        scene.api("delete", VOLUMES, "by-hand")
        code, out, _ = scene.leftovers(f"--delete={name}", "--yes")
        assert (code, out) == (0, f"deleted volume {name}, which the driver calls {handle}\n")
        assert scene.volumes() == {} and scene.listed() == []
        assert scene.leftovers(f"--delete={name}", "--yes")[0] == 1
    earlier = scene.journals()
    with scene.sidecar:
        until(lambda: not earlier & scene.journals(), "the next process has taken over what the earlier ones left")
    assert not scene.journals(), "nothing is left on record"
