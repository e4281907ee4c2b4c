"""A real control plane for the end-to-end tests of one process, with upstream's role; what a test makes on it, it removes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, binaries
from hack.lib.programs import Json

ROLE = Path(__file__).with_name("upstream-role.yaml")
CLAIMS, PODS = "/api/v1/namespaces/default/persistentvolumeclaims", "/api/v1/namespaces/default/pods"
VOLUMES, NODES = "/api/v1/persistentvolumes", "/api/v1/nodes"
CLASSES, CSI_NODES, DRIVERS = (f"/apis/storage.k8s.io/v1/{name}" for name in ("storageclasses", "csinodes", "csidrivers"))
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
DAEMON_SETS, DEPLOYMENTS = (f"/apis/apps/v1/namespaces/default/{name}" for name in ("daemonsets", "deployments"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder runs against a real kube-apiserver."""
    for item in items:
        if "tests/e2e/" in item.nodeid:
            item.add_marker(pytest.mark.real_api)


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    return binaries("core", "kwok", "mock-driver")


@pytest.fixture(scope="session")
def peer_binary() -> Path:
    """external-provisioner, built from its own module."""
    return binaries("csi-provisioner") / "csi-provisioner"


@pytest.fixture(scope="session")
def plane(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as running:
        running.apply(ROLE.read_text())
        yield running


@pytest.fixture(scope="session")
def role(plane: ControlPlane) -> Path:
    """A kubeconfig whose rights are those of upstream's sample role, no more."""
    return plane.kubeconfig_for(namespace="default", service_account="csi-provisioner")


class Cluster:
    """The control plane in the words of these tests."""

    def __init__(self, plane: ControlPlane, role: Path) -> None:
        self.plane = plane
        self.role = role

    def create(self, path: str, obj: Json) -> Json:
        return self.plane.request("POST", path, obj)

    def items(self, path: str) -> list[Json]:
        found: list[Json] = self.plane.request("GET", path)["items"]
        return found

    def get(self, path: str, name: str) -> Json:
        return self.plane.request("GET", f"{path}/{name}")

    def delete(self, path: str, name: str) -> None:
        self.plane.request("DELETE", f"{path}/{name}")

    def patch(self, path: str, name: str, change: Json) -> Json:
        return self.plane.request("PATCH", f"{path}/{name}", change, content_type="application/merge-patch+json")

    def revision(self, path: str) -> str:
        """The moment from which on `history` is to tell."""
        return str(self.plane.request("GET", path)["metadata"]["resourceVersion"])

    def history(self, path: str, since: str) -> list[Json]:
        return self.plane.history(path, since=since)

    def exists(self, path: str, name: str) -> bool:
        return any(item["metadata"]["name"] == name for item in self.items(path))

    def phase(self, path: str, name: str) -> str:
        return str((self.get(path, name).get("status") or {}).get("phase"))

    def events(self, name: str) -> list[Json]:
        return self.items(f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}")

    def clean(self) -> None:
        """What makes pods first, then pods, so that nothing holds a claim; finalizers of drivers that are gone are taken off by hand."""
        for path in (DAEMON_SETS, DEPLOYMENTS):
            self.plane.request("DELETE", path)
        for path in (PODS, CLAIMS):
            self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
        for path in (PODS, CLAIMS, VOLUMES):
            for item in self.items(path):
                self._force(path, item["metadata"])
        for path in (CLASSES, CSI_NODES, DRIVERS, CAPACITIES, NODES):
            self.plane.request("DELETE", path)

    def _force(self, path: str, meta: Json) -> None:
        nothing: Any = {"metadata": {"finalizers": None}}
        try:
            self.plane.request("PATCH", f"{path}/{meta['name']}", nothing, content_type="application/merge-patch+json")
            self.plane.request("DELETE", f"{path}/{meta['name']}?gracePeriodSeconds=0")
        except Exception as error:
            if getattr(error, "status", 0) != 404:
                raise


def from_hack(name: str) -> ModuleType:
    """A module below hack."""
    return importlib.import_module(f"hack.{name}")


@pytest.fixture
def cluster(plane: ControlPlane, role: Path) -> Iterator[Cluster]:
    cluster = Cluster(plane, role)
    yield cluster
    cluster.clean()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the last lines of what its programs logged: the folder is gone when somebody wants to look."""
    outcome: Any = yield
    report = outcome.get_result()
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and folder is not None:
        for log in sorted(folder.glob("*.log")):
            lines = [line for line in log.read_text(errors="replace").splitlines() if '"Decided"' not in line]
            report.sections.append((log.name, "\n".join(line[:400] for line in lines[-60:])))
