"""Whoever has a token, and what the API server answers them: sidecars with tokens of two nodes, one of no node, one without policies."""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.error
import urllib.request
from typing import Any

from hack.lib.control_plane import ControlPlane
from hack.lib.programs import Json
from sidecar.kube.api import MERGE_PATCH
from tests.deploy.manifests import NAMESPACE

ACCOUNT, UNRESTRICTED = "csi-node-sidecar", "base-only"
# An account with the base's rights, which no policy is about.
WITHOUT_POLICIES = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {UNRESTRICTED}, namespace: {NAMESPACE}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {UNRESTRICTED}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: csi-node-sidecar}}
subjects: [{{kind: ServiceAccount, name: {UNRESTRICTED}, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {UNRESTRICTED}, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: csi-node-sidecar}}
subjects: [{{kind: ServiceAccount, name: {UNRESTRICTED}, namespace: {NAMESPACE}}}]
"""


class Person:
    """Whoever has this token, and what the API server answers them."""

    def __init__(self, plane: ControlPlane, token: str) -> None:
        cluster = json.loads(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        tls = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), tls)
        self._url, self._token = plane.url, token
        self.warned: list[str] = []
        """What the last answer warned of."""

    def ask(self, method: str, path: str, content: Any = None, *, content_type: str = "application/json") -> tuple[int, Json]:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type, "Accept": "application/json"}
        wire = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)
        try:
            with self._opener.open(wire, timeout=30) as response:
                self.warned = _warnings(response.headers)
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                self.warned = _warnings(refusal.headers)
                return refusal.code, _said(refusal.read())

    def patch(self, path: str, change: Any, *, content_type: str = MERGE_PATCH) -> tuple[int, str]:
        code, answer = self.ask("PATCH", path, change, content_type=content_type)
        return code, str(answer.get("message", ""))


def _said(body: bytes) -> Json:
    """An error within the API server is told as text."""
    try:
        answer: Json = json.loads(body)
    except ValueError:
        return {"message": body.decode()}
    return answer


def _warnings(headers: Any) -> list[str]:
    """The texts of the header, whose form is CODE AGENT "TEXT"."""
    return [re.sub(r'^\d+ \S+ "(.*)"$', r"\1", item, flags=re.DOTALL).replace('\\"', '"') for item in headers.get_all("Warning") or ()]


def pod_on(plane: ControlPlane, node: str, account: str = ACCOUNT) -> Json:
    """A pod of this account on that node, as what a token can be bound to."""
    pod = {
        "metadata": {"generateName": f"{account}-{node}-"},
        "spec": {"nodeName": node, "serviceAccountName": account, "containers": [{"name": "c", "image": "x"}]},
    }
    made = plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    return {"kind": "Pod", "apiVersion": "v1", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}


def person_on(plane: ControlPlane, node: str, account: str = ACCOUNT) -> Person:
    """With a token as the kubelet of that node gets it for a pod."""
    return Person(plane, plane.token_for(namespace=NAMESPACE, service_account=account, bound_to=pod_on(plane, node, account)))


def person_nowhere(plane: ControlPlane, account: str = ACCOUNT) -> Person:
    """With a token that is bound to no pod."""
    return Person(plane, plane.token_for(namespace=NAMESPACE, service_account=account))
