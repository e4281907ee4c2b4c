"""The arguments, secrets and kubeconfigs of a control plane's programs, wherever they run.

`control_plane` starts them on this machine, `hack/kubelets` in the namespaces of a cluster. Nothing here starts anything.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Iterable
from pathlib import Path

ETCD, API_SERVER, CONTROLLERS, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"


def arguments_of(program: str, work: Path, *, etcd: str, host: str, port: str, kubeconfig: Path) -> list[str]:
    """What each kind of control plane has; `work` holds data, secrets and the API server's certificate."""
    # Not much traffic comes from tests, but what comes should not wait for a client-side limiter made for production.
    client = [
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
    match program:
        case "etcd":
            return [
                f"--data-dir={work / 'etcd'}",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ]
        case "kube-apiserver":
            return [
                f"--etcd-servers={etcd}",
                f"--bind-address={host}",
                f"--advertise-address={host}",
                "--endpoint-reconciler-type=none",  # loopback is no valid endpoint, and in namespaces the address is the service's own
                f"--secure-port={port}",
                f"--cert-dir={certificate(work).parent}",
                f"--token-auth-file={work / 'tokens.csv'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={work / 'service-account.key'}",
                f"--service-account-signing-key-file={work / 'service-account.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--allow-privileged=true",
                "--shutdown-watch-termination-grace-period=1s",  # otherwise an orderly stop waits a minute for open watches
            ]
        case "kube-controller-manager":
            return [
                *client,
                f"--root-ca-file={certificate(work)}",
                f"--flex-volume-plugin-dir={work / 'flexvolume'}",  # it makes this folder, by default below /usr
            ]
        case "kube-scheduler":
            return client
        case _:
            raise AssertionError(f"no arguments are known for {program}")


def certificate(work: Path) -> Path:
    """The API server's own, self-signed, in a file with the authority that signed it."""
    return work / "apiserver" / "apiserver.crt"


def write_secrets(work: Path, users: Iterable[tuple[str, str, str]]) -> None:
    """The tokens of users (token, user, group), and the key that signs the tokens of service accounts."""
    tokens, key = work / "tokens.csv", work / "service-account.key"
    for file in (tokens, key):
        file.touch(mode=0o600)
    tokens.write_text("".join(f"{token},{user},{user},{group}\n" for token, user, group in users))
    if not key.read_bytes():
        command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
        subprocess.run(command, check=True, capture_output=True)


def new_token() -> str:
    return secrets.token_hex(16)


def kubeconfig(work: Path, *, server: str, token: str, server_name: str = "") -> str:
    """`server_name`: one in the certificate, where the address is not."""
    named = {"tls-server-name": server_name} if server_name else {}
    authority = base64.b64encode(certificate(work).read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": server, "certificate-authority-data": authority, **named}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    }
    return json.dumps(config, indent=1)
