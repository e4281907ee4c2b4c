"""The control plane's programs inside the cluster's namespaces: their arguments, their order, their readiness."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hack.kubelets import namespaces, settings
from hack.kubelets.errors import ClusterError
from hack.kubelets.namespaces import Holder, Program
from hack.kubelets.place import API_ADDRESS, SERVICE_RANGE, NodePlace, Place
from hack.kubelets.waiting import until

ETCD, API_SERVER, CONTROLLERS, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
PROGRAMS = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER, "kubectl")
ADMIN = "admin"
# Any name in the API server's certificate would do: the address of the door is not in it.
SERVER_NAME = "kubernetes.default.svc"


class Servers:
    def __init__(self, place: Place, holder: Holder) -> None:
        self._place = place
        self._holder = holder

    def start_storage_and_api(self) -> None:
        self._start(ETCD)
        self._start(API_SERVER)

    def start_the_rest(self) -> None:
        """Starts the other programs, once the API server answers: before that there is no certificate that they could trust."""
        certificate = self._place.certificate.read_bytes()
        (self._place.folder / "inner.kubeconfig").write_text(
            settings.kubeconfig(server=f"https://{API_ADDRESS}", server_name=SERVER_NAME, certificate=certificate, token=self._token(ADMIN))
        )
        self._start(CONTROLLERS)
        self._start(SCHEDULER)

    def await_api(self, *, seconds: float = 60.0) -> None:
        """Asks from inside, because the door to the machine may not be open yet."""
        until(self._api_answers, "the API server's readiness", seconds=seconds, log=self._log(API_SERVER))

    def start_api(self) -> None:
        self._start(API_SERVER)
        self.await_api()

    def stop_api(self) -> None:
        namespaces.stop(self._holder, self._program(API_SERVER))

    def open_door(self) -> None:
        """Opens the way in for programs outside of the cluster's network, and writes a kubeconfig for it."""
        with socket.socket() as door:
            door.bind(("127.0.0.1", 0))
            door.listen(128)
            port = door.getsockname()[1]
            gate = [sys.executable, "-I", "-S", str(Path(__file__).with_name("gate.py")), str(door.fileno()), API_ADDRESS, "443"]
            namespaces.start(self._holder, self._named("gate", gate), keep_open=[door.fileno()])
        config = settings.kubeconfig(
            server=f"https://127.0.0.1:{port}",
            server_name=SERVER_NAME,
            certificate=self._place.certificate.read_bytes(),
            token=self._token(ADMIN),
        )
        self._place.kubeconfig.touch(mode=0o600)
        self._place.kubeconfig.write_text(config)

    def kubeconfig_for(self, node: NodePlace) -> str:
        """A kubeconfig for a kubelet, with the rights that the Node authorizer gives it and no others."""
        certificate = self._place.certificate.read_bytes()
        token = self._token(f"system:node:{node.name}")
        return settings.kubeconfig(server=f"https://{API_ADDRESS}", server_name=SERVER_NAME, certificate=certificate, token=token)

    def _api_answers(self) -> bool:
        if namespaces.number_of(self._holder, self._program(API_SERVER)) is None:
            raise ClusterError(f"the API server has ended{namespaces.log_end(self._holder, self._program(API_SERVER))}")
        # The default namespace is made a moment after /readyz says yes.
        paths = ("/readyz", "/api/v1/namespaces/default")
        return self._place.certificate.exists() and all(self._get(path) for path in paths)

    def _get(self, path: str) -> bool:
        kubectl = [str(self._place.programs / "kubectl"), f"--server=https://{API_ADDRESS}", f"--token={self._token(ADMIN)}"]
        trust = [f"--certificate-authority={self._place.certificate}", f"--cache-dir={self._place.folder / 'kubectl'}"]
        command = [*kubectl, *trust, "get", "--raw", path]
        inside = self._holder.inside(*command, namespaces=("--net",))
        return subprocess.run(inside, capture_output=True, check=False, timeout=30, env=namespaces.ENVIRONMENT).returncode == 0

    def _token(self, user: str) -> str:
        rows = (line.split(",") for line in (self._place.folder / "tokens.csv").read_text().splitlines())
        return next(row[0] for row in rows if row[1] == user)

    def _start(self, name: str) -> None:
        namespaces.start(self._holder, self._program(name))

    def _program(self, name: str) -> Program:
        return self._named(name, [str(self._place.programs / name), *arguments_of(name, self._place)])

    def _named(self, name: str, command: Sequence[str]) -> Program:
        return Program(name, command, self._place.folder / f"{name}.pid", self._log(name))

    def _log(self, name: str) -> Path:
        return self._place.logs / f"{name}.log"


def write_secrets(place: Place, nodes: Sequence[NodePlace]) -> None:
    """Writes the tokens of users, and the key that signs the tokens of service accounts."""
    users = [f"{secrets.token_hex(16)},{ADMIN},{ADMIN},system:masters"]
    users += [f"{secrets.token_hex(16)},system:node:{node.name},{node.name},system:nodes" for node in nodes]
    tokens, key = place.folder / "tokens.csv", place.folder / "service-account.key"
    for file in (tokens, key):
        file.touch(mode=0o600)
    tokens.write_text("".join(f"{user}\n" for user in users))
    namespaces.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)])


def arguments_of(name: str, place: Place) -> list[str]:
    # Nobody here waits for a client-side limiter that is made for production.
    client = [f"--kubeconfig={place.folder / 'inner.kubeconfig'}", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000"]
    controllers = [
        f"--root-ca-file={place.certificate}",
        f"--flex-volume-plugin-dir={place.folder / 'flexvolume'}",  # it makes this folder, by default below /usr
        "--node-monitor-grace-period=20s",  # so that a kubelet that a test kills is noticed soon
    ]
    by_name = {ETCD: _etcd(place), API_SERVER: _api_server(place), CONTROLLERS: [*client, *controllers], SCHEDULER: client}
    return by_name[name]


def _etcd(place: Place) -> list[str]:
    return [
        f"--data-dir={place.folder / 'etcd'}",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:0",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(place: Place) -> list[str]:
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--bind-address={API_ADDRESS}",
        f"--advertise-address={API_ADDRESS}",
        "--secure-port=443",
        "--endpoint-reconciler-type=none",  # its address is the service's own
        f"--cert-dir={place.certificate.parent}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={place.folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={place.folder / 'service-account.key'}",
        f"--service-account-signing-key-file={place.folder / 'service-account.key'}",
        "--service-account-extend-token-expiration=false",  # a token lives as long as it says, so that its renewal is seen
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        "--shutdown-watch-termination-grace-period=1s",  # otherwise an orderly stop waits a minute for open watches
    ]
