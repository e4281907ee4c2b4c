"""Worlds of fail-over: nodes lose power, storage links, kubelets and sidecars, each alone, and people do what people do about it.

    python -m hack.sim.world.failover 200       each stage of 200 crashes, for the page

What must be so is in `failed_over`.
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hack.sim.stand_ins.node_controllers import OUT_OF_SERVICE, is_ready, taint
from hack.sim.world.failed_over import KEY
from hack.sim.world.machines import HANGS, TRUNCATES
from hack.sim.world.network import Latency
from hack.sim.world.node import DRIVER, NAMESPACE, volume_body
from hack.sim.world.people import change, claim_of, merge, pod_spec, set_of
from hack.sim.world.plan import SHARED, Events, Plan, PlannedEvent, Theme, Trouble, death_at, of_each, of_nodes, stretched
from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, CLAIMS, MERGE_PATCH, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from sidecar.model.objects import Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

_BEGIN: Final = (70.0, 350.0)
_LAST: Final = 600.0
_SETTLE: Final = 250.0
_REPLACED: Final = 240.0
"""Seconds from a crash until the pods run elsewhere: 55 until the Node is not Ready, 60 until attach-detach notices."""
SET: Final = "replicated"

# --- what is drawn ------------------------------------------------------------------------------------------------------------


def _flags(dice: random.Random, plan: Plan) -> None:
    mode = "Act" if dice.random() < 0.92 else "Observe"
    plan.args += ("--drain-report", "--node-drain-policy=NoSchedule", f"--failover={mode}")


def _sets(dice: random.Random, plan: Plan) -> None:
    """Storage is replicated with a quorum, replicated without, or shared, which forbids nothing. Some pods have two kinds of it."""
    of_world = dice.sample(("majority", "majority", "majority", "majority", "shared", "shared", "2", "all", "off"), dice.choice((1, 2, 2)))
    for number in range(plan.claims):
        kinds = [dice.choice(of_world) for _ in range(dice.choice((1, 2, 2)))]
        disks = dice.sample(plan.nodes, 3 if dice.random() < 0.6 or {"all", "2"} & {*kinds} else 2)
        drawn = {
            "kinds": kinds,
            "disks": disks,
            "diskless": [name for name in plan.nodes if name not in disks][: 3 - len(disks)],
            "word": dice.choice(("", "", "", "Ignore", "ForceOnExclusion", "ForceOnExclusion", "sometimes")),
            "bare": dice.random() < 0.1,
        }
        plan.add(dice.uniform(2.0, 20.0), SET, f"app-{number}", detail=json.dumps(drawn))


def _spans(begins: str, ends: str, most: int, *lengths: float, details: tuple[str, ...] = ("",)) -> Trouble:
    def draw(dice: random.Random, node: str) -> Events:
        at = dice.uniform(*_BEGIN)
        yield at, begins, node, 0.0, dice.choice(details)
        yield min(at + dice.uniform(2.0, dice.choice(lengths)), _LAST), ends, node

    return of_nodes(draw, 1, most)


def _links(dice: random.Random, plan: Plan) -> None:
    """Between two nodes, which both may reach others."""
    for _ in range(dice.randint(1, 3)):
        (one, other), at = dice.sample(plan.nodes, 2), dice.uniform(*_BEGIN)
        plan.add(at, "link cut", one, detail=other)
        plan.add(at + dice.uniform(3.0, dice.choice((20.0, 200.0))), "link healed", one, detail=other)


_isolations: Final = _spans("isolated", "joined", 2, 20.0, 60.0, 250.0)


def _flaps(dice: random.Random, node: str) -> Events:
    at = dice.uniform(*_BEGIN)
    for _ in range(dice.randint(2, 12)):
        yield at, "isolated", node
        at += dice.uniform(5.0, 25.0)
        yield at, "joined", node
        at += dice.choice((2.0, dice.uniform(5.0, 12.0)))


def _hung_readers(dice: random.Random, plan: Plan) -> None:
    """Right when a node's storage is away, and until after that is back."""
    for _ in range(dice.randint(1, 3)):
        node, at = dice.choice(plan.nodes), dice.uniform(*_BEGIN)
        plan.add(at, "isolated", node)
        hung = at + dice.uniform(9.0, 18.0)
        for other in plan.nodes:
            if other != node:
                plan.add(hung, "reader fails", other, detail=dice.choice((HANGS, HANGS, TRUNCATES)))
                plan.add(hung + 60.0, "reader works", other)
        plan.add(hung + dice.uniform(0.5, 6.0), "joined", node)


