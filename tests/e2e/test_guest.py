"""The node in a virtual machine is drained through a second API server, that of the guest, before the machine is deleted to be moved.

Two real control planes. The type of virtual machines is of our own, with what is used of KubeVirt's. No KubeVirt ran.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, until
from hack.lib.programs import Json, pod
from sidecar.model import names
from tests.deploy.manifests import DEPLOY
from tests.e2e.test_guest_rights import TYPE
from tests.harness.cluster import NODES, PODS
from tests.harness.drains import Ground, component

MACHINES = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"
SECRETS = "/api/v1/namespaces/{namespace}/secrets"
GUEST = "worker-1"
SECRETS_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: guests-kubeconfigs}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
"""
ROLES = ("csi-node-sidecar-guest-drain", "guests-kubeconfigs")


@pytest.fixture(scope="module")
def guest(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("guest"), components=ALL_COMPONENTS) as running:
        yield running


@pytest.fixture
def mine(plane: ControlPlane, drainer: Path, ground: Ground) -> Iterator[Ground]:
    binding: Json = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    roles_of_people = (DEPLOY / "components" / "maintenance" / "roles.yaml").read_text()
    manifest = "\n---\n".join((component("maintenance"), roles_of_people, SECRETS_ROLE, TYPE))
    plane.apply(manifest)
    until(lambda: plane.serves("/apis/kubevirt.io/v1/virtualmachineinstances"), "the API server serves virtual machines")
    roles = [item for item in yaml.safe_load_all(component("maintenance")) if item["kind"] == "ClusterRoleBinding"]
    for name in ROLES:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
        plane.apply(yaml.safe_dump({**binding, "metadata": {"name": name}, "roleRef": role, "subjects": roles[0]["subjects"]}))
    yield ground
    plane.kubectl("delete", "clusterrolebinding", *ROLES)
    plane.kubectl("delete", "-f", "-", input=manifest)


def test_a_guest_is_drained_before_its_machine_goes_and_is_open_again_once_it_is_back(mine: Ground, guest: ControlPlane) -> None:
    guest.add_node(GUEST)
    for name in ("web-0", "web-1"):
        made = {"metadata": {"name": name}, "spec": {**pod(name)["spec"], "nodeName": GUEST, "terminationGracePeriodSeconds": 1}}
        guest.request("POST", "/api/v1/namespaces/default/pods", made)
    content = b64encode(guest.kubeconfig.read_bytes()).decode()
    mine.create(SECRETS, {"metadata": {"name": "guest"}, "data": {"value": content}})

    def machine(**status: str) -> None:
        meta = {"name": GUEST, "labels": {"kubevirt.io/nodeName": "n1"}, "annotations": {names.GUEST_KUBECONFIG: "guest"}}
        meta["finalizers"] = ["kubevirt.io/foreground"]
        kind = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta}
        mine.create(MACHINES, {**kind, "spec": {"evictionStrategy": "External"}, "status": status})

    def node() -> Json:
        return guest.request("GET", f"/api/v1/nodes/{GUEST}")

    with mine.driver("n1") as driver:
        mine.node("n1", driver)
        with mine.judge(driver, "--maintenance", "--guest-drain") as sidecar:
            sidecar.until_ready()
            machine(evacuationNodeName="n1")
            until(lambda: node()["spec"].get("unschedulable"), "the guest's node is cordoned")
            until(lambda: "deletionTimestamp" in mine.get(MACHINES, GUEST)["metadata"], "the machine is deleted", seconds=60)
            assert guest.request("GET", "/api/v1/namespaces/default/pods")["items"] == []
            mine.patch(MACHINES, GUEST, {"metadata": {"finalizers": None}})
            until(lambda: not mine.exists(MACHINES, GUEST), "it is gone")
            machine()
            until(lambda: not node()["spec"].get("unschedulable"), "the guest's node is open", seconds=60)
            assert names.GUEST_CORDONED not in (node()["metadata"].get("annotations") or {})
            mine.patch(MACHINES, GUEST, {"metadata": {"finalizers": None}})
    assert not mine.get(NODES, "n1")["spec"].get("unschedulable") and mine.items(PODS) == []
