"""Proof that the control plane the other tests stand on is a real one: it refuses, remembers, forgets, schedules and runs pods.

What our sidecar does on it is the business of the other files here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ApiError, ControlPlane, ControlPlaneError, Json, binaries, until
from hack.lib.patience import deadline

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PODS = "/api/v1/namespaces/default/pods"

LIMITED_ACCOUNT = """
{apiVersion: v1, kind: ServiceAccount, metadata: {name: limited, namespace: default}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: limited, namespace: default}
rules:
- {apiGroups: [""], resources: [persistentvolumeclaims], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: limited}
subjects:
- {kind: ServiceAccount, name: limited, namespace: default}
"""

POD_WAITED_FOR_BY_ITS_CLAIM = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: late}
provisioner: mock.csi-node-sidecar.io
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec:
  storageClassName: late
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: consumer, namespace: default}
spec:
  containers: [{name: main, image: none}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"""

# Starts an API server, says where, and waits to be killed.
STARTER = """
import sys, time
from pathlib import Path
from hack.lib.control_plane import ControlPlane
cluster = ControlPlane(Path(sys.argv[1]), Path(sys.argv[2]))
cluster.start()
print(cluster.etcd_url, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def bin_dir() -> Path:
    return binaries("core", "kwok")


@pytest.fixture(scope="module")
def api(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("api")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def full(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("full"), components=ALL_COMPONENTS) as cluster:
        cluster.add_node("node-1", {"zone": "a"})
        yield cluster


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}


def test_it_is_the_pinned_kubernetes(api: ControlPlane) -> None:
    pins = (REPOSITORY / "hack" / "go" / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {api.request('GET', '/version')['gitVersion']}\n" in pins


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(api: ControlPlane) -> None:
    api.apply(LIMITED_ACCOUNT)
    limited = f"--kubeconfig={api.kubeconfig_for(namespace='default', service_account='limited')}"

    def refusal(path: str) -> str:
        try:
            api.kubectl(limited, "get", "--raw", path)
        except ControlPlaneError as error:
            return str(error)
        return ""

    until(lambda: not refusal(CLAIMS), "the role is in force")
    assert "(Forbidden)" in refusal("/api/v1/nodes")
    assert "system:serviceaccount:default:limited" in refusal("/api/v1/nodes")


@pytest.mark.parametrize("end", ["stop_apiserver", "kill_apiserver"])
def test_objects_outlive_the_api_server(api: ControlPlane, end: str) -> None:
    name, url = end.replace("_", "-"), api.url
    made = api.request("POST", "/api/v1/namespaces/default/configmaps", config_map(name))
    getattr(api, end)()
    with pytest.raises(urllib.error.URLError, match="refused"):
        api.request("GET", "/version")
    api.start_apiserver()
    assert api.request("GET", f"/api/v1/namespaces/default/configmaps/{name}") == made
    assert api.url == url


def test_a_watch_from_compacted_history_is_gone(api: ControlPlane) -> None:
    old = api.request("POST", "/api/v1/namespaces/default/configmaps", config_map("old"))["metadata"]["resourceVersion"]
    new = api.request("POST", "/api/v1/namespaces/default/configmaps", config_map("new"))["metadata"]["resourceVersion"]
    assert api.compact() >= int(new)
    api.kill_apiserver()
    api.start_apiserver()
    assert watch_answer(api, old)["code"] == 410


def watch_answer(cluster: ControlPlane, resource_version: str) -> Json:
    """A server may refuse a watch at once or as its first event."""
    try:
        query = f"watch=true&timeoutSeconds=1&resourceVersion={resource_version}"
        event = cluster.request("GET", f"/api/v1/namespaces/default/configmaps?{query}")
    except ApiError as refusal:
        return {"code": refusal.status}
    answer: Json = event["object"]
    return answer


def test_a_node_gets_ready_and_runs_a_scheduled_pod(full: ControlPlane) -> None:
    until(lambda: conditions(full, "/api/v1/nodes/node-1").get("Ready") == "True", "node-1 is Ready")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"zone": "a"}},
    }
    full.request("POST", PODS, pod)
    until(lambda: full.request("GET", f"{PODS}/plain")["status"]["phase"] == "Running", "the pod runs")
    assert full.request("GET", f"{PODS}/plain")["spec"]["nodeName"] == "node-1"
    assert conditions(full, f"{PODS}/plain")["Ready"] == "True"
    full.request("DELETE", f"{PODS}/plain")
    until(lambda: not full.request("GET", PODS + "?fieldSelector=metadata.name=plain")["items"], "the pod is gone")


def conditions(cluster: ControlPlane, path: str) -> dict[str, str]:
    return {each["type"]: each["status"] for each in cluster.request("GET", path)["status"].get("conditions", [])}


def test_the_scheduler_selects_a_node_for_a_waiting_claim(full: ControlPlane) -> None:
    full.add_csinode("node-1", "mock.csi-node-sidecar.io", "mock-node", ["io.kubernetes.storage.mock/node"])
    full.apply(POD_WAITED_FOR_BY_ITS_CLAIM)

    def annotations() -> dict[str, str]:
        found: dict[str, str] = full.request("GET", f"{CLAIMS}/data")["metadata"].get("annotations", {})
        return found

    until(lambda: "volume.kubernetes.io/selected-node" in annotations(), "the claim has a node")
    assert annotations()["volume.kubernetes.io/selected-node"] == "node-1"
    until(lambda: "volume.kubernetes.io/storage-provisioner" in annotations(), "the volume controller asks the provisioner")


def test_a_silenced_node_ends_no_pod_until_it_is_revived(full: ControlPlane) -> None:
    full.add_node("node-2")
    spec = {"nodeName": "node-2", "containers": [{"name": "main", "image": "none"}]}
    full.request("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stuck"}, "spec": spec})
    until(lambda: full.request("GET", f"{PODS}/stuck")["status"]["phase"] == "Running", "the pod runs")
    full.silence_node("node-2")
    full.request("DELETE", f"{PODS}/stuck")
    time.sleep(1)  # there is no event for a thing that does not happen
    assert full.request("GET", f"{PODS}/stuck")["metadata"]["deletionTimestamp"]
    full.revive_node("node-2")
    until(lambda: not full.request("GET", PODS + "?fieldSelector=metadata.name=stuck")["items"], "the pod is gone")


def test_nothing_outlives_a_killed_parent(bin_dir: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", STARTER, str(bin_dir), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        etcd = parent.stdout.readline().strip()
        assert answers(etcd)
        parent.kill()
    end = deadline(5)
    while answers(etcd):
        assert time.monotonic() < end, "etcd still answers"
        time.sleep(0.05)


def answers(url: str) -> bool:
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/health", timeout=5).close()
    except OSError:
        return False
    return True


def test_what_cannot_be_started_is_named(bin_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"unknown components \['kubelet'\]: there are etcd, apiserver"):
        ControlPlane(bin_dir, tmp_path, components=["kubelet"])
    with pytest.raises(ControlPlaneError, match="etcd is missing: run hack/control-plane etcd"):
        ControlPlane(tmp_path, tmp_path).start()
    with pytest.raises(ControlPlaneError, match=r"(?s)apiserver ended with exit code .*no-such-flag"):
        ControlPlane(bin_dir, tmp_path, extra_args={"apiserver": ["--no-such-flag"]}).start()
