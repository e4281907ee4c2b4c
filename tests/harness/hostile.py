"""One instance in the memory that `deploy/` allows, beside an API server full of fat objects and a driver whose answers are large.

Both are processes: `python -m tests.harness.hostile api FOLDER FILL COUNT` is the simulated API server with what tenants wrote, and
`python -m tests.harness.hostile driver MANNER …` the simulated driver with bad manners.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aiohttp import web

from hack.benchmarks.pod import put_into_a_pod
from hack.lib.control_plane import until
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Process, Sidecar, claim, storage_class
from hack.sim.cluster import ApiServer
from hack.sim.cluster.serve import Served, self_signed
from hack.sim.driver.calls import Faults, Reception, Record
from hack.sim.driver.local_driver import LocalDriver
from hack.sim.driver.serve import read_options, serving
from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, NAMESPACES, VOLUMES
from sidecar.model import names
from tests.harness.not_tested import not_tested

LIMIT: Final = 128
"""MiB: the limit that `deploy/` sets. Above it the kernel ends the process."""
PEAK: Final = 110
"""MiB resident. Below the container's limit by what the kernel counts beside it: sockets, page tables, caches of files in use."""
DRIVER, NODE = "ours.csi-node-sidecar.io", "bench-node"
LARGEST, SELECTED, REFUSING = "largest", "selected", "refusing"
FLAGS: Final = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--feature-gates=Topology=true", "-v=2")
_OTHERS: Final = "others.example.com"
# etcd takes 1.5 MiB. Labels are the one part of a claim without a bound of its own; for each the API server adds half as much again.
_FATTEST: Final = 1_400_000
_LABELS: Final = {f"{number:06d}-{'k' * 50}": "v" * 63 for number in range(_FATTEST * 2 // 3 // 127)}
_ALL: Final = 10_000
_LONG_CONTEXT = 200_000


# --- the limit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cage:
    """A container's limit of memory around one process: a cgroup."""

    folder: Path

    def put(self, process: Process) -> None:
        """Before it starts."""
        process.command = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(self.folder), *process.command]


@contextlib.contextmanager
def a_cage() -> Iterator[Cage]:
    """Of version 1 or 2, which takes root; where none can be made, what needs it is skipped aloud."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, most, swap = (v1, "memory.limit_in_bytes", "memory.swappiness") if v1.is_dir() else (v2, "memory.max", "memory.swap.max")
    folder = root / f"memory-limit-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        not_tested("the memory limit", f"no cgroup can be made, run it as root where cgroups may be written: {error}")
    try:
        (folder / most).write_text(str(LIMIT << 20))
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            (folder / swap).write_text("0")
        yield Cage(folder)
    finally:
        until(lambda: _is_removed(folder), f"the kernel lets go of {folder}")


def _is_removed(folder: Path) -> bool:
    """It does so a moment after the last process has ended."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        return True
    return False


# --- what tenants write -----------------------------------------------------------------------------------------------


def selected(number: int) -> Json:
    """A claim for this node, which the driver is asked to make."""
    return claim(f"selected-{number}", "late", annotations={names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: NODE})


def largest_claim(number: int) -> Json:
    """Of this driver and for any node that has room, which none has: so it stays."""
    body = claim(f"largest-{number}", "now", size="1Pi", annotations={names.STORAGE_PROVISIONER: DRIVER})
    body["metadata"]["labels"] = _LABELS
    return body


def largest_volume(number: int) -> Json:
    return volume(f"largest-{number}", DRIVER, note="x" * _FATTEST)


def volume(name: str, driver: str, **attributes: str) -> Json:
    """Bound, to a claim that nobody looks for."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": f"uid-{name}"},
        "csi": {"driver": driver, "volumeHandle": name, "volumeAttributes": attributes},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "late",
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}


def _filled(fill: str, count: int) -> ApiServer:
    cluster = ApiServer(clock=time.time, rng=random.random)
    for name, driver, binding in (("late", DRIVER, LATE), ("now", DRIVER, IMMEDIATE), ("theirs", _OTHERS, LATE)):
        cluster.create(CLASSES, storage_class(name, driver, binding))
    if fill != LARGEST:
        for number in range(count):
            cluster.create(CLAIMS, selected(number), namespace="default")
        return cluster
    # Ten of the large ones are claims, for each write of one costs the simulated API server 0.2 s, and of a volume nearly nothing.
    few = min(count // 10, 10)
    for number in range(_ALL):
        body = largest_claim(number) if number < few else claim(f"small-{number}", "theirs")
        cluster.create(CLAIMS, body, namespace="default")
        cluster.create(VOLUMES, largest_volume(number) if number < count - few else volume(f"small-{number}", _OTHERS))
    return cluster


class _Refusing(Served):
    """It takes no PersistentVolume."""

    _body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422, "message": "refused"})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST" and request.path.endswith("/persistentvolumes"):
            return web.Response(body=self._body, status=422, content_type="application/json")
        return await super()._answer(request)


async def _serve_api(folder: Path, fill: str, count: int) -> None:
    """At SIGUSR1 its history is compacted and all watches end, at SIGUSR2 the largest objects change."""
    cluster = _filled(fill, count)
    served = (_Refusing if fill == REFUSING else Served)(cluster, certificate=self_signed(folder))
    await served.start()
    marks = map(str, itertools.count())

    def begin_anew() -> None:
        cluster.create(NAMESPACES, {"metadata": {"name": f"compacted-{next(marks)}"}})
        cluster.compact()
        served.cut_watches()

    def change_largest() -> None:
        patch = {"metadata": {"annotations": {"mark": next(marks)}}}
        for resource in (CLAIMS, VOLUMES):
            for meta in [body["metadata"] for body in cluster.store.all_of(resource)]:
                if meta["name"].startswith("largest-"):
                    cluster.patch(resource, meta["name"], patch, content_type=MERGE_PATCH, namespace=meta.get("namespace", ""))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, begin_anew)
    loop.add_signal_handler(signal.SIGUSR2, change_largest)
    served.kubeconfig(folder / "draft")
    (folder / "draft").rename(folder / "kubeconfig")
    await asyncio.Event().wait()


# --- what drivers answer ----------------------------------------------------------------------------------------------


class _LongContexts(LocalDriver):
    def create(self, request: CreateRequest, *, limit_bytes: int = 0) -> CreatedVolume:
        made = super().create(request, limit_bytes=limit_bytes)
        return replace(made, context={**made.context, "note": request.name.ljust(_LONG_CONTEXT, "x")})


MANNERS: Final[Mapping[str, type[LocalDriver]]] = {"polite": LocalDriver, "long contexts": _LongContexts}


async def _serve_driver(manner: str, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    driver = MANNERS[manner](options.spec, state=options.state)
    reception = Reception(record=Record(options.calls), faults=Faults(options.faults))
    async with serving(driver, options.endpoint, reception=reception):
        await stop.wait()
    driver.close()


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """The program has not been started yet."""

    server: Process
    driver: OurDriver
    sidecar: Sidecar

    def compact(self) -> None:
        """All that is watched must be listed anew."""
        self.server.signal(signal.SIGUSR1)

    def change_largest(self) -> None:
        self.server.signal(signal.SIGUSR2)

    def large_ones_named(self) -> set[str]:
        """The lines of the log that do so."""
        return {line for line in self.sidecar.output().splitlines() if '"An object is large"' in line}

    def large_ones_heard(self) -> float:
        """How often the API server has sent one."""
        return self.sidecar.metric("csi_node_sidecar_large_objects_total")

    def peak(self) -> float:
        """MiB."""
        status = Path(f"/proc/{self.sidecar.child.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


@contextlib.contextmanager
def a_scene(work: Path, cage: Cage, *, fill: str, count: int, manner: str = "polite", flags: Sequence[str] = ()) -> Iterator[Scene]:
    server = Process("api-server", [sys.executable, "-m", "tests.harness.hostile", "api", str(work), fill, str(count)], work)
    driver = OurDriver(work, node=NODE, name=DRIVER)
    driver.command = [*driver.command[:2], "tests.harness.hostile", "driver", manner, *driver.command[3:]]
    with server, driver:
        kubeconfig = work / "kubeconfig"
        until(kubeconfig.exists, f"the API server serves:\n{server.output()}", seconds=120)
        environ = {"NODE_NAME": NODE, "NAMESPACE": "default"}
        sidecar = Sidecar(work, node=NODE, address=driver.socket, kubeconfig=kubeconfig, args=(*FLAGS, *flags), environ=environ)
        put_into_a_pod(sidecar, kubeconfig)
        cage.put(sidecar)
        try:
            yield Scene(server, driver, sidecar)
        finally:
            sidecar.stop()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    asyncio.run(_serve_api(Path(words[0]), words[1], int(words[2])) if what == "api" else _serve_driver(words[0], read_options(words[1:])))
