"""Ctrl-C in the middle of a command: it ends at once with 130, without a traceback, and what it has done is told."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from hack.lib.control_plane import REPOSITORY
from sidecar.kube.api import VOLUMES
from sidecar.model import names
from tests.contract.objects import volume
from tests.harness.drain.listed_cluster import DRIVER
from tests.harness.drain.served import Fault, Scene

STALLED = {
    "check": (["check", f"--driver={DRIVER}"], Fault(hang=True)),
    "explain node": (["explain", "node", "n1"], Fault(hang=True, verb="list")),
    "explain nodes": (["explain", "nodes"], Fault(hang=True, verb="list")),
    "explain pvc": (["explain", "pvc", "ns/data"], Fault(hang=True)),
    "explain volumes": (["explain", "volumes"], Fault(hang=True, verb="list")),
    "release-finalizers": (["release-finalizers", f"--driver={DRIVER}", "--yes"], Fault(hang=True, verb="list")),
    "release-finalizers, writing": (
        ["release-finalizers", f"--driver={DRIVER}", "--yes", "--force"],
        Fault(hang=True, verb="patch", name="held-2"),
    ),
    "uninstall": (["uninstall", f"--driver={DRIVER}"], Fault(hang=True, verb="list")),
    "uninstall, writing": (["uninstall", f"--driver={DRIVER}"], Fault(hang=True, verb="patch", name="n2")),
}
WRITING = [name for name in STALLED if "writing" in name]
UNKNOWN = {
    "release-finalizers, writing": (
        "csi-node-sidecar: interrupted; whether PersistentVolume held-2 was changed is not known; run it again to go on\n"
    ),
    "uninstall, writing": (
        f"csi-node-sidecar: interrupted; whether {names.of_driver(DRIVER, names.DRAIN_RECORD)} of node n2 was changed is not known; "
        "run it again to go on\n"
    ),
}


def started(scene: Scene, name: str, *more: str) -> subprocess.Popen[str]:
    """The command, waiting for an answer that does not come."""
    for number in (1, 2, 3):
        obj = volume(f"held-{number}", finalizers=(names.VOLUME_FINALIZER,), handle=f"h{number}")
        obj["spec"]["csi"]["driver"] = DRIVER
        scene.act(lambda obj=obj: scene.cluster.create(VOLUMES, obj))  # type: ignore[misc]
    for node in ("n1", "n2", "n3"):
        scene.annotate(node, {names.of_driver(DRIVER, names.DRAIN_RECORD): "{}"})
    words, fault = STALLED[name]
    scene.faults.set(fault)
    line = [sys.executable, "-m", "sidecar", *words, f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000", *more]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not scene.faults.met:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def interrupted(process: subprocess.Popen[str], times: int) -> tuple[str, str]:
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    out, err = process.communicate(timeout=120)  # it would wait for ever for the answer
    # A second one may meet a process that is ending already, and end it by the signal itself, which shells show as 130 too.
    assert process.returncode in (130, *([-signal.SIGINT] if times > 1 else [])) and "Traceback" not in err
    return out, err


@pytest.mark.parametrize("name", STALLED)
def test_it_ends_at_once(name: str, scene: Scene) -> None:
    _, err = interrupted(started(scene, name), 1)
    assert err == UNKNOWN.get(name, "")


@pytest.mark.parametrize("name", WRITING)
def test_a_second_one_changes_nothing(name: str, scene: Scene) -> None:
    _, err = interrupted(started(scene, name), 2)
    assert err == UNKNOWN[name]


@pytest.mark.parametrize("name", WRITING)
def test_programs_are_told_what_is_done_and_what_is_not_known(name: str, scene: Scene) -> None:
    out, err = interrupted(started(scene, name, "-o=json"), 1)
    document = json.loads(out)
    results = [row["result"] for row in document["volumes" if "release" in name else "removed"]]
    assert results[-1] == "unknown" and len(results) > 1 and set(results[:-1]) <= {"released", "removed"}
    assert err == UNKNOWN[name]
