"""Carries out the events of a plan of emptying. What drain worlds have too is left to `actions`; the table is at the end."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from hack.sim.drains import actions, plan
from hack.sim.drains.emptying_plan import EPHEMERAL, EVACUATE, GIVEN_UP, SET, UNDONE, WORDS
from hack.sim.drains.workloads import workload_of
from hack.sim.world.node import NAMESPACE
from hack.sim.world.plan import PlannedEvent
from sidecar.kube.api import BUDGETS, CLAIMS, MERGE_PATCH, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.drains.emptying_world import EmptyingWorld

REPLICAS: Final = 3
_DATA: Final = "data"


async def carry_out(world: "EmptyingWorld", item: PlannedEvent) -> None:
    act = _TABLE.get(item.what)
    if act is None:
        await actions.carry_out(world, item)
        return
    try:
        await act(world, item)
    except NotFound:
        world.transcript.tell("world", f"{item.what} {item.whom}: too late")


async def _set(world: "EmptyingWorld", item: PlannedEvent) -> None:
    managed, kind, budget = item.detail.split()
    world.starts[item.whom] = item.number
    world.delays[f"{NAMESPACE}/{item.whom}"] = 0.0
    world.kinds[item.whom] = kind
    pod: Json = {"containers": [{"name": "main", "image": "none"}]}
    spec = {"storageClassName": plan.LATE, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"metadata": {"name": _DATA, "annotations": _word(kind)}, "spec": spec}
    if kind == EPHEMERAL:
        pod["volumes"] = [{"name": _DATA, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
    body = workload_of(STATEFUL_SETS, item.whom, pod, replicas=REPLICAS)
    body["spec"] |= {"podManagementPolicy": managed, "volumeClaimTemplates": [] if kind == EPHEMERAL else [template]}
    await world.api.create(STATEFUL_SETS, body, namespace=NAMESPACE)
    field, _, text = budget.partition("=")
    if text:
        value = int(text) if text.isdigit() else text
        wanted = {"selector": {"matchLabels": {"app": item.whom}}, field: value}
        await world.api.create(BUDGETS, {"metadata": {"name": item.whom}, "spec": wanted}, namespace=NAMESPACE)


def _word(kind: str) -> Json:
    return {names.DRAIN_POLICY: WORDS[kind]} if kind in WORDS else {}


async def _needed(world: "EmptyingWorld", item: PlannedEvent) -> None:
    """Of those that had been given up only."""
    kind = world.kinds.get(item.whom)
    if kind in WORDS:
        word = "Block" if item.what == "needed" else WORDS[kind]
        for ordinal in range(REPLICAS):
            try:
                notes = {"metadata": {"annotations": {names.DRAIN_POLICY: word}}}
                await actions.merge(world, CLAIMS, f"{_DATA}-{item.whom}-{ordinal}", notes)
            except NotFound:
                pass  # it is being made anew


async def _readiness(world: "EmptyingWorld", item: PlannedEvent) -> None:
    await set_ready(world, f"{item.whom}-{item.number:.0f}", ready=item.what == "replica ready")


async def set_ready(world: "EmptyingWorld", name: str, *, ready: bool) -> None:
    """Only of a pod that runs. One that is made anew begins anew."""
    pod = await world.api.get(PODS, name, namespace=NAMESPACE)
    conditions = pod["status"].get("conditions") or ()
    if pod["status"].get("phase") != "Running" or not any(each["type"] == "Ready" for each in conditions):
        return
    others = [each for each in conditions if each["type"] != "Ready"]
    patch = {"status": {"conditions": [*others, {"type": "Ready", "status": "True" if ready else "False"}]}}
    await world.api.patch(PODS, name, patch, content_type=MERGE_PATCH, namespace=NAMESPACE, subresource="status")


async def _pod_deleted(world: "EmptyingWorld", item: PlannedEvent) -> None:
    await world.api.delete(PODS, f"{item.whom}-{item.number:.0f}", namespace=NAMESPACE)


async def _new_revision(world: "EmptyingWorld", item: PlannedEvent) -> None:
    notes = {"example.com/revision": f"{world.clock():.0f}"}
    await actions.merge(world, STATEFUL_SETS, item.whom, {"spec": {"template": {"metadata": {"annotations": notes}}}})


async def _scaled(world: "EmptyingWorld", item: PlannedEvent) -> None:
    await actions.merge(world, STATEFUL_SETS, item.whom, {"spec": {"replicas": int(item.number)}})


async def _evacuation(world: "EmptyingWorld", item: PlannedEvent) -> None:
    world.asked(item.whom, item.what == EVACUATE)
    await actions.carry_out(world, item)


async def _dies_at_eviction(world: "EmptyingWorld", item: PlannedEvent) -> None:
    world.dies_at_eviction[item.whom] = item.detail


async def _kubelet(world: "EmptyingWorld", item: PlannedEvent) -> None:
    if item.what == "kubelet hangs":
        world.silent.add(item.whom)
    else:
        await world.wake_kubelet(item.whom)


async def operate(world: "EmptyingWorld") -> None:
    """The owners of what is given up: they delete the claim of each pod that waits for a node that is emptied, as the README says."""
    for pod in (await world.api.list_page(PODS, namespace=NAMESPACE, limit=0)).items:
        if world.kinds.get((pod["metadata"].get("labels") or {}).get("app", "")) != GIVEN_UP or pod["spec"].get("nodeName"):
            continue
        try:
            claim = await world.api.get(CLAIMS, f"{_DATA}-{pod['metadata']['name']}", namespace=NAMESPACE)
        except NotFound:
            continue
        node = world.place_of(claim["spec"].get("volumeName", ""))
        if world.evacuated.get(node) and (claim["metadata"].get("annotations") or {}).get(names.DRAIN_POLICY) == WORDS[GIVEN_UP]:
            world.transcript.tell("operator", f"deletes {claim['metadata']['name']}, whose data is on {node}")
            try:
                await world.api.delete(CLAIMS, claim["metadata"]["name"], namespace=NAMESPACE, uid=claim["metadata"]["uid"])
            except ApiError:
                pass  # gone meanwhile


_TABLE: Final[dict[str, Callable[["EmptyingWorld", PlannedEvent], Awaitable[None]]]] = {
    SET: _set,
    EVACUATE: _evacuation,
    UNDONE: _evacuation,
    "needed": _needed,
    "given up": _needed,
    "replica not ready": _readiness,
    "replica ready": _readiness,
    "pod deleted": _pod_deleted,
    "new revision": _new_revision,
    "set scaled": _scaled,
    "dies at its eviction": _dies_at_eviction,
    "kubelet hangs": _kubelet,
    "kubelet works": _kubelet,
}
