"""The words of the drain scenarios: an installation that decides about drains, what its nodes say, and a real `kubectl drain`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from hack.kubelets.cluster import Cluster
from hack.lib.control_plane import until
from hack.lib.patience import LIMIT
from sidecar.model import names
from tests.cluster.scenes import (
    DEPLOY,
    DRIVER,
    LATE,
    NAMESPACE,
    SIDECAR,
    Installation,
    Json,
    container,
    is_ready,
    kustomized,
    the_daemon_set,
)
from tests.harness.policies import REPORT_TYPE

# The sandbox of every pod: it is on each node, and does nothing.
GUARD_IMAGE = "docker.io/library/pause:dev"
STATE, RECORD = (names.of_driver(DRIVER, name) for name in (names.EVACUATION_STATE, names.DRAIN_RECORD))
# As kubectl words the answer 429 to an eviction, which it then repeats every five seconds.
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget"


class Drained(Installation):
    """Sidecars that decide about drains, and may be asked to evacuate their nodes."""

    def __init__(self, cluster: Cluster, objects: list[Json], *, flags: Sequence[str] = ()) -> None:
        super().__init__(cluster, "scenario", [*REPORT_TYPE, *objects])
        args = container(the_daemon_set(objects), SIDECAR)["args"]
        wanted = ("--node-drain-policy=Evacuate", f"--drain-gate-image={GUARD_IMAGE}", *flags)
        # As a patch of the overlay would put them: a flag that is there is replaced.
        given = {flag.partition("=")[0] for flag in wanted}
        args[:] = [arg for arg in args if arg.partition("=")[0] not in given] + list(wanted)

    def install(self) -> None:
        super().install()
        for node in self.nodes:
            until(lambda node=node: self.condition(node), f"the first report on {node}")  # type: ignore[misc]

    def uninstall(self) -> None:
        self.let_be()
        super().uninstall()

    def clear_nodes(self) -> None:
        done = self.program("uninstall", "--driver", DRIVER)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    # --- what nodes say ---------------------------------------------------------------------------------------------

    def node(self, name: str) -> Json:
        return self.get("node", name)

    def machine(self, node: str) -> str:
        """As annotations name it: another Node of that name is another machine."""
        return f"{node}/{self.node(node)['metadata']['uid']}"

    def state(self, node: str) -> str:
        return str(self.node(node)["metadata"]["labels"].get(STATE, ""))

    def closed(self, node: str) -> bool:
        return "closedAt" in self.node(node)["metadata"].get("annotations", {}).get(RECORD, "")

    def condition(self, node: str) -> tuple[str, str] | None:
        """Of RetireReady: status and reason."""
        type_ = names.condition(DRIVER, names.RETIRE_READY)
        found = [item for item in self.node(node)["status"]["conditions"] if item["type"] == type_]
        return (found[0]["status"], found[0]["reason"]) if found else None

    def report(self, node: str) -> Json:
        found: Json = self.get("nodedrainreport", names.drain_report(node, DRIVER)).get("status", {})
        return found

    def guards(self, node: str) -> list[Json]:
        """The gate's pods."""
        return self._made_for(node, "pods")

    def budgets(self, node: str) -> list[Json]:
        return self._made_for(node, "poddisruptionbudgets")

    def _made_for(self, node: str, kind: str) -> list[Json]:
        selector = f"--selector={names.GUARDED_NODE}={self.node(node)['metadata']['uid']}"
        return self.items(kind, f"--namespace={NAMESPACE}", selector)

    def await_gate(self, node: str) -> str:
        """The name of the guard, which runs."""

        def runs() -> str:
            guards = [item for item in self.guards(node) if item["status"].get("phase") == "Running"]
            return guards[0]["metadata"]["name"] if len(guards) == 1 and self.budgets(node) else ""

        return until(runs, f"the gate of {node} stands")

    def events(self, reason: str) -> set[str]:
        """Uids of the objects in the namespace that such an event is about."""
        return {item["involvedObject"]["uid"] for item in self.items("events", self.where, f"--field-selector=reason={reason}")}

    # --- what is done to nodes --------------------------------------------------------------------------------------

    def taint(self, *nodes: str) -> None:
        """They are to be retired. Returns when their evacuation is under way."""
        for node in nodes:
            self.kubectl("taint", "node", node, f"{names.EVACUATE_TAINT}=retire:NoSchedule")
        for node in nodes:
            until(lambda node=node: self.state(node) == "InProgress", f"the evacuation of {node} is under way")  # type: ignore[misc]

    def let_be(self, *nodes: str) -> None:
        """Whatever a scenario has done to these nodes, or to all, is undone, and they take volumes again."""
        for node in nodes or self.nodes:
            self.kubectl("patch", "node", node, "--type=merge", '--patch={"spec": {"unschedulable": null, "taints": null}}')
        for node in nodes or self.nodes:
            until(lambda node=node: not (self.closed(node) or self.state(node)), f"{node} is let be")  # type: ignore[misc]

    @contextmanager
    def drain(self, node: str, log: Path) -> Iterator[Drain]:
        arguments = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={2 * LIMIT:.0f}s")
        with log.open("wb") as output:
            command = self.cluster.kubectl_command(*arguments)
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

    def await_end(self) -> None:
        """Whatever it ends with."""
        self._child.wait(3 * LIMIT)

    def await_success(self) -> None:
        """By itself it gives up after twice the limit, and then says why."""
        assert self._child.wait(3 * LIMIT) == 0, self.said()
        assert "error: " not in self.said()


