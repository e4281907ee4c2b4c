"""The memory limit that deploy/base sets holds on a cluster that is full of other drivers' claims and volumes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from hack.lib.control_plane import until
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.client import KubeClient, open_client
from tests.cluster.scenes import DAEMON_SET, IMAGES, NAMESPACE, SIDECAR, Installation, claim, image_archives
from tests.e2e.conftest import from_hack

FOREIGN = 10_000
LIMIT = 128
AT_ONCE = 24


@pytest.fixture(scope="module")
def full(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A cluster of its own, for it is never emptied again: that would take the controllers longer than everything else."""
    folder = tmp_path_factory.mktemp("full") / "state"
    running = from_hack("kubelets.cluster").Cluster.up(nodes=1, name=f"full-{os.getpid()}", folder=folder, leashed=True)
    try:
        running.load(*image_archives(*IMAGES))
        yield Installation(running)
    finally:
        running.down()


@pytest.fixture
def installed(full: Installation) -> Installation:
    full.install()
    return full


def test_ten_thousand_foreign_claims_and_volumes_fit_into_the_limit(installed: Installation) -> None:
    template = installed.get("daemonset", DAEMON_SET, f"--namespace={NAMESPACE}")["spec"]["template"]["spec"]
    limits = {item["name"]: item["resources"]["limits"]["memory"] for item in template["containers"]}
    assert limits[SIDECAR] == f"{LIMIT}Mi"
    before = {node.name: installed.restarts(node.name) for node in installed.cluster.nodes}
    installed.kubectl("create", "namespace", "foreign")
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "foreign"}}
    installed.apply(kind | {"provisioner": "foreign.example.com", "volumeBindingMode": "WaitForFirstConsumer"})
    asyncio.run(_fill(installed.cluster.kubeconfig))
    _check(installed, "while-", before)
    # A fresh process reads all of it at once.
    installed.kubectl("rollout", "restart", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}")
    installed.await_rollout()
    _check(installed, "after-", dict.fromkeys(before, 0))


def _check(installation: Installation, prefix: str, restarts: dict[str, int]) -> None:
    installation.apply(*(claim(f"limit-{prefix}{number}") for number in range(20)))
    # The controller that marks a claim for its provisioner has ten thousand others to look at.
    installation.await_volumes(f"limit-{prefix}", 20, seconds=240)
    for node, count in restarts.items():
        assert installation.restarts(node) == count
        assert _peak(installation, node) < LIMIT


def _peak(installation: Installation, node: str) -> float:
    """MiB that the process has ever held."""
    status = installation.cluster.node(node).run("cat", f"/proc/{installation.process_of(node)}/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found.group(1)) / 1024


async def _fill(kubeconfig: Any) -> None:
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:
        await _share_out(range(FOREIGN), lambda number: _make_foreign(kube, number))


async def _make_foreign(kube: KubeClient, number: int) -> None:
    """Neither is bound, nor could be: the volume controller takes them one by one, and compares each claim with all volumes that fit it."""
    name = f"foreign-{number}"
    wanted = claim(name, "foreign")
    wanted["metadata"]["namespace"] = "foreign"
    await kube.create(CLAIMS, wanted, namespace="foreign")
    spec = {
        "capacity": {"storage": "16Mi"},
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "foreign",
        "csi": {"driver": "foreign.example.com", "volumeHandle": name},
    }
    await kube.create(VOLUMES, {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


async def _share_out(numbers: Iterable[int], act: Any) -> None:
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            await act(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def test_the_limit_is_real(installed: Installation) -> None:
    """The kernel holds the container to it: without that the test above could not fail."""
    node = installed.cluster.nodes[0]
    group = node.run("sh", "-c", f"grep :memory: /proc/{installed.process_of(node.name)}/cgroup").strip().rpartition(":")[2]
    limit = node.run("sh", "-c", f"cat /sys/fs/cgroup/memory{group}/memory.limit_in_bytes")
    until(lambda: int(limit) == LIMIT << 20, "the limit", seconds=1)
