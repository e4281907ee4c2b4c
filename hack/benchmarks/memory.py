"""`hack/bench memory`: what an instance costs that has nothing to do, on an empty cluster and on a full one.

Every node runs one, and none can ask the API server for its own claims alone: this is the price of a node, times all nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.stage import Stage, a_stage, count, in_parallel, set_status, told
from hack.lib.command import say
from hack.lib.processes import Cost
from hack.lib.programs import OURS, PEER, Json
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.client import open_client
from sidecar.model import names

EMPTY, FULL = "empty", "full"
# MiB resident, and seconds until everything is listed. Imports alone are 55 MiB.
LIMITS = {EMPTY: (66.0, 1.5), FULL: (80.0, 4.0)}
SETTLE = 5.0

NAMESPACE = "default"
FOREIGN_DRIVER = "foreign.example.com"
FOREIGN_KEY = "topology.foreign.example.com/node"
OTHER_NODES = 200
# Operators leave notes such as this one on the claims they make.
NOTE = "managed by the storage operator of team {team}; change the owning object instead, what is written here is overwritten. "


@dataclass(frozen=True)
class Measurement:
    program: str
    cluster: str
    synced: float
    """Seconds from the start of the process until it has listed everything once; ours is ready then."""
    cost: Cost


def add_to(commands: Any) -> None:
    parser = commands.add_parser("memory", help="resident memory and start-up, beside csi-provisioner", description=__doc__)
    parser.add_argument("--objects", type=count, default=10_000, metavar="N", help="claims, and as many volumes (default: %(default)s)")
    parser.add_argument("--runs", type=count, default=1, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    limits = " and ".join(
        f"{mebibytes:g} MiB and {seconds:g} s on the {cluster} cluster" for cluster, (mebibytes, seconds) in LIMITS.items()
    )
    parser.add_argument("--gate", action="store_true", help=f"fail unless ours needs at most {limits}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    groups: dict[tuple[str, str], list[Measurement]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder)) as stage:
        # The two take turns, so that a machine that gets slower does so for both.
        for cluster, number, program in itertools.product((EMPTY, FULL), range(arguments.runs), (OURS, PEER)):
            if (cluster, number, program) == (FULL, 0, OURS):
                say(f"writing {arguments.objects} claims and {arguments.objects} volumes")
                asyncio.run(_fill(stage, arguments.objects))
            say(f"{program} on the {cluster} cluster, run {number + 1} of {arguments.runs}")
            groups.setdefault((program, cluster), []).append(_measure(stage, program, cluster))
        versions = stage.versions()
    print("| program | cluster | resident MiB | peak MiB | synced after s | CPU s |\n|---|---|--:|--:|--:|--:|")
    for (program, cluster), group in groups.items():
        resident, peak, cpu = (statistics.median(getattr(item.cost, name) for item in group) for name in ("resident", "peak", "cpu"))
        print(
            f"| {program} | {cluster} | {resident:.1f} | {peak:.1f} | {statistics.median(item.synced for item in group):.2f} | {cpu:.2f} |"
        )
    print(
        f"\nFull: {arguments.objects} claims and {arguments.objects} volumes, half of another driver, half of this driver on other nodes."
    )
    print(f"Medians of {arguments.runs} runs on {os.cpu_count()} CPUs shared with etcd and kube-apiserver; memory and CPU time are taken")
    print(f"{SETTLE:g} s after the first capacity object. Versions: {', '.join(f'{name} {word}' for name, word in versions.items())}.")
    return told(_broken(groups), arguments)


def _broken(groups: dict[tuple[str, str], list[Measurement]]) -> Iterable[str]:
    """Memory must hold in each run. Time is judged by the median: one slow start says more about the machine."""
    for cluster, (mebibytes, seconds) in LIMITS.items():
        group = groups[OURS, cluster]
        resident, synced = max(item.cost.resident for item in group), statistics.median(item.synced for item in group)
        if resident > mebibytes:
            yield f"{resident:.1f} MiB resident on the {cluster} cluster, the limit is {mebibytes:g}"
        if synced > seconds:
            yield f"synced after {synced:.2f} s on the {cluster} cluster, the limit is {seconds:g}"


def _measure(stage: Stage, program: str, cluster: str) -> Measurement:
    stage.forget_capacity()
    process = stage.program(program)
    started = time.monotonic()
    with process:
        process.until(process.ready, "it has listed everything")
        synced = time.monotonic() - started
        process.until(stage.has_capacity, "it has published its capacity")
        time.sleep(SETTLE)
        return Measurement(program, cluster, synced, process.cost())


# --- a full cluster ---------------------------------------------------------------------------------------------------


async def _fill(stage: Stage, objects: int) -> None:
    """Half of it is another driver's, half ours on other nodes. Half of each is bound. Nothing here may give a provisioner work."""
    driver = stage.driver
    async with await open_client(kubeconfig=str(stage.plane.kubeconfig), qps=-1.0, environ={}) as kube:

        async def write(number: int) -> None:
            claimed, stored = _claim(number, driver.driver), _volume(number, driver.driver, driver.key)
            await kube.create(CLAIMS, claimed, namespace=NAMESPACE)
            await kube.create(VOLUMES, stored)
            if _is_bound(number):
                status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}
                await set_status(kube, CLAIMS, claimed["metadata"]["name"], status, namespace=NAMESPACE)
                await set_status(kube, VOLUMES, stored["metadata"]["name"], {"phase": "Bound"})

        await in_parallel(range(objects), write)