def evacuating(cluster: Cluster, folder: Path, *components: str) -> list[Json]:
    """The base with all that may evict, delete claims and clear up; the class of the data says Reprovision."""
    folder.mkdir()
    deploy = os.path.relpath(DEPLOY, folder.resolve())
    said = [{"op": "add", "path": "/metadata/annotations", "value": {names.DRAIN_POLICY_RETIRE: "Reprovision"}}]
    build = {
        "kind": "Kustomization",
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/{name}" for name in ("own-node", "drain", "gate", "emptying", "reprovision", *components)],
        "patches": [{"target": {"kind": "StorageClass", "name": LATE}, "patch": yaml.safe_dump(said)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(build))
    return kustomized(cluster, folder)


class Database:
    """A StatefulSet of which no two pods may share a node, and at most one may be away."""

    def __init__(self, scene: Drained, replicas: int) -> None:
        self.scene = scene
        self.replicas = replicas
        scene.stateful_set("db", replicas, apart=True, ends_in=4)
        self.budget(1)

    def budget(self, away: int) -> None:
        """Returns when it is counted."""
        spec = {"maxUnavailable": away, "selector": {"matchLabels": {"app": "db"}}}
        meta = {"name": "db", "namespace": self.scene.namespace}
        self.scene.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})

        def counted() -> bool:
            found = self.scene.get("poddisruptionbudget", "db", self.scene.where)
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        until(counted, "the budget is counted")

    def pods(self) -> dict[str, Json]:
        return {item["metadata"]["name"]: item for item in self.scene.items("pods", self.scene.where, "--selector=app=db")}

    def ready(self) -> dict[str, str]:
        """By name of a replica that is: its node."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if is_ready(pod)}

    def on(self, node: str) -> str:
        return next(name for name, where in self.ready().items() if where == node)

    def claims(self) -> dict[str, str]:
        """By replica: the uid of its claim, also of one that is being deleted."""
        found = self.scene.claims().items()
        return {name.removeprefix("data-"): item["metadata"]["uid"] for name, item in found if name.startswith("data-db-")}

    def await_whole(self) -> None:
        until(lambda: len(self.ready()) == self.replicas, "all replicas are ready")

    @contextmanager
    def watched(self, folder: Path) -> Iterator[Seen]:
        seen = Seen(self, folder)
        try:
            yield seen
        finally:
            seen.end()


class Seen:
    """All that two watches show of pods and claims, from now on. What a poll could miss is in it."""

    def __init__(self, db: Database, folder: Path) -> None:
        self._db = db
        self._files = {kind: folder / kind for kind in ("pods", "persistentvolumeclaims")}
        self._watches = [self._watch(kind, file) for kind, file in self._files.items()]
        until(lambda: all(len(self._events(kind)) >= db.replicas for kind in self._files), "the watches have begun")

    def _watch(self, kind: str, file: Path) -> subprocess.Popen[bytes]:
        which = (self._db.scene.where, "--selector=app=db", "--watch", "--output-watch-events", "--output=json")
        command = self._db.scene.cluster.kubectl_command("get", kind, *which)
        with file.open("wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)

    def end(self) -> None:
        for watch in self._watches:
            watch.kill()
            watch.wait()

    def _events(self, kind: str) -> list[tuple[str, Json]]:
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
        for kind, pod in self._events("pods"):
            ready[pod["metadata"]["name"]] = kind != "DELETED" and is_ready(pod)
            counts.append(sum(ready.values()))
        return min(counts[counts.index(self._db.replicas) :])

    def claims(self) -> dict[str, int]:
        """By replica: how many claims it has had."""
        uids: dict[str, set[str]] = {}
        for _, item in self._events("persistentvolumeclaims"):
            uids.setdefault(item["metadata"]["name"].removeprefix("data-"), set()).add(item["metadata"]["uid"])
        return {name: len(found) for name, found in uids.items()}
