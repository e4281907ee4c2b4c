"""Carries out the events of a drain plan. What other worlds have too is left to `world.plan_actions`; the table is at the end."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hack.sim.drains import drainer
from hack.sim.drains.drainer import Drain
from hack.sim.drains.workloads import workload_of
from hack.sim.driver.state import LocalVolume
from hack.sim.world import plan_actions
from hack.sim.world.node import DRIVER, NAMESPACE, POOL, TOPOLOGY_KEY
from hack.sim.world.plan import PlannedEvent
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NODES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.drain_world import DrainWorld

_SIZE: Final = 2**30
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


async def carry_out(world: "DrainWorld", item: PlannedEvent) -> None:
    act = _TABLE.get(item.what)
    if act is None:
        if not item.whom or item.whom in world.nodes:
            await plan_actions.carry_out(world, item)  # type: ignore[arg-type]
        return
    try:
        await act(world, item)
    except (NotFound, AlreadyExists):
        world.transcript.tell("world", f"{item.what} {item.whom}: too late")


async def _app(world: "DrainWorld", item: PlannedEvent) -> None:
    class_, _, word = item.detail.partition(" ")
    await world.api.create(CLAIMS, _claim(item.whom, class_, word), namespace=NAMESPACE)
    await _start(world, item)


async def _start(world: "DrainWorld", item: PlannedEvent) -> None:
    world.delays[f"{NAMESPACE}/{item.whom}"] = item.number
    await world.api.create(STATEFUL_SETS, workload_of(STATEFUL_SETS, item.whom, pod_spec(item.whom)), namespace=NAMESPACE)


async def _scale(world: "DrainWorld", item: PlannedEvent) -> None:
    await merge(world, STATEFUL_SETS, item.whom, {"spec": {"replicas": int(item.number)}})


async def _app_deleted(world: "DrainWorld", item: PlannedEvent) -> None:
    await world.api.delete(STATEFUL_SETS, item.whom, namespace=NAMESPACE)
    await world.api.delete(CLAIMS, item.whom, namespace=NAMESPACE)


async def _word(world: "DrainWorld", item: PlannedEvent) -> None:
    key, _, text = item.detail.partition("=")
    notes: Json = dict.fromkeys((names.DRAIN_POLICY, names.DRAIN_POLICY_RETIRE, names.DRAIN_POLICY_REBOOT))
    await merge(world, CLAIMS, item.whom, {"metadata": {"annotations": notes | ({key: text} if key else {})}})


async def _ack(world: "DrainWorld", item: PlannedEvent) -> None:
    claim = await world.api.get(CLAIMS, item.whom, namespace=NAMESPACE)
    if volume := claim["spec"].get("volumeName"):
        await acknowledge(world, VOLUMES, volume)


async def acknowledge(world: "DrainWorld", resource: Resource, name: str) -> None:
    text = f"by the owner, at {world.clock():.0f}"
    await merge(world, resource, name, {"metadata": {"annotations": {names.ACKNOWLEDGED: text}}})


async def merge(world: "DrainWorld", resource: Resource, name: str, patch: Json) -> None:
    namespace = NAMESPACE if resource.namespaced else ""
    await world.api.patch(resource, name, patch, content_type=MERGE_PATCH, namespace=namespace)


# --- volumes made by hand ---------------------------------------------------------------------------------------------


async def _shared_volume(world: "DrainWorld", item: PlannedEvent) -> None:
    await _by_hand(world, item, item.detail.split(), _affinity(item.detail.split()))


async def _unplaced_volume(world: "DrainWorld", item: PlannedEvent) -> None:
    await _by_hand(world, item, [item.detail], {}, runs_on=item.detail)


async def _orphan(world: "DrainWorld", item: PlannedEvent) -> None:
    key, _, value = item.detail.rpartition("=")
    await world.api.create(VOLUMES, _volume(item.whom, _affinity([value], key=key or TOPOLOGY_KEY), claim=None))


async def _by_hand(world: "DrainWorld", item: PlannedEvent, nodes: list[str], affinity: Json, *, runs_on: str = "") -> None:
    for node in nodes:
        driver = world.nodes[node].driver
        serial = driver._state.serial + 1
        driver._state.volumes[item.whom] = LocalVolume(item.whom, item.whom, POOL, _SIZE, serial)
    claim = await world.api.create(CLAIMS, _claim(item.whom, "", "", volume=item.whom), namespace=NAMESPACE)
    await world.api.create(VOLUMES, _volume(item.whom, affinity, claim=claim))
    bound = {"status": {"phase": "Bound"}}
    await world.api.patch(VOLUMES, item.whom, bound, content_type=MERGE_PATCH, subresource="status")
    world.delays[f"{NAMESPACE}/{item.whom}"] = item.number
    spec = pod_spec(item.whom) | ({"nodeSelector": {"kubernetes.io/hostname": runs_on}} if runs_on else {})
    await world.api.create(STATEFUL_SETS, workload_of(STATEFUL_SETS, item.whom, spec), namespace=NAMESPACE)


async def _snapshot(world: "DrainWorld", item: PlannedEvent) -> None:
    """Of a volume that is gone, by a snapshotter that does not say on which node it is."""
    world.truth.snapshots[item.whom] = item.detail
    spec = {"driver": DRIVER, "deletionPolicy": "Retain", "source": {"volumeHandle": "gone"}, "volumeSnapshotRef": {}}
    await world.api.create(SNAPSHOT_CONTENTS, {"metadata": {"name": item.whom}, "spec": spec})


# --- tenants that lie ---------------------------------------------------------------------------------------------------


async def _driver_pod(world: "DrainWorld", item: PlannedEvent) -> None:
    """It runs on no node of this world, and needs none."""
    body = {"metadata": {"name": item.whom}, "spec": {"containers": [{"name": "main", "image": "none"}], "schedulerName": "other"}}
    await world.api.create(PODS, body, namespace=NAMESPACE)


async def _owned_by_pod(world: "DrainWorld", item: PlannedEvent) -> None:
    pod = await world.api.get(PODS, item.detail, namespace=NAMESPACE)
    owner = {"apiVersion": "v1", "kind": names.POD, "name": item.detail, "uid": pod["metadata"]["uid"], "controller": True}
    await merge(world, CLAIMS, item.whom, {"metadata": {"ownerReferences": [owner]}})


async def _self_selected(world: "DrainWorld", item: PlannedEvent) -> None:
    """A claim that can never be made, whose owner says that this node is to make it."""
    body = _claim(item.whom, "late", f"{names.SELECTED_NODE}={item.detail}")
    body["spec"]["selector"] = {"matchLabels": {"no": "such"}}
    await world.api.create(CLAIMS, body, namespace=NAMESPACE)


# --- nodes ----------------------------------------------------------------------------------------------------------------


async def _drain(world: "DrainWorld", item: PlannedEvent) -> None:
    if item.whom in world.nodes and item.whom not in world.drains:
        order = world.drains[item.whom] = Drain(item.whom, reboots=item.what == "drain for reboot", announces=item.detail)
        world.spawn(f"drain {item.whom}", drainer.drain(world, order))


async def _evacuation(world: "DrainWorld", item: PlannedEvent) -> None:
    taint = {"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}
    await merge(world, NODES, item.whom, {"spec": {"taints": [taint] if item.what == "evacuate" else None}})


async def _cordon(world: "DrainWorld", item: PlannedEvent) -> None:
    await drainer.cordon(world, item.whom, cordoned=item.what == "cordon")


async def _announce(world: "DrainWorld", item: PlannedEvent) -> None:
    await drainer.annotate(world, item.whom, item.detail, "reboot" if item.detail == names.DRAIN_INTENT else "yes")


async def _rename(world: "DrainWorld", item: PlannedEvent) -> None:
    await world.rename(item.whom, item.detail)


async def _dies(world: "DrainWorld", item: PlannedEvent) -> None:
    if node := world.nodes.get(item.whom):
        node.lay_down()


async def _lives(world: "DrainWorld", item: PlannedEvent) -> None:
    if node := world.nodes.get(item.whom):
        node.get_up()


async def _silent(world: "DrainWorld", item: PlannedEvent) -> None:
    if item.whom in world.nodes:
        world.silent.add(item.whom)
        world.take_down(item.whom)
        taints = [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        await merge(world, NODES, item.whom, {"spec": {"taints": taints}})
        await world.tell_ready(item.whom, "Unknown")
        world.spawn(f"taints of {item.whom}", world.evict_by_taint(item.whom))


async def _answers(world: "DrainWorld", item: PlannedEvent) -> None:
    world.silent.discard(item.whom)
    world.give_up(f"taints of {item.whom}")
    if item.whom in world.nodes:
        world.bring_up(item.whom)
        await merge(world, NODES, item.whom, {"spec": {"taints": None}})
        await world.tell_ready(item.whom, "True")


async def _forbid(world: "DrainWorld", item: PlannedEvent) -> None:
    world.network.forbid(item.whom, item.detail)


async def _allow(world: "DrainWorld", item: PlannedEvent) -> None:
    world.network.allow(item.whom)


_TABLE: Final[dict[str, Callable[["DrainWorld", PlannedEvent], Awaitable[None]]]] = {
    "app": _app,
    "scale": _scale,
    "app deleted": _app_deleted,
    "word": _word,
    "ack": _ack,
    "shared volume": _shared_volume,
    "unplaced volume": _unplaced_volume,
    "orphan": _orphan,
    "snapshot": _snapshot,
    "driver pod": _driver_pod,
    "owned by pod": _owned_by_pod,
    "self-selected claim": _self_selected,
    "drain for good": _drain,
    "drain for reboot": _drain,
    "cordon": _cordon,
    "uncordon": _cordon,
    "evacuate": _evacuation,
    "evacuation undone": _evacuation,
    "announce": _announce,
    "rename": _rename,
    "sidecar dies": _dies,
    "sidecar lives": _lives,
    "node silent": _silent,
    "node answers": _answers,
    "forbid": _forbid,
    "allow": _allow,
}


# --- objects --------------------------------------------------------------------------------------------------------------


def pod_spec(claim: str) -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {"containers": [{"name": "main", "image": "none"}], "volumes": volumes}


def _claim(name: str, class_: str, note: str, *, volume: str = "") -> Json:
    key, _, text = note.partition("=")
    spec: Json = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    notes = ({key: text} if key else {}) | ({"pv.kubernetes.io/bind-completed": "yes"} if volume else {})
    spec |= {"volumeName": volume} if volume else {}
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec}


def _volume(name: str, affinity: Json, *, claim: Json | None) -> Json:
    meta = (claim or {}).get("metadata") or {}
    ref = {"kind": names.CLAIM, "apiVersion": "v1", **{key: meta.get(key) for key in ("namespace", "name", "uid")}}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": DRIVER, "volumeHandle": name},
        **({"claimRef": ref} if claim else {}),
        **({"nodeAffinity": affinity} if affinity else {}),
    }
    return {"metadata": {"name": name}, "spec": spec}


def _affinity(nodes: list[str], *, key: str = TOPOLOGY_KEY) -> Json:
    expression = {"key": key, "operator": "In", "values": nodes}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
