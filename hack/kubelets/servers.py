"""The control plane's programs inside the cluster's namespaces: what is theirs alone, and the way in from outside."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets import namespaces
from hack.kubelets.namespaces import Holder, Program
from hack.kubelets.place import API_ADDRESS, NodePlace, Place
from hack.lib import servers
from hack.lib.patience import until
from hack.lib.servers import API_SERVER, CONTROLLERS, ETCD, SCHEDULER

PROGRAMS = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, "kubectl")
ADMIN = "admin"
# Any name in the API server's certificate would do: the address of the door is not in it.
SERVER_NAME = "kubernetes.default.svc"
INNER = "inner.kubeconfig"
OWN = {
    API_SERVER: [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-extend-token-expiration=false",  # a token lives as long as it says, so that its renewal is seen
    ]
}


def start(place: Place, holder: Holder, *names: str) -> None:
    work = place.folder
    for name in names:
        common = servers.arguments_of(name, work, etcd="http://127.0.0.1:2379", host=API_ADDRESS, port="443", kubeconfig=work / INNER)
        command = [str(place.programs / name), *common, *OWN.get(name, ())]
        namespaces.start(holder, Program(command, place.logs / f"{name}.log"))


def open_door(place: Place, holder: Holder) -> None:
    """Opens the way in for programs outside of the cluster's network, and writes kubeconfigs for it and for the controllers."""
    until(servers.certificate(place.folder).exists, "the API server's certificate", log=place.logs / f"{API_SERVER}.log")
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(128)
        port = door.getsockname()[1]
        gate = [sys.executable, "-I", "-S", str(Path(__file__).with_name("gate.py")), str(door.fileno()), API_ADDRESS, "443"]
        namespaces.start(holder, Program(gate, place.logs / "gate.log"), keep_open=[door.fileno()])
    for file, server in ((place.kubeconfig, f"https://127.0.0.1:{port}"), (place.folder / INNER, f"https://{API_ADDRESS}")):
        file.touch(mode=0o600)
        file.write_text(_kubeconfig(place, server, ADMIN))


def kubeconfig_for(place: Place, node: NodePlace) -> str:
    """A kubeconfig for a kubelet, with the rights that the Node authorizer gives it and no others."""
    return _kubeconfig(place, f"https://{API_ADDRESS}", f"system:node:{node.name}")


def _kubeconfig(place: Place, server: str, user: str) -> str:
    rows = (line.split(",") for line in (place.folder / "tokens.csv").read_text().splitlines())
    token = next(row[0] for row in rows if row[1] == user)
    return servers.kubeconfig(place.folder, server=server, token=token, server_name=SERVER_NAME)


def write_secrets(place: Place, nodes: Sequence[NodePlace]) -> None:
    users = [(servers.new_token(), ADMIN, "system:masters")]
    users += [(servers.new_token(), f"system:node:{node.name}", "system:nodes") for node in nodes]
    servers.write_secrets(place.folder, users)
