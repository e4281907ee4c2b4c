"""Drain decisions on a real control plane: the rights of the components, marks on nodes, what is told of them, and a `kubectl drain`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.lib.control_plane import REPOSITORY, ApiError, ControlPlane, until
from hack.lib.patience import LIMIT
from hack.lib.programs import Json, OurDriver, Process, Sidecar
from sidecar.model import names
from tests.harness.cluster import (
    DRAINER,
    HOME,
    LEASES,
    NODES,
    OWN_BUDGETS,
    OWN_DEPLOYMENTS,
    OWN_PODS,
    PODS,
    REPORTS,
    ROLE,
    Cluster,
    late,
)

COMPONENTS = REPOSITORY / "deploy" / "components"
PARTS = ("drain", "gate", "emptying", "reprovision", "node-loss")
EVENTS_OF_NODES = "/api/v1/namespaces/default/events"
STRATEGIC = "application/strategic-merge-patch+json"
JUDGING = ("--drain-report", "--node-drain-policy=NoSchedule")
GATE = ("--drain-gate-image=pause",)
EVACUATE = {"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}
SWIFT = 5.0
"""How many times faster a program runs whose minutes need not be waited for."""


def component(*parts: str) -> str:
    """What these components grant for the whole cluster, and their types, for the account of drains."""
    files = [COMPONENTS / part / name for part in parts for name in ("rbac.yaml", "crd.yaml") if (COMPONENTS / part / name).exists()]
    objects = [item for file in files for item in yaml.safe_load_all(file.read_text()) if item["kind"] not in ("Role", "RoleBinding")]
    for item in objects:
        for subject in item.get("subjects", ()):
            subject |= {"name": DRAINER, "namespace": HOME}
    return yaml.safe_dump_all(objects)


@pytest.fixture(scope="module")  # another file may have taken the components away
def drainer(plane: ControlPlane) -> Path:
    return drainer_of(plane)


def drainer_of(plane: ControlPlane) -> Path:
    """A kubeconfig with upstream's rights and those of all components, which are installed."""
    upstream = [item for item in yaml.safe_load_all(ROLE.read_text()) if item["kind"] in ("ServiceAccount", "ClusterRoleBinding")]
    for item in upstream:
        item["metadata"]["name"] = f"{DRAINER}-as-upstream" if item["kind"] == "ClusterRoleBinding" else DRAINER
        for subject in item.get("subjects", ()):
            subject["name"] = DRAINER
    plane.apply(f"{yaml.safe_dump_all(upstream)}---\n{component(*PARTS)}")
    until(lambda: plane.serves(REPORTS), "the API server serves reports")
    return plane.kubeconfig_for(namespace=HOME, service_account=DRAINER)


@pytest.fixture
def ground(plane: ControlPlane, drainer: Path, tmp_path: Path) -> Iterator[Ground]:
    with ground_on(plane, drainer, tmp_path) as mine:
        yield mine


@contextmanager
def ground_on(plane: ControlPlane, drainer: Path, folder: Path) -> Iterator[Ground]:
    mine = Ground(plane, folder, role=drainer)
    mine.begin()
    mine.grant((COMPONENTS / "gate" / "rbac.yaml").read_text(), DRAINER)
    try:
        yield mine
    finally:
        mine.clean()


