"""The words of the scenarios: an installation on a real cluster, what it holds, what is asked of it, and whether its books are right.

What a scenario does to the cluster, and what it expects, is its test's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.patience import deadline, patient
from tests.e2e.conftest import from_hack

Json = dict[str, Any]
ClusterError: Any = from_hack("kubelets.errors").ClusterError

NAMESPACE = "csi-node-sidecar"
DAEMON_SET = "csi-node-sidecar-driver"
DRIVER = "local.csi-node-sidecar.io"
BASE = REPOSITORY / "deploy" / "base"
STATEFUL_SET = REPOSITORY / "deploy" / "examples" / "statefulset"
EXAMPLE = "csi-node-sidecar-example"
OURS, THEIRS = "csi-node-sidecar:dev", "csi-provisioner:v6.3.0"
SIDECAR, BESIDE = "csi-provisioner", "driver"
"""The two containers of the pod."""
IMAGES = ("sidecar", "driver", "peer", "busybox")
SECONDS_TO_BUILD = 540
# Of a claim whose node's sidecar, driver or kubelet is replaced meanwhile.
LONGEST_WAIT = 10.0
VOLUMES = "/var/lib/csi-node-sidecar-driver/volumes"
PLUGIN = f"/var/lib/kubelet/plugins/{DRIVER}"


def image_archives(*names: str) -> list[Path]:
    """By their names in hack/image; built first if need be, which takes minutes once."""
    command = [sys.executable, str(REPOSITORY / "hack" / "image"), *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_TO_BUILD)
    return [Path(line) for line in done.stdout.splitlines()]


def claim(name: str, class_: str = "local-immediate", size: str = "16Mi") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class_, "resources": {"requests": {"storage": size}}},
    }


def pod(name: str, of: str, script: str) -> Json:
    """A pod that runs a shell script with the claim's volume at /data."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox:dev",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c", f"trap 'exit 0' TERM; {script}; while true; do sleep 1 & wait $!; done"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": of}}],
        },
    }


