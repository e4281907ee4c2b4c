"""A cluster behind HTTP, for commands as people call them: three nodes, and somebody at the terminal."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

from hack.sim.cluster import ApiServer, Call, Refused
from hack.sim.cluster.serve import Served, serving_cluster
from sidecar.commands.node import run
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NODES, VOLUMES
from tests.harness.drain.listed_cluster import OTHER, claim, node, volume

Json = dict[str, Any]
_REASONS = {403: "Forbidden", 409: "Conflict", 503: "ServiceUnavailable"}


@dataclass(kw_only=True)
class Fault:
    """What goes wrong with these requests, or with the next of them alone: a pause without end, a status, or an answer that is lost."""

    verb: str = ""
    resource: str = ""
    name: str = ""
    once: bool = False
    hang: bool = False
    status: int = 0
    lose: bool = False

    def concerns(self, call: Call) -> bool:
        plural = getattr(call.resource, "plural", call.resource)
        return self.verb in ("", call.verb) and self.resource in ("", plural) and self.name in ("", call.name)


class Faults:
    """Of each request the first that concerns it."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.met = 0

    def set(self, *faults: Fault) -> None:
        self._faults, self.met = list(faults), 0

    async def before(self, call: Call) -> None:
        fault = self._of(call)
        if fault is None or fault.lose:
            return
        self._spend(fault)
        if fault.hang:
            await asyncio.Event().wait()
        raise Refused(fault.status, _REASONS[fault.status], "the test wants it so")

    async def after(self, call: Call) -> None:
        fault = self._of(call)
        if fault is not None and fault.lose:
            self._spend(fault)
            raise ConnectionError

    def _of(self, call: Call) -> Fault | None:
        return next((fault for fault in self._faults if fault.concerns(call)), None)

    def _spend(self, fault: Fault) -> None:
        self.met += 1
        if fault.once:
            self._faults.remove(fault)


@dataclass
class Scene:
    """A served cluster: n1 has a volume of each of two drivers, n2 and n3 have nothing. Somebody is at the terminal, and agrees."""

    cluster: ApiServer
    kubeconfig: Path
    faults: Faults
    loop: asyncio.AbstractEventLoop
    served: Served
    asked: list[str] = field(default_factory=list)
    answer: bool = True
    meanwhile: Callable[[], None] = lambda: None
    """What others do while that person thinks."""

    def act(self, what: Callable[[], Any]) -> Any:
        """In the server's own thread."""

        async def there() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(there(), self.loop).result(120)

    def patch(self, name: str, body: Json) -> None:
        self.act(lambda: self.cluster.patch(NODES, name, body, content_type=MERGE_PATCH))

    def annotate(self, name: str, notes: dict[str, str | None]) -> None:
        self.patch(name, {"metadata": {"annotations": notes}})

    def node(self, name: str) -> Json:
        found: Json = self.act(lambda: self.cluster.get(NODES, name).obj)
        return found

    def notes(self, name: str) -> Json:
        return dict(self.node(name)["metadata"].get("annotations") or {})

    def versions(self) -> list[str]:
        return [self.node(name)["metadata"]["resourceVersion"] for name in ("n1", "n2", "n3")]

    def run(self, *words: str, terminal: bool = True) -> int:
        def ask(question: str) -> bool:
            self.asked.append(question)
            self.meanwhile()
            return self.answer

        line = [*words, f"--kubeconfig={self.kubeconfig}", "--kube-api-qps=1000"]
        return run(line, {}, ask=ask) if terminal else run(line, {})


@contextmanager
def served_scene(folder: Path) -> Iterator[Scene]:
    ready: Queue[tuple[Scene, asyncio.Event]] = Queue()

    async def serve() -> None:
        cluster, faults, stop = ApiServer(clock=time.time, rng=random.random), Faults(), asyncio.Event()
        fill(cluster)
        async with serving_cluster(cluster, before=faults.before) as served:
            served.after = faults.after
            ready.put((Scene(cluster, served.kubeconfig(folder / "kubeconfig"), faults, asyncio.get_running_loop(), served), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    found, stop = ready.get(timeout=120)
    yield found
    found.loop.call_soon_threadsafe(stop.set)
    thread.join(120)


def fill(cluster: ApiServer) -> None:
    for name in ("n1", "n2", "n3"):
        cluster.create(NODES, bare(node(name), "v1", "Node"))
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        cluster.patch(NODES, name, status, content_type=MERGE_PATCH, subresource="status")
    for made in (volume("pv-1", "n1", claim="a"), volume("pv-other", "n1", driver=OTHER)):
        more = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "persistentVolumeReclaimPolicy": "Delete"}
        cluster.create(VOLUMES, bare(made, "v1", "PersistentVolume", **more))
    more = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    cluster.create(CLAIMS, bare(claim("a", selected="n1", volume_name="pv-1"), "v1", "PersistentVolumeClaim", **more), namespace="default")


def bare(obj: Json, api_version: str, kind: str, **spec: Any) -> Json:
    """As somebody creates it: the server says its uid and version."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in ("uid", "resourceVersion")}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": {**obj["spec"], **spec}}
