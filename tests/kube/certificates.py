"""Certificates that tests make for themselves, and kubeconfigs that name them."""

import json
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Identity:
    """A self-signed certificate, which is its own CA, and both sides of using it."""

    file: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        return server_side(self.file, self.key)

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


def identity(folder: Path, name: str, *alternatives: str) -> Identity:
    folder.mkdir(exist_ok=True)
    made = Identity(folder / f"{name}.crt", folder / f"{name}.key")
    subject = ["-subj", f"/CN={name}", *(["-addext", f"subjectAltName={','.join(alternatives)}"] if alternatives else [])]
    command = ["openssl", "req", "-x509", *KEY, "-days", "1", *subject, "-out", str(made.file), "-keyout", str(made.key)]
    subprocess.run(command, check=True, capture_output=True)
    return made


def certificate_for_this_machine(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """And the server's side of it."""
    made = identity(folder, name, "IP:127.0.0.1")
    return made.file, made.server()


def server_side(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def kubeconfig(folder: Path, server: str, cluster: Mapping[str, Any] | None = None, **user: Any) -> str:
    """The path of one with a single context. `cluster` are further fields of the cluster."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": ({"server": server} if server else {}) | dict(cluster or {})}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content))
    return str(file)
