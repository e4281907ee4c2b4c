"""A node is emptied by its sidecar on real kubelets: one replica after the other is made again elsewhere, as budgets and people allow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.lib.control_plane import REPOSITORY, until
from hack.lib.patience import patient
from sidecar.model import names
from tests.cluster.draining import FLAGS, MAY_BE, STATE, Drained
from tests.cluster.scenes import Installation, Json

EMPTYING = REPOSITORY / "deploy" / "components" / "emptying"
REPLICAS = 3
SICK = "/tmp/sick"
ELSEWHERE = "scenario.example.com/elsewhere:NoSchedule"
# As long as a sidecar may take to evict somebody whom nothing keeps.
SOON = 12.0


@pytest.fixture(scope="module")
def evicting(loaded: Installation) -> Iterator[Drained]:
    """The overlay with the gate, and sidecars that evict."""
    found = Drained(loaded, flags=(*FLAGS, "--evacuation-evict"))
    found.objects += [item for file in ("rbac.yaml", "admission.yaml") for item in yaml.safe_load_all((EMPTYING / file).read_text())]
    found.install()
    yield found
    found.let_be()
    found.remove_daemon_set()
    found.uninstall()
    found.remove_component()
    loaded.install()
    loaded.check_books()


class Replicas:
    """A StatefulSet each of whose pods has a generic ephemeral volume; and how few of them were ready."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.kubectl = installation.kubectl

    def start(self, replicas: int) -> None:
        labels = {"app": "replica"}
        wish = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local-late", "resources": {"requests": {"storage": "16Mi"}}}
        main = {
            "name": "main",
            "image": "busybox:dev",
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"],
            "readinessProbe": {"exec": {"command": ["/bin/sh", "-c", f"test ! -e {SICK}"]}, "periodSeconds": 1, "failureThreshold": 1},
            "volumeMounts": [{"name": "scratch", "mountPath": "/data"}],
        }
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": wish}}}
        pod = {"terminationGracePeriodSeconds": 5, "containers": [main], "volumes": [scratch]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": replicas, "serviceName": "replica", "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": "replica", "namespace": "default"}
        self._installation.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec})
        self._installation.kubectl_waits("rollout", "status", "statefulset/replica", seconds=90)

    def budget(self, at_least: int) -> None:
        spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "replica"}}}
        meta = {"name": "replica", "namespace": "default"}
        self._installation.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})

    def stop(self) -> None:
        self.kubectl("delete", "statefulset,poddisruptionbudget", "replica", "--ignore-not-found", "--wait=true", seconds=60)
        until(lambda: not self.pods() and not self._installation.volumes(), "the replicas and their volumes are gone", seconds=60)

    def pods(self) -> list[Json]:
        return self._installation.items("pods", "--namespace=default", "--selector=app=replica")

    def uids(self) -> set[str]:
        return {item["metadata"]["uid"] for item in self.pods()}

    def ready(self) -> dict[str, str]:
        """By name of those that are, their node."""
        return {
            item["metadata"]["name"]: item["spec"]["nodeName"]
            for item in self.pods()
            if "deletionTimestamp" not in item["metadata"] and _is_ready(item)
        }

    def sicken(self, name: str, sick: bool) -> None:
        self.kubectl("exec", name, "--namespace=default", "--", *(("touch", SICK) if sick else ("rm", SICK)))
        until(lambda: (name in self.ready()) != sick, f"{name} is {'not ' if sick else ''}ready", seconds=MAY_BE)


@pytest.fixture
def replicas(evicting: Drained) -> Iterator[Replicas]:
    """Two on the first node, one on the second."""
    first, second = evicting.nodes[:2]
    found = Replicas(evicting.installation)
    try:
        # No cordon, which asks for an evacuation where it lasts.
        evicting.kubectl("taint", "node", second, ELSEWHERE)
        found.start(REPLICAS - 1)
        evicting.let_be()
        evicting.kubectl("taint", "node", first, ELSEWHERE)
        found.start(REPLICAS)
        evicting.let_be()
        evicting.await_open()
        yield found
    finally:
        evicting.let_be()
        found.stop()


def test_replicas_are_made_again_elsewhere_one_after_the_other(evicting: Drained, replicas: Replicas, tmp_path: Path) -> None:
    node, other = evicting.nodes[:2]
    before = replicas.uids()
    evicting.await_gate(node)

    # A replica is not ready: nothing happens. Nor does it once that is undone.
    replicas.sicken("replica-2", True)
    evicting.taint(node)
    until(lambda: evicting.label(node, STATE) == "InProgress", "the evacuation is in progress", seconds=MAY_BE)
    time.sleep(patient(SOON))
    assert replicas.uids() == before
    evicting.let_be()
    evicting.await_open()
    replicas.sicken("replica-2", False)
    time.sleep(patient(SOON))
    assert replicas.uids() == before

    # A budget of none, then of one; and the sidecar is killed after the first.
    replicas.budget(REPLICAS)
    evicting.taint(node)
    until(lambda: evicting.label(node, STATE) == "InProgress", "the evacuation is in progress", seconds=MAY_BE)
    time.sleep(patient(SOON))
    assert replicas.uids() == before
    replicas.budget(REPLICAS - 1)
    until(lambda: replicas.uids() != before, "the first is evicted", seconds=60)
    machine, process = evicting.installation.cluster.node(node), evicting.installation.process_of(node)
    machine.run("kill", "-KILL", str(process))
    fewest = REPLICAS

    def moved() -> bool:
        nonlocal fewest
        ready = replicas.ready()
        fewest = min(fewest, len(ready))
        return len(ready) == REPLICAS and set(ready.values()) == {other}

    until(moved, "all replicas run on the other node", seconds=120)
    assert fewest >= REPLICAS - 1, "never two at once"
    with evicting.drain(node, seconds=patient(60), log=tmp_path / "drain.log") as drain:
        assert drain.await_end(patient(70)) == 0, drain.said()
    until(lambda: evicting.label(node, STATE) == "Success", "the evacuation succeeds", seconds=60)
    told = evicting.installation.items("events", "--namespace=default", f"--field-selector=reason={names.POD_EVICTED}")
    assert {item["involvedObject"]["uid"] for item in told} <= before
    assert len(before & replicas.uids()) == 1, json.dumps(told)[:2000]


def _is_ready(pod: Json) -> bool:
    return any(item["type"] == "Ready" and item["status"] == "True" for item in pod["status"].get("conditions", ()))
