"""One attack's surroundings: the API server, the driver and the program, each as a process, and the watcher beside it."""

from __future__ import annotations

import contextlib
import json
import signal
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hack.benchmarks.hostile import driver as hostile_driver
from hack.benchmarks.hostile.api_server import SECRETS_READ
from hack.benchmarks.hostile.bounds import LIMIT
from hack.benchmarks.hostile.cage import Cage, a_cage
from hack.benchmarks.hostile.objects import DRIVER, NODE
from hack.benchmarks.hostile.watcher import Figures, Watcher
from hack.benchmarks.pod import put_into_a_pod
from hack.benchmarks.stage import FLAGS
from hack.benchmarks.stalls import Stalls, stalls_of
from hack.lib.control_plane import until
from hack.lib.programs import Json, OurDriver, Process, Sidecar

_FILES_ALLOWED: Final = 1024
_ENVIRONMENT: Final = {"NODE_NAME": NODE, "NAMESPACE": "default"}


@dataclass
class Scene:
    """`figures` are those of the lives that have ended; a life is one start of the program."""

    work: Path
    driver: OurDriver
    flags: Sequence[str]
    cage: Cage | None
    server: Process
    figures: list[Figures] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    """How lives ended that were not to end."""
    stalls: Stalls = field(default_factory=Stalls)
    """Of all lives that have ended."""

    def __post_init__(self) -> None:
        self._kubeconfig = self.work / "kubeconfig"
        self.sidecar = self._new()
        self._watcher: Watcher | None = None

    def _new(self) -> Sidecar:
        made = Sidecar(
            self.work, node=NODE, address=self.driver.socket, kubeconfig=self._kubeconfig, args=(*FLAGS, *self.flags), environ=_ENVIRONMENT
        )
        put_into_a_pod(made, self._kubeconfig)
        made.command = ["sh", "-c", f'ulimit -Sn {_FILES_ALLOWED} && exec "$0" "$@"', *made.command]
        if self.cage is not None:
            self.cage.put(made)
        return made

    def start(self) -> None:
        self.sidecar.start()
        self._watcher = Watcher(self.sidecar.child.pid, self.sidecar.port)
        self._watcher.__enter__()

    def end(self) -> None:
        """Of this life, if there is one."""
        if self._watcher is None:
            return
        self._note_ending()
        if self.sidecar.child.poll() is None:
            self.stalls += stalls_of(self.sidecar)
        self._watcher.__exit__(None, None, None)
        self.figures.append(self._watcher.figures)
        self.sidecar.stop()
        self._watcher = None

    def add_flags(self, *flags: str) -> None:
        """For the next life."""
        self.flags = (*self.flags, *flags)
        self.sidecar = self._new()

    def restart(self) -> None:
        self.end()
        self.sidecar = self._new()
        self.start()

    def rest(self, seconds: float) -> None:
        """Returns early if the program ends."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.sidecar.child.poll() is None:
            time.sleep(0.1)

    def _note_ending(self) -> None:
        code = self.sidecar.child.poll()
        if code is not None:
            said = self.sidecar.output().splitlines()
            self.endings.append(f"killed by signal {-code}" if code < 0 else f"ended with {code}: {said[-1][:200] if said else ''}")

    def compact(self) -> None:
        """All that is watched must be listed anew."""
        self.server.signal(signal.SIGUSR1)

    def change_largest(self) -> None:
        self.server.signal(signal.SIGUSR2)

    # --- what a tenant does ---------------------------------------------------------------------------------------------

    def create_claim(self, body: Json) -> None:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/persistentvolumeclaims"
        self._ask("POST", path, json.dumps(body).encode())

    def has_volume(self, claim: str) -> bool:
        return any(item["spec"]["claimRef"]["name"] == claim for item in self.volumes())

    def secrets_read(self) -> int:
        notes = self.work / SECRETS_READ
        return len(notes.read_text().splitlines()) if notes.exists() else 0

    def volumes(self) -> list[Json]:
        found: list[Json] = self._ask("GET", "/api/v1/persistentvolumes", None)["items"]
        return found

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        config = json.loads(self._kubeconfig.read_text())
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(config["clusters"][0]["cluster"]["server"] + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30, context=ssl.create_default_context(cafile=self.work / "simulation.crt")) as answer:
            return json.load(answer)


@contextlib.contextmanager
def a_scene(work: Path, *, fill: str, count: int, manner: str, faults: Sequence[Json], flags: Sequence[str]) -> Iterator[Scene]:
    """Everything runs but the program."""
    server = Process("api-server", [sys.executable, "-m", "hack.benchmarks.hostile.api_server", str(work), fill, str(count)], work)
    driver = OurDriver(work, node=NODE, name=DRIVER)
    driver.command = hostile_driver.command(manner, driver.command)
    with server, driver, a_cage("hostile", mebibytes=LIMIT) as cage:
        driver.misbehave(*faults)
        until((work / "kubeconfig").exists, f"the API server serves:\n{server.output()}", seconds=120)
        scene = Scene(work, driver, flags, cage, server)
        try:
            yield scene
        finally:
            scene.end()
