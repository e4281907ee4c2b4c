"""A whole cluster: starts it, takes it down, and does in between what tests need."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from hack.kubelets import namespaces, needs, programs, remains, servers, settings
from hack.kubelets.errors import ClusterError
from hack.kubelets.node import Node
from hack.kubelets.place import API_ADDRESS, GATEWAY, MOST_NODES, Place, place_of
from hack.kubelets.servers import Servers
from hack.kubelets.waiting import until
from hack.lib.progress import say, step, timed

Json = dict[str, Any]

DEFAULT_NAME = "default"
# $0 is the other end of a pipe: it ends when the last process that holds our end does.
LEASH = 'read -r nothing <"/proc/self/fd/$0"; kill -TERM 1'


class Cluster:
    """A running cluster; `up` makes one, `find` returns one that was made before."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._nodes = {node.name: node for node in (Node(place, place.node(number)) for number in _numbers(place))}
        self._leash = -1

    # --- up and down ----------------------------------------------------------------------------------------------

    @classmethod
    def up(cls, *, nodes: int = 2, name: str = DEFAULT_NAME, folder: Path | None = None, leashed: bool = False) -> Self:
        """Returns when all nodes are Ready. A leashed cluster ends with the process that made it, even if that is killed."""
        if not 1 <= nodes <= MOST_NODES:
            raise ClusterError(f"{nodes} nodes: there can be 1 to {MOST_NODES}")
        place = place_of(name, folder)
        needs.check(place.folder)
        with _locked(place):
            if namespaces.find_holder(place.ident):
                raise ClusterError(f"the cluster {name} is running already; hack/cluster down ends it")
            remains.sweep()
            remains.clear(place)
            try:
                return cls._made(place, nodes=nodes, leashed=leashed)
            except BaseException:
                # Also on Ctrl-C: half a cluster must not stay. The error has shown the end of the log already.
                remains.clear(place)
                raise

    @classmethod
    def find(cls, *, name: str = DEFAULT_NAME, folder: Path | None = None) -> Self:
        place = place_of(name, folder)
        if namespaces.find_holder(place.ident) is None or not place.kubeconfig.exists():
            raise ClusterError(f"no cluster {name} is running here: hack/cluster up makes one")
        return cls(place)

    @classmethod
    def clear(cls, *, name: str = DEFAULT_NAME, folder: Path | None = None) -> None:
        """Takes the cluster down, whether it runs, runs in part, or has only left something behind."""
        place = place_of(name, folder)
        with _locked(place):
            remains.clear(place)
            remains.sweep()

    def down(self) -> None:
        self.clear(name=self.place.name, folder=self.place.folder)
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1

    @classmethod
    def _made(cls, place: Place, *, nodes: int, leashed: bool) -> Self:
        place.folder.mkdir(parents=True)
        place.mark.touch()
        with timed("programs"):
            programs.gather(place.programs)
        place.logs.mkdir()
        _furnish(place, nodes)
        cluster = cls(place)
        with step(f"starting {nodes} node{'s' if nodes > 1 else ''}", about=5 + nodes):
            cluster._start(leashed=leashed)
        return cluster

    def _start(self, *, leashed: bool) -> None:
        script = Path(__file__).with_name("hold-cluster")
        command = [str(script), str(self.place.programs / "pause"), self.place.ident, API_ADDRESS, GATEWAY]
        holder = namespaces.start_holder(command, self.place.ident, log=self.place.logs / "namespaces.log")
        if leashed:
            self._leash = _leash(self.place, holder)
        plane = Servers(self.place, holder)
        plane.start_storage_and_api()
        archive = programs.pause_archive(self.place.programs)
        self._on_all(Node.power_on)  # while the API server starts
        self._on_all(lambda node: node.load(archive))
        plane.await_api()
        plane.start_the_rest()
        plane.open_door()
        for node in self.nodes:
            (node.place.disk / "etc" / "kubelet.kubeconfig").write_text(plane.kubeconfig_for(node.place))
            node.start_kubelet()
        self.await_ready()

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    @property
    def kubeconfig(self) -> Path:
        return self.place.kubeconfig

    def node(self, name: str) -> Node:
        if name not in self._nodes:
            raise ClusterError(f"there is no node {name}: there are {', '.join(self._nodes)}")
        return self._nodes[name]

    # --- actions ------------------------------------------------------------------------------------

    def kubectl_command(self, *arguments: str) -> list[str]:
        cache = f"--cache-dir={self.place.folder / 'kubectl'}"  # by default in the home folder, where it would remain
        return [str(self.place.programs / "kubectl"), f"--kubeconfig={self.kubeconfig}", cache, *arguments]

    def kubectl(self, *arguments: str, input: str | None = None, seconds: float = 180.0) -> str:
        """Returns what it prints; a failure is an error with its text."""
        return namespaces.run(self.kubectl_command(*arguments), input=input, seconds=seconds)

    def get(self, *arguments: str) -> Json:
        """`kubectl get` as JSON; an object that is not there is empty."""
        answer: Json = json.loads(self.kubectl("get", "--ignore-not-found", "--output=json", *arguments) or "{}")
        return answer

    def load(self, *archives: Path) -> None:
        """Loads the archives on all nodes."""
        self._on_all(lambda node: node.load(*archives))

    def apiserver_stop(self) -> None:
        self._servers().stop_api()

    def apiserver_start(self) -> None:
        """Returns when it answers."""
        self._servers().start_api()

    @contextmanager
    def without_api(self) -> Iterator[None]:
        """The API server is away inside the block. It is started again even after an exception, because later tests need it."""
        try:
            self.apiserver_stop()
            yield
        finally:
            self.apiserver_start()

    def await_ready(self, *, seconds: float = 90.0) -> None:
        """All nodes are Ready, and are so since their latest boot; pods in the default namespace can be made."""
        log = self.nodes[0].place.disk / "var/log/kubelet.log"
        until(self._is_ready, f"{len(self.nodes)} nodes to be Ready", seconds=seconds, log=log)

    def _is_ready(self) -> bool:
        said = {item["metadata"]["name"]: item["status"] for item in self.get("nodes").get("items", [])}
        booted = all(_is_ready_since(said.get(node.name, {}), node.boot_id) for node in self.nodes)
        return booted and bool(self.get("serviceaccount", "default"))

    def _servers(self) -> Servers:
        holder = namespaces.find_holder(self.place.ident)
        if holder is None:
            raise ClusterError(f"the cluster {self.place.name} is not running")
        return Servers(self.place, holder)

    def _on_all(self, action: Callable[[Node], None]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(action, self.nodes))


