"""The memory limit that deploy/base sets holds on a cluster that is full of other drivers' claims and volumes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.lib.control_plane import until
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.client import KubeClient, open_client
from tests.cluster.conftest import Shared
from tests.cluster.scenes import DAEMON_SET, DEPLOY, NAMESPACE, SIDECAR, Installation, container, kustomized, the_daemon_set

FOREIGN = 10_000
LIMIT = 128
AT_ONCE = 24


@pytest.fixture
def full(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """A cluster of its own, for it is never emptied again: that would take the controllers longer than everything else."""
    running = shared.up(nodes=1)
    scene = Installation(running, "scenario", kustomized(running, DEPLOY / "base"))
    request.node.scene = scene
    scene.install()
    yield scene
    shared.down()


def test_ten_thousand_foreign_claims_and_volumes_fit_into_the_limit(full: Installation) -> None:
    limits = container(the_daemon_set(full.objects), SIDECAR)["resources"]["limits"]
    assert limits == {"memory": f"{LIMIT}Mi"}
    # The kernel holds the container to it: without that the test could not fail.
    (node,) = full.cluster.nodes
    limit_of = 'cat /sys/fs/cgroup/memory"$0"/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup"$0"/memory.max'
    group = node.run("sh", "-c", f"grep -E ':memory:|^0::' /proc/{full.process_of(node.name)}/cgroup | head -n 1").strip()
    assert int(node.run("sh", "-c", limit_of, group.rpartition(":")[2])) == LIMIT << 20

    full.kubectl("create", "namespace", "foreign")
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "foreign"}}
    full.apply(kind | {"provisioner": "foreign.example.com", "volumeBindingMode": "WaitForFirstConsumer"})
    asyncio.run(fill(full.cluster.kubeconfig))
    full.make_claims("while-", 20)
    await_volumes(full, 20)
    check(full)
    # A fresh process reads all of it at once.
    full.kubectl("rollout", "restart", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}")
    full.await_rollout()
    full.make_claims("after-", 20)
    await_volumes(full, 40)
    check(full)


def await_volumes(scene: Installation, count: int) -> None:
    """The controller that marks a claim for its provisioner, and binds it, has ten thousand others to look at."""
    until(lambda: len(scene.volumes()) == count, f"{count} volumes", seconds=200)


def check(scene: Installation) -> None:
    (node,) = scene.cluster.nodes
    assert scene.restarts(node.name) == 0
    found = re.search(r"VmHWM:\s+(\d+) kB", node.run("cat", f"/proc/{scene.process_of(node.name)}/status"))
    assert found
    assert int(found.group(1)) / 1024 < LIMIT, "MiB that the process has ever held"


async def fill(kubeconfig: Path) -> None:
    numbers = iter(range(FOREIGN))

    async def work(kube: KubeClient) -> None:
        for number in numbers:
            await make_foreign(kube, f"foreign-{number}")

    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(kube))


async def make_foreign(kube: KubeClient, name: str) -> None:
    """Neither is bound, nor could be: the volume controller takes them one by one, and compares each claim with all volumes that fit it."""
    meta, size = {"name": name}, {"storage": "16Mi"}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": "foreign", "resources": {"requests": size}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "namespace": "foreign"}, "spec": wish}
    await kube.create(CLAIMS, claim, namespace="foreign")
    spec = {
        "capacity": size,
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "foreign",
        "csi": {"driver": "foreign.example.com", "volumeHandle": name},
    }
    await kube.create(VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec})
