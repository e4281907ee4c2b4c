"""The words of the drain scenarios: an installation that decides about drains, what its nodes say, and a real `kubectl drain`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import REPOSITORY, until
from sidecar.drain.facts.recent_use import LATELY
from sidecar.model import names
from tests.cluster.scenes import DAEMON_SET, DRIVER, EXAMPLE, NAMESPACE, SIDECAR, STATEFUL_SET, Installation, Json, container

OVERLAY = REPOSITORY / "deploy" / "overlays" / "gated"
# The sandbox of every pod: it is on each node, and does nothing.
GUARD_IMAGE = "docker.io/library/pause:dev"
FLAGS = ("--node-drain-policy=Evacuate", "--drain-gate", f"--drain-gate-image={GUARD_IMAGE}")
PREFIX = names.of_driver(DRIVER, "")
STATE, STARTED, CLOSED = (names.of_driver(DRIVER, name) for name in (names.EVACUATION_STATE, names.EVACUATION_STARTED_AT, names.CLOSED_AT))
# As kubectl words the answer 429 to an eviction, which it then repeats every five seconds.
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget"
MAY_BE = 30.0
# A volume counts as used for a while after its pod has left it.
AFTER_USE = LATELY + MAY_BE
# The label of nodes that have a sidecar: the kubelet puts its own labels back within seconds.
RUNS = "scenario.example.com/runs"


class Drained:
    """The overlay with the gate, or other objects in its place, on all nodes."""

    def __init__(self, installation: Installation, *, flags: Sequence[str] = FLAGS, objects: list[Json] | None = None) -> None:
        self.installation = installation
        self.kubectl = installation.kubectl
        self.objects = list(yaml.safe_load_all(self.kubectl("kustomize", str(OVERLAY)))) if objects is None else objects
        for found in self.objects:
            if found["kind"] == "DaemonSet":
                _with_flags(container(found, SIDECAR)["args"], flags)
                found["spec"]["template"]["spec"]["nodeSelector"][RUNS] = "here"

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self.installation.cluster.nodes]

    # --- installing -------------------------------------------------------------------------------------------------

    def install(self) -> None:
        self.kubectl("label", "node", "--all", f"{RUNS}=here", "--overwrite")
        self.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(self.objects))
        self.installation.await_rollout()
        for node in self.nodes:
            until(lambda node=node: self.condition(node) != ("", ""), f"the first report on {node}", seconds=MAY_BE)  # type: ignore[misc]

    def remove_daemon_set(self) -> None:
        where = f"--namespace={NAMESPACE}"
        self.kubectl("delete", "daemonset", DAEMON_SET, where, "--ignore-not-found", "--cascade=foreground", seconds=90)

    def remove_component(self) -> None:
        """All that the overlay has and the base has not."""
        base = {_key(item) for item in yaml.safe_load_all(self.kubectl("kustomize", str(REPOSITORY / "deploy" / "base")))}
        extra = [item for item in self.objects if _key(item) not in base]
        self.kubectl("delete", "--ignore-not-found", "--filename=-", input=yaml.safe_dump_all(extra), seconds=90)
        self.kubectl("label", "node", "--all", f"{RUNS}-")

    def sidecar_command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the program, as somebody gives it who is nowhere near a node."""
        line = [sys.executable, "-m", "sidecar", *words, f"--kubeconfig={self.installation.cluster.kubeconfig}"]
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=60)

    def uninstall(self) -> str:
        done = self.sidecar_command("uninstall", "--driver", DRIVER)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    # --- what nodes say ---------------------------------------------------------------------------------------------

    def node(self, name: str) -> Json:
        return self.installation.get("node", name)

    def label(self, node: str, key: str) -> str:
        return str(self.node(node)["metadata"]["labels"].get(key, ""))

    def note(self, node: str, key: str) -> str:
        return str((self.node(node)["metadata"].get("annotations") or {}).get(key, ""))

    def condition(self, node: str, kind: str = names.RETIRE_READY) -> tuple[str, str]:
        """Status and reason."""
        type_ = names.condition(DRIVER, kind)
        found = [item for item in self.node(node)["status"]["conditions"] if item["type"] == type_]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    def report(self, node: str) -> Json:
        found: Json = self.installation.get("nodedrainreport", names.drain_report(node, DRIVER)).get("status", {})
        return found

    def guards(self, node: str) -> list[Json]:
        """The gate's pods."""
        selector = f"--selector={names.GUARDED_NODE}={self.node(node)['metadata']['uid']}"
        return self.installation.items("pods", f"--namespace={NAMESPACE}", selector)

    def budgets(self, node: str) -> list[Json]:
        selector = f"--selector={names.GUARDED_NODE}={self.node(node)['metadata']['uid']}"
        return self.installation.items("poddisruptionbudgets", f"--namespace={NAMESPACE}", selector)

    def await_gate(self, node: str) -> str:
        """The name of the guard, which runs."""

        def runs() -> str:
            guards = [item for item in self.guards(node) if item["status"].get("phase") == "Running"]
            return guards[0]["metadata"]["name"] if len(guards) == 1 and self.budgets(node) else ""

        return until(runs, f"the gate of {node} stands", seconds=MAY_BE)

    def traces(self) -> list[str]:
        """Everything that sidecars of this driver have put on nodes, or made for them."""
        found = []
        for node in self.installation.items("nodes"):
            meta, conditions = node["metadata"], node["status"]["conditions"]
            marks = [*meta["labels"], *meta.get("annotations", {}), *(item["type"] for item in conditions)]
            found += [f"{meta['name']}: {mark}" for mark in marks if mark.startswith((PREFIX, f"{DRIVER}/"))]
        where = f"--namespace={NAMESPACE}"
        for kind, selector in (
            ("poddisruptionbudgets", f"{names.GUARDED_FOR}={DRIVER}"),
            ("deployments", f"{names.GUARDED_FOR}={DRIVER}"),
            ("leases", f"{names.GUARDED_FOR}={DRIVER}"),
            ("leases", f"{names.SLOT_FOR}={DRIVER}"),
        ):
            found += [f"{kind}: {item['metadata']['name']}" for item in self.installation.items(kind, where, f"--selector={selector}")]
        return found + [f"report: {item['metadata']['name']}" for item in self.installation.items("nodedrainreports")]

    # --- what is done to nodes --------------------------------------------------------------------------------------

    def taint(self, node: str, intent: str = "retire") -> None:
        self.kubectl("taint", "node", node, f"{names.EVACUATE_TAINT}={intent}:NoSchedule")

    def let_be(self, *nodes: str) -> None:
        """Whatever a scenario has done to these nodes, or to all, is undone, and they take volumes again."""
        nothing = {"spec": {"unschedulable": None, "taints": None}, "metadata": {"annotations": {names.DRAIN_INTENT: None}}}
        for node in nodes or self.nodes:
            self.kubectl("patch", "node", node, "--type=merge", f"--patch={json.dumps(nothing)}")

    def await_open(self) -> None:
        for node in self.nodes:
            until(lambda node=node: not (self.note(node, CLOSED) or self.label(node, STATE)), f"{node} is let be", seconds=MAY_BE)  # type: ignore[misc]

    @contextmanager
    def without_sidecar(self, node: str) -> Iterator[None]:
        """The node is none of those that the DaemonSet is for, so its pod goes and none comes."""
        self.kubectl("label", "node", node, f"{RUNS}-")
        try:
            until(lambda: node not in self._sidecars(), f"no sidecar on {node}", seconds=60)
            yield
        finally:
            self.kubectl("label", "node", node, f"{RUNS}=here")
            self.installation.await_rollout()

    def _sidecars(self) -> set[str]:
        """The nodes that have one, be it on its way out."""
        found = self.installation.items("pods", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/name={DAEMON_SET}")
        return {item["spec"]["nodeName"] for item in found}

    def lease(self, node: str) -> Json:
        """The sign of life of a node with a gate; empty without one."""
        selector = f"--selector={names.GUARDED_NODE}={self.node(node)['metadata']['uid']}"
        found = self.installation.items("leases", f"--namespace={NAMESPACE}", selector)
        return found[0] if found else {}

    def renew_sidecar(self, node: str) -> Json:
        """Its pod is deleted; the one that the DaemonSet makes instead, once it is ready."""
        before = self.installation.pods()[node]["metadata"]
        self.kubectl("delete", "pod", before["name"], f"--namespace={NAMESPACE}", seconds=60)

        def another() -> Json:
            found = self.installation.pods().get(node, {})
            return found if found and found["metadata"]["uid"] != before["uid"] and _is_ready(found) else {}

        return until(another, f"another sidecar on {node} is ready", seconds=60)

    @contextmanager
    def drain(self, node: str, *, seconds: float, log: Path) -> Iterator[Drain]:
        arguments = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={seconds:.0f}s")
        with log.open("wb") as output:
            command = self.installation.cluster.kubectl_command(*arguments)
            environ = {"PATH": os.environ["PATH"], "HOME": str(log.parent)}
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environ)
        try:
            yield Drain(child, log)
        finally:
            child.kill()
            child.wait()