def _is_ready_since(status: Json, boot_id: str) -> bool:
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions", []))
    return ready and bool(status["nodeInfo"]["bootID"] == boot_id)


def _furnish(place: Place, nodes: int) -> None:
    """Makes the folders and files that must exist before anything runs."""
    snapshotter = needs.snapshotter(place.folder)
    for number in range(1, nodes + 1):
        node = place.node(number)
        for name, content in settings.files_of(node, snapshotter=snapshotter).items():
            file = node.disk / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        (node.disk / "var/log").mkdir(parents=True)
    servers.write_secrets(place, [place.node(number) for number in range(1, nodes + 1)])


def _numbers(place: Place) -> Sequence[int]:
    return sorted(int(folder.name.removeprefix("node-")) for folder in (place.folder / "nodes").glob("node-*"))


def _leash(place: Place, holder: namespaces.Holder) -> int:
    """Our end of the pipe whose other end is held inside."""
    inner, ours = os.pipe()
    program = namespaces.Program("leash", ["sh", "-c", LEASH, str(inner)], place.folder / "leash.pid", place.logs / "leash.log")
    try:
        namespaces.start(holder, program, keep_open=[inner])
    finally:
        os.close(inner)
    return ours


@contextmanager
def _locked(place: Place) -> Iterator[None]:
    """Only one process at a time starts this cluster or takes it down."""
    place.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = place.folder.with_name(f".{place.folder.name}.lock")
    file = _lock(lock, place.name)
    try:
        yield
    finally:
        lock.unlink()
        os.close(file)


def _lock(lock: Path, name: str) -> int:
    """The holder removes the lock file, so a process that waited for it starts again with a new one."""
    while True:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is busy with the cluster {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        if lock.exists() and lock.stat().st_ino == os.fstat(file).st_ino:
            return file
        os.close(file)
