"""What a sidecar's token may do to virtual machines (`--guest-drain`): those of its own node that are to leave, and are left to it.

The type is of our own, with what is used of KubeVirt's. No KubeVirt ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.model import names
from tests.deploy.manifests import DEPLOY, NAMESPACE
from tests.harness.persons import ACCOUNT, UNRESTRICTED
from tests.harness.policies import Abuse, Request, Secured, allowed, built, create, delete, in_force, patch, secured

MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
TYPE = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualmachineinstances.kubevirt.io}
spec:
  group: kubevirt.io
  scope: Namespaced
  names: {kind: VirtualMachineInstance, plural: virtualmachineinstances, singular: virtualmachineinstance}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
BINDING = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: guest-drain}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: csi-node-sidecar-guest-drain}}
subjects:
- {{kind: ServiceAccount, name: {ACCOUNT}, namespace: {NAMESPACE}}}
- {{kind: ServiceAccount, name: {UNRESTRICTED}, namespace: {NAMESPACE}}}
"""


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    roles = (DEPLOY / "components" / "maintenance" / "roles.yaml").read_text()
    manifest = f"{TYPE}---\n{roles}---\n{BINDING}"
    plane.apply(manifest)
    until(lambda: plane.serves(MACHINES), "the API server serves virtual machines")
    with secured(plane, built(tmp_path_factory.mktemp("overlay"), "drain", "maintenance")) as made:
        for name, of in {
            "leaves": {},
            "elsewhere": {"node": "n2"},
            "stays": {"status": {}},
            "kubevirts": {"strategy": "LiveMigrate"},
            "nobodys": {"notes": {}},
            "begun": {"notes": BEGUN},
            "may-stay": {"notes": BEGUN, "status": {}},
        }.items():
            plane.request("POST", MACHINES, machine(name, **of))  # type: ignore[arg-type]
        in_force(noted("leaves"), made.nobody, "of its own node only")
        yield made
    plane.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(yaml.safe_load_all(manifest)))


KUBECONFIG = {names.GUEST_KUBECONFIG: "guest"}
BEGUN = {**KUBECONFIG, names.GUEST_DRAIN_STARTED: "2026-12-01T22:00:00Z"}


def machine(name: str, *, node: str = "n1", strategy: str = "External", status: Any = None, notes: Any = None) -> Json:
    meta = {"name": name, "labels": {"kubevirt.io/nodeName": node}, "annotations": KUBECONFIG if notes is None else notes}
    told = {"evacuationNodeName": node} if status is None else status
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta} | {
        "spec": {"evictionStrategy": strategy, "domain": {}},
        "status": told,
    }


def noted(name: str, **more: Json) -> Request:
    notes = {"metadata": {"annotations": {names.GUEST_DRAIN_STARTED: "2026-12-01T22:00:00Z"}}}
    return patch(f"{MACHINES}/{name}", {**notes, **more})


def test_it_notes_when_it_began_and_deletes_what_is_to_leave(cluster: Secured) -> None:
    for request in (noted("leaves"), delete(f"{MACHINES}/leaves")):
        allowed(request, cluster.n1)
        Abuse(request, "of its own node only").check(cluster, cluster.n2)


OTHERS = {
    "elsewhere": "of its own node only",
    "stays": "that are to leave",
    "kubevirts": "that are to leave",
    "nobodys": "that are to leave",
}


@pytest.mark.parametrize("name", OTHERS)
def test_it_touches_no_other_machine(cluster: Secured, name: str) -> None:
    for request in (noted(name), delete(f"{MACHINES}/{name}")):
        code, said, _ = request.by(cluster.n1)
        assert code == 422 and OTHERS[name] in said, (code, said)
        assert request.by(cluster.unrestricted)[0] == 200


CHANGES: list[Json] = [
    {"spec": {"evictionStrategy": "None"}},
    {"status": {"evacuationNodeName": None}},
    {"metadata": {"labels": {"kubevirt.io/nodeName": "n2"}}},
    {"metadata": {"finalizers": ["a.example/b"]}},
    {"metadata": {"annotations": {names.GUEST_KUBECONFIG: "another"}}},
    {"metadata": {"annotations": {names.GUEST_KUBECONFIG: None}}},
    {"metadata": {"annotations": {"mine": "1"}}},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_it_changes_nothing_else_of_a_machine(cluster: Secured, change: Json) -> None:
    Abuse(patch(f"{MACHINES}/leaves", change), "changes nothing else of it").check(cluster, cluster.n1)


def test_it_forgets_when_it_began_once_a_machine_may_stay_and_not_before(cluster: Secured) -> None:
    forget = {"metadata": {"annotations": {names.GUEST_DRAIN_STARTED: None}}}
    allowed(patch(f"{MACHINES}/may-stay", forget), cluster.n1)
    Abuse(patch(f"{MACHINES}/begun", forget), "for as long as it is to leave").check(cluster, cluster.n1)
    Abuse(noted("may-stay"), "that are to leave").check(cluster, cluster.n1)


def test_it_makes_none(cluster: Secured) -> None:
    assert create(MACHINES, machine("another")).by(cluster.n1)[0] == 403