class Drain:
    """A `kubectl drain` that runs."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path) -> None:
        self._child, self._log = child, log

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def refusals(self) -> list[str]:
        return [line for line in self.said().splitlines() if REFUSED in line]

    def runs(self) -> bool:
        return self._child.poll() is None

    def await_end(self, seconds: float) -> int:
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the drain did not end within {seconds:.0f} s:\n{self.said()}") from None


class Writers:
    """The example's StatefulSet: each pod writes a line a second to a volume of its own."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.kubectl = installation.kubectl
        self._where = f"--namespace={EXAMPLE}"

    def start(self, replicas: int) -> None:
        objects = list(yaml.safe_load_all(self.kubectl("kustomize", str(STATEFUL_SET))))
        for found in objects:
            if found["kind"] == "StatefulSet":
                found["spec"]["replicas"] = replicas
        self.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(objects))
        self.await_rollout()

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "statefulset/writer", self._where, f"--replicas={replicas}")
        if replicas:
            self.await_rollout()
        else:
            until(lambda: not self.pods(), "the pods are gone", seconds=MAY_BE)

    def await_rollout(self) -> None:
        self.installation.kubectl_waits("rollout", "status", "statefulset/writer", self._where, seconds=90)

    def stop(self) -> None:
        self.kubectl("delete", f"--kustomize={STATEFUL_SET}", "--ignore-not-found", "--wait=true", seconds=120)
        until(lambda: not self.installation.volumes(), "the volumes of the example to be gone", seconds=60)

    def pods(self) -> dict[str, Json]:
        return {item["metadata"]["name"]: item for item in self.installation.items("pods", self._where)}

    def claims(self) -> dict[str, Json]:
        return {item["metadata"]["name"]: item for item in self.installation.items("persistentvolumeclaims", self._where)}

    def await_pending(self, name: str, *, other_than: str) -> Json:
        """The pod that the StatefulSet has made anew, which no node takes."""

        def pending() -> Json:
            found = self.pods().get(name, {})
            fresh = found and found["metadata"]["uid"] != other_than and "deletionTimestamp" not in found["metadata"]
            return found if fresh and why_pending(found) else {}

        return until(pending, f"{name} is Pending", seconds=60)


