"""`hack/bench drain`: what drain decisions cost: memory of an instance with and without them, and one look at any node from outside.

A cluster of 500 nodes, 2,000 volumes on them (100 on ours, with a pod each), 5,000 attachments and 200 disruption budgets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.benchmarks.process_cost import cost_of
from hack.benchmarks.stage import NODE, Stage, a_stage, count, is_synced, wait
from hack.benchmarks.stalls import RULE, Lives
from hack.lib.control_plane import REPOSITORY, until
from hack.lib.programs import GoDriver, Json
from hack.lib.progress import each, say
from sidecar.kube.api import ATTACHMENTS, BUDGETS, CLAIMS, MERGE_PATCH, NODES, PODS, VOLUMES, Resource
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names

NODE_COUNT, VOLUME_COUNT, ATTACHMENT_COUNT, BUDGET_COUNT, OURS = 500, 2000, 5000, 200, 100
JUDGING = ("--drain-report", "--node-drain-policy=NoSchedule")
EVERYTHING = (
    "--drain-report",
    "--node-drain-policy=Evacuate",
    "--drain-gate",
    "--drain-gate-image=guard:none",
    "--drain-autoscaler-annotations",
    "--evacuation-deadline=1h",
)
LIMIT_MIB, LIMIT_SECONDS = 25.0, 1.0
WRITES_AT_ONCE = 16


def add_to(commands: Any) -> None:
    parser = commands.add_parser("drain", help="memory and CPU time of drain decisions", description=__doc__)
    parser.add_argument("--runs", type=count, default=3, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    parser.add_argument("--gate", action="store_true", help=f"fail above {LIMIT_MIB:g} MiB more, and unless stalls are within {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    lives = Lives()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder), say=say) as stage:
        stage.plane.apply((REPOSITORY / "deploy/components/drain/crd.yaml").read_text())
        until(lambda: stage.plane.serves("/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports"), "the reports are served")
        compile_bytecode()
        say("writing the cluster")
        asyncio.run(_fill(stage))
        memory: dict[tuple[str, ...], list[float]] = {(): [], JUDGING: [], EVERYTHING: []}
        for flags in each([flags for flags in memory for _ in range(arguments.runs)], "runs"):
            memory[flags].append(_resident(stage, flags, lives))
        seconds = [_explained(stage) for _ in range(arguments.runs)]
    without, judging, everything = (statistics.median(memory[flags]) for flags in ((), JUDGING, EVERYTHING))
    print("| | MiB | |\n|---|--:|---|")
    print(f"| without | {without:.1f} | {_all(memory[()])} |")
    print(f"| judging | {judging:.1f} | {_all(memory[JUDGING])} |")
    print(f"| with the gate and all flags | {everything:.1f} | {_all(memory[EVERYTHING])} |")
    print(f"\nexplain node, from outside: {statistics.median(seconds):.2f} s of CPU time, start and lists included ({_all(seconds)})")
    print(lives.told())
    broken = lives.broken()
    if everything - without > LIMIT_MIB:
        broken.append(f"{everything - without:.1f} MiB more, the limit is {LIMIT_MIB:g}")
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


def _all(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:.2f}" for number in numbers)


def _resident(stage: Stage, flags: tuple[str, ...], lives: Lives) -> float:
    stage.forget_capacity()
    # Upstream's role grants nothing of this, so both run with all rights.
    process = stage.ours(*flags, "--kube-api-qps=-1")
    put_into_a_pod(process, stage.plane.kubeconfig)
    process.log.unlink(missing_ok=True)
    with process:
        wait(lambda: is_synced(process), process, "has not listed everything")
        wait(stage.has_capacity, process, "has not published its capacity")
        if flags:
            report = f"/apis/csi-node-sidecar.io/v1alpha1/nodedrainreports/{names.drain_report(NODE, stage.driver.driver)}"
            until(lambda: stage.plane.serves(report) and "status" in stage.plane.request("GET", report), "the report says something")
            said = stage.plane.request("GET", report)["status"]
            say(f"judged: {said['verdicts']['retire']['status']}, {said['verdicts']['retire']['message']}; {said['counts']}")
        time.sleep(5.0)
        lives.note(process)
        return cost_of(process.child.pid).resident


def _explained(stage: Stage) -> float:
    program = "import resource, sys\nfrom sidecar.cli import main\ncode = main()\n"
    program += "used = resource.getrusage(resource.RUSAGE_SELF)\nprint(used.ru_utime + used.ru_stime, file=sys.stderr)\nsys.exit(code)"
    words = ["explain", "node", NODE, f"--driver={stage.driver.driver}", "-o", "json", f"--kubeconfig={stage.plane.kubeconfig}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--kube-api-qps=-1"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    (judged,) = json.loads(done.stdout)
    say(f"explained: {judged['verdicts']['retire']['message']}")
    return float(done.stderr.splitlines()[-1])


# --- the cluster ------------------------------------------------------------------------------------------------------


async def _fill(stage: Stage) -> None:
    async with await open_client(kubeconfig=str(stage.plane.kubeconfig), qps=-1.0, environ={}) as kube:
        key = stage.driver.key
        nodes = [NODE, *(f"node-{number}" for number in range(1, NODE_COUNT))]
        await _each(nodes, lambda name: _node(kube, name, key, _place(stage, name)))
        places = [NODE] * OURS + [nodes[1 + number % (NODE_COUNT - 1)] for number in range(VOLUME_COUNT - OURS)]
        await _each(enumerate(places), lambda item: _volume(kube, *item, stage=stage))
        await _each(range(ATTACHMENT_COUNT), lambda number: kube.create(ATTACHMENTS, _attachment(number, nodes)))
        await _each(range(BUDGET_COUNT), lambda number: kube.create(BUDGETS, _budget(number), namespace="default"))


async def _each(items: Iterable[Any], work: Callable[[Any], Any]) -> None:
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITES_AT_ONCE):
            group.create_task(worker())


def _place(stage: Stage, node: str) -> str:
    """The driver's topology is a constant, whatever its node is called."""
    return GoDriver.topology if node == NODE else node


