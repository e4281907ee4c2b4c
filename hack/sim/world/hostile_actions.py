"""Carries out what `plan_hostile` draws."""

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hack.sim.world import bounds
from hack.sim.world.manners import SECRET
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.plan_hostile import (
    DELETION,
    HUGE,
    KEYLESS,
    NO_LABEL,
    NOWHERE,
    ODD_NAME,
    OTHER_SECRET,
    OTHER_UID,
    SELF_SELECTED,
    WITHOUT_CLASS,
)
from sidecar.csi.api import CreateRequest
from sidecar.kube.api import CLAIMS, CLASSES, MERGE_PATCH, PODS, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import LATE, Json
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord

if TYPE_CHECKING:
    from hack.sim.world.plan import PlannedEvent
    from hack.sim.world.world import World

OTHER: Final = ("kube-system", "of-others")
"""A Secret that no class names."""
_SECRET_PREFIX: Final = "csi.storage.k8s.io/provisioner-secret-"
_LARGE: Final = 60_000


async def odd_claim(world: "World", item: "PlannedEvent") -> None:
    kind, _, node = item.detail.partition("/")
    await world.api.create(CLAIMS, _body(_name(item.whom, kind), kind, node, size=f"{item.number:.0f}Gi"), namespace=NAMESPACE)


async def odd_claim_gone(world: "World", item: "PlannedEvent") -> None:
    for node in world.nodes.values():
        bounds.nothing_large_is_held(node, world.found)
    for name in (item.whom, _name(item.whom, ODD_NAME)):
        try:
            await world.api.delete(CLAIMS, name, namespace=NAMESPACE)
        except NotFound:
            pass  # it has one of the two names


async def manner(world: "World", item: "PlannedEvent") -> None:
    manners = world.nodes[item.whom].manners
    world.nodes[item.whom].behave(item.detail)
    manners.named = world.referee.is_named
    manners.lateness, manners.made_late = item.number, world.referee.made_late


async def clock_jumps(world: "World", item: "PlannedEvent") -> None:
    world.nodes[item.whom].clock_offset += item.number


async def flags_changed(world: "World", item: "PlannedEvent") -> None:
    node = world.nodes[item.whom]
    node.flags = (item.detail,)
    node.kill()


async def class_guarded(world: "World", item: "PlannedEvent") -> None:
    """The same class, whose volumes are made with a Secret."""
    await world.api.delete(CLASSES, item.whom)
    await _late_class(world, item.whom, secret_of=NAMESPACE)


async def class_keyless(world: "World", _: "PlannedEvent") -> None:
    await _late_class(world, KEYLESS, secret_of="nowhere")


