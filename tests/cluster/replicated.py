"""The words of the scenarios about replicated data: an installation that may delete it, a StatefulSet of three that share no node, and what
a watch has seen of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from hack.lib.control_plane import REPOSITORY, until
from sidecar.model import names
from tests.cluster.draining import MAY_BE, STATE, Drained
from tests.cluster.scenes import NAMESPACE, ClusterError, Installation, Json

COMPONENTS = ("own-node", "drain", "gate", "emptying", "reprovision", "node-loss")
# Two nodes may be emptied at once, so that nothing but the locks keeps two replicas from being away. A gone node is cleared up at once.
FLAGS = ("--node-drain-policy=Evacuate", "--max-concurrent-evacuations=2", "--node-delete-policy=Cleanup", "--node-gone-after=0s")
CLASS = "local-late"
REPLICAS = 3
ELSEWHERE = "scenario.example.com/elsewhere:NoSchedule"
SICK = "/tmp/sick"
# Seconds that a replica takes to end, in which it can be seen ending.
ENDS_IN = 4
# A replica ends, its claim is made again and bound, it starts, and is Ready for ten seconds; the sidecar looks every five, and every twenty
# at what it cannot watch. One that was killed twice is started ten seconds later.
MADE_ANEW = 120.0


def manifests(installation: Installation, folder: Path) -> list[Json]:
    """The base with all that may evict, delete claims and clear up; the class of the data says Reprovision."""
    folder.mkdir()
    deploy = os.path.relpath(REPOSITORY / "deploy", folder.resolve())
    said = [{"op": "add", "path": "/metadata/annotations", "value": {names.DRAIN_POLICY_RETIRE: "Reprovision"}}]
    build = {
        "kind": "Kustomization",
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/{name}" for name in COMPONENTS],
        "patches": [{"target": {"kind": "StorageClass", "name": CLASS}, "patch": yaml.safe_dump(said)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
    return list(yaml.safe_load_all(installation.kubectl("kustomize", str(folder))))


class Retiring(Drained):
    """Four nodes whose sidecars may make replicas anew and clear up after gone nodes."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        super().__init__(installation, flags=FLAGS, objects=manifests(installation, folder))

    def told(self, node: str) -> str:
        """What its report says of what comes next."""
        return "\n".join(self.report(node).get("notes", ()))

    def await_in_progress(self, *nodes: str) -> None:
        for node in nodes:
            until(lambda node=node: self.state(node) == "InProgress", f"{node} is evacuated", seconds=MAY_BE)  # type: ignore[misc]

    def state(self, node: str) -> str:
        return self.label(node, STATE)

    # --- what is stored while a replica is made anew --------------------------------------------------------------------

    def leases(self) -> list[Json]:
        return self.installation.items("leases", f"--namespace={NAMESPACE}", f"--selector={names.REPROVISION_FOR}")

    def record(self) -> Json:
        """Of the only replica that is on its way; empty: there is none."""
        found = self.leases()
        assert len(found) < 2, found
        stored: Json = json.loads(found[0]["metadata"]["annotations"][names.REPROVISION_RECORD]) if found else {}
        return stored

    def marks(self) -> dict[str, str]:
        """By claim."""
        found = self.installation.items("persistentvolumeclaims", "--namespace=default")
        key = names.REPROVISIONED_BY
        return {item["metadata"]["name"]: notes[key] for item in found if key in (notes := item["metadata"].get("annotations") or {})}

    def await_rest(self, *, seconds: float = MADE_ANEW) -> None:
        until(lambda: not self.leases() and not self.marks(), "no replica is on its way, and no Lease or mark is left", seconds=seconds)

    # --- what is done to sidecars ---------------------------------------------------------------------------------------

    @contextmanager
    def without_right(self, verb: str, resource: str) -> Iterator[None]:
        """No role gives it to any sidecar meanwhile: so a step is reached, and the next one is not taken."""
        roles = [item for item in self.objects if item["kind"] == "ClusterRole"]
        changed = [role for role in roles if any(resource in rule.get("resources", ()) for rule in role["rules"])]
        self.installation.apply(*(_lacking(role, verb, resource) for role in changed))
        try:
            yield
        finally:
            self.installation.apply(*changed)

    def kill_sidecar(self, node: str) -> None:
        """SIGKILL. Returns when another one runs in its place, which takes ten seconds the second time."""
        process = until(lambda: self._process_of(node), f"the sidecar of {node} runs", seconds=MAY_BE)
        before = self.installation.restarts(node)
        self.installation.cluster.node(node).run("kill", "-KILL", str(process))
        until(lambda: self.installation.restarts(node) > before and self._process_of(node), "it runs again", seconds=60)

    def _process_of(self, node: str) -> int:
        """Zero: it does not run, or the kubelet has not said yet which one does."""
        try:
            return self.installation.process_of(node)
        except (ClusterError, KeyError):
            return 0


def _lacking(role: Json, verb: str, resource: str) -> Json:
    rules = [
        {**rule, "verbs": [each for each in rule["verbs"] if each != verb]} if resource in rule.get("resources", ()) else rule
        for rule in role["rules"]
    ]
    return {**role, "rules": [rule for rule in rules if rule["verbs"]]}