class Installation:
    """A cluster on which deploy/base, or what a test makes of it, was applied."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    # --- kubectl --------------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str, input: str | None = None, seconds: float = 60.0) -> str:
        return str(self.cluster.kubectl(*arguments, input=input, seconds=patient(seconds)))

    def kubectl_waits(self, *arguments: str, seconds: float) -> None:
        """A command that waits by itself, and may do so for that long."""
        self.kubectl(*arguments, f"--timeout={patient(seconds):.0f}s", seconds=seconds + 10)

    def items(self, kind: str, *arguments: str) -> list[Json]:
        found: list[Json] = self.cluster.get(kind, *arguments).get("items", [])
        return found

    def get(self, kind: str, name: str, *arguments: str) -> Json:
        found: Json = self.cluster.get(kind, name, *arguments)
        return found

    def apply(self, *objects: Json) -> None:
        self.kubectl("apply", "--filename=-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    # --- the DaemonSet --------------------------------------------------------------------------------------------

    def install(self, *, image: str = OURS, change: Callable[[Json], None] = lambda daemon_set: None) -> None:
        """`kubectl apply -k deploy/base`, or the same with a changed DaemonSet; returns when it runs everywhere."""
        objects = list(yaml.safe_load_all(self.kubectl("kustomize", str(BASE))))
        for found in objects:
            if found["kind"] == "DaemonSet":
                container(found, SIDECAR)["image"] = image
                change(found)
        self.kubectl("apply", "--filename=-", input=yaml.safe_dump_all(objects))
        self.await_rollout()

    def await_rollout(self, *, seconds: float = 120.0) -> None:
        what = ("rollout", "status", f"daemonset/{DAEMON_SET}", f"--namespace={NAMESPACE}", f"--timeout={patient(seconds):.0f}s")
        self.kubectl(*what, seconds=seconds + 10)

    def pods(self) -> dict[str, Json]:
        """The DaemonSet's, by node; those on their way out are left out."""
        found = self.items("pods", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/name={DAEMON_SET}")
        return {item["spec"]["nodeName"]: item for item in found if "deletionTimestamp" not in item["metadata"]}

    def status_of(self, node: str, container_name: str = SIDECAR) -> Json:
        statuses = self.pods().get(node, {}).get("status", {}).get("containerStatuses", [])
        return next((item for item in statuses if item["name"] == container_name), {})

    def restarts(self, node: str, container_name: str = SIDECAR) -> int:
        return int(self.status_of(node, container_name).get("restartCount", -1))

    def process_of(self, node: str, container_name: str = SIDECAR) -> int:
        """Its number, as the node sees it."""
        container_id = str(self.status_of(node, container_name)["containerID"]).rpartition("/")[2]
        listing = self.cluster.node(node).run(
            "sh", "-c", f"cat /run/containerd/io.containerd.runtime.v2.task/k8s.io/{container_id}/init.pid"
        )
        return int(listing)

    def logs(self, node: str, container_name: str = SIDECAR, *arguments: str) -> str:
        name = self.pods()[node]["metadata"]["name"]
        return self.kubectl("logs", f"--namespace={NAMESPACE}", name, f"--container={container_name}", *arguments)

    # --- claims and volumes ---------------------------------------------------------------------------------------

    def claims(self, prefix: str) -> dict[str, Json]:
        found = self.items("persistentvolumeclaims", "--namespace=default")
        return {item["metadata"]["name"]: item for item in found if item["metadata"]["name"].startswith(prefix)}

    def await_bound(self, prefix: str, count: int, *, seconds: float = 60.0) -> dict[str, Json]:
        def unbound() -> list[str]:
            return [name for name, item in self.claims(prefix).items() if item["status"].get("phase") != "Bound"]

        self._await_all(prefix, count, unbound, "be bound", seconds)
        return self.claims(prefix)

    def await_volumes(self, prefix: str, count: int, *, seconds: float = 60.0) -> None:
        """Their PersistentVolumes are there, whether or not the volume controller has bound them."""

        def missing() -> list[str]:
            have = {item["spec"].get("claimRef", {}).get("name", "") for item in self.items("persistentvolumes")}
            return [name for name in self.claims(prefix) if name not in have]

        self._await_all(prefix, count, missing, "have a volume", seconds)

    def _await_all(self, prefix: str, count: int, late: Callable[[], list[str]], what: str, seconds: float) -> None:
        try:
            until(lambda: not late() and len(self.claims(prefix)) == count, f"{count} claims {prefix}* to {what}", seconds=seconds)
        except TimeoutError as error:
            said = "\n".join(self.said_of(name) for name in late()[:2])
            raise TimeoutError(f"{error}\n{said}") from None

    def said_of(self, claim: str) -> str:
        """What is known of a claim that is late: its annotations, its events, and what each sidecar logged of it last."""
        notes = sorted(self.claims(claim)[claim]["metadata"].get("annotations", {}))
        events = self.items("events", "--namespace=default", f"--field-selector=involvedObject.name={claim}")
        lines = [f"claim {claim} has {notes}", *(f"event {item.get('lastTimestamp')} {item.get('message')}" for item in events)]
        for node in self.pods():
            logged = [line for line in self.logs(node).splitlines() if f"/{claim}" in line]
            lines += [f"{node} {line[:400]}" for line in logged[-4:]]
        return "\n".join(lines)

    def delete_claims(self, prefix: str, *, seconds: float = 60.0) -> None:
        """Returns when their volumes are gone too."""
        found = self.claims(prefix)
        handles = {item["spec"].get("volumeName") for item in found.values()} - {None}
        if found:
            self.kubectl("delete", "persistentvolumeclaims", "--namespace=default", "--wait=false", *found)
        until(lambda: not self.claims(prefix), f"the claims {prefix}* to be gone", seconds=seconds)
        until(lambda: not handles & {item["metadata"]["name"] for item in self.volumes()}, "their volumes to be gone", seconds=seconds)

    def volumes(self) -> list[Json]:
        return [item for item in self.items("persistentvolumes") if item["spec"].get("csi", {}).get("driver") == DRIVER]

    def on_disk(self) -> dict[str, set[str]]:
        """By node, the folders that are volumes."""
        script = f"test ! -d {VOLUMES} || ls -1 {VOLUMES}"
        return {node.name: set(node.run("sh", "-c", script).split()) for node in self.cluster.nodes}

    def on_the_books(self) -> dict[str, set[str]]:
        """By node, what PersistentVolumes say should be there."""
        found: dict[str, set[str]] = {node.name: set() for node in self.cluster.nodes}
        for item in self.volumes():
            (term,) = item["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            (expression,) = term["matchExpressions"]
            found[expression["values"][0]].add(item["spec"]["csi"]["volumeHandle"])
        return found

    def check_books(self, *, seconds: float = 30.0) -> None:
        """Volumes on disk are those of PersistentVolumes, on the same node, and no claim has two."""

        end = deadline(seconds)
        while self.on_disk() != self.on_the_books() and time.monotonic() < end:
            time.sleep(0.5)
        assert self.on_disk() == self.on_the_books()
        owners = Counter(item["spec"]["claimRef"]["uid"] for item in self.volumes())
        assert not [uid for uid, count in owners.items() if count > 1]


def container(workload: Json, name: str) -> Json:
    found: Json = next(item for item in workload["spec"]["template"]["spec"]["containers"] if item["name"] == name)
    return found


@dataclass
class Load:
    """Claims that bind at once, one after another, and when each was made and seen bound."""

    installation: Installation
    prefix: str
    pause: float = 1.0
    made: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _all_made: threading.Event = field(default_factory=threading.Event)

    def make(self) -> None:
        number = 0
        while not self._stop.wait(self.pause):
            name = f"{self.prefix}{number}"
            self._try(partial(self.installation.apply, claim(name)), name)
            number += 1
        self._all_made.set()

    def look(self) -> None:
        while not (self._all_made.is_set() and len(self.bound) == len(self.made)):
            self._try(self._note, "")
            time.sleep(0.25)

    def check(self) -> None:
        """Every claim could be made, and none waited long, whatever happened meanwhile."""
        assert not self.failed
        times = {name: round(self.bound[name] - began, 2) for name, began in self.made.items()}
        assert max(times.values()) < patient(LONGEST_WAIT), times

    def stop(self) -> None:
        self._stop.set()

    def _note(self) -> None:
        now = time.monotonic()
        for name, found in self.installation.claims(self.prefix).items():
            self.made.setdefault(name, now)
            if found["status"].get("phase") == "Bound":
                self.bound.setdefault(name, now)

    def _try(self, act: Callable[[], None], name: str) -> None:
        began = time.monotonic()
        try:
            act()
        except ClusterError as error:
            self.failed.append(f"{name}: {error}")
        else:
            if name:
                self.made.setdefault(name, began)


@contextmanager
def under_load(installation: Installation, prefix: str, *, pause: float = 1.0, seconds_after: float = 60.0) -> Iterator[Load]:
    """Claims are made until the block ends; then all of them must become bound."""
    load = Load(installation, prefix, pause)
    threads = [threading.Thread(target=act, daemon=True) for act in (load.make, load.look)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop()
    threads[0].join(30)
    threads[1].join(patient(seconds_after))
    assert not threads[1].is_alive(), f"never bound: {sorted(set(load.made) - set(load.bound))}"


def lines_of(installation: Installation, pod_name: str, namespace: str = EXAMPLE) -> Sequence[str]:
    """What the example's pod has written so far."""
    return installation.kubectl("exec", f"--namespace={namespace}", pod_name, "--", "cat", "/data/log").splitlines()