async def _node(kube: KubeClient, name: str, key: str, place: str) -> None:
    await kube.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, key: place}}})
    await _status(kube, NODES, name, {"conditions": [{"type": "Ready", "status": "True"}]})


async def _volume(kube: KubeClient, number: int, node: str, *, stage: Stage) -> None:
    name, driver = f"data-{number}", stage.driver.driver
    notes = {names.STORAGE_PROVISIONER: driver, names.SELECTED_NODE: node}
    size = {"requests": {"storage": "1Gi"}}
    claim: Json = {"metadata": {"name": name, "annotations": notes}}
    claim["spec"] = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": size, "volumeName": f"pvc-{number}"}
    made = await kube.create(CLAIMS, claim, namespace="default")
    term = {"matchExpressions": [{"key": stage.driver.key, "operator": "In", "values": [_place(stage, node)]}]}
    volume: Json = {"metadata": {"name": f"pvc-{number}"}}
    volume["spec"] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": made["metadata"]["uid"]},
        "csi": {"driver": driver, "volumeHandle": f"handle-{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "late",
    }
    await kube.create(VOLUMES, volume)
    await _status(kube, VOLUMES, f"pvc-{number}", {"phase": "Bound"})
    if node == NODE:
        await kube.create(PODS, _pod(name), namespace="default")


def _pod(claim: str) -> Json:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "db",
        "uid": "5a11de5c-0000-4000-8000-000000000000",
        "controller": True,
    }
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"nodeName": NODE, "containers": [{"name": "db", "image": "db"}], "volumes": mounted}
    return {"metadata": {"name": claim, "labels": {"app": claim}, "ownerReferences": [owner]}, "spec": spec}


def _attachment(number: int, nodes: list[str]) -> Json:
    source = {"persistentVolumeName": f"pvc-{number % VOLUME_COUNT}"}
    spec = {"attacher": "attached.example", "nodeName": nodes[number % len(nodes)], "source": source}
    return {"metadata": {"name": f"attachment-{number}"}, "spec": spec}


def _budget(number: int) -> Json:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": f"data-{number}"}}}
    return {"metadata": {"name": f"budget-{number}"}, "spec": spec}


async def _status(kube: KubeClient, resource: Resource, name: str, status: Json) -> None:
    await kube.patch(resource, name, {"status": status}, content_type=MERGE_PATCH, subresource="status")
