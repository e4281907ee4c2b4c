"""Carries out what `plan_hostile` draws."""

from typing import TYPE_CHECKING, Final

from sidecar.csi.api import CreateRequest
from sidecar.kube.api import CLAIMS, CLASSES, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import LATE, Json
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.simulation.world.node import DRIVER, NAMESPACE
from sidecar.simulation.world.plan_hostile import HUGE, NOWHERE, ODD_NAME, SELF_SELECTED, WITHOUT_CLASS

if TYPE_CHECKING:
    from sidecar.simulation.world.plan import PlannedEvent
    from sidecar.simulation.world.world import World

SECRET: Final = "keys"
_SECRET_PREFIX: Final = "csi.storage.k8s.io/provisioner-secret-"
_LARGE: Final = 60_000


async def odd_claim(world: "World", item: "PlannedEvent") -> None:
    kind, _, node = item.detail.partition("/")
    await world.api.create(CLAIMS, _body(_name(item.whom, kind), kind, node, size=f"{item.number:.0f}Gi"), namespace=NAMESPACE)


async def odd_claim_gone(world: "World", item: "PlannedEvent") -> None:
    for name in (item.whom, _name(item.whom, ODD_NAME)):
        try:
            await world.api.delete(CLAIMS, name, namespace=NAMESPACE)
        except NotFound:
            pass  # it has one of the two names


async def manner(world: "World", item: "PlannedEvent") -> None:
    world.nodes[item.whom].manners.way = item.detail


async def clock_jumps(world: "World", item: "PlannedEvent") -> None:
    world.nodes[item.whom].clock_offset += item.number


async def class_guarded(world: "World", item: "PlannedEvent") -> None:
    """The same class, whose volumes are made with a Secret."""
    await world.api.delete(CLASSES, item.whom)
    parameters = {f"{_SECRET_PREFIX}name": SECRET, f"{_SECRET_PREFIX}namespace": NAMESPACE}
    body = {"metadata": {"name": item.whom}, "provisioner": DRIVER, "volumeBindingMode": LATE, "parameters": parameters}
    await world.api.create(CLASSES, body)


async def forged_line(world: "World", item: "PlannedEvent") -> None:
    """As if a process had died while it made one of the node's volumes, for a claim of another name."""
    node = world.nodes[item.whom]
    named = {volume["spec"]["csi"]["volumeHandle"]: volume for volume in (await world.api.list_page(VOLUMES, limit=0)).items}
    there = [volume for volume in node.driver.volumes() if volume.id in named]
    if not there:
        return
    chosen = there[int(item.number) % len(there)]
    uid = named[chosen.id]["spec"]["claimRef"]["uid"]
    request = CreateRequest(chosen.name, chosen.bytes, chosen.capabilities)
    node.folder.forged.append(CreationRecord(uid, NAMESPACE, "nobody-s", "late", request, secret=("kube-system", "of-others")))


def _name(name: str, kind: str) -> str:
    """As long as a name may be."""
    return f"{name}.{'x' * 60}.{'0' * 60}.{'y-z' * 20}.a.b".ljust(253, "9")[:253] if kind == ODD_NAME else name


def _body(name: str, kind: str, node: str, *, size: str) -> Json:
    class_ = {WITHOUT_CLASS: "there-is-none", SELF_SELECTED: "late", NOWHERE: "late"}.get(kind, "immediate")
    notes = {
        HUGE: {"note": "x" * _LARGE},
        WITHOUT_CLASS: {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: node},
        SELF_SELECTED: {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: node},
        NOWHERE: {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: "no-such-node"},
    }.get(kind, {})
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    meta = {"name": name, "namespace": NAMESPACE, "annotations": notes}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
