"""The words of the scenarios: an installation on a real cluster, what it holds, what is asked of it, and whether its books are right.

What a scenario does to the cluster, and what it expects, is its test's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hack.kubelets.cluster import Cluster
from hack.lib.command import Failure
from hack.lib.control_plane import REPOSITORY, until
from hack.lib.patience import LIMIT

Json = dict[str, Any]

NAMESPACE = "csi-node-sidecar"
DAEMON_SET = "csi-node-sidecar-driver"
DRIVER = "local.csi-node-sidecar.io"
DEPLOY = REPOSITORY / "deploy"
LATE, IMMEDIATE = "local-late", "local-immediate"
OURS, THEIRS = "csi-node-sidecar:dev", "csi-provisioner:v6.3.0"
SIDECAR, BESIDE = "csi-provisioner", "driver"
"""The two containers of the pod."""
BUSYBOX = "busybox:dev"
IMAGES = ("sidecar", "driver", "peer", "busybox")
VOLUMES = "/var/lib/csi-node-sidecar-driver/volumes"
SICK = "/tmp/sick"


def image_archives(*names: str) -> list[Path]:
    """By their names in hack/image; built first if need be, which takes minutes once."""
    command = [sys.executable, str(REPOSITORY / "hack" / "image"), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines()]


def kustomized(cluster: Cluster, folder: Path) -> list[Json]:
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(folder))))


def container(workload: Json, name: str) -> Json:
    found: Json = next(item for item in workload["spec"]["template"]["spec"]["containers"] if item["name"] == name)
    return found


def the_daemon_set(objects: list[Json]) -> Json:
    return next(item for item in objects if item["kind"] == "DaemonSet")


class Installation:
    """Objects that were applied to a cluster, and a namespace for what uses them."""

    def __init__(self, cluster: Cluster, namespace: str, objects: list[Json]) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.objects = objects
        self.where = f"--namespace={namespace}"

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self.cluster.nodes]

    def program(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the program, as somebody gives it who is nowhere near a node."""
        line = [sys.executable, "-m", "sidecar", *words, f"--kubeconfig={self.cluster.kubeconfig}"]
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(line, env=environ, capture_output=True, text=True, check=False, timeout=LIMIT)

    def install(self) -> None:
        """Returns when it runs everywhere."""
        self.apply(*self.objects)
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self.await_rollout()

    def uninstall(self) -> None:
        """What uses volumes goes first: without the sidecar nobody deletes one. No folder is left on a disk."""
        self.kubectl("delete", "namespace", self.namespace, "--wait=true", f"--timeout={LIMIT:.0f}s")
        until(lambda: not self.volumes(), "all volumes are gone")
        self.check_books()
        self.kubectl("delete", "daemonset", DAEMON_SET, f"--namespace={NAMESPACE}", "--cascade=foreground")
        self.clear_nodes()
        self.delete(*self.objects)

    def clear_nodes(self) -> None:
        """What an installation has written on nodes, and nobody writes anew."""

    # --- kubectl --------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.cluster.kubectl(*arguments, input=input)

    def kubectl_waits(self, *arguments: str) -> None:
        """A command that waits by itself."""
        self.kubectl(*arguments, f"--timeout={LIMIT:.0f}s")

    def items(self, kind: str, *arguments: str) -> list[Json]:
        found: list[Json] = self.cluster.get(kind, *arguments).get("items", [])
        return found

    def get(self, kind: str, name: str, *arguments: str) -> Json:
        return self.cluster.get(kind, name, *arguments)

    def apply(self, *objects: Json) -> None:
        self.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(objects))

    def delete(self, *objects: Json) -> None:
        self.kubectl("delete", "--ignore-not-found", "--wait=true", "--filename=-", input=yaml.safe_dump_all(objects))

    # --- the DaemonSet --------------------------------------------------------------------------------------------

    def await_rollout(self) -> None:
        self.kubectl_waits("rollout", "status", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}")

    def pods(self) -> dict[str, Json]:
        """The DaemonSet's, by node; those on their way out are left out."""
        found = self.items("pods", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/name={DAEMON_SET}")
        return {item["spec"]["nodeName"]: item for item in found if "deletionTimestamp" not in item["metadata"]}

    def status_of(self, node: str, container_name: str = SIDECAR) -> Json:
        statuses = self.pods().get(node, {}).get("status", {}).get("containerStatuses", [])
        return next((item for item in statuses if item["name"] == container_name), {})

    def restarts(self, node: str) -> int:
        return int(self.status_of(node).get("restartCount", -1))

    def process_of(self, node: str, container_name: str = SIDECAR) -> int:
        """Its number, as the node sees it. Zero: it does not run, or the kubelet has not said yet which one does."""
        container_id = str(self.status_of(node, container_name).get("containerID", "")).rpartition("/")[2]
        file = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{container_id}/init.pid"
        return int(self.cluster.node(node).run("sh", "-c", f"cat {file} 2>/dev/null || echo 0"))

    def kill_sidecar(self, node: str) -> None:
        """SIGKILL. Returns when another one runs in its place, which takes ten seconds the second time."""
        process = until(lambda: self.process_of(node), f"the sidecar of {node} runs")
        before = self.restarts(node)
        self.cluster.node(node).run("kill", "-9", str(process))
        until(lambda: self.restarts(node) > before and self.process_of(node), "it runs again")

    def logs(self, node: str, *arguments: str) -> str:
        name = self.pods()[node]["metadata"]["name"]
        return self.kubectl("logs", f"--namespace={NAMESPACE}", name, f"--container={SIDECAR}", *arguments)

    # --- claims and volumes ---------------------------------------------------------------------------------------

    def claim(self, name: str, class_: str = IMMEDIATE) -> Json:
        meta = {"name": name, "namespace": self.namespace}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": class_, "resources": {"requests": {"storage": "16Mi"}}}
        return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}

    def claims(self) -> dict[str, Json]:
        return {item["metadata"]["name"]: item for item in self.items("persistentvolumeclaims", self.where)}

    def make_claims(self, prefix: str, count: int) -> None:
        """They bind at once."""
        self.apply(*(self.claim(f"{prefix}{number}") for number in range(count)))

    def await_bound(self, count: int) -> None:
        """All claims of the namespace, and there are so many."""

        def bound() -> bool:
            found = self.claims()
            return len(found) == count and all(item["status"].get("phase") == "Bound" for item in found.values())

        until(bound, self._said_of_those_that_wait)

    def _said_of_those_that_wait(self) -> str:
        """What is known of claims that are late: their events, and what each sidecar logged of them last."""
        late = [name for name, item in self.claims().items() if item["status"].get("phase") != "Bound"]
        lines = [f"all claims are bound, of which {len(late)} are not"]
        for claim in late[:2]:
            events = self.items("events", self.where, f"--field-selector=involvedObject.name={claim}")
            lines += [f"event of {claim} {item.get('lastTimestamp')} {item.get('message')}" for item in events]
            for node in self.pods():
                lines += [f"{node} {line[:400]}" for line in self.logs(node).splitlines() if f"/{claim}" in line][-4:]
        return "\n".join(lines)

    def volumes(self) -> list[Json]:
        return [item for item in self.items("persistentvolumes") if item["spec"].get("csi", {}).get("driver") == DRIVER]

    def on_disk(self) -> dict[str, set[str]]:
        """By node, the folders that are volumes."""
        script = f"test ! -d {VOLUMES} || ls -1 {VOLUMES}"
        return {node.name: set(node.run("sh", "-c", script).split()) for node in self.cluster.nodes}

    def on_the_books(self) -> dict[str, set[str]]:
        """By node, what PersistentVolumes say should be there."""
        found: dict[str, set[str]] = {node: set() for node in self.nodes}
        for item in self.volumes():
            (term,) = item["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            (expression,) = term["matchExpressions"]
            found[expression["values"][0]].add(item["spec"]["csi"]["volumeHandle"])
        return found

    def check_books(self) -> None:
        """Volumes on disk are those of PersistentVolumes, on the same node, and no claim has two."""
        until(lambda: self.on_disk() == self.on_the_books(), lambda: f"{self.on_disk()} on disk, {self.on_the_books()} on the books")
        owners = Counter(item["spec"]["claimRef"]["uid"] for item in self.volumes())
        assert not [uid for uid, count in owners.items() if count > 1]

    # --- what uses them -------------------------------------------------------------------------------------------

    def stateful_set(self, name: str, replicas: int, *, apart: bool = False, node: str = "", ends_in: int = 0, each: str = "") -> None:
        """Each pod writes once, into a volume of its own, when that was born. It is not ready while it is sick.

        `apart`: no two on one node; `ends_in`: seconds in which a pod can be seen ending; `each`: what it does each second. Returns when
        all are ready.
        """
        labels = {"app": name}
        script = (
            f"test -e /data/born || cat /proc/sys/kernel/random/uuid > /data/born; trap 'sleep {ends_in}; exit 0' TERM;"
            f" while true; do {each} sleep 1 & wait $!; done"
        )
        main = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", script],
            "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", f"test ! -e {SICK}"]}, "periodSeconds": 1, "failureThreshold": 1},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        spec: Json = {"terminationGracePeriodSeconds": 30, "containers": [main]}
        if apart:
            alone = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}}
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        body = {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labels}, "spec": self.claim("data", LATE)["spec"]}],
        }
        meta = {"name": name, "namespace": self.namespace}
        self.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": body})
        self.kubectl_waits("rollout", "status", f"statefulset/{name}", self.where)

    def pod(self, name: str) -> Json:
        return self.get("pod", name, self.where)

    def born(self, name: str) -> str:
        return self.kubectl("exec", name, self.where, "--", "cat", "/data/born").strip()


