"""deploy/components/own-node on a real API server, and what two nodes' sidecars, nobody and an account without policies are told there.

Each policy is bound a second time, to warn. A refusal names the first rule that was broken; warnings name all of them.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.patience import LIMIT
from hack.lib.programs import Json
from sidecar.kube.api import MERGE_PATCH
from tests.deploy.manifests import DEPLOY, NAMESPACE, rendered
from tests.harness.persons import UNRESTRICTED, WITHOUT_POLICIES, Person, person_nowhere, person_on, pod_on

REPORT_TYPE: list[Json] = list(yaml.safe_load_all((DEPLOY / "components" / "drain" / "crd.yaml").read_text()))
NOT_INSTALLED = ("DaemonSet", "StorageClass", "CSIDriver")
POLICY = "ValidatingAdmissionPolicy"

# What no role of ours gives. Where somebody has given it, the policies hold all the same.
MORE_THAN_NEEDED = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: more-than-needed}}
rules:
- {{apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}}
- {{apiGroups: [""], resources: [events], verbs: [delete]}}
- {{apiGroups: [""], resources: [persistentvolumeclaims], verbs: [create, delete]}}
- {{apiGroups: [apps], resources: [deployments], verbs: [patch]}}
- {{apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [patch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: more-than-needed}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: more-than-needed}}
subjects: [{{kind: Group, name: "system:serviceaccounts:{NAMESPACE}", apiGroup: rbac.authorization.k8s.io}}]
"""


class Secured:
    """A cluster with the component, and whoever asks it for something. n1 and n2 are nodes."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.add_nodes()
        self.n1, self.n2 = (person_on(plane, name) for name in ("n1", "n2"))
        self.nobody = person_nowhere(plane)
        self.unrestricted = person_on(plane, "n1", UNRESTRICTED)
        """On n1 too, with the same rights; no policy is about this account."""
        self.made: list[str] = []

    def add_nodes(self) -> None:
        """Where they are missing."""
        there = {item["metadata"]["name"] for item in self.plane.request("GET", "/api/v1/nodes")["items"]}
        for name in {"n1", "n2"} - there:
            self.plane.add_node(name)

    def make(self, path: str, obj: Json) -> Json:
        """Whatever it is, by the administrator. It goes with the last test."""
        stored = self.plane.request("POST", path, obj)
        self.made.append(f"{path}/{obj['metadata']['name']}")
        status = obj.get("status")
        return self.plane.request("PUT", f"{self.made[-1]}/status", {**stored, "status": status}) if status else stored

    def kubeconfig(self, node: str, account: str) -> Path:
        """For a real process, which has a token as that node's kubelet hands out."""
        bound = pod_on(self.plane, node, account)
        return self.plane.kubeconfig_for(namespace=NAMESPACE, service_account=account, bound_to=bound)


@contextmanager
def secured(plane: ControlPlane, overlay: Path) -> Iterator[Secured]:
    """With all that an overlay brings but what would run."""
    objects = [item for item in rendered(overlay) if item["kind"] not in NOT_INSTALLED]
    warning = [_warns(item) for item in objects if item["kind"] == f"{POLICY}Binding"]
    same = [_for_unrestricted(item) for item in objects if item["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    manifest = yaml.safe_dump_all(
        [*REPORT_TYPE, *objects, *warning, *same, *yaml.safe_load_all(WITHOUT_POLICIES), *yaml.safe_load_all(MORE_THAN_NEEDED)]
    )
    plane.apply(manifest)
    cluster = Secured(plane)
    try:
        yield cluster
    finally:
        # The policies go first: they are for this account only, but what they are about is taken away by others.
        # The type of reports stays, because other tests on this server have it installed once.
        gone = [item for item in yaml.safe_load_all(manifest) if item["kind"] != REPORT_TYPE[0]["kind"]]
        plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=yaml.safe_dump_all(gone))
        # No kubelet says that these have ended, once a test has taken their nodes away.
        plane.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
        for path in reversed(cluster.made):
            plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
        plane.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", KUBECTL_WAITS)
        plane.kubectl("delete", "node", "n1", "n2", "--ignore-not-found", KUBECTL_WAITS)


