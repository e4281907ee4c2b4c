"""Carries out the events of a plan: what users, owners, operators, the weather and accidents do to a world. The table is at the end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hack.sim.world import failover, maintenance, people, themes
from hack.sim.world.node import DRIVER, NAMESPACE
from hack.sim.world.people import Drain, acknowledge, claim_of, merge, pod_spec, set_of
from hack.sim.world.plan import IMMEDIATE_CLASS, LATE, PlannedEvent
from sidecar.kube.api import BUDGETS, CLAIMS, DRAIN_REPORTS, LEASES, MERGE_PATCH, NODES, PODS, STATEFUL_SETS, VOLUMES, Resource
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

REPLICAS: Final = 3
_DATA: Final = "data"
_LARGE: Final = 60_000
_PATIENCE: Final = 1.0
_LAST: Final = 30.0
"""Seconds from an undo until the node is uncordoned too."""


async def carry_out(world: "World", item: PlannedEvent) -> None:
    try:
        if (doing := _TABLE[item.what](world, item)) is not None:
            await doing
    except (NotFound, AlreadyExists):
        world.transcript.tell("world", f"{item.what} {item.whom}: too late")


# --- users: claims and pods -----------------------------------------------------------------------------------------------


async def _make(world: "World", item: PlannedEvent) -> None:
    """Creates the claim, and for late binding the pod that uses it."""
    await _make_one(world, CLAIMS, claim_of(item.whom, item.detail, size=f"{item.number:.0f}Gi"))
    if item.detail != IMMEDIATE_CLASS:
        await _make_one(world, PODS, {"metadata": {"name": item.whom}, "spec": pod_spec(item.whom)})


async def _make_one(world: "World", resource: Resource, body: Json) -> None:
    """Waits while an object of the same name is still being deleted, as controllers do."""
    while True:
        try:
            await world.api.create(resource, body, namespace=NAMESPACE)
            return
        except AlreadyExists:
            await asyncio.sleep(_PATIENCE)


async def _delete(world: "World", item: PlannedEvent) -> None:
    world.give_up(item.whom)
    for resource in (PODS, CLAIMS):
        with suppress(NotFound):  # an Immediate claim has no pod, and a claim may be deleted twice
            await world.api.delete(resource, item.whom, namespace=NAMESPACE, grace_period_seconds=0)


async def _odd_claim(world: "World", item: PlannedEvent) -> None:
    """Of a tenant who writes what he likes."""
    kind, _, node = item.detail.partition("/")
    class_ = {themes.HUGE: IMMEDIATE_CLASS, themes.WITHOUT_CLASS: "there-is-none", themes.SELF_SELECTED: LATE, themes.NOWHERE: LATE}[kind]
    chosen = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: "no-such-node" if kind == themes.NOWHERE else node}
    notes = {"note": "x" * _LARGE} if kind == themes.HUGE else chosen
    await world.api.create(CLAIMS, claim_of(item.whom, class_, notes, size=f"{item.number:.0f}Gi"), namespace=NAMESPACE)


async def _volume_deleted(world: "World", item: PlannedEvent) -> None:
    for volume in (await world.api.list_page(VOLUMES, limit=0)).items:
        if (volume["spec"].get("claimRef") or {}).get("name") == item.whom:
            await world.api.delete(VOLUMES, volume["metadata"]["name"])


# --- owners: workloads and what they say ----------------------------------------------------------------------------------


async def _app(world: "World", item: PlannedEvent) -> None:
    """One replica, with a claim of its own."""
    class_, _, word = item.detail.partition(" ")
    key, _, text = word.partition("=")
    await world.api.create(CLAIMS, claim_of(item.whom, class_, {key: text} if key else {}), namespace=NAMESPACE)
    world.delays[f"{NAMESPACE}/{item.whom}"] = item.number
    await world.api.create(STATEFUL_SETS, set_of(item.whom, pod_spec(item.whom)), namespace=NAMESPACE)


async def _set(world: "World", item: PlannedEvent) -> None:
    """Three replicas, with a budget. Their pods are made again at once."""
    managed, kind, budget = item.detail.split()
    world.starts[item.whom], world.kinds[item.whom], world.delays[f"{NAMESPACE}/{item.whom}"] = item.number, kind, 0.0
    await _create_set(world, item.whom, LATE, REPLICAS, managed=managed, kind=kind)
    field, _, text = budget.partition("=")
    if text:
        wanted = {"selector": {"matchLabels": {"app": item.whom}}, field: int(text) if text.isdigit() else text}
        await world.api.create(BUDGETS, {"metadata": {"name": item.whom}, "spec": wanted}, namespace=NAMESPACE)


async def _create_set(world: "World", name: str, class_: str, replicas: int, *, managed: str = "Parallel", kind: str = "") -> None:
    """Its claims are made again."""
    notes = {names.DRAIN_POLICY: themes.POLICIES[kind]} if kind in themes.POLICIES else {}
    template, is_ephemeral = claim_of(_DATA, class_, notes), kind == themes.EPHEMERAL
    body = set_of(name, pod_spec(), replicas=replicas)
    body["spec"] |= {"podManagementPolicy": managed, "volumeClaimTemplates": [] if is_ephemeral else [template]}
    if is_ephemeral:
        pod = body["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": _DATA, "ephemeral": {"volumeClaimTemplate": {"spec": template["spec"]}}}]
    await world.api.create(STATEFUL_SETS, body, namespace=NAMESPACE)


async def _scale(world: "World", item: PlannedEvent) -> None:
    workload = await world.api.get(STATEFUL_SETS, item.whom, namespace=NAMESPACE)
    world.wanted.setdefault(item.whom, []).append((world.clock(), workload["spec"]["replicas"]))
    await merge(world, STATEFUL_SETS, item.whom, {"spec": {"replicas": int(item.number)}})


async def _app_deleted(world: "World", item: PlannedEvent) -> None:
    await world.api.delete(STATEFUL_SETS, item.whom, namespace=NAMESPACE)
    await world.api.delete(CLAIMS, item.whom, namespace=NAMESPACE)


async def _word(world: "World", item: PlannedEvent) -> None:
    key, _, text = item.detail.partition("=")
    notes: Json = dict.fromkeys((names.DRAIN_POLICY, names.DRAIN_POLICY_RETIRE, names.DRAIN_POLICY_REBOOT))
    await merge(world, CLAIMS, item.whom, {"metadata": {"annotations": notes | ({key: text} if key else {})}})


async def _needed(world: "World", item: PlannedEvent) -> None:
    """Of those that had been given up only."""
    kind = world.kinds.get(item.whom)
    if kind in themes.POLICIES:
        notes = {"metadata": {"annotations": {names.DRAIN_POLICY: "Block" if item.what == "needed" else themes.POLICIES[kind]}}}
        for ordinal in range(REPLICAS):
            with suppress(NotFound):  # it is being made anew
                await merge(world, CLAIMS, f"{_DATA}-{item.whom}-{ordinal}", notes)


async def _ack(world: "World", item: PlannedEvent) -> None:
    claim = await world.api.get(CLAIMS, item.whom, namespace=NAMESPACE)
    if volume := claim["spec"].get("volumeName"):
        await acknowledge(world, volume)


async def set_ready(world: "World", name: str, *, ready: bool) -> None:
    """Only of a pod that runs. One that is made anew begins anew."""
    pod = await world.api.get(PODS, name, namespace=NAMESPACE)
    conditions = pod["status"].get("conditions") or ()
    if pod["status"].get("phase") != "Running" or not any(each["type"] == "Ready" for each in conditions):
        return
    others = [each for each in conditions if each["type"] != "Ready"]
    changed = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": world.cluster.now()}
    patch = {"status": {"conditions": [*others, changed]}}
    await world.api.patch(PODS, name, patch, content_type=MERGE_PATCH, namespace=NAMESPACE, subresource="status")


async def _new_revision(world: "World", item: PlannedEvent) -> None:
    notes = {"example.com/revision": f"{world.clock():.0f}"}
    await merge(world, STATEFUL_SETS, item.whom, {"spec": {"template": {"metadata": {"annotations": notes}}}})


async def operate(world: "World") -> None:
    """The owners of what is given up: they delete the claim of each pod that waits for a node that is emptied, as the README says."""
    for pod in world.cluster.store.all_of(PODS):
        if world.kinds.get((pod["metadata"].get("labels") or {}).get("app", "")) != themes.GIVEN_UP or pod["spec"].get("nodeName"):
            continue
        claim = world.cluster.store.find(CLAIMS, f"{_DATA}-{pod['metadata']['name']}", NAMESPACE)
        if claim is None or (claim["metadata"].get("annotations") or {}).get(names.DRAIN_POLICY) != themes.POLICIES[themes.GIVEN_UP]:
            continue
        node = world.effects.machine_of(world.effects.volume_of(claim))
        if world.evacuated.get(node):
            world.transcript.tell("operator", f"deletes {claim['metadata']['name']}, whose data is on {node}")
            with suppress(ApiError):  # gone meanwhile
                await world.api.delete(CLAIMS, claim["metadata"]["name"], namespace=NAMESPACE, uid=claim["metadata"]["uid"])


# --- operators and accidents: nodes ---------------------------------------------------------------------------------------


def _drain(world: "World", item: PlannedEvent) -> None:
    if item.whom in world.nodes and item.whom not in world.drains:
        order = world.drains[item.whom] = Drain(item.whom, reboots=item.what == "drain for reboot", announces=item.detail)
        world.spawn(f"drain {item.whom}", people.drain(world, order))


async def _evacuation(world: "World", item: PlannedEvent) -> None:
    """By the taint, or announced and cordoned. Who takes back what he has announced leaves the cordon to the end."""
    name, wanted = world.node(_named(world, item)).name, item.what == themes.EVACUATE
    world.asked(name, wanted)
    taint = {"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}
    by_taint = wanted and item.detail != themes.ANNOUNCED
    spec: Json = {"taints": [taint] if by_taint else None} | ({"unschedulable": True} if wanted and not by_taint else {})
    meta = {"annotations": {names.DRAIN_INTENT: "retire" if wanted and not by_taint else None}}
    await merge(world, NODES, name, {"metadata": meta, "spec": spec})
    world.spawn(f"cordon of {name}", _uncordon(world, name))


async def _uncordon(world: "World", name: str) -> None:
    await asyncio.sleep(_LAST)
    if not world.evacuated[name]:
        await people.change(world, name, {"spec": {"unschedulable": None}})


def _named(world: "World", item: PlannedEvent) -> str:
    """The node, or the one whose sidecar looks after gone nodes."""
    if item.whom != themes.HOLDER:
        return item.whom
    lease = world.cluster.store.find(LEASES, names.watch(DRIVER), NAMESPACE)
    owners = (lease or {}).get("metadata", {}).get("ownerReferences") or ()
    return next((owner["name"] for owner in owners if owner["name"] in world.nodes), "")


async def _kubelet_works(world: "World", item: PlannedEvent) -> None:
    world.silent.discard(item.whom)
    await world.tell_ready(item.whom, "True")


async def _acknowledge_loss(world: "World", name: str) -> None:
    """A person waits for the report on the node that is gone, and says that its disks are lost."""
    for _ in range(60):
        lost = world.lost.get(name)
        report = world.cluster.store.find(DRAIN_REPORTS, names.drain_report(name, DRIVER))
        gone = ((report or {}).get("status") or {}).get("gone") or {}
        if report and lost and gone and gone.get("evidence") != "Unproven" and report["status"].get("nodeUID") == lost.uid:
            lost.given_up = True
            patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: lost.uid}, "uid": report["metadata"]["uid"]}}
            with suppress(NotFound, Conflict):
                await world.api.patch(DRAIN_REPORTS, report["metadata"]["name"], patch, content_type=MERGE_PATCH)
                world.transcript.tell("world", f"the loss of {name} is acknowledged")
                lost.known_to_go = True
            return
        await asyncio.sleep(30.0)


def _everywhere(world: "World", item: PlannedEvent) -> None:
    if item.what == "compact":
        world.cluster.compact()
    does = {"outage": world.network.take_down, "recovery": world.bring_up, "compact": world.network.break_connections}[item.what]
    for name in world.nodes:
        does(name)


def _placement(world: "World", item: PlannedEvent) -> None:
    world.node(item.whom).flags = (f"--node-deployment-placement={item.detail}",)
    world.node(item.whom).stop()


_TABLE: Final[dict[str, Callable[["World", PlannedEvent], Awaitable[None] | None]]] = {
    "claim": lambda world, item: world.spawn(item.whom, _make(world, item)),
    "delete": _delete,
    "odd claim": _odd_claim,
    "odd claim gone": _delete,
    "volume deleted": _volume_deleted,
    "app": _app,
    "app deleted": _app_deleted,
    themes.SET: _set,
    themes.LOST_SET: lambda world, item: _create_set(world, item.whom, item.detail, int(item.number)),
    "scale": _scale,
    "word": _word,
    "needed": _needed,
    "given up": _needed,
    "ack": _ack,
    "replica ready": lambda world, item: set_ready(world, f"{item.whom}-{item.number:.0f}", ready=True),
    "replica not ready": lambda world, item: set_ready(world, f"{item.whom}-{item.number:.0f}", ready=False),
    "pod deleted": lambda world, item: world.api.delete(PODS, f"{item.whom}-{item.number:.0f}", namespace=NAMESPACE),
    "new revision": _new_revision,
    "drain for good": _drain,
    "drain for reboot": _drain,
    themes.EVACUATE: _evacuation,
    themes.UNDONE: _evacuation,
    "kill": lambda world, item: world.node(item.whom).kill(),
    "doom": lambda world, item: world.node(item.whom).doom(int(item.number)),
    "stop": lambda world, item: world.node(item.whom).stop(),
    "sidecar dies": lambda world, item: world.node(item.whom).lay_down(),
    "sidecar lives": lambda world, item: world.node(item.whom).get_up(),
    "placement": _placement,
    "driver away": lambda world, item: world.node(item.whom).link.go_down(),
    "driver back": lambda world, item: world.node(item.whom).driver_back(),
    "disk full": lambda world, item: setattr(world.node(item.whom).folder, "full", True),
    "disk free": lambda world, item: setattr(world.node(item.whom).folder, "full", False),
    "outage": _everywhere,
    "recovery": _everywhere,
    "partition": lambda world, item: world.network.take_down(item.whom),
    "healed": lambda world, item: world.bring_up(item.whom),
    "compact": _everywhere,
    "cut": lambda world, item: world.network.break_connections(item.whom),
    "lag": lambda world, item: world.network.local_delay(item.whom, item.number),
    "lag over": lambda world, item: world.network.local_delay(item.whom, 0.0),
    "errors": lambda world, item: setattr(world, "errors", item.number),
    "no errors": lambda world, item: setattr(world, "errors", 0.0),
    "kubelet hangs": lambda world, item: world.silent.add(item.whom),
    "kubelet works": _kubelet_works,
    themes.LOST: lambda world, item: world.lose(_named(world, item), item.number, first=item.detail),
    themes.BACK: lambda world, item: world.come_back(item.whom),
    "dies at an effect": lambda world, item: world.at_effects.append(item.detail),
    "loss acknowledged": lambda world, item: world.spawn(f"ack {item.whom}", _acknowledge_loss(world, item.whom)),
    "nothing": lambda world, item: None,
    **maintenance.TABLE,
    **failover.TABLE,
}