def _storms(dice: random.Random, plan: Plan) -> None:
    """Most kubelets say nothing, and one node's storage after the other is away for a while."""
    at = dice.uniform(*_BEGIN)
    for number, node in enumerate(dice.sample(plan.nodes, min(3, len(plan.nodes) - 1))):
        plan.add(at + dice.uniform(0.0, 5.0), "kubelet dies", node)
        plan.add(at + dice.choice((20.0, 60.0)) + 45.0 * number, "isolated", node)
        plan.add(at + 104.0 + 45.0 * number, "joined", node)
        plan.add(at + 240.0, "kubelet lives", node)


def _dead_kubelet(dice: random.Random, node: str) -> Events:
    """Its processes go on, and so does its storage, or not."""
    at = dice.uniform(*_BEGIN)
    yield at, "kubelet dies", node
    if dice.random() < 0.5:
        yield at + dice.choice((5.0, dice.uniform(40.0, 70.0))), "isolated", node
        yield at + dice.uniform(80.0, 150.0), "joined", node
    yield at + dice.choice((30.0, dice.uniform(100.0, 250.0))), "kubelet lives", node


def _powers(*words: str) -> Trouble:
    """A person cuts the power, or finds it cut, and says so in some way; later the node is back, and the word goes or stays."""

    def draw(dice: random.Random, node: str) -> Events:
        at = dice.uniform(*_BEGIN)
        yield at, "power off", node, 0.0, dice.choice(("", "", "in good order"))
        for word in words:
            yield at + dice.choice((0.5, dice.uniform(1.0, 60.0), dice.uniform(60.0, 120.0))), word, node
        at += dice.choice((dice.uniform(3.0, 40.0), dice.uniform(40.0, 250.0)))
        yield at, "power on", node
        for word in words:
            if dice.random() < 0.7 or word == OUT_OF_SERVICE:
                yield at + dice.choice((-1.0, 1.0, dice.uniform(10.0, 60.0))), f"no {word}", node

    return of_nodes(draw, 1, 3)


def _maintained(dice: random.Random, node: str) -> Events:
    at = dice.uniform(*_BEGIN)
    yield at, "cordoned by hand", node
    at += dice.uniform(12.0, 60.0)
    yield at, "power off", node, 0.0, dice.choice(("in good order", ""))
    at += dice.uniform(30.0, 150.0)
    yield at, "power on", node
    yield at + dice.uniform(1.0, 60.0), "uncordoned by hand", node


def _slow(dice: random.Random, plan: Plan) -> None:
    """And storage that is back at any moment between what is looked at and what follows."""
    plan.weather = replace(plan.weather, read=Latency(0.05, 0.5), write=Latency(dice.choice((0.2, 2.0, 2.0)), 3.0))
    of_nodes(_flaps, 1, 2)(dice, plan)


def _words(dice: random.Random, name: str) -> Events:
    for _ in range(dice.randint(1, 3)):
        yield dice.uniform(*_BEGIN), "failover word", name, 0.0, dice.choice(("Ignore", "Ignore", "", "odd", "ForceOnExclusion"))


def _accidents(dice: random.Random, plan: Plan) -> None:
    """In every world some."""
    for _ in range(dice.randint(1, 3)):
        dice.choice((_links, _isolations, _isolations, _powers()))(dice, plan)


