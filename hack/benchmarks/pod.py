"""A program as a pod starts it: the API server's address stands in the environment, who it is in the service account's folder.

The rest of the environment is the image's, so that its settings for memory count.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from hack.lib.control_plane import REPOSITORY
from hack.lib.processes import Process
from sidecar.kube.credentials import SERVICE_ACCOUNT

# In namespaces of its own, so that the folder is there for this program alone. $0 is the folder, $1 what belongs in it.
_AS_IN_A_POD = 'mount -t tmpfs none /var/run && mkdir -p "$0" && cp "$1"/* "$0" && shift && exec "$@"'

# The image is built with bytecode. Here Python leaves it where it belongs, once.
_NOT_HERE = frozenset({"PYTHONDONTWRITEBYTECODE"})
_LOADS_EVERYTHING = "import sidecar.process, sidecar.drain.watches, sidecar.drain.watch.turn_io"


def image_environment() -> dict[str, str]:
    """What the Dockerfile sets for its last stage. A build argument that nobody hands in is empty."""
    text = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", "").rpartition("\nFROM ")[2]
    said = " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))
    pairs = (pair.split("=", 1) for pair in re.sub(r"\$\{\w+\}", "", said).split())
    return {name: value for name, value in pairs if name not in _NOT_HERE}


def compile_bytecode() -> None:
    """Before the first program is measured: one that has to compile itself takes more memory."""
    environ = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(REPOSITORY), **image_environment()}
    subprocess.run([sys.executable, "-c", _LOADS_EVERYTHING], env=environ, check=True)


def put_into_a_pod(process: Process, kubeconfig: Path) -> None:
    """Before it starts, in place of the kubeconfig that stands in its command line."""
    config = json.loads(kubeconfig.read_text())
    ((cluster, user),) = zip(config["clusters"], config["users"], strict=True)
    account = process.log.parent / "serviceaccount"
    account.mkdir(exist_ok=True)
    (account / "ca.crt").write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    (account / "token").write_text(user["user"]["token"])
    server = urlsplit(cluster["cluster"]["server"])
    found_by = [f"KUBERNETES_SERVICE_HOST={server.hostname}", f"KUBERNETES_SERVICE_PORT={server.port}"]
    settings = [f"{name}={value}" for name, value in image_environment().items()]
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [word for word in process.command if not word.startswith("--kubeconfig=")]
    process.command = [*apart, "sh", "-c", _AS_IN_A_POD, str(SERVICE_ACCOUNT), str(account), "env", *found_by, *settings, *command]
