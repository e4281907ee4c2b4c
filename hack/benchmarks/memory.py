"""What an instance costs that has nothing to do, on an empty cluster and on a full one.

Every node runs one, and none can ask the API server for its own claims alone: this is the price of a node, times all nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from hack.benchmarks.stage import Stage, a_stage, add_runs, in_parallel, set_status
from hack.lib.command import say
from hack.lib.processes import Cost
from hack.lib.programs import OURS, PEER, Json, claim, volume
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.client import open_client
from sidecar.model import names

EMPTY, FULL = "empty", "full"
# MiB resident, and seconds until everything is listed. Imports alone are 55 MiB.
MOST = {EMPTY: (66.0, 1.5), FULL: (80.0, 4.0)}
LIMITS = " and ".join(f"ours needs at most {most:g} MiB and {seconds:g} s on the {name} cluster" for name, (most, seconds) in MOST.items())
Measurements = list[tuple[float, Cost]]

OBJECTS = 10_000
"""Claims of the full cluster, and as many volumes."""
NAMESPACE = "default"
FOREIGN_DRIVER = "foreign.example.com"
FOREIGN_KEY = "topology.foreign.example.com/node"
OTHER_NODES = 200
# Operators leave notes such as this one on the claims they make.
NOTE = "managed by the storage operator of team {team}; change the owning object instead, what is written here is overwritten. "


def add_options(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)


def run(arguments: argparse.Namespace) -> Iterator[str]:
    groups: dict[tuple[str, str], Measurements] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, a_stage(Path(folder)) as stage:
        # The two take turns, so that a machine that gets slower does so for both.
        for cluster, number, program in itertools.product((EMPTY, FULL), range(arguments.runs), (OURS, PEER)):
            if (cluster, number, program) == (FULL, 0, OURS):
                say(f"writing {OBJECTS} claims and {OBJECTS} volumes")
                asyncio.run(_fill(stage))
            say(f"{program} on the {cluster} cluster, run {number + 1} of {arguments.runs}")
            groups.setdefault((program, cluster), []).append(stage.at_rest(program))
    print("| program | cluster | resident MiB | peak MiB | synced after s | CPU s |\n|---|---|--:|--:|--:|--:|")
    for (program, cluster), group in groups.items():
        resident, peak, cpu = (statistics.median(getattr(cost, name) for _, cost in group) for name in ("resident", "peak", "cpu"))
        synced = statistics.median(seconds for seconds, _ in group)
        print(f"| {program} | {cluster} | {resident:.1f} | {peak:.1f} | {synced:.2f} | {cpu:.2f} |")
    return _broken(groups)


def _broken(groups: dict[tuple[str, str], Measurements]) -> Iterator[str]:
    """Memory must hold in each run. Time is judged by the median: one slow start says more about the machine."""
    for cluster, (mebibytes, seconds) in MOST.items():
        group = groups[OURS, cluster]
        resident, synced = max(cost.resident for _, cost in group), statistics.median(synced for synced, _ in group)
        if resident > mebibytes:
            yield f"{resident:.1f} MiB resident on the {cluster} cluster, the limit is {mebibytes:g}"
        if synced > seconds:
            yield f"synced after {synced:.2f} s on the {cluster} cluster, the limit is {seconds:g}"


# --- a full cluster ---------------------------------------------------------------------------------------------------


async def _fill(stage: Stage) -> None:
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

        await in_parallel(range(OBJECTS), write)


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
    made = claim(_name(number), "late" if _is_ours(number) else "foreign", size="10Gi", annotations=marks)
    made["spec"] |= {"volumeMode": "Filesystem", **({"volumeName": _volume_name(number)} if _is_bound(number) else {})}
    set_of_it = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"database-{number // 3}", "uid": _uid("owner", number // 3)}
    made["metadata"] |= {
        "labels": {**_labels(number), "app.kubernetes.io/part-of": f"shop-{number % 40}", "example.com/team": team},
        "finalizers": ["kubernetes.io/pvc-protection"],
        "ownerReferences": [set_of_it],
    }
    return made


def _volume(number: int, driver: str, topology_key: str) -> Json:
    """A volume as a provisioner makes it; `topology_key` is our driver's."""
    ours = _is_ours(number)
    owner, key = (driver, topology_key) if ours else (FOREIGN_DRIVER, FOREIGN_KEY)
    claimed = {"name": _name(number), "uid": _uid("claim", number)}
    at, class_ = (key, _node_of(number)), "late" if ours else "foreign"
    made = volume(_volume_name(number), class_, driver=owner, handle=_uid("handle", number), claimed=claimed, at=at)
    identity = f"1700000000000-{number % 10000}-{owner}-{_node_of(number)}"
    made["spec"] |= {"capacity": {"storage": "10Gi"}, "volumeMode": "Filesystem"}
    made["spec"]["csi"] |= {"fsType": "ext4", "volumeAttributes": {"pool": "main", names.PROVISIONER_IDENTITY: identity}}
    made["metadata"] |= {
        "labels": {**_labels(number), **({names.VOLUME_NODE: names.node_value(_node_of(number))} if ours else {})},
        "annotations": {names.PROVISIONED_BY: owner, names.DELETION_SECRET_NAME: "", names.DELETION_SECRET_NAMESPACE: ""},
        "finalizers": ["kubernetes.io/pv-protection", names.VOLUME_FINALIZER],
    }
    return made


def _name(number: int) -> str:
    return f"data-database-{number // 3}-{number % 3}"


def _volume_name(number: int) -> str:
    return f"pvc-{_uid('claim', number)}"


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
