"""A cluster full of claims and volumes that are none of this node's business, written to a real API server.

Half belong to another driver, half to ours on other nodes. Half of each are bound. Nothing here may give a provisioner work.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names

Json = dict[str, Any]
Say = Callable[[str], None]

NAMESPACE = "default"
FOREIGN_DRIVER = "foreign.example.com"
FOREIGN_KEY = "topology.foreign.example.com/node"
OTHER_NODES = 200
# More does not help: the servers' share of two cores is what limits it.
WRITES_AT_ONCE = 48
# Operators leave notes such as this one on the claims they make.
_NOTE = "managed by the storage operator of team {team}; change the owning object instead, what is written here is overwritten. "


def claim(number: int, driver: str) -> Json:
    """A claim as a StatefulSet behind an operator makes it, with what the scheduler and the PV controller have added."""
    ours = _is_ours(number)
    owner = driver if ours else FOREIGN_DRIVER
    marks = {
        names.STORAGE_PROVISIONER: owner,
        names.STORAGE_PROVISIONER_BETA: owner,
        names.SELECTED_NODE: _node_of(number),
        **({"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"} if is_bound(number) else {}),
    }
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "late" if ours else "foreign",
        "volumeMode": "Filesystem",
        **({"volumeName": volume_name(number)} if is_bound(number) else {}),
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _claim_meta(number, marks), "spec": spec}


def claim_status() -> Json:
    return {"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}}}


def volume(number: int, driver: str, topology_key: str) -> Json:
    """A volume as a provisioner makes it; `topology_key` is our driver's."""
    ours = _is_ours(number)
    owner, key = (driver, topology_key) if ours else (FOREIGN_DRIVER, FOREIGN_KEY)
    marks = {
        names.PROVISIONED_BY: owner,
        names.DELETION_SECRET_NAME: "",
        names.DELETION_SECRET_NAMESPACE: "",
    }
    identity = f"1700000000000-{number % 10000}-{owner}-{_node_of(number)}"
    place = {"matchExpressions": [{"key": key, "operator": "In", "values": [_node_of(number)]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "10Gi"},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": NAMESPACE,
            "name": claim_name(number),
            "uid": _uid("claim", number),
        },
        "csi": {
            "driver": owner,
            "fsType": "ext4",
            "volumeHandle": _uid("handle", number),
            "volumeAttributes": {"pool": "main", names.PROVISIONER_IDENTITY: identity},
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [place]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "late" if ours else "foreign",
        "volumeMode": "Filesystem",
    }
    finalizers = ["kubernetes.io/pv-protection", names.VOLUME_FINALIZER]
    labels = {**_labels(number), **({names.VOLUME_NODE: names.node_value(_node_of(number))} if ours else {})}
    meta = {"name": volume_name(number), "labels": labels, "annotations": marks, "finalizers": finalizers}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def volume_status() -> Json:
    return {"status": {"phase": "Bound"}}


def is_bound(number: int) -> bool:
    return number // 2 % 2 == 0


def claim_name(number: int) -> str:
    return f"data-database-{number // 3}-{number % 3}"


def volume_name(number: int) -> str:
    return f"pvc-{_uid('claim', number)}"


async def fill(kubeconfig: Path, *, count: int, driver: str, topology_key: str, say: Say) -> None:
    """`count` claims and as many volumes."""
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:

        async def write(number: int) -> None:
            await _write_pair(kube, number, driver=driver, topology_key=topology_key)
            if number and number % 1000 == 0:
                say(f"{number} of {count} claims and volumes are written")

        await _in_parallel(range(count), write)


async def mean_sizes(kubeconfig: Path) -> dict[str, int]:
    """Bytes of a claim and of a volume, as the server sends them in a list; of a page, which stands for all."""
    sizes = {}
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:
        for resource in (CLAIMS, VOLUMES):
            items = (await kube.list_page(resource, limit=500)).items
            sizes[resource.kind] = sum(len(json.dumps(item, separators=(",", ":"))) for item in items) // max(1, len(items))
    return sizes


async def _write_pair(kube: KubeClient, number: int, *, driver: str, topology_key: str) -> None:
    await kube.create(CLAIMS, claim(number, driver), namespace=NAMESPACE)
    await kube.create(VOLUMES, volume(number, driver, topology_key))
    if is_bound(number):
        kind = "application/merge-patch+json"
        await kube.patch(CLAIMS, claim_name(number), claim_status(), content_type=kind, namespace=NAMESPACE, subresource="status")
        await kube.patch(VOLUMES, volume_name(number), volume_status(), content_type=kind, subresource="status")


async def _in_parallel(numbers: Iterable[int], work: Callable[[int], Awaitable[None]]) -> None:
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            await work(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(WRITES_AT_ONCE):
            group.create_task(worker())


def _claim_meta(number: int, marks: Json) -> Json:
    """With what an operator writes on a claim it makes."""
    team = f"team-{number % 40}"
    notes = {
        "example.com/backup-policy": '{"schedule":"15 3 * * *","keepDaily":7,"keepWeekly":5,"target":"s3://backups/databases"}',
        "example.com/note": _NOTE.format(team=team),
    }
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"database-{number // 3}", "uid": _uid("owner", number // 3)}
    return {
        "name": claim_name(number),
        "namespace": NAMESPACE,
        "labels": {**_labels(number), "app.kubernetes.io/part-of": f"shop-{number % 40}", "example.com/team": team},
        "annotations": {**marks, **notes},
        "finalizers": ["kubernetes.io/pvc-protection"],
        "ownerReferences": [owner],
    }


def _labels(number: int) -> Json:
    return {
        "app.kubernetes.io/name": "database",
        "app.kubernetes.io/instance": f"database-{number // 3}",
        "app.kubernetes.io/component": "primary" if number % 3 == 0 else "replica",
        "app.kubernetes.io/managed-by": "storage-operator",
    }


def _is_ours(number: int) -> bool:
    return number % 2 == 0


def _node_of(number: int) -> str:
    return f"other-node-{number % OTHER_NODES}.cluster.example.com"


def _uid(what: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{what}-{number}"))
