"""kubectl itself, against the simulated API server."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.lib.control_plane import binaries
from hack.sim.cluster import Cluster
from hack.sim.cluster.serve import self_signed, serving_cluster
from sidecar.kube.api import CLAIMS, NODES, PODS, STRATEGIC_MERGE_PATCH
from tests.harness.cluster_tools import new_cluster

pytestmark = pytest.mark.real_api  # not the server, but a program that is built in the same way

MANIFEST = """
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1024Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec: {nodeName: n1, containers: [{name: m, image: pause}]}
"""

Kubectl = Callable[..., str]


def _session(tmp_path: Path, session: Callable[[Kubectl, Cluster], None]) -> None:
    program = binaries("kubectl") / "kubectl"
    environment = {**os.environ, "HOME": str(tmp_path)}

    async def main() -> None:
        cluster = new_cluster()
        async with serving_cluster(cluster, token="", certificate=self_signed(tmp_path)) as served:
            file = served.kubeconfig(tmp_path / "kubeconfig")

            def kubectl(*args: str, input: str | None = None) -> str:
                command = [str(program), f"--kubeconfig={file}", *args]
                done = subprocess.run(command, input=input, capture_output=True, text=True, check=False, env=environment, timeout=30)
                assert done.returncode == 0, done.stderr
                return done.stdout

            await asyncio.to_thread(session, kubectl, cluster)

    asyncio.run(main())


def test_apply_get_describe_patch_and_delete(tmp_path: Path) -> None:
    def session(kubectl: Kubectl, cluster: Cluster) -> None:
        kubectl("apply", "-f", "-", input=MANIFEST)
        assert "pod/p unchanged" in kubectl("apply", "-f", "-", input=MANIFEST)
        shown = " ".join(kubectl("get", "pvc").split())
        assert shown == "NAME STATUS VOLUME CAPACITY ACCESS MODES STORAGECLASS AGE data Pending RWO fast 0s"
        assert "Finalizers:    [kubernetes.io/pvc-protection]" in kubectl("describe", "pvc", "data")
        kubectl("label", "pvc", "data", "tier=one")
        assert "data" in kubectl("get", "pvc", "-A", "-l", "tier=one")
        kubectl("delete", "pvc", "data", "--wait=false")
        kubectl("patch", "pvc", "data", "-p", '{"metadata":{"finalizers":null}}')
        assert cluster.store.find(CLAIMS, "data", "default") is None
        kubectl("create", "namespace", "other")
        kubectl("create", "configmap", "c", "-n", "other", "--from-literal=a=b")
        kubectl("delete", "configmap", "c", "-n", "other")

    _session(tmp_path, session)


def test_drain(tmp_path: Path) -> None:
    def session(kubectl: Kubectl, cluster: Cluster) -> None:
        kubectl("apply", "-f", "-", input=MANIFEST)
        done = {"status": {"phase": "Succeeded"}}
        cluster.patch(PODS, "p", done, content_type=STRATEGIC_MERGE_PATCH, namespace="default", subresource="status")
        assert "pod/p evicted" in kubectl("drain", "n1", "--force")
        node = cluster.store.find(NODES, "n1")
        assert node is not None and node["spec"]["unschedulable"]
        assert cluster.store.find(PODS, "p", "default") is None

    _session(tmp_path, session)