class Ground(Cluster):
    """Where sidecars have the rights of the components, and judge."""

    def judge(self, driver: OurDriver, *args: str, kubeconfig: Path | None = None, speed: float = SWIFT) -> Sidecar:
        """A sidecar that judges drains, at five times the speed."""
        return self.sidecar(driver, *JUDGING, *args, kubeconfig=kubeconfig, speed=speed)

    def labels(self, node: str) -> dict[str, str]:
        return dict(self.get(NODES, node)["metadata"].get("labels") or {})

    def marks(self, node: str) -> dict[str, str]:
        """The annotations of a Node."""
        return self.notes(NODES, node)

    def condition(self, node: str, driver: OurDriver) -> tuple[str, str]:
        """Status and reason of whether it may be retired."""
        wanted = names.condition(driver.driver, names.RETIRE_READY)
        found = [item for item in self.get(NODES, node)["status"].get("conditions", ()) if item["type"] == wanted]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def await_verdict(self, driver: OurDriver, status: str, reason: str = "") -> None:
        def is_so() -> bool:
            found = self.condition(driver.node, driver)
            return found[0] == status and reason in ("", found[1])

        until(is_so, lambda: f"{driver.node} may be retired: {status} {reason}; {self.condition(driver.node, driver)}")

    def state(self, node: str, driver: OurDriver) -> str:
        return self.labels(node).get(names.of_driver(driver.driver, names.EVACUATION_STATE), "")

    def await_state(self, driver: OurDriver, state: str) -> None:
        until(lambda: self.state(driver.node, driver) == state, f"the evacuation of {driver.node} is {state or 'none'}")

    def change(self, node: str, change: Json, *, status: bool = False) -> Json:
        return self.patch(NODES, f"{node}{'/status' if status else ''}", change, content_type=STRATEGIC)

    def cordon(self, node: str, on: bool = True) -> None:
        self.change(node, {"spec": {"unschedulable": on or None}})

    def taint(self, node: str, on: bool = True) -> None:
        self.put_taint(node, EVACUATE if on else {**EVACUATE, "effect": ""})

    def put_taint(self, node: str, taint: Json) -> None:
        """Instead of another with its key; one without an effect takes that away. The list is one value, which many write."""
        while True:
            found = self.get(NODES, node)
            others = [item for item in found["spec"].get("taints", ()) if item["key"] != taint["key"]]
            spec = {"taints": [*others, taint] if taint["effect"] else others}
            try:
                self.change(node, {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": spec})
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return

    def report(self, node: str, driver: OurDriver) -> Json:
        """Its status, which is written a moment after the report is made."""
        found: Json = self.get(REPORTS, names.drain_report(node, driver.driver)).get("status", {})
        return found

    def leases(self) -> list[tuple[str, str]]:
        """Driver and holding node of each turn to be evacuated that is taken."""
        uids = {item["metadata"]["uid"]: item["metadata"]["name"] for item in self.items(NODES)}
        taken = [item for item in self.items(LEASES) if names.SLOT_FOR in item["metadata"].get("labels", {})]
        held = ((item["metadata"]["labels"][names.SLOT_FOR], item["spec"].get("holderIdentity") or "") for item in taken)
        return sorted((driver, uids.get(holder.partition("/")[0], holder)) for driver, holder in held)

    def gate_stands(self) -> bool:
        """With its guard, which runs, and its budget, which the disruption controller has counted."""
        counted = [item for item in self.items(OWN_BUDGETS) if item.get("status", {}).get("expectedPods")]
        running = any(item["status"].get("phase") == "Running" for item in self.items(OWN_PODS))
        return bool(self.items(OWN_DEPLOYMENTS) and counted and running)

    def ready(self, path: str = PODS) -> dict[str, str]:
        """By pod that is ready: its node."""
        found = {}
        for item in self.items(path):
            is_so = any(one["type"] == "Ready" and one["status"] == "True" for one in item["status"].get("conditions") or ())
            if is_so and not item["metadata"].get("deletionTimestamp"):
                found[item["metadata"]["name"]] = item["spec"]["nodeName"]
        return found

    def told(self, reason: str, path: str) -> list[str]:
        """The names of the objects of which events with that reason tell."""
        return sorted(event["involvedObject"]["name"] for event in self.items(path) if event["reason"] == reason)

    @contextmanager
    def drain(self, node: str) -> Iterator[Drain]:
        """A `kubectl drain` as somebody types it, which goes on trying for as long as a test waits."""
        line = [str(self.plane.program("kubectl")), f"--kubeconfig={self.plane.kubeconfig}", "drain", node]
        with Drain(f"drain-{node}", [*line, "--ignore-daemonsets", f"--timeout={LIMIT:.0f}s"], self.folder) as running:
            yield running


class Drain(Process):
    def refusals(self) -> list[str]:
        return [line for line in self.output().splitlines() if "Cannot evict pod as it would violate" in line]


def explain(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`explain node`, as somebody calls it who is nowhere near the node."""
    return command(kubeconfig, "explain", "node", *words)


def command(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, without a terminal."""
    line = [sys.executable, "-m", "sidecar", *words, f"--kubeconfig={kubeconfig}"]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(line, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT)


def judged(done: subprocess.CompletedProcess[str]) -> list[Json]:
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: list[Json] = json.loads(done.stdout)
    return found


# --- objects ----------------------------------------------------------------------------------------------------------


def stateful_set(name: str, driver: OurDriver, replicas: int) -> Json:
    labels, spec = {"app": name}, {"accessModes": ["ReadWriteOnce"], "storageClassName": late(driver)}
    template: Json = {"metadata": {"name": "data"}, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}
    one: Json = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": one},
            "volumeClaimTemplates": [template],
        },
    }


def apart(app: str) -> Json:
    """An affinity: no two of them on one node."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def ephemeral(name: str, class_: str, replicas: int, *, kind: str = "Deployment") -> Json:
    """A workload each of whose pods has a generic ephemeral volume."""
    labels = {"app": name}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": class_, "resources": {"requests": {"storage": "1Gi"}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": wish}}}
    pod = {"containers": [{"name": "main", "image": "none"}], "volumes": [scratch], "terminationGracePeriodSeconds": 1}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def budget(name: str, labels: Mapping[str, str], **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": dict(labels)}, **spec},
    }


def accounts(namespace: str, *named: str, rules: Sequence[Json] = ()) -> str:
    """Service accounts that may do what these rules say everywhere, and nothing else."""
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}} for name in named
    ]
    rbac = "rbac.authorization.k8s.io"
    for name in named if rules else ():
        objects.append(
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": f"{namespace}-{name}"}, "rules": list(rules)}
        )
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        binding = {"roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": f"{namespace}-{name}"}, "subjects": [subject]}
        objects.append({"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"{namespace}-{name}"}, **binding})
    return yaml.safe_dump_all(objects)