KUBECTL_WAITS = f"--timeout={LIMIT:.0f}s"


def built(folder: Path, *components: str) -> Path:
    """A kustomization of the base and these components."""
    to = os.path.relpath(DEPLOY, folder)
    build = {"kind": "Kustomization", "resources": [f"{to}/base"], "components": [f"{to}/components/{name}" for name in components]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
    return folder


def _for_unrestricted(binding: Json) -> Json:
    """What the sidecar's account may do, for the one that no policy is about."""
    meta = {**binding["metadata"], "name": f"{binding['metadata']['name']}-{UNRESTRICTED}"}
    return {**binding, "metadata": meta, "subjects": [{"kind": "ServiceAccount", "name": UNRESTRICTED, "namespace": NAMESPACE}]}


def _warns(binding: Json) -> Json:
    meta = {**binding["metadata"], "name": f"{binding['metadata']['name']}-warns"}
    return {**binding, "metadata": meta, "spec": {**binding["spec"], "validationActions": ["Warn"]}}


# --- requests ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One that changes nothing, whatever is answered: it is a dry run."""

    method: str
    path: str
    content: Any = None
    content_type: str = "application/json"
    prepare: Callable[[Json], None] | None = field(default=None)
    """For a PUT: what to change in the object as it is stored."""

    def by(self, person: Person) -> tuple[int, str, list[str]]:
        """Status, what was said, and what each broken rule says."""
        content = self.content
        if self.prepare is not None:
            code, content = person.ask("GET", self.path)
            assert code == 200, content
            content = copy.deepcopy(content)
            self.prepare(content)
        code, answer = person.ask(self.method, f"{self.path}?dryRun=All", content, content_type=self.content_type)
        return code, str(answer.get("message", "")), [text for text in map(_rule, person.warned) if text]


def create(path: str, obj: Json) -> Request:
    return Request("POST", path, obj)


def patch(path: str, change: Json, *, content_type: str = MERGE_PATCH) -> Request:
    return Request("PATCH", path, change, content_type)


def delete(path: str) -> Request:
    return Request("DELETE", path)


def put(path: str, prepare: Callable[[Json], None]) -> Request:
    return Request("PUT", path, prepare=prepare)


_WARNING = re.compile(rf"Validation failed for {POLICY} '(?P<policy>[^']+)' with binding '[^']+': (?P<said>.*)", re.DOTALL)


def _rule(warning: str) -> str:
    """What the rule says; empty for a warning about something else."""
    found = _WARNING.fullmatch(warning)
    return found["said"] if found else ""


@dataclass(frozen=True)
class Abuse:
    """What a token can do where a role is all that restrains it, and the words of the one rule that stops it."""

    request: Request
    says: str

    def check(self, cluster: Secured, who: Person) -> None:
        code, said, _ = self.request.by(cluster.unrestricted)
        assert code in (200, 201), f"without policies: {said}"
        code, said, broken = self.request.by(who)
        assert code == 422, (code, said)
        assert self.says in said and "denied request" in said
        assert len(broken) == 1 and self.says in broken[0], broken


def allowed(request: Request, who: Person) -> None:
    code, said, broken = request.by(who)
    assert code in (200, 201) and not broken, (code, said, broken)


def in_force(request: Request, who: Person, says: str) -> None:
    until(lambda: any(says in text for text in request.by(who)[2]) and request.by(who)[0] == 422, says)


def type_checked(plane: ControlPlane) -> Json:
    """What the server warns of in each policy: it compares the expressions with its own types."""

    def judged() -> Json | None:
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
        found = {item["metadata"]["name"]: item for item in plane.request("GET", path)["items"]}
        ours = {name: item.get("status", {}).get("typeChecking") for name, item in found.items() if name.startswith("csi-node-sidecar")}
        return ours if ours and None not in ours.values() else None

    return until(judged, f"each {POLICY} is type-checked") or {}