def _claim(number: int, driver: str) -> Json:
    """A claim as a StatefulSet behind an operator makes it, with what the scheduler and the PV controller have added."""
    owner = driver if _is_ours(number) else FOREIGN_DRIVER
    team = f"team-{number % 40}"
    marks = {
        names.STORAGE_PROVISIONER: owner,
        names.STORAGE_PROVISIONER_BETA: owner,
        names.SELECTED_NODE: _node_of(number),
        **({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"} if _is_bound(number) else {}),
        "example.com/backup-policy": '{"schedule":"15 3 * * *","keepDaily":7,"keepWeekly":5,"target":"s3://backups/databases"}',
        "example.com/note": NOTE.format(team=team),
    }
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "late" if _is_ours(number) else "foreign",
        "volumeMode": "Filesystem",
        **({"volumeName": f"pvc-{_uid('claim', number)}"} if _is_bound(number) else {}),
    }
    set_of_it = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"database-{number // 3}", "uid": _uid("owner", number // 3)}
    meta = {
        "name": f"data-database-{number // 3}-{number % 3}",
        "namespace": NAMESPACE,
        "labels": {**_labels(number), "app.kubernetes.io/part-of": f"shop-{number % 40}", "example.com/team": team},
        "annotations": marks,
        "finalizers": ["kubernetes.io/pvc-protection"],
        "ownerReferences": [set_of_it],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def _volume(number: int, driver: str, topology_key: str) -> Json:
    """A volume as a provisioner makes it; `topology_key` is our driver's."""
    ours = _is_ours(number)
    owner, key = (driver, topology_key) if ours else (FOREIGN_DRIVER, FOREIGN_KEY)
    identity = f"1700000000000-{number % 10000}-{owner}-{_node_of(number)}"
    claimed = {"namespace": NAMESPACE, "name": f"data-database-{number // 3}-{number % 3}", "uid": _uid("claim", number)}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claimed},
        "csi": {
            "driver": owner,
            "fsType": "ext4",
            "volumeHandle": _uid("handle", number),
            "volumeAttributes": {"pool": "main", names.PROVISIONER_IDENTITY: identity},
        },
        "nodeAffinity": {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [_node_of(number)]}]}]}
        },
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "late" if ours else "foreign",
        "volumeMode": "Filesystem",
    }
    meta = {
        "name": f"pvc-{_uid('claim', number)}",
        "labels": {**_labels(number), **({names.VOLUME_NODE: names.node_value(_node_of(number))} if ours else {})},
        "annotations": {names.PROVISIONED_BY: owner, names.DELETION_SECRET_NAME: "", names.DELETION_SECRET_NAMESPACE: ""},
        "finalizers": ["kubernetes.io/pv-protection", names.VOLUME_FINALIZER],
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def _labels(number: int) -> Json:
    return {
        "app.kubernetes.io/name": "database",
        "app.kubernetes.io/instance": f"database-{number // 3}",
        "app.kubernetes.io/component": "primary" if number % 3 == 0 else "replica",
        "app.kubernetes.io/managed-by": "storage-operator",
    }


def _is_ours(number: int) -> bool:
    return number % 2 == 0


def _is_bound(number: int) -> bool:
    return number // 2 % 2 == 0


def _node_of(number: int) -> str:
    return f"other-node-{number % OTHER_NODES}.cluster.example.com"


def _uid(what: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{what}-{number}"))
