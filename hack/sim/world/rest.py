"""How a world comes to rest, by its theme, and what must be so then: nothing leaked, doubled, lost or left, and no wait for ever."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hack.sim.stand_ins import claims_of
from hack.sim.stand_ins import stateful_sets as objects
from hack.sim.world import failover, maintenance, people, strangers
from hack.sim.world.actions import REPLICAS, carry_out, set_ready
from hack.sim.world.moments import HOLLOW, is_whole
from hack.sim.world.network import Weather
from hack.sim.world.node import DRIVER, NAMESPACE, POOL, TOPOLOGY_KEY, Node
from hack.sim.world.plan import PlannedEvent
from hack.sim.world.themes import CLEANUP, EPHEMERAL, GIVEN_UP, SET, UNDONE
from hack.sim.world.verdicts import full_name, note
from sidecar.csi.api import CapacityQuery
from sidecar.engine.health import OK, Stopped
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, DRAIN_REPORTS, LEASES, MERGE_PATCH, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from sidecar.model.quantity import parse_bytes
from sidecar.provisioning.effects.reporting import NOT_LISTED

if TYPE_CHECKING:
    from hack.sim.world.world import World

TWO_VOLUMES: Final = "two volumes"
CAPACITY: Final = "capacity"
LEFT_BEHIND: Final = "left behind"
NOT_WHOLE: Final = "not whole"
NOT_CLEARED: Final = "not cleared"

_LINGERS: Final = 60.0
_LAST_DRAINS: Final = 300.0
_TAKEN_BACK: Final = 300.0
"""Seconds after an evacuation was taken back within which the replicas that waited for one another are ready."""
# Per node and minute at rest. Watches end and are opened again: one for each of five kinds every five minutes.
_READS_AT_REST: Final = 5.0
_WRITES_AT_REST: Final = 0.5
Findings = Iterator[tuple[str, str]]


async def come_to_rest(world: "World") -> None:
    await _THEMES[world.plan.theme][0](world)


def findings(world: "World") -> Findings:
    """Each sentence, on the same picture of the world."""
    yield from () if world.fails_over else _of_volumes(world)
    yield from (("trespass", what) for what in strangers.touched(world))
    yield from (("asked too often for one claim", what) for what in world.request_log.too_many())
    yield from ((LEFT_BEHIND, what) for what in _left_behind(world))
    yield from _THEMES[world.plan.theme][1](world)


async def _heal(world: "World") -> None:
    """Ends all trouble."""
    world.transcript.tell("world", "comes to rest")
    world.network.weather = Weather()
    world.errors = 0.0
    world.at_effects.clear()
    world.silent.clear()
    world.silent.update(world.lost)
    for name, node in world.nodes.items():
        world.network.local_delay(name, 0.0)
        world.bring_up(name)
        node.spare()
        node.get_up()
        await world.tell_ready(name, "True")


# --- volumes, in every theme --------------------------------------------------------------------------------------------------


def _of_volumes(world: "World") -> Findings:
    """Every volume of a driver has its PersistentVolume, or people are told of it; every PersistentVolume has its volume, and its claim."""
    store, held = world.cluster.store, [(node, volume) for node in world.nodes.values() for volume in node.driver.volumes()]
    volumes = [item for item in store.all_of(VOLUMES) if not strangers.is_one(item)]
    handles = Counter(item["spec"]["csi"]["volumeHandle"] for item in volumes)
    for node, volume in held:
        if volume.id not in handles.keys() | world.forsaken and not _is_told(node, volume.name):
            yield "leaked", f"volume {volume.name} on {node.name} has no PersistentVolume"
    # A suspect does not count: the claim has gone elsewhere, people are told of what may be left here, and only they may delete it.
    mine = Counter(volume.name for node, volume in held if not _is_told(node, volume.name))
    yield from ((TWO_VOLUMES, f"{count} volumes are named {name}") for name, count in mine.items() if count > 1)
    yield from ((TWO_VOLUMES, f"{count} PersistentVolumes name volume {handle}") for handle, count in handles.items() if count > 1)
    claims = Counter((item["spec"].get("claimRef") or {}).get("uid") for item in volumes)
    yield from ((TWO_VOLUMES, f"{count} PersistentVolumes are for claim {uid}") for uid, count in claims.items() if uid and count > 1)
    there = {claim["metadata"]["uid"] for claim in store.all_of(CLAIMS)}
    for item in volumes:
        handle, name, spec = item["spec"]["csi"]["volumeHandle"], item["metadata"]["name"], item["spec"]
        places = [node.name for node, volume in held if volume.id == handle]
        is_here = any(f"'{node}'" in str(spec.get("nodeAffinity")) for node in world.nodes)
        if is_here and not places:
            yield HOLLOW, f"PersistentVolume {name} has nothing behind it"
        elif places and "nodeAffinity" in spec and not any(f"'{place}'" in str(spec["nodeAffinity"]) for place in places):
            yield HOLLOW, f"PersistentVolume {name} does not lead to {places[0]}, where its volume is"
        if is_here and spec["persistentVolumeReclaimPolicy"] == "Delete" and (spec.get("claimRef") or {}).get("uid") not in there:
            yield "left over", f"PersistentVolume {name} is {(item.get('status') or {}).get('phase')}, and its claim is gone"
    for claim in store.all_of(CLAIMS):
        name = claim["spec"].get("volumeName", "")
        if name and not store.find(VOLUMES, name):
            yield HOLLOW, f"claim {claim['metadata']['name']} is bound to {name}, which is not there"


def _is_told(node: Node, volume_name: str) -> bool:
    """Whether people can read that the node may have that volume for nobody: in the journal, or if that has enough, in the event."""
    in_journal = any(begun.suspect and begun.request.name == volume_name for begun in node.folder.begun.values())
    return in_journal or any(volume_name in text and NOT_LISTED in text for text in node.leaks_told)


def _left_behind(world: "World") -> Iterator[str]:
    """Marks, notes and Leases whose reason is gone."""
    store = world.cluster.store
    for claim in store.all_of(CLAIMS):
        mark, lost = note(claim, names.REPROVISIONED_BY), note(claim, names.LOST_WITH)
        # The mark of a Node that was made again under another uid meanwhile is for a person to take off.
        node, _, uid = mark.partition("/")
        # One that is deleted is too, with its pod on it: the deletion was on its way when the pod came back.
        ends = "deletionTimestamp" in claim["metadata"]
        is_it = bool(mark) and (store.find(NODES, node) or {"metadata": {"uid": ""}})["metadata"]["uid"] == uid
        if is_it and not ends and world.effects.unasked_for(node) > 0.0:
            yield f"{claim['metadata']['name']} has the mark of {mark}, which is not being retired"
        # One that is back within the seconds between the mark and the deletion finds the mark: a person takes it off.
        if lost and lost not in world.ever_lost:
            yield f"claim {claim['metadata']['name']} says that its data was lost with {lost}, which was never lost"
    for lease in store.all_of(LEASES):
        name, owners = lease["metadata"]["name"], [owner["name"] for owner in lease["metadata"].get("ownerReferences") or ()]
        yield from (f"the Lease {name} of {owner} is there, which is gone" for owner in owners if store.find(NODES, owner) is None)
        if name.startswith("reprovision-") and not world.strays and all(world.effects.unasked_for(owner) > 0.0 for owner in owners):
            yield f"the Lease {name} of {', '.join(owners) or 'nobody'} is there, and nothing is made anew for it"
    for report in store.all_of(DRAIN_REPORTS):
        status = report.get("status") or {}
        mark = f"{report['spec']['nodeName']}/{status.get('nodeUID') or ''}"
        about = [volume for volume in store.all_of(VOLUMES) if note(volume, names.LIES_ON) == mark or mark.endswith("/")]
        if status.get("gone") and (store.find(NODES, report["spec"]["nodeName"]) is not None or not about):
            yield f"the report {report['metadata']['name']} says that the node is gone, and it is there or has left nothing"


# --- claims -------------------------------------------------------------------------------------------------------------------


async def _claims_rest(world: "World") -> None:
    await _heal(world)
    await asyncio.sleep(world.plan.settle)
    world.transcript.tell("world", "should be at rest")
    world.request_log.resting.clear()
    await asyncio.sleep(world.plan.rest)


def _of_claims(world: "World") -> Findings:
    """A claim may stay unbound only if it needs more space than any node has left; nothing hangs, figures are right, and all is quiet."""
    store, free = world.cluster.store, max(node.driver.free(POOL) for node in world.nodes.values())
    claims = [claim for claim in store.all_of(CLAIMS) if not strangers.is_one(claim)]
    there = {claim["metadata"]["uid"] for claim in claims}
    for claim in claims:
        needed = parse_bytes(claim["spec"]["resources"]["requests"]["storage"])
        if (claim.get("status") or {}).get("phase") != "Bound" and needed <= free:
            yield "lost", f"claim {claim['metadata']['name']} is not bound though {free} bytes are free somewhere"
    # A PersistentVolume that somebody deletes stays until its claim has gone.
    free_ones = [item for item in store.all_of(VOLUMES) if (item["spec"].get("claimRef") or {}).get("uid") not in there]
    for item in (*claims, *free_ones):
        if item["metadata"].get("deletionTimestamp"):
            yield "stuck", f"{item['metadata']['name']} does not go"
    for node in world.nodes.values():
        yield from _of_capacity(world, node)
        unsettled = [begun.request.name for begun in node.folder.begun.values() if not begun.suspect]  # suspects stay for people
        yield from ((LEFT_BEHIND, f"{node.name} still has {name} in its journal, though all is settled") for name in unsettled)
        rows = node.tools.health.rows() if node.sidecar is not None and node.tools is not None else ("no sidecar runs",)
        yield from (("unwell", f"{node.name}: {row}") for row in rows if not isinstance(getattr(row, "state", None), OK | Stopped))
    asked, minutes = world.request_log.resting, len(world.nodes) * world.plan.rest / 60.0
    reads = sum(count for (_, what), count in asked.items() if what.split()[0] in ("list", "watch"))
    writes = asked.total() - reads
    if reads > _READS_AT_REST * minutes or writes > _WRITES_AT_REST * minutes:
        busiest = ", ".join(f"{node} {what} ×{count}" for (node, what), count in asked.most_common(3))
        yield "never rests", f"{reads} lists and watches and {writes} other requests in {world.plan.rest:.0f} s: {busiest}"


def _of_capacity(world: "World", node: Node) -> Findings:
    """One object for each late-binding class, with what the driver says, and not marked stale. No claim has space promised any more."""
    classes = [
        item for item in world.cluster.store.all_of(CLASSES) if item["provisioner"] == DRIVER and item["volumeBindingMode"] != IMMEDIATE
    ]
    wanted = []
    for item in classes:
        answer = node.driver.get_capacity(CapacityQuery(item.get("parameters") or {}, node.driver.info.segment))
        wanted.append((item["metadata"]["name"], answer.available, answer.maximum or 0))
    labels = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(node.name)}
    ours = [item for item in world.cluster.store.all_of(CAPACITIES) if labels.items() <= (item["metadata"].get("labels") or {}).items()]
    figures = ((item["storageClassName"], *(parse_bytes(item.get(key, -1)) for key in ("capacity", "maximumVolumeSize"))) for item in ours)
    if (published := sorted(figures)) != sorted(wanted):
        yield CAPACITY, f"{node.name} publishes {published} and should publish {sorted(wanted)}"
    if any(item["nodeTopology"] != {"matchLabels": {TOPOLOGY_KEY: node.name}} or note(item, names.STALE_SINCE) for item in ours):
        yield CAPACITY, f"{node.name} publishes for somewhere else, or calls stale what its driver answers"


# --- drains -------------------------------------------------------------------------------------------------------------------


async def _drains_rest(world: "World") -> None:
    """The owners give everything up. Before that the last drains have time to do harm."""
    await asyncio.sleep(_LAST_DRAINS)
    await _heal(world)
    world.transcript.tell("people", "give everything up")
    await people.give_up(world)
    left = [what for name in world.nodes for what in world.truth.losses(world.truth.look(), name)]
    if left:  # a fault of these worlds and not of the product
        world.found("not given up", f"the owners have forgotten {', '.join(left)}")
    world.transcript.tell("world", "everything is given up")
    await asyncio.sleep(world.plan.settle)


def _of_drains(world: "World") -> Findings:
    for name in world.nodes:
        node = world.cluster.store.find(NODES, name) or {}
        said = {item["type"]: item for item in (node.get("status") or {}).get("conditions") or ()}
        for verdict in (names.DRAIN_READY, names.RETIRE_READY):
            condition = said.get(names.condition(DRIVER, verdict)) or {}
            if condition.get("status") != "True":
                why = f"{condition.get('reason')}: {condition.get('message')}"
                yield "never yes", f"{name} is {condition.get('status')} for {verdict}, and everything was given up: {why}"
    for order in world.drains.values():
        if not order.done:
            yield "held for ever", f"{order.node} is still being drained, and everything was given up: {', '.join(order.left)}"


# --- emptying and making anew ---------------------------------------------------------------------------------------------------


async def _emptying_rest(world: "World") -> None:
    """All replicas are well and wanted, and there is a node that takes pods. Then all is taken back: replicas may wait for one another, for
    nothing is deleted while another one is away, and an ordered set makes no later one."""
    await asyncio.sleep(_LINGERS)
    await _heal(world)
    if all(world.evacuated.get(node) for node in world.nodes):
        free = random.Random(f"free {world.plan.seed}").choice(list(world.nodes))
        await carry_out(world, PlannedEvent(world.clock(), UNDONE, free))
    for name in world.kinds:
        await carry_out(world, PlannedEvent(world.clock(), "scale", name, REPLICAS))
        await carry_out(world, PlannedEvent(world.clock(), "given up", name))
        for ordinal in range(REPLICAS):
            with suppress(NotFound):  # it is being made
                await set_ready(world, f"{name}-{ordinal}", ready=True)
    await asyncio.sleep(world.plan.settle)
    for name in _may_leave(world):
        world.found("not emptied", f"{name} is still on its node, and nothing keeps it there")
    for node in world.nodes:
        await carry_out(world, PlannedEvent(world.clock(), UNDONE, node))
    await asyncio.sleep(_TAKEN_BACK)


def _may_leave(world: "World") -> Iterator[str]:
    """Pods on nodes that are emptied whose volumes may go with them, whose budget lets somebody go, and that were there before anybody
    asked: what is put there during a short undo is taken for what nothing keeps off."""
    budgets = {item.whom: item.detail.split()[-1] for item in world.plan.events if item.what == SET}
    # Where several nodes are emptied at once, only a budget for one pod keeps two replicas of a set from being away.
    is_alone = "--max-concurrent-evacuations=1" in world.plan.args
    held = ("maxUnavailable=0",) if is_alone else ("maxUnavailable=0", "maxUnavailable=2", "none")
    # A pod that waits for the very node where its ephemeral volume was made, and that is closed since, is a person's to delete.
    waiting = (pod for pod in world.cluster.store.all_of(PODS) if not pod["spec"].get("nodeName"))
    stranded = {(pod["metadata"].get("labels") or {}).get("app", "") for pod in waiting}
    for pod in world.cluster.store.all_of(PODS):
        node, name = pod["spec"].get("nodeName", ""), (pod["metadata"].get("labels") or {}).get("app", "")
        found = world.cluster.store.find(NODES, node)
        state = found and (found["metadata"].get("labels") or {}).get(names.of_driver(DRIVER, names.EVACUATION_STATE))
        if world.kinds.get(name) not in (EPHEMERAL, GIVEN_UP) or budgets.get(name) in held or state != "InProgress":
            continue
        if name in stranded:
            continue
        if world.evacuated.get(node) and world.made_at(PODS, pod["metadata"]["name"]) < world.first_asked[node]:
            yield pod["metadata"]["name"]


def _of_emptying(world: "World") -> Findings:
    yield from ((NOT_WHOLE, f"{name} is still away, and all has been well for {_TAKEN_BACK:.0f} s") for name in world.replicas.not_whole())


# --- lost nodes -----------------------------------------------------------------------------------------------------------------


async def _node_loss_rest(world: "World") -> None:
    await asyncio.sleep(_LINGERS)
    await _heal(world)
    for name in world.nodes:
        await world.api.patch(NODES, name, {"spec": {"taints": None}}, content_type=MERGE_PATCH)
    await asyncio.sleep(world.plan.settle)


def _of_node_loss(world: "World") -> Findings:
    """All that may go is gone, and replicas run unless what they wait for is on a machine that is lost. Capacity objects of gone nodes are
    not awaited: sidecars look for them every few hours."""
    store = world.cluster.store
    for volume in store.all_of(VOLUMES):
        machine = world.effects.machine_of(volume)
        if CLEANUP not in world.plan.args or machine not in world.lost or not world.lost[machine].known_to_go:
            continue
        name, ref = volume["metadata"]["name"], volume["spec"].get("claimRef") or {}
        claim = store.find(CLAIMS, ref.get("name", ""), ref.get("namespace", ""))
        is_its = claim is not None and (claim["metadata"]["uid"], claim["spec"].get("volumeName")) == (ref.get("uid"), name)
        if claim is not None and is_its and world.effects.is_made_again(claim) and not world.effects.users(claim):
            yield NOT_CLEARED, f"claim {claim['metadata']['name']} is there, whose volume {name} is lost with {machine}"
        if (volume["spec"]["persistentVolumeReclaimPolicy"], volume["status"].get("phase")) == ("Delete", "Released"):
            yield NOT_CLEARED, f"{name} is there, which is lost with {machine}"
    for workload in store.all_of(STATEFUL_SETS):
        for ordinal in objects.ordinals(workload):
            name = f"{workload['metadata']['name']}-{ordinal}"
            pod = store.find(PODS, name, NAMESPACE)
            if is_whole(pod):
                continue
            wanted = [claim for claim in store.all_of(CLAIMS) if pod is not None and full_name(claim) in claims_of(pod)]
            if not any(world.effects.machine_of(world.effects.volume_of(claim)) in world.lost for claim in wanted):
                yield NOT_WHOLE, f"{name} does not run, and no volume of it is on a machine that is lost"


async def _maintenance_rest(world: "World") -> None:
    await asyncio.sleep(_LINGERS)
    await _heal(world)
    await maintenance.let_all_go(world)
    await asyncio.sleep(world.plan.settle)
    for kind, what in world.maintained.not_drained():
        world.found(kind, what)
    await maintenance.end_all(world)
    await asyncio.sleep(maintenance.PUT_BACK)


async def _failover_rest(world: "World") -> None:
    if world.plan.rest:
        await failover.come_to_rest(world, _heal)


_THEMES: Final[dict[str, tuple[Callable[["World"], Awaitable[None]], Callable[["World"], Findings]]]] = {
    "claims": (_claims_rest, _of_claims),
    "drains": (_drains_rest, _of_drains),
    "emptying": (_emptying_rest, _of_emptying),
    "reprovision": (_emptying_rest, _of_emptying),
    "node-loss": (_node_loss_rest, _of_node_loss),
    "maintenance": (_maintenance_rest, lambda world: world.maintained.left()),
    "failover": (_failover_rest, lambda world: world.failed_over.left()),
}
"""How worlds of each theme come to rest, and what must be so then."""
