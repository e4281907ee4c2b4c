"""A real control plane as one test sees it: names of drivers of its own, nodes, and two namespaces. What it makes goes with it.

Paths of namespaced collections have `{namespace}` in them for what people run, or `{own_namespace}` for what is the program's. Some of its
rights hold in its own namespace alone: beside it, a request that people's namespaces refuse would pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from hack.lib.control_plane import ALL_COMPONENTS, REPOSITORY, ApiError, ControlPlane, binaries, until
from hack.lib.programs import IMMEDIATE, LATE, Json, OurDriver, Sidecar, claim, pod, storage_class
from sidecar.kube.api import MERGE_PATCH
from sidecar.model import names

ROLE = REPOSITORY / "tests" / "e2e" / "upstream-role.yaml"
ACCOUNT, DRAINER, HOME = "csi-provisioner", "drainer", "default"
"""An account with upstream's rights, one with those of the components too (`tests.harness.drains`), and the namespace of both."""
CLAIMS, PODS = "/api/v1/namespaces/{namespace}/persistentvolumeclaims", "/api/v1/namespaces/{namespace}/pods"
EVENTS, SECRETS = "/api/v1/namespaces/{namespace}/events", "/api/v1/namespaces/{namespace}/secrets"
VOLUMES, NODES, NAMESPACES = "/api/v1/persistentvolumes", "/api/v1/nodes", "/api/v1/namespaces"
CLASSES, CSI_NODES, DRIVERS = (f"/apis/storage.k8s.io/v1/{name}" for name in ("storageclasses", "csinodes", "csidrivers"))
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/{own_namespace}/csistoragecapacities"
DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS = (
    f"/apis/apps/v1/namespaces/{{namespace}}/{name}" for name in ("daemonsets", "deployments", "statefulsets")
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{own_namespace}/leases"
BUDGETS = "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
OWN_PODS, OWN_BUDGETS, OWN_DAEMON_SETS, OWN_DEPLOYMENTS = (
    path.replace("{namespace}", "{own_namespace}") for path in (PODS, BUDGETS, DAEMON_SETS, DEPLOYMENTS)
)
REPORTS = f"/apis/{names.REPORT_VERSION}/nodedrainreports"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WORKLOADS = (DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS, OWN_DAEMON_SETS, OWN_DEPLOYMENTS)
SOON = ("--node-deployment-base-delay=100ms", "--node-deployment-max-delay=200ms")

_numbers = itertools.count(1)


class Cluster:
    """`role`: a kubeconfig with the rights of upstream's sample role, and no more."""

    attaches = False
    """Whether a VolumeAttachment is made for each use of a volume of the drivers here."""
    accounts = (ACCOUNT, DRAINER)
    """Who gets what upstream's role grants in the program's namespace."""

    def __init__(self, plane: ControlPlane, folder: Path, *, role: Path | None = None) -> None:
        self.plane, self.folder = plane, folder
        self.namespace = f"t{next(_numbers)}"
        self.own_namespace = f"{self.namespace}-own"
        self.driver_name = f"{self.namespace}.example.com"
        self.role = role or plane.kubeconfig_for(namespace=HOME, service_account=ACCOUNT)
        self._nodes: list[str] = []
        self._installed: set[str] = set()

    def begin(self) -> Self:
        for name in (self.namespace, self.own_namespace):
            self.create(NAMESPACES, {"metadata": {"name": name}})
        self.grant(ROLE.read_text(), *self.accounts)
        return self

    def grant(self, manifest: str, *accounts: str) -> None:
        """What this manifest grants in a namespace, these accounts get in the program's."""
        for item in yaml.safe_load_all(manifest):
            if item["kind"] in ("Role", "RoleBinding"):
                if "subjects" in item:
                    item["subjects"] = [{"kind": "ServiceAccount", "name": name, "namespace": HOME} for name in accounts]
                self.create(f"{RBAC}/namespaces/{{own_namespace}}/{item['kind'].lower()}s", item)

    # --- requests, as the administrator -------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        return path.replace("{namespace}", self.namespace).replace("{own_namespace}", self.own_namespace)

    def request(self, method: str, path: str, body: Json | None = None, *, content_type: str = "application/json") -> Json:
        return self.plane.request(method, self.path(path), body, content_type=content_type)

    def create(self, path: str, obj: Json) -> Json:
        """In the namespace of the path, whatever the object says."""
        _, namespaced, rest = self.path(path).partition("/namespaces/")
        if namespaced and "metadata" in obj:
            obj = {**obj, "metadata": {**obj["metadata"], "namespace": rest.partition("/")[0]}}
        return self.request("POST", path, obj)

    def items(self, path: str) -> list[Json]:
        """Of volumes and classes those of this test alone."""
        found: list[Json] = self.request("GET", path)["items"]
        mine = {VOLUMES: _driver_of_volume, CLASSES: lambda item: item["provisioner"], REPORTS: lambda item: item["spec"]["driver"]}
        return [item for item in found if self.driver_name in mine[path](item)] if path in mine else found

    def get(self, path: str, name: str) -> Json:
        return self.request("GET", f"{path}/{name}")

    def delete(self, path: str, name: str) -> None:
        self.request("DELETE", f"{path}/{name}")

    def patch(self, path: str, name: str, change: Json, *, content_type: str = MERGE_PATCH) -> Json:
        return self.request("PATCH", f"{path}/{name}", change, content_type=content_type)

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return self.plane.kubectl(f"--namespace={self.namespace}", *args, input=input)

    def revision(self, path: str) -> str:
        """The moment from which on `history` is to tell."""
        return str(self.request("GET", path)["metadata"]["resourceVersion"])

    def history(self, path: str, since: str) -> list[Json]:
        return self.plane.history(self.path(path), since=since)

    def exists(self, path: str, name: str) -> bool:
        return any(item["metadata"]["name"] == name for item in self.items(path))

    def names(self, path: str) -> set[str]:
        return {item["metadata"]["name"] for item in self.items(path)}

    def versions(self, *paths: str) -> dict[str, str]:
        return {f"{path}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for path in paths for item in self.items(path)}

    def phase(self, path: str, name: str) -> str:
        return str((self.get(path, name).get("status") or {}).get("phase"))

    def events(self, name: str) -> list[Json]:
        return self.items(f"{EVENTS}?fieldSelector=involvedObject.name%3D{name}")

    def notes(self, path: str, name: str) -> dict[str, str]:
        return dict(self.get(path, name)["metadata"].get("annotations") or {})

    # --- what a test puts there ---------------------------------------------------------------------------------------

    def driver(self, node: str = "n1", *, name: str = "", pools: Mapping[str, str] | None = None, args: Sequence[str] = ()) -> OurDriver:
        """`name`: of a second driver. Each has a folder of its own, since its socket, its state and its log are named by the node alone."""
        full = f"{name}.{self.driver_name}" if name else self.driver_name
        folder = self.folder / (name or "d")
        folder.mkdir(exist_ok=True)
        return OurDriver(folder, node=node, name=full, pools=pools, args=args)

    def sidecar(
        self, driver: OurDriver, *args: str, kubeconfig: Path | None = None, environ: Mapping[str, str] | None = None, speed: float = 1.0
    ) -> Sidecar:
        return Sidecar(
            driver.log.parent,
            node=driver.node,
            address=driver.socket,
            kubeconfig=kubeconfig or self.role,
            args=args,
            environ={"NAMESPACE": self.own_namespace, "POD_NAME": f"sidecar-{driver.node}", **(environ or {})},
            speed=speed,
        )

    def classes(self, driver: OurDriver, *, capacity: bool = False, **parameters: str) -> None:
        """A class that binds late and one that binds at once: `late-DRIVER`, `now-DRIVER`."""
        if driver.driver not in self._installed:
            self._installed.add(driver.driver)
            self.create(
                DRIVERS, {"metadata": {"name": driver.driver}, "spec": {"storageCapacity": capacity, "attachRequired": self.attaches}}
            )
            self.create(CLASSES, storage_class(late(driver), driver.driver, LATE, **parameters))
            self.create(CLASSES, storage_class(now(driver), driver.driver, IMMEDIATE, **parameters))

    def node(self, name: str, *drivers: OurDriver, capacity: bool = False, place: str = "", classes: bool = True) -> None:
        """With what a kubelet tells of these drivers, and with their classes. `place`: what its topology says, if not its name."""
        self._nodes.append(name)
        self.plane.add_node(name, {driver.key: place or name for driver in drivers})
        told = [{"name": driver.driver, "nodeID": name, "topologyKeys": [driver.key]} for driver in drivers]
        csi_node = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": told}}
        self.create(CSI_NODES, csi_node)
        for driver in drivers if classes else ():
            self.classes(driver, capacity=capacity)
        until(lambda: _is_ready(self.get(NODES, name)), f"{name} is Ready")

    def forget_node(self, name: str) -> None:
        """The Node is deleted, with what garbage collection would take."""
        self._nodes.remove(name)
        self.delete(NODES, name)
        self.delete(CSI_NODES, name)

    def bound(self, *claims: str) -> None:
        until(lambda: all(self.phase(CLAIMS, name) == "Bound" for name in claims), f"{claims} are bound")

    def use(self, name: str, driver: OurDriver) -> None:
        """A claim whose volume lies on the driver's node, and a pod that uses it there."""
        self.create(CLAIMS, claim(name, late(driver)))
        self.create(PODS, pod(name, name, nodeSelector={"kubernetes.io/hostname": driver.node}))
        until(lambda: self.phase(PODS, name) == "Running", f"{name} runs")

    def leave(self, name: str) -> None:
        """Its pod goes, the claim stays."""
        self.delete(PODS, name)
        until(lambda: not self.exists(PODS, name), f"pod {name} is gone")

    def give_up(self, name: str) -> None:
        volume = self.get(CLAIMS, name)["spec"]["volumeName"]
        self.delete(CLAIMS, name)
        until(lambda: not self.exists(VOLUMES, volume), f"the volume of {name} is gone")

    def volume_of(self, claim_name: str) -> Json:
        return self.get(VOLUMES, self.get(CLAIMS, claim_name)["spec"]["volumeName"])

    # --- the end ------------------------------------------------------------------------------------------------------

    def clean(self) -> None:
        """The namespaces first, so that nobody makes anything there again. The finalizers of drivers that are gone are taken off."""
        for name in (self.namespace, self.own_namespace):
            self.delete(NAMESPACES, name)
        for path in (*WORKLOADS, BUDGETS, OWN_BUDGETS):
            self.request("DELETE", path)
        for path in (PODS, OWN_PODS, CLAIMS, VOLUMES):
            for item in self.items(path):
                self._force(f"{path}/{item['metadata']['name']}")
        for path in (CLASSES, *((REPORTS,) if self.plane.serves(REPORTS) else ())):
            for item in self.items(path):
                self._force(f"{path}/{item['metadata']['name']}")
        for name in self._installed:
            self._force(f"{DRIVERS}/{name}")
        for name in self._nodes:
            self._force(f"{NODES}/{name}")
            self._force(f"{CSI_NODES}/{name}")

    def _force(self, path: str) -> None:
        try:
            self.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            self.request("DELETE", f"{path}?gracePeriodSeconds=0")
        except ApiError as error:
            if error.status != 404:
                raise


def _driver_of_volume(volume: Json) -> str:
    return str(volume["spec"].get("csi", {}).get("driver", ""))


def _is_ready(node: Json) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in node.get("status", {}).get("conditions", ()))


def late(driver: OurDriver) -> str:
    return f"late-{driver.driver}"


def now(driver: OurDriver) -> str:
    return f"now-{driver.driver}"


def selected(name: str, class_: str, node: str = "n1", **more: Any) -> Json:
    """A claim for which the scheduler has chosen this node."""
    return claim(name, class_, annotations={names.SELECTED_NODE: node}, **more)


def after_looks(*sidecars: Sidecar, looks: int = 2, at: str) -> None:
    """Returns when each has looked so often since: what has not happened by then, it has decided against.

    `at`: what the label `name` of that metric says, which is a queue or `gone nodes`; `curl …/metrics | grep looks_total` lists them.
    """
    assert at in LOOKED_AT, f"nothing looks at {at!r}"
    count = {sidecar: sidecar.metric(LOOKS, name=at) for sidecar in sidecars}
    for sidecar, before in count.items():
        until(lambda sidecar=sidecar, before=before: sidecar.metric(LOOKS, name=at) >= before + looks, f"{sidecar.name} looks at {at}")  # type: ignore[misc]


LOOKS = "csi_node_sidecar_looks_total"
LOOKED_AT = ("claims", "volumes", "csistoragecapacity", "drain", "gone nodes")


@contextmanager
def own_part(plane: ControlPlane, folder: Path, *, role: Path | None = None) -> Iterator[Cluster]:
    cluster = Cluster(plane, folder, role=role).begin()
    try:
        yield cluster
    finally:
        cluster.clean()


# --- fixtures, for a conftest to import ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def bin_dir() -> Path:
    return binaries("core", "kwok")


@pytest.fixture(scope="session")
def plane(bin_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(bin_dir, tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as running:
        running.apply(ROLE.read_text())
        yield running


@pytest.fixture(scope="session")
def role(plane: ControlPlane) -> Path:
    """A kubeconfig whose rights are those of upstream's sample role, no more."""
    return plane.kubeconfig_for(namespace=HOME, service_account=ACCOUNT)


@pytest.fixture
def cluster(plane: ControlPlane, role: Path, tmp_path: Path) -> Iterator[Cluster]:
    with own_part(plane, tmp_path, role=role) as mine:
        yield mine


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failed test shows the last lines of what its programs logged: the folder is gone when somebody wants to look."""
    outcome: Any = yield
    report = outcome.get_result()
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.when == "call" and report.failed and folder is not None:
        for log in sorted(folder.glob("**/*.log")):
            lines = [line for line in log.read_text(errors="replace").splitlines() if '"Decided"' not in line]
            report.sections.append((log.name, "\n".join(line[:400] for line in lines[-60:])))