async def _late_class(world: "World", name: str, *, secret_of: str) -> None:
    parameters = {f"{_SECRET_PREFIX}name": SECRET, f"{_SECRET_PREFIX}namespace": secret_of}
    body = {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": LATE, "parameters": parameters}
    await world.api.create(CLASSES, body)


async def flipped_claim(world: "World", item: "PlannedEvent") -> None:
    class_, pause, *nodes = item.detail.split()
    notes = {names.STORAGE_PROVISIONER: DRIVER}
    await world.api.create(CLAIMS, _claim(item.whom, class_, notes, size=f"{item.number:.0f}Gi"), namespace=NAMESPACE)
    world.spawn(item.whom, _move_to_and_fro(world, item.whom, nodes, float(pause)))


async def flips_end(world: "World", item: "PlannedEvent") -> None:
    world.give_up(item.whom)


async def _move_to_and_fro(world: "World", name: str, nodes: list[str], pause: float) -> None:
    """It belongs to nobody for a moment in between, because no node may take a claim from another one."""
    for node in itertools.cycle(nodes):
        await _select(world, name, None)
        if (await _select(world, name, node))["spec"].get("volumeName"):
            return
        await asyncio.sleep(pause)


async def _select(world: "World", name: str, node: str | None) -> Json:
    note = {"metadata": {"annotations": {names.SELECTED_NODE: node}}}
    return await world.api.patch(CLAIMS, name, note, content_type=MERGE_PATCH, namespace=NAMESPACE)


async def forged_line(world: "World", item: "PlannedEvent") -> None:
    """As if a process had died while it made or deleted one of the node's volumes, for a claim of another name."""
    node, number = world.nodes[item.whom], int(item.number)
    named = {volume["spec"]["csi"]["volumeHandle"]: volume for volume in (await world.api.list_page(VOLUMES, limit=0)).items}
    there = [volume for volume in node.driver.volumes() if volume.id in named]
    if not there:
        return
    chosen = there[number % len(there)]
    uid = named[chosen.id]["spec"]["claimRef"]["uid"]
    if item.detail in (OTHER_UID, OTHER_SECRET):
        uid = f"{number:08d}-0000-4000-8000-{len(world.transcript.lines):012d}"
    name = f"pvc-{uid}" if item.detail == OTHER_SECRET else chosen.name
    request = CreateRequest(name, chosen.bytes, chosen.capabilities)
    deletion = BegunDeletion(chosen.id) if item.detail == DELETION else None
    node.folder.forged.append(CreationRecord(uid, NAMESPACE, "nobody-s", "late", request, secret=OTHER, deletion=deletion))


async def volume_deleted(world: "World", item: "PlannedEvent") -> None:
    for name in await _volumes_of(world, item.whom):
        await world.api.delete(VOLUMES, name)


async def volume_relabelled(world: "World", item: "PlannedEvent") -> None:
    labels = {names.VOLUME_NODE: None if item.detail == NO_LABEL else item.detail}
    for name in await _volumes_of(world, item.whom):
        await world.api.patch(VOLUMES, name, {"metadata": {"labels": labels}}, content_type=MERGE_PATCH)


async def _volumes_of(world: "World", claim: str) -> list[str]:
    """What there is by now."""
    volumes = (await world.api.list_page(VOLUMES, limit=0)).items
    return [volume["metadata"]["name"] for volume in volumes if (volume["spec"].get("claimRef") or {}).get("name") == claim]


async def retained(world: "World", item: "PlannedEvent") -> None:
    """The sidecar dies right after it has stored a volume, before it has written that down; and while it is away, somebody keeps the data
    of the volume and deletes its objects.

    Not where the PersistentVolume is on its way a second time: it would come back and say Delete, as nobody but its user could contradict.
    """
    node = world.nodes[item.whom]
    volumes = (await world.api.list_page(VOLUMES, limit=0)).items
    ours = {volume.id: volume for volume in node.driver.volumes()}
    bound = [
        volume
        for volume in volumes
        if volume["spec"]["csi"]["volumeHandle"] in ours
        and volume["status"].get("phase") == "Bound"
        and not world.network.sent[f"create {VOLUMES} {volume['metadata']['name']}"]
    ]
    node.lay_down()
    if not bound:
        return
    chosen = bound[int(item.number) % len(bound)]
    made, claim = ours[chosen["spec"]["csi"]["volumeHandle"]], chosen["spec"]["claimRef"]
    request = CreateRequest(made.name, made.bytes, made.capabilities, made.parameters, requisite=(node.driver.info.segment,))
    node.folder.begun[claim["uid"]] = CreationRecord(claim["uid"], NAMESPACE, claim["name"], chosen["spec"]["storageClassName"], request)
    node.folder.signs[claim["uid"]] = world.clock()
    world.retained.add(made.id)
    world.give_up(claim["name"])
    name, spec = chosen["metadata"]["name"], {"persistentVolumeReclaimPolicy": "Retain"}
    await world.api.patch(VOLUMES, name, {"spec": spec}, content_type=MERGE_PATCH)
    for resource in (PODS, CLAIMS):
        with suppress(NotFound):
            await world.api.delete(resource, claim["name"], namespace=NAMESPACE, grace_period_seconds=0)
    with suppress(NotFound):
        await world.api.delete(VOLUMES, name)
        await world.api.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)


async def gets_up(world: "World", item: "PlannedEvent") -> None:
    world.nodes[item.whom].get_up()


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
    return _claim(name, class_, notes, size=size)


def _claim(name: str, class_: str, notes: dict[str, str], *, size: str) -> Json:
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    meta = {"name": name, "namespace": NAMESPACE, "annotations": notes}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
