"""What the tests of drain decisions put on the control plane: the component's type and rights, nodes with drivers, volumes on them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hack.lib.control_plane import REPOSITORY, ApiError, ControlPlane, until
from hack.lib.patience import deadline
from hack.lib.programs import LATE, Json, OurDriver, Sidecar, claim, pod, storage_class
from sidecar.drain.facts.recent_use import LATELY
from sidecar.model import names
from tests.e2e.conftest import CLAIMS, CLASSES, DRIVERS, NODES, PODS, VOLUMES, Cluster

T = TypeVar("T")

COMPONENTS = REPOSITORY / "deploy" / "components"
DRAIN = ("drain/crd.yaml", "drain/rbac.yaml", "gate/rbac.yaml")
"""The type of the report, and the rights of both components."""
ACCOUNT, NAMESPACE = "csi-provisioner", "default"
REPORTS = f"/apis/{names.REPORT_VERSION}/nodedrainreports"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
STATEFUL_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
STRATEGIC = "application/strategic-merge-patch+json"
JUDGING = ("--drain-report", "--node-drain-policy=NoSchedule")
AFTER_USE = LATELY + 30.0
"""Seconds until a volume counts as idle at the latest, whose pod has left it."""
EVACUATE = {"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}


def component(*files: str) -> str:
    """These files of components, with their rights for the account that sidecars have here."""
    objects = [item for file in files for item in yaml.safe_load_all((COMPONENTS / file).read_text())]
    for item in objects:
        if item["kind"] in ("Role", "RoleBinding"):
            item["metadata"]["namespace"] = NAMESPACE
        for subject in item.get("subjects", ()):
            subject |= {"name": ACCOUNT, "namespace": NAMESPACE}
    return yaml.safe_dump_all(objects)


@contextlib.contextmanager
def installed(plane: ControlPlane, *more: str) -> Iterator[None]:
    """What drain decisions need, and these files of other components."""
    manifest = component(*DRAIN, *more)
    plane.apply(manifest)
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    yield
    plane.kubectl("delete", "--ignore-not-found", "--wait=true", "--timeout=60s", "-f", "-", input=manifest)


class Ground:
    """Nodes, drivers on them and what is stored about both."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.plane = cluster.plane
        self._folder = folder
        self._installed: set[str] = set()

    # --- what is put there ------------------------------------------------------------------------------------------

    def driver(self, name: str, node: str, *, pools: Mapping[str, str] | None = None) -> OurDriver:
        """Each in a folder of its own: its socket, its state and its log are named by the node alone."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return OurDriver(folder, node=node, name=name, pools=pools)

    def sidecar(self, driver: OurDriver, *args: str, kubeconfig: Path | None = None) -> Sidecar:
        folder, role = self._folder / driver.driver, kubeconfig or self.cluster.role
        environ = {"NAMESPACE": NAMESPACE}
        return Sidecar(folder, node=driver.node, address=driver.socket, kubeconfig=role, args=(*JUDGING, *args), environ=environ)

    def node(self, name: str, *drivers: OurDriver) -> None:
        """With what a kubelet tells of these drivers; each has a class late-NAME."""
        self.plane.add_node(name, {driver.key: name for driver in drivers})
        told = [{"name": driver.driver, "nodeID": name, "topologyKeys": [driver.key]} for driver in drivers]
        csi_node = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": told}}
        self.plane.request("POST", "/apis/storage.k8s.io/v1/csinodes", csi_node)
        for driver in drivers:
            self._install(driver)
        until(lambda: _is_ready(self.get(name)), f"{name} is Ready")

    def _install(self, driver: OurDriver) -> None:
        if driver.driver in self._installed:
            return
        self._installed.add(driver.driver)
        self.cluster.create(DRIVERS, {"metadata": {"name": driver.driver}, "spec": {"storageCapacity": False, "attachRequired": False}})
        self.cluster.create(CLASSES, storage_class(late(driver), driver.driver, LATE))

    def use(self, name: str, driver: OurDriver) -> None:
        """A claim whose volume lies on the driver's node, and a pod that uses it there."""
        self.cluster.create(CLAIMS, claim(name, late(driver)))
        self.cluster.create(PODS, pod(name, name, nodeSelector={"kubernetes.io/hostname": driver.node}))
        until(lambda: self.cluster.phase(PODS, name) == "Running", f"{name} runs", seconds=30)

    def leave(self, name: str) -> None:
        """Its pod goes, the claim stays."""
        self.cluster.delete(PODS, name)
        until(lambda: not self.cluster.exists(PODS, name), f"pod {name} is gone")

    def give_up(self, name: str) -> None:
        volume = self.cluster.get(CLAIMS, name)["spec"]["volumeName"]
        self.cluster.delete(CLAIMS, name)
        until(lambda: not self.cluster.exists(VOLUMES, volume), f"the volume of {name} is gone", seconds=30)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def get(self, node: str) -> Json:
        return self.cluster.get(NODES, node)

    def notes(self, node: str) -> dict[str, str]:
        return dict(self.get(node)["metadata"].get("annotations") or {})

    def labels(self, node: str) -> dict[str, str]:
        return dict(self.get(node)["metadata"].get("labels") or {})

    def condition(self, node: str, driver: OurDriver, kind: str = names.RETIRE_READY) -> tuple[str, str]:
        """Status and reason."""
        wanted = names.condition(driver.driver, kind)
        found = [item for item in self.get(node)["status"].get("conditions", ()) if item["type"] == wanted]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def state(self, node: str, driver: OurDriver) -> str:
        return self.labels(node).get(names.of_driver(driver.driver, names.EVACUATION_STATE), "")

    def patch(self, node: str, change: Json, *, kind: str = STRATEGIC, status: bool = False) -> Json:
        return self.plane.request("PATCH", f"{NODES}/{node}{'/status' if status else ''}", change, content_type=kind)

    def cordon(self, node: str, on: bool = True) -> None:
        self.patch(node, {"spec": {"unschedulable": on or None}})

    def taint(self, node: str, on: bool = True) -> None:
        self.put_taint(node, EVACUATE if on else {**EVACUATE, "effect": ""})

    def put_taint(self, node: str, taint: Json) -> None:
        """Instead of another with its key; one without an effect takes that away. The list is one value, which many write."""
        while True:
            found = self.get(node)
            others = [item for item in found["spec"].get("taints", ()) if item["key"] != taint["key"]]
            spec = {"taints": [*others, taint] if taint["effect"] else others}
            try:
                self.patch(node, {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec})
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return

    def report(self, node: str, driver: OurDriver) -> Json:
        """Its status, which is written a moment after the report is made."""
        found: Json = self.cluster.get(REPORTS, names.drain_report(node, driver.driver)).get("status", {})
        return found

    def leases(self, *drivers: OurDriver) -> list[tuple[str, str]]:
        """Driver and holding node of each place that is taken."""
        uids = {item["metadata"]["uid"]: item["metadata"]["name"] for item in self.cluster.items(NODES)}
        taken = [item for item in self.cluster.items(LEASES) if names.SLOT_FOR in item["metadata"].get("labels", {})]
        held = ((item["metadata"]["labels"][names.SLOT_FOR], item["spec"].get("holderIdentity") or "") for item in taken)
        return sorted((driver, uids.get(holder.partition("/")[0], holder)) for driver, holder in held)

    def versions(self) -> dict[str, str]:
        """Of all that sidecars write to for drain decisions."""
        paths = (NODES, REPORTS, LEASES, CLAIMS, VOLUMES, EVENTS)
        return {f"{path}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for path in paths for item in self._ours(path)}

    def _ours(self, path: str) -> list[Json]:
        """Of leases and events those of sidecars: others renew theirs all the time."""
        items = self.cluster.items(path)
        if path == LEASES:
            return [item for item in items if names.SLOT_FOR in item["metadata"].get("labels", {})]
        return [item for item in items if "example.com" in item["source"].get("component", "")] if path == EVENTS else items

    def clean(self) -> None:
        for path in (STATEFUL_SETS, BUDGETS):
            self.plane.request("DELETE", path)
        for item in self._ours(LEASES):
            self.cluster.delete(LEASES, item["metadata"]["name"])
        self.plane.request("DELETE", REPORTS)


def late(driver: OurDriver) -> str:
    return f"late-{driver.driver.partition('.')[0]}"


def of_drivers(marks: Mapping[str, str], *drivers: OurDriver) -> dict[str, str]:
    """Those labels or annotations that belong to the sidecars of these drivers alone."""
    prefixes = tuple(names.of_driver(driver.driver, "") for driver in drivers)
    return {key: value for key, value in marks.items() if key.startswith(prefixes)}


def still(read: Callable[[], T], *, seconds: float, within: float) -> T:
    """What it answers once it has answered the same for so long."""
    end, last, since = deadline(within), read(), time.monotonic()
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end, f"it never stayed the same for {seconds:.0f} s: {last}"
        time.sleep(0.25)
        if (now := read()) != last:
            last, since = now, time.monotonic()
    return last


def explain(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`explain node`, as somebody calls it who is nowhere near the node."""
    return command(kubeconfig, "explain", "node", *words)


def command(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, without a terminal."""
    line = [sys.executable, "-m", "sidecar", *words, f"--kubeconfig={kubeconfig}"]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(line, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)


def judged(done: subprocess.CompletedProcess[str]) -> list[Json]:
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


# --- objects ----------------------------------------------------------------------------------------------------------


def stored_volume(name: str, claim_name: str, driver: OurDriver, node: str) -> tuple[Json, Json]:
    """A volume on that node and the claim that has it, as if both had been made long ago."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    place = {"key": driver.key, "operator": "In", "values": [node]}
    spec: Json = {
        "capacity": size,
        "accessModes": modes,
        "storageClassName": late(driver),
        "persistentVolumeReclaimPolicy": "Delete",
        "csi": {"driver": driver.driver, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim_name},
    }
    wish = {"storageClassName": late(driver), "accessModes": modes, "resources": {"requests": size}, "volumeName": name}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim_name, "namespace": NAMESPACE}, "spec": wish},
    )


def stateful_set(name: str, driver: OurDriver, replicas: int) -> Json:
    labels, spec = {"app": name}, {"accessModes": ["ReadWriteOnce"], "storageClassName": late(driver)}
    template: Json = {"metadata": {"name": "data"}, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}
    one: Json = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": one},
            "volumeClaimTemplates": [template],
        },
    }


def budget(name: str, labels: Mapping[str, str], **spec: Any) -> Json:
    meta = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": {"selector": {"matchLabels": dict(labels)}, **spec},
    }


def _is_ready(node: Json) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in node.get("status", {}).get("conditions", ()))


def accounts(*named: str, rules: Sequence[Json] = ()) -> str:
    """Service accounts that may do what these rules say everywhere, and nothing else."""
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}} for name in named
    ]
    rbac = "rbac.authorization.k8s.io"
    for name in named if rules else ():
        objects.append({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
        binding = {"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}, "subjects": [subject]}
        objects.append({"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, **binding})
    return yaml.safe_dump_all(objects)