_TROUBLES: Final[Mapping[str, Trouble]] = {
    **{kind: stretched(kind) for kind in SHARED},
    "storage links": _links,
    "flaps": of_nodes(_flaps, 1, 2),
    "crashes": _powers(),
    "power labels": _powers("labelled"),
    "out of service": _powers(OUT_OF_SERVICE),
    "maintenance": of_nodes(_maintained, 1, 2),
    "dead kubelets": of_nodes(_dead_kubelet, 1, 3),
    "silent sidecars": _spans("sidecar dies", "sidecar lives", 2, 10.0, 120.0),
    "bad readers": _spans("reader fails", "reader works", 3, 10.0, 120.0, details=(HANGS, TRUNCATES)),
    "hung readers": _hung_readers,
    "storms": _storms,
    "clock jumps": _spans("clock jumps", "clock is right", 2, 300.0),
    "changed words": of_each(SET, _words),
    "hands on storage": _spans("suspended", "resumed", 2, 20.0, 150.0, details=("io", "link")),
    "stuck detachers": _spans("detacher stuck", "detacher works", 1, 200.0),
    "stale lists": _spans("stale", "fresh", 2, 200.0),
    "server errors": _spans("some errors", "no errors", 1, 60.0, 400.0),
    "slow server": _slow,
    "deaths at effects": of_nodes(death_at(_BEGIN, "before", "after"), 1, 5),
}
THEME: Final = Theme("failover", "failover", (3, 5), (2, 4), 0.2, _flags, (_sets, _accidents), _TROUBLES, _SETTLE)

# --- what happens -------------------------------------------------------------------------------------------------------------


async def _set(world: "World", item: PlannedEvent) -> None:
    drawn, name = json.loads(item.detail), item.whom
    claims = {f"{name}-{number}": kind for number, kind in enumerate(drawn["kinds"])}
    for claim, kind in claims.items():
        places = [*world.nodes] if kind == "shared" else drawn["disks"]
        notes = {"pv.kubernetes.io/bind-completed": "yes"} | ({names.FAILOVER: drawn["word"]} if drawn["word"] else {})
        body = claim_of(claim, "", notes)
        body["spec"]["volumeName"] = f"pv-{claim}"
        made = await world.api.create(CLAIMS, body, namespace=NAMESPACE)
        ref = {"name": claim, "uid": made["metadata"]["uid"]}
        volume = volume_body(f"pv-{claim}", ref, places, driver=DRIVER, handle=claim, policy="Retain")
        await world.api.create(VOLUMES, volume)
        if kind == "shared":
            world.machines.shared.add(claim)
        else:
            world.machines.storage.add(claim, disks=drawn["disks"], diskless=drawn["diskless"], quorum=kind)
    if drawn["bare"]:
        await world.api.create(PODS, {"metadata": {"name": name}, "spec": pod_spec(*claims)}, namespace=NAMESPACE)
        return
    world.delays[f"{NAMESPACE}/{name}"] = 0.1
    await world.api.create(STATEFUL_SETS, set_of(name, pod_spec(*claims)), namespace=NAMESPACE)


def _on_links(world: "World", item: PlannedEvent) -> None:
    others = [item.detail] if item.detail else [name for name in world.nodes if name != item.whom]
    for other in others:
        (world.machines.storage.cut if item.what in ("link cut", "isolated") else world.machines.storage.heal)(item.whom, other)
    world.machines.look()


def _by_hand(world: "World", item: PlannedEvent) -> None:
    storage, on = world.machines.storage, item.what == "suspended"
    for resource in storage.of(item.whom):
        if item.detail == "link":
            storage.disconnect(resource.name, item.whom, next(name for name in resource.copies if name != item.whom))
        elif item.whom not in storage.off:
            storage.suspend(item.whom, resource.name, on=on)
            for one, other in () if on else list(resource.stand_alone):
                storage.connect(resource.name, one, other)
    world.machines.look()


async def _labelled(world: "World", item: PlannedEvent) -> None:
    """Of the boot that the Node names, by who sees that the machine is off."""
    node = world.cluster.store.find(NODES, item.whom) or {}
    wanted = {"labelled": "labels", "no labelled": "labels"}.get(item.what, "taints")
    if item.what.startswith("no "):
        others = [each for each in node["spec"].get("taints") or () if each["key"] != OUT_OF_SERVICE]
        patch: Json = {"metadata": {"labels": {names.POWERED_OFF: None}}} if wanted == "labels" else {"spec": {"taints": others}}
    elif world.machines.all[item.whom].is_on:
        return
    elif wanted == "labels":
        patch = {"metadata": {"labels": {names.POWERED_OFF: node["status"]["nodeInfo"]["bootID"]}}}
    else:
        out = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        patch = {"spec": {"taints": [*(node["spec"].get("taints") or ()), out]}}
    await world.api.patch(NODES, item.whom, patch, content_type=MERGE_PATCH)