def why_pending(pod: Json) -> str:
    """Why the scheduler finds no node."""
    conditions = [item for item in pod["status"].get("conditions", ()) if item["type"] == "PodScheduled" and item["status"] == "False"]
    return str(conditions[0].get("message", "")) if pod["status"].get("phase") == "Pending" and conditions else ""


def unchanged(read: Any, act: Any, *, attempts: int = 3) -> Any:
    """What `act` answers, having left what `read` reads as it was. Kubelets and controllers write now and then: then once more."""
    for _ in range(attempts):
        before = read()
        answer = act()
        if read() == before:
            return answer
    raise AssertionError(f"in {attempts} attempts something was written each time")


def late_pod(name: str, *, required: str = "", preferred: str = "") -> Sequence[Json]:
    """A claim of the late class and a pod that uses it: bound to one node, or drawn to it."""
    meta = {"name": name, "namespace": "default"}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-late", "resources": {"requests": {"storage": "16Mi"}}}
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [required or preferred]}]}
    drawn = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    bound = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    spec: Json = {
        **pod_spec(),
        "affinity": {"nodeAffinity": bound if required else drawn},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
    }
    return (
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": wish},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec},
    )


def daemon_set(name: str) -> Json:
    """Each of its pods has a generic ephemeral volume of the late class."""
    labels = {"app": name}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-late", "resources": {"requests": {"storage": "16Mi"}}}
    spec: Json = {**pod_spec(), "volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": wish}}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def pod_spec() -> Json:
    one = {
        "name": "main",
        "image": "busybox:dev",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; date > /data/here; while true; do sleep 1 & wait $!; done"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {"containers": [one], "terminationGracePeriodSeconds": 1}


def seconds_until(condition: Any, what: str, *, seconds: float) -> float:
    began = time.monotonic()
    until(condition, what, seconds=seconds)
    return time.monotonic() - began


def _with_flags(args: list[str], flags: Sequence[str]) -> None:
    """As a patch of the overlay would put them: a flag that is there is replaced."""
    given = {flag.partition("=")[0] for flag in flags}
    args[:] = [arg for arg in args if arg.partition("=")[0] not in given] + list(flags)


def _is_ready(pod: Json) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions", ()))


def _key(item: Json) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]