def is_ready(pod: Json) -> bool:
    """One that was asked to end is not, whatever it says; nor is one that is not there."""
    conditions = pod.get("status", {}).get("conditions", ())
    ending = "deletionTimestamp" in pod.get("metadata", {})
    return not ending and any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


@contextmanager
def under_load(scene: Installation, *, pause: float = 1.0) -> Iterator[None]:
    """Claims that bind at once are made, one after the other, until the block ends; then all of them must become bound.

    Some are made before the block and some after it, so that what happens in it happens between claims.
    """
    made, stop, failed = threading.Semaphore(0), threading.Event(), list[Failure]()
    count = 0

    def make() -> None:
        nonlocal count
        while not stop.wait(pause):
            try:
                scene.make_claims(f"load-{count}-", 1)
            except Failure as error:
                failed.append(error)
            count += 1
            made.release()

    def some() -> None:
        for _ in range(3):
            assert made.acquire(timeout=LIMIT), "no claims are made"

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    try:
        some()
        yield
        while made.acquire(blocking=False):
            pass
        some()
    finally:
        stop.set()
        maker.join()
    assert not failed
    scene.await_bound(count)
    scene.check_books()


def nothing(objects: list[Json]) -> None:
    """No change."""


Change = Callable[[list[Json]], None]