async def _word(world: "World", item: PlannedEvent) -> None:
    await merge(world, CLAIMS, f"{item.whom}-0", {"metadata": {"annotations": {names.FAILOVER: item.detail or None}}})


TABLE: Final[dict[str, Callable[["World", PlannedEvent], Awaitable[None] | None]]] = {
    SET: _set,
    **dict.fromkeys(("link cut", "link healed", "isolated", "joined"), _on_links),
    **dict.fromkeys(("labelled", "no labelled", OUT_OF_SERVICE, f"no {OUT_OF_SERVICE}"), _labelled),
    **dict.fromkeys(("suspended", "resumed"), _by_hand),
    "power off": lambda world, item: world.machines.power_off(item.whom, in_good_order=bool(item.detail)),
    "power on": lambda world, item: world.machines.power_on(item.whom),
    "kubelet dies": lambda world, item: setattr(world.machines.all[item.whom], "kubelet", False),
    "kubelet lives": lambda world, item: setattr(world.machines.all[item.whom], "kubelet", True),
    "reader fails": lambda world, item: setattr(world.machines.all[item.whom], "reader", item.detail),
    "reader works": lambda world, item: setattr(world.machines.all[item.whom], "reader", ""),
    "clock jumps": lambda world, item: setattr(world.nodes[item.whom], "skew", world.dice.choice((-3600.0, -90.0, 90.0, 3600.0))),
    "clock is right": lambda world, item: setattr(world.nodes[item.whom], "skew", 0.0),
    "failover word": _word,
    "detacher stuck": lambda world, item: setattr(world.machines.attach_detach, "stuck", True),
    "detacher works": lambda world, item: setattr(world.machines.attach_detach, "stuck", False),
    "stale": lambda world, item: world.network.stale.add(item.whom),
    "fresh": lambda world, item: world.network.stale.discard(item.whom),
    "some errors": lambda world, item: setattr(world, "errors", world.dice.choice((0.05, 0.2, 0.5))),
}


# --- at rest --------------------------------------------------------------------------------------------------------------


async def come_to_rest(world: "World", heal: Callable[["World"], Awaitable[None]]) -> None:
    """All is well; then one node with pods goes down, is said to be off, and comes back: what may fail over does, and nothing is left."""
    await asyncio.sleep(30.0)
    await heal(world)
    world.machines.heal()
    for name in world.nodes:
        for what in ("no labelled", f"no {OUT_OF_SERVICE}"):
            await _labelled(world, PlannedEvent(world.clock(), what, name))
        await change(world, name, {"spec": {"unschedulable": None}})
    await asyncio.sleep(_SETTLE)
    for kind, what in world.failed_over.left():
        world.found(kind, f"{what}, before the last crash")
    victim = max(world.nodes, key=lambda name: (len(world.machines.all[name].processes), name))
    expected = _expected(world, victim)
    world.transcript.tell("world", f"{victim} crashes; expected to go on elsewhere: {', '.join(expected) or 'nothing'}")
    world.machines.power_off(victim)
    await asyncio.sleep(60.0)
    expected = {name: uid for name, uid in expected.items() if world.machines.may_go_on(name.removesuffix("-0"), victim)}
    await _labelled(world, PlannedEvent(world.clock(), "labelled", victim))
    await asyncio.sleep(_REPLACED - 60.0)
    for name, uid in expected.items():
        pod = world.cluster.store.find(PODS, name, NAMESPACE)
        there = [one.name for one in world.machines.all.values() if pod is not None and pod["metadata"]["uid"] in one.processes]
        if pod is None or pod["metadata"]["uid"] == uid or not there:
            world.found("not replaced", f"{name} of {victim}, {_REPLACED:.0f} s after its crash; there is {'none' if pod is None else uid}")
    world.machines.power_on(victim)
    await asyncio.sleep(world.plan.settle)


