"""A program as a pod starts it: the API server's address stands in the environment, who it is in the service account's folder."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from hack.lib.programs import Process
from sidecar.kube.credentials import SERVICE_ACCOUNT

# In namespaces of its own, so that the folder is there for this program alone. $0 is the folder, $1 what belongs in it.
_AS_IN_A_POD = 'mount -t tmpfs none /var/run && mkdir -p "$0" && cp "$1"/* "$0" && shift && exec "$@"'


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
    apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command = [word for word in process.command if not word.startswith("--kubeconfig=")]
    process.command = [*apart, "sh", "-c", _AS_IN_A_POD, str(SERVICE_ACCOUNT), str(account), "env", *found_by, *command]
