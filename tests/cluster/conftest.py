"""One cluster with real kubelets for all tests here; where the machine cannot hold one, they are skipped aloud, and in CI they fail."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

from hack.lib.control_plane import REPOSITORY
from tests.cluster.aging import Aging, grow_old
from tests.cluster.draining import Drained
from tests.cluster.replicated import Retiring
from tests.cluster.scenes import IMAGES, SIDECAR, Installation, image_archives
from tests.e2e.conftest import from_hack
from tests.harness.not_tested import not_tested

kubelets: ModuleType = from_hack("kubelets.cluster")
errors: ModuleType = from_hack("kubelets.errors")
BUSYBOX = "busybox:dev"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/cluster/" in item.nodeid:
            item.add_marker(pytest.mark.real_api)
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def machine() -> None:
    """A machine that can hold a cluster; without it nothing of this folder is tested, and nobody shall overlook that."""
    needs = from_hack("kubelets.needs")
    try:
        needs.check(REPOSITORY)
    except errors.MachineLacks as lack:
        not_tested("a cluster on real kubelets", str(lack))


@pytest.fixture(scope="session")
def cluster(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two nodes with a busybox. It is leashed: killed though we may be, it ends with us."""
    folder = tmp_path_factory.mktemp("cluster") / "state"
    running = kubelets.Cluster.up(nodes=2, name=f"tests-{os.getpid()}", folder=folder, leashed=True)
    try:
        running.load(*image_archives("busybox"))
        yield running
    finally:
        running.down()


def pod(
    name: str, *command: str, node: str = "", spec: dict[str, Any] | None = None, container: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A pod with one busybox that ends at once when it is asked to."""
    one = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": list(command), **(container or {})}
    placed = {"nodeName": node} if node else {}
    body = {"containers": [one], "terminationGracePeriodSeconds": 0, **placed, **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def hack_cluster(*arguments: str, seconds: float = 120.0, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command as somebody at a shell gives it."""
    command: Sequence[str] = [sys.executable, str(REPOSITORY / "hack" / "cluster"), *arguments]
    return subprocess.run(command, input=input, capture_output=True, text=True, check=False, timeout=seconds)


@pytest.fixture(scope="session")
def loaded(cluster: Any) -> Installation:
    """All images are there, and nothing is installed yet."""
    cluster.load(*image_archives(*IMAGES))
    return Installation(cluster)


@pytest.fixture
def installed(loaded: Installation) -> Iterator[Installation]:
    """deploy/base runs on all nodes; what it leaves on their disks must be on the books, after every test."""
    loaded.install()
    yield loaded
    loaded.delete_claims("")  # of a test that failed half-way: the next ones are about something else
    loaded.check_books()


@pytest.fixture(scope="module")
def drained(loaded: Installation) -> Iterator[Drained]:
    """The overlay with the gate runs on all nodes; base is back afterwards."""
    found = Drained(loaded)
    found.install()
    yield found
    found.let_be()
    found.remove_daemon_set()
    found.uninstall()
    found.remove_component()
    loaded.install()
    loaded.check_books()


@pytest.fixture(scope="session")
def retiring(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Retiring]:
    """A cluster of its own, for its nodes come and go. Four: three replicas that share no node, and one node where one of them can go."""
    folder = tmp_path_factory.mktemp("retiring")
    running = kubelets.Cluster.up(nodes=4, name=f"retiring-{os.getpid()}", folder=folder / "state", leashed=True)
    try:
        running.load(*image_archives("sidecar", "driver", "busybox"))
        found = Retiring(Installation(running), folder / "manifests")
        found.install()
        yield found
    finally:
        running.down()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows what the nodes logged last: their disks are gone when somebody wants to look."""
    outcome: Any = yield
    report = outcome.get_result()
    given = getattr(item, "funcargs", {})
    running = given["retiring"].installation.cluster if "retiring" in given else given.get("cluster")
    if report.when == "call" and report.failed and running is not None:
        for node in running.nodes:
            lines = (node.place.disk / "var/log/kubelet.log").read_text(errors="replace").splitlines()
            report.sections.append((f"kubelet of {node.name}", "\n".join(line[:400] for line in lines[-40:])))
            with contextlib.suppress(Exception):  # the cluster may be in pieces, and what failed is to be told all the same
                said = Installation(running).logs(node.name, SIDECAR, "--tail=60").splitlines()
                report.sections.append((f"sidecar on {node.name}", "\n".join(line[:400] for line in said)))


@pytest.fixture(scope="session")
def aging(machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aging]:
    yield from grow_old(tmp_path_factory.mktemp("aging") / "state")