def _expected(world: "World", victim: str) -> dict[str, str]:
    """By name of a pod: its uid. What brakes keep, or words, or its owner, or its storage, is not awaited."""
    found, now, acts = {}, world.clock(), world.failed_over.acts
    if "--failover=Act" not in world.plan.args or len({act[2] for act in acts if now - act[0] < 700.0} - {victim}) >= 3:
        return {}
    for item in (item for item in world.plan.events if item.what == SET):
        drawn, name = json.loads(item.detail), f"{item.whom}-0"
        pod = world.cluster.store.find(PODS, name, NAMESPACE)
        if pod is None or drawn["bare"] or pod["metadata"]["uid"] not in world.machines.all[victim].processes:
            continue
        notes = [world.cluster.store.find(CLAIMS, f"{item.whom}-{number}", NAMESPACE) for number in range(len(drawn["kinds"]))]
        words = {((claim or {"metadata": {}})["metadata"].get("annotations") or {}).get(names.FAILOVER, "") for claim in notes}
        is_braked = any(act[3].startswith(f"{NAMESPACE}/{item.whom}-") and now - act[0] < 1900.0 for act in acts)
        if words <= {"", "ForceOnExclusion"} and not is_braked and "off" not in drawn["kinds"]:
            found[name] = pod["metadata"]["uid"]
    return found


# --- how long it takes --------------------------------------------------------------------------------------------------------


def stages(seed: int, word: str = "") -> dict[str, float]:
    """Seconds after the crash of the node of one StatefulSet on three nodes, at some moment."""
    from hack.sim.world.world import World, play

    dice, nodes, found = random.Random(f"stages {seed}"), ("n0", "n1", "n2"), dict[str, float]()
    drawn = {"kinds": ["majority"], "disks": nodes, "diskless": [], "word": word, "bare": False}
    args = ("--drain-report", "--node-drain-policy=NoSchedule", "--failover=Act")
    events = (PlannedEvent(2.0, SET, "app", detail=json.dumps(drawn)), PlannedEvent(300.0, "nothing"))
    plan = Plan(seed, nodes, "failover", events=events, args=args, rest=0.0)

    async def crash(world: World) -> None:
        await asyncio.sleep(dice.uniform(60.0, 90.0))
        store = world.cluster.store
        pod = store.find(PODS, "app-0", NAMESPACE) or {}
        victim, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
        world.machines.power_off(victim)
        begun = world.clock()

        def now_is(what: str, so: bool) -> None:
            if so:
                found.setdefault(what, world.clock() - begun)

        while world.clock() - begun < 200.0:
            await asyncio.sleep(0.1)
            there = store.find(PODS, "app-0", NAMESPACE)
            now_is("first action", bool(world.failed_over.acts) or taint(store.find(NODES, victim) or {}, KEY) is not None)
            now_is("node not Ready", not is_ready(store.find(NODES, victim) or {}))
            now_is("old pod gone", there is None or there["metadata"]["uid"] != uid)
            now_is("detached", store.find(ATTACHMENTS, attachment_name("app-0", DRIVER, victim)) is None)
            now_is("running", any(one.processes for one in world.machines.all.values() if one.name != victim))

    play(plan, before=lambda world: world.spawn("crash", crash(world)))
    return found


def main() -> None:
    for word in ("", "ForceOnExclusion"):
        rows = [stages(seed, word) for seed in range(int(sys.argv[1]))]
        print(f"\n{len(rows)} crashes, {word or 'no word'}: seconds after the crash, least, half, most")
        for stage in ("first action", "node not Ready", "old pod gone", "detached", "running"):
            times = sorted(row[stage] for row in rows if stage in row)
            print(
                f"  {stage:<16}{times[0]:6.1f}{times[len(times) // 2]:8.1f}{times[-1]:8.1f}   in {len(times)}"
                if times
                else f"  {stage}: never"
            )


if __name__ == "__main__":
    main()