class Database:
    """A StatefulSet of three that may not share a node, each with a claim in which it writes once when it was born; and its budget."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.kubectl = installation.kubectl

    def start(self) -> None:
        self.installation.apply(stateful_set("db", REPLICAS, apart=True))
        self.installation.kubectl_waits("rollout", "status", "statefulset/db", seconds=90)
        self.budget(1)

    def stop(self) -> None:
        self.kubectl("delete", "statefulset,poddisruptionbudget", "--all", "--namespace=default", "--wait=true", seconds=60)
        until(lambda: not self.pods(), "its pods are gone", seconds=60)
        self.installation.delete_claims("data-")

    def budget(self, away: int) -> None:
        """Returns when it is counted."""
        spec = {"maxUnavailable": away, "selector": {"matchLabels": {"app": "db"}}}
        self.installation.apply(
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "default"}, "spec": spec}
        )

        def counted() -> bool:
            found = self.installation.get("poddisruptionbudget", "db", "--namespace=default")
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        until(counted, "the budget is counted", seconds=MAY_BE)

    # --- questions ------------------------------------------------------------------------------------------------------

    def pods(self) -> dict[str, Json]:
        found = self.installation.items("pods", "--namespace=default", "--selector=app=db")
        return {item["metadata"]["name"]: item for item in found}

    def ready(self) -> dict[str, str]:
        """By name of a replica that is: its node."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if is_ready(pod)}

    def on(self, node: str) -> str:
        return next(name for name, where in self.ready().items() if where == node)

    def is_ending(self, name: str) -> bool:
        return "deletionTimestamp" in self.pods().get(name, {"metadata": {}})["metadata"]

    def pod_uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def claims(self) -> dict[str, str]:
        """By replica: the uid of its claim, also of one that is being deleted."""
        return {name.removeprefix("data-"): item["metadata"]["uid"] for name, item in self.installation.claims("data-db").items()}

    def born(self, name: str) -> str:
        return self.kubectl("exec", name, "--namespace=default", "--", "cat", "/data/born").strip()

    def sicken(self, name: str, sick: bool) -> None:
        self.kubectl("exec", name, "--namespace=default", "--", *(("touch", SICK) if sick else ("rm", SICK)))
        until(lambda: (name in self.ready()) != sick, f"{name} is {'not ' if sick else ''}ready", seconds=MAY_BE)

    def await_whole(self, *, seconds: float = MADE_ANEW) -> None:
        until(lambda: len(self.ready()) == REPLICAS, "all replicas are ready", seconds=seconds)

    @contextmanager
    def watched(self, folder: Path) -> Iterator[Seen]:
        seen = Seen(self.installation, folder)
        try:
            yield seen
        finally:
            seen.end()


class Seen:
    """All that two watches show of pods and claims, from now on. What a poll could miss is in it."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self._installation = installation
        self._files = {kind: folder / kind for kind in ("pods", "persistentvolumeclaims")}
        self._watches = [self._watch(kind, file) for kind, file in self._files.items()]
        until(lambda: len(self.events("pods")) >= REPLICAS and self.events("persistentvolumeclaims"), "the watches have begun")

    def _watch(self, kind: str, file: Path) -> subprocess.Popen[bytes]:
        which = ("--selector=app=db", "--watch", "--output-watch-events", "--output=json")
        command = self._installation.cluster.kubectl_command("get", kind, "--namespace=default", *which)
        with file.open("wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        for watch in self._watches:
            watch.kill()
            watch.wait()

    def events(self, kind: str) -> list[tuple[str, Json]]:
        text, found, decoder = self._files[kind].read_text(), [], json.JSONDecoder()
        while text := text.lstrip():
            try:
                event, end = decoder.raw_decode(text)
            except json.JSONDecodeError:
                break  # the last one is being written
            found.append((event["type"], event["object"]))
            text = text[end:]
        return found

    def fewest_ready(self) -> int:
        """Of all moments since all were ready for the first time."""
        ready: dict[str, bool] = {}
        counts: list[int] = []
        for kind, pod in self.events("pods"):
            ready[pod["metadata"]["name"]] = kind != "DELETED" and is_ready(pod)
            counts.append(sum(ready.values()))
        return min(counts[counts.index(REPLICAS) :])

    def claims(self) -> Mapping[str, int]:
        """By replica: how many claims it has had."""
        uids: dict[str, set[str]] = {}
        for _, item in self.events("persistentvolumeclaims"):
            uids.setdefault(item["metadata"]["name"].removeprefix("data-"), set()).add(item["metadata"]["uid"])
        return {name: len(found) for name, found in uids.items()}


def stateful_set(name: str, replicas: int, *, apart: bool = False, node: str = "") -> Json:
    labels = {"app": name}
    alone = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    script = (
        f"test -e /data/born || cat /proc/sys/kernel/random/uuid > /data/born; trap 'sleep {ENDS_IN}; exit 0' TERM;"
        " while true; do sleep 1 & wait $!; done"
    )
    main = {
        "name": "main",
        "image": "busybox:dev",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", f"test ! -e {SICK}"]}, "periodSeconds": 1, "failureThreshold": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec: Json = {"terminationGracePeriodSeconds": 30, "containers": [main]}
    if apart:
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [alone]}}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": {"requests": {"storage": "16Mi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": labels}, "spec": wish}],
        },
    }


def is_ready(pod: Json) -> bool:
    """One that was asked to end is not, whatever it says."""
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
