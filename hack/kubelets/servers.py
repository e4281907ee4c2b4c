"""The control plane's programs inside the cluster's namespaces: what is theirs alone, their order, their readiness."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets import namespaces
from hack.kubelets.errors import until
from hack.kubelets.namespaces import Holder, Program
from hack.kubelets.place import API_ADDRESS, NodePlace, Place
from hack.lib import servers
from hack.lib.servers import API_SERVER, CONTROLLERS, ETCD, SCHEDULER

PROGRAMS = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, "kubectl")
ADMIN = "admin"
# Any name in the API server's certificate would do: the address of the door is not in it.
SERVER_NAME = "kubernetes.default.svc"
INNER = "inner.kubeconfig"
OWN = [
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
    "--service-account-extend-token-expiration=false",  # a token lives as long as it says, so that its renewal is seen
]


class Servers:
    def __init__(self, place: Place, holder: Holder) -> None:
        self._place = place
        self._holder = holder

    def start_storage_and_api(self) -> None:
        self._start(ETCD)
        self._start(API_SERVER, OWN)

    def open_door(self) -> None:
        """Opens the way in for programs outside of the cluster's network, and writes a kubeconfig for it."""
        until(servers.certificate(self._place.folder).exists, "the API server's certificate", log=self._log(API_SERVER))
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            door.listen(128)
            port = door.getsockname()[1]
            gate = [sys.executable, "-I", "-S", str(Path(__file__).with_name("gate.py")), str(door.fileno()), API_ADDRESS, "443"]
            namespaces.start(self._holder, Program(gate, self._log("gate")), keep_open=[door.fileno()])
        self._place.kubeconfig.touch(mode=0o600)
        self._place.kubeconfig.write_text(self._kubeconfig(f"https://127.0.0.1:{port}", ADMIN))

    def start_the_rest(self) -> None:
        """Once the API server answers."""
        (self._place.folder / INNER).write_text(self._kubeconfig(f"https://{API_ADDRESS}", ADMIN))
        self._start(CONTROLLERS)
        self._start(SCHEDULER)

    def kubeconfig_for(self, node: NodePlace) -> str:
        """A kubeconfig for a kubelet, with the rights that the Node authorizer gives it and no others."""
        return self._kubeconfig(f"https://{API_ADDRESS}", f"system:node:{node.name}")

    def _kubeconfig(self, server: str, user: str) -> str:
        rows = (line.split(",") for line in (self._place.folder / "tokens.csv").read_text().splitlines())
        token = next(row[0] for row in rows if row[1] == user)
        return servers.kubeconfig(self._place.folder, server=server, token=token, server_name=SERVER_NAME)

    def _start(self, name: str, own: Sequence[str] = ()) -> None:
        work = self._place.folder
        common = servers.arguments_of(name, work, etcd="http://127.0.0.1:2379", host=API_ADDRESS, port="443", kubeconfig=work / INNER)
        namespaces.start(self._holder, Program([str(self._place.programs / name), *common, *own], self._log(name)))

    def _log(self, name: str) -> Path:
        return self._place.logs / f"{name}.log"


def write_secrets(place: Place, nodes: Sequence[NodePlace]) -> None:
    users = [(servers.new_token(), ADMIN, "system:masters")]
    users += [(servers.new_token(), f"system:node:{node.name}", "system:nodes") for node in nodes]
    servers.write_secrets(place.folder, users)
