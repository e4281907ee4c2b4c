"""A whole cluster: starts it, takes it down, and does in between what tests need."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from hack import images
from hack.kubelets import namespaces, needs, remains, servers, settings
from hack.kubelets.node import Node
from hack.kubelets.place import API_ADDRESS, GATEWAY, Place
from hack.lib.command import Failure, say
from hack.lib.patience import until
from hack.lib.servers import API_SERVER, CONTROLLERS, ETCD, SCHEDULER

Json = dict[str, Any]

DEFAULT_NAME = "default"
# The network that all nodes hang on, made by the first process of the cluster's namespaces, which then becomes what holds them.
NETWORK = """
ip link set lo up
ip address add "$2/32" dev lo
ip link add name nodes type bridge
ip address add "$3/24" dev nodes
ip link set nodes up
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$0" "$1"
"""


class Cluster:
    """A running cluster; `up` makes one, `find` returns one that was made before."""

    def __init__(self, place: Place) -> None:
        self.place = place
        numbers = range(1, 1 + len(list(place.folder.glob("nodes/node-*"))))
        self._nodes = {node.name: node for node in (Node(place, place.node(number)) for number in numbers)}

    # --- up and down ----------------------------------------------------------------------------------------------

    @classmethod
    def up(cls, *, nodes: int = 2, name: str = DEFAULT_NAME, leashed: bool = False) -> Self:
        """Returns when all nodes are Ready. A leashed cluster ends with the process that made it, even if that is killed."""
        place = Place(name)
        needs.check()
        if namespaces.find_holder(place.ident):
            raise Failure(
                f"the cluster {name} is running already: `hack/cluster --name OTHER up` makes another one beside it, and "
                f"`hack/cluster --name {name} down` ends it"
            )
        remains.clear(place)  # of a run that was killed
        try:
            place.folder.mkdir(parents=True)
            needs.gather(place.programs)
            place.logs.mkdir()
            _furnish(place, nodes)
            cluster = cls(place)
            say(f"starting {nodes} node{'s' if nodes > 1 else ''}")
            cluster._start(leashed=leashed)
            return cluster
        except BaseException:
            # Also on Ctrl-C: half a cluster must not stay. The error has shown the end of the log already.
            remains.clear(place)
            raise

    @classmethod
    def find(cls, *, name: str = DEFAULT_NAME) -> Self:
        place = Place(name)
        if namespaces.find_holder(place.ident) is None or not place.kubeconfig.exists():
            raise Failure(f"no cluster {name} is running here: hack/cluster up makes one")
        return cls(place)

    @classmethod
    def clear(cls, *, name: str = DEFAULT_NAME) -> None:
        """Takes the cluster down, whether it runs, runs in part, or has only left something behind."""
        remains.clear(Place(name))

    def down(self) -> None:
        remains.clear(self.place)

    def _start(self, *, leashed: bool) -> None:
        command = ["sh", "-euc", NETWORK, str(self.place.programs / "pause"), self.place.ident, API_ADDRESS, GATEWAY]
        namespaces.start_holder(command, self.place.ident, log=self.place.logs / "namespaces.log", leashed=leashed)
        holder = namespaces.holder_of(self.place.ident)
        servers.start(self.place, holder, ETCD, API_SERVER)
        archive = images.pause()
        self._on_all(Node.power_on)  # while the API server starts
        self._on_all(lambda node: node.load(archive))
        servers.open_door(self.place, holder)
        # The default namespace is made a moment after the server says that it is ready.
        until(lambda: self._answers("/readyz") and self._answers("/api/v1/namespaces/default"), "the API server's readiness")
        servers.start(self.place, holder, CONTROLLERS, SCHEDULER)
        for node in self.nodes:
            (node.place.disk / "etc" / "kubelet.kubeconfig").write_text(servers.kubeconfig_for(self.place, node.place))
            node.start_kubelet()
        self.await_ready()

    def _answers(self, path: str) -> bool:
        try:
            return bool(self.kubectl("get", "--raw", path))
        except Failure:
            return False

    # --- questions --------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    @property
    def kubeconfig(self) -> Path:
        return self.place.kubeconfig

    def node(self, name: str) -> Node:
        if name not in self._nodes:
            raise Failure(f"there is no node {name}: there are {', '.join(self._nodes)}")
        return self._nodes[name]

    # --- actions ------------------------------------------------------------------------------------

    def kubectl_command(self, *arguments: str) -> list[str]:
        cache = f"--cache-dir={self.place.folder / 'kubectl'}"  # by default in the home folder, where it would remain
        return [str(self.place.programs / "kubectl"), f"--kubeconfig={self.kubeconfig}", cache, *arguments]

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Returns what it prints; a failure is an error with its text."""
        return namespaces.run(self.kubectl_command(*arguments), input=input)

    def get(self, *arguments: str) -> Json:
        """`kubectl get` as JSON; an object that is not there is empty."""
        answer: Json = json.loads(self.kubectl("get", "--ignore-not-found", "--output=json", *arguments) or "{}")
        return answer

    def load(self, *archives: Path) -> None:
        """Loads the archives on all nodes."""
        self._on_all(lambda node: node.load(*archives))

    def await_ready(self) -> None:
        """All nodes are Ready, and are so since their latest boot; pods in the default namespace can be made."""
        log = self.nodes[0].place.disk / "var/log/kubelet.log"
        until(self._is_ready, f"{len(self.nodes)} nodes to be Ready", log=log)

    def _is_ready(self) -> bool:
        said = {item["metadata"]["name"]: item["status"] for item in self.get("nodes").get("items", [])}
        booted = all(_is_ready_since(said.get(node.name, {}), node.boot_id) for node in self.nodes)
        return booted and bool(self.get("serviceaccount", "default"))

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
