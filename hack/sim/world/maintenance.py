"""Worlds in which maintenance is declared: who declares what, which rules teams ship, and what people do with their own hands meanwhile.

What must be so is in `maintained`.
"""

import json
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hack.sim.world.network import Latency
from hack.sim.world.node import NAMESPACE
from hack.sim.world.people import change, claim_of, pod_spec, set_of
from hack.sim.world.plan import LATE, SHARED, Draw, Events, Plan, PlannedEvent, Theme, Trouble, death_at, lasting, of_nodes, stretched
from sidecar.kube.api import BUDGETS, DRAIN_RULES, MAINTENANCES, MERGE_PATCH, NAMESPACES, STATEFUL_SETS
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model import names

if TYPE_CHECKING:
    from hack.sim.world.world import World

CAPI_LABEL: Final = "cluster.x-k8s.io/drain"
STAGES: Final = ("Idle", "Cordon", "Drain", "Complete")
_TEAM: Final = "team"
_BEGIN: Final = (70.0, 200.0)
_LAST: Final = 550.0
_DRAINED: Final = 600.0
"""Within so many seconds after everything is well again the nodes must be drained: they go through their entries together, and ask for one
another's reports every ten."""
PUT_BACK: Final = 200.0
"""Within so many seconds after the last maintenance nodes are as before."""
_PLANS: Final[tuple[list[dict[str, object]], ...]] = (
    [],
    [{"maxPriority": 5000}],
    [{"maxPriority": 5000}, {"maxPriority": 10000}],
    [{"maxPriority": 4000, "podSelector": {"matchLabels": {"app": "crowd-0"}}}, {"maxPriority": 10000}],
)

# --- what is drawn ------------------------------------------------------------------------------------------------------------


def _flags(_: random.Random, plan: Plan) -> None:
    plan.args += ("--drain-report", "--node-drain-policy=NoSchedule", "--maintenance")


def _crowds(dice: random.Random, plan: Plan) -> None:
    """Workloads of two namespaces, of every importance, some with volumes and some with a budget."""
    for number in range(plan.claims):
        drawn = {
            "namespace": dice.choice((NAMESPACE, NAMESPACE, _TEAM)),
            "priority": dice.choice((0, 4000, 9000, 1_500_000_000)),
            "replicas": dice.randint(1, 4),
            "claims": dice.random() < 0.4,
            "label": dice.choice(("", "", "", "skip")),
            "budget": dice.choice((None, None, 1, 0)),
        }
        plan.add(dice.uniform(2.0, 30.0), "crowd", f"crowd-{number}", detail=json.dumps(drawn))


def _teams(dice: random.Random, plan: Plan) -> None:
    """Rules of which some select nothing, some everything in their namespace, and some go again."""
    for number in range(dice.randint(0, 4)):
        app = dice.choice(("", *(f"crowd-{each}" for each in range(plan.claims)))) if dice.random() < 0.9 else "nobody"
        selector = {"matchLabels": {"app": app}} if app else {}
        spec = {"podSelector": selector, "behavior": dice.choice(("Drain", "Skip", "WaitCompleted")), "order": dice.choice((0, 0, -5, 100))}
        begins, name = dice.choice((10.0, dice.uniform(10.0, 400.0))), f"{dice.choice((NAMESPACE, _TEAM))}/rule-{number}"
        plan.add(begins, "drain rule", name, detail=json.dumps(spec))
        if dice.random() < 0.4:
            plan.add(begins + dice.uniform(20.0, 400.0), "drain rule gone", name)


def _declarations(dice: random.Random, plan: Plan) -> None:
    """Of one node, several, or all; moved forward, skipped, deleted in any stage, and made again under the same name."""
    for number in range(dice.randint(2, 4)):
        name, at = f"m-{number}", dice.uniform(*_BEGIN)
        for _ in range(dice.choice((1, 1, 2))):
            nodes = dice.sample(plan.nodes, dice.randint(1, len(plan.nodes)))
            stages = STAGES[dice.choice((0, 1, 2, 2)) :]
            by_label = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
            chosen = {"nodes": nodes} if dice.random() < 0.7 else {"nodeSelector": {"matchExpressions": [by_label]}}
            spec = {
                **chosen,
                "stage": stages[0],
                "intent": dice.choice(("reboot", "reboot", "reboot", "retire")),
                "drainPlan": dice.choice(_PLANS),
            }
            if dice.random() < 0.5:
                spec |= {"deadline": dice.choice(("1m", "5m")), "onDeadline": dice.choice(("Report", "Override"))}
            plan.add(at, "maintenance", name, detail=json.dumps(spec))
            for stage in stages[1:]:
                at += dice.choice((1.0, dice.uniform(5.0, 90.0), dice.uniform(90.0, 300.0)))
                if dice.random() < 0.8 and at < _LAST:
                    plan.add(at, "stage", name, detail=stage)
            at += dice.choice((0.5, dice.uniform(20.0, 300.0)))
            if dice.random() < 0.5:
                plan.add(at, "maintenance gone", name)
                at += dice.choice((0.0, 0.5, dice.uniform(2.0, 60.0)))


def _hands(dice: random.Random, node: str) -> Events:
    """Somebody cordons and uncordons by hand, also while a maintenance wants something else."""
    at = dice.uniform(60.0, 600.0)
    for _ in range(dice.randint(1, 4)):
        yield at, dice.choice(("cordoned by hand", "uncordoned by hand")), node
        at += dice.choice((0.2, dice.uniform(1.0, 15.0), dice.uniform(15.0, 120.0)))


def _for(begins: str, ends: str, *lengths: float, numbers: tuple[float, ...] = (0.0,)) -> Draw:
    return lasting(begins, ends, (70.0, 450.0), lambda dice: dice.uniform(5.0, dice.choice(lengths)), numbers)


def _slow_server(dice: random.Random, plan: Plan) -> None:
    plan.weather = replace(plan.weather, read=Latency(0.1, 1.0), write=Latency(0.2, dice.choice((1.0, 3.0))))


_TROUBLES: Final[Mapping[str, Trouble]] = {
    **{kind: stretched(kind) for kind in SHARED},
    "slow server": _slow_server,
    "hands": of_nodes(_hands, 1, 4),
    "ignored nodes": of_nodes(_for("ignored", "counts again", 200.0, 2000.0), 1, 2),
    "hung kubelets": of_nodes(_for("kubelet hangs", "kubelet works", 300.0), 1, 2),
    "silent sidecars": of_nodes(_for("sidecar dies", "sidecar lives", 10.0, 120.0, 700.0), 1, 2),
    "server errors": of_nodes(_for("errors", "errors", 400.0, numbers=(0.05, 0.2, 0.5))),
    "deaths at evictions": of_nodes(death_at((90.0, 400.0), "before", "after"), 1, 5),
}
THEME: Final = Theme("maintenance", "maintenance", (3, 4), (3, 5), 0.25, _flags, (_crowds, _teams, _declarations), _TROUBLES, _DRAINED)

# --- what happens -------------------------------------------------------------------------------------------------------------


async def _crowd(world: "World", item: PlannedEvent) -> None:
    drawn, labels = json.loads(item.detail), {"app": item.whom}
    namespace = drawn["namespace"]
    with suppress(AlreadyExists):
        await world.api.create(NAMESPACES, {"metadata": {"name": namespace}})
    world.delays[f"{namespace}/{item.whom}"] = 0.5
    body = set_of(item.whom, pod_spec() | {"priority": drawn["priority"]}, replicas=drawn["replicas"])
    body["spec"] |= {"podManagementPolicy": "Parallel", "volumeClaimTemplates": [claim_of("data", LATE)] if drawn["claims"] else []}
    if drawn["label"]:
        body["spec"]["template"]["metadata"] = {"labels": labels | {CAPI_LABEL: drawn["label"]}}
    await world.api.create(STATEFUL_SETS, body, namespace=namespace)
    if drawn["budget"] is not None:
        budget = {"selector": {"matchLabels": labels}, "maxUnavailable": drawn["budget"]}
        await world.api.create(BUDGETS, {"metadata": {"name": item.whom}, "spec": budget}, namespace=namespace)


async def _rule(world: "World", item: PlannedEvent) -> None:
    namespace, _, name = item.whom.partition("/")
    with suppress(AlreadyExists):
        await world.api.create(NAMESPACES, {"metadata": {"name": namespace}})
    await world.api.create(DRAIN_RULES, {"metadata": {"name": name}, "spec": json.loads(item.detail)}, namespace=namespace)


async def _no_rule(world: "World", item: PlannedEvent) -> None:
    namespace, _, name = item.whom.partition("/")
    await world.api.delete(DRAIN_RULES, name, namespace=namespace)


async def _made(world: "World", item: PlannedEvent) -> None:
    await world.api.create(MAINTENANCES, {"metadata": {"name": item.whom}, "spec": json.loads(item.detail)})


async def _stage(world: "World", item: PlannedEvent) -> None:
    """Only forward, as the type allows."""
    now = (await world.api.get(MAINTENANCES, item.whom))["spec"]["stage"]
    if STAGES.index(item.detail) > STAGES.index(now):
        await world.api.patch(MAINTENANCES, item.whom, {"spec": {"stage": item.detail}}, content_type=MERGE_PATCH)


TABLE: Final[dict[str, Callable[["World", PlannedEvent], Awaitable[None] | None]]] = {
    "crowd": _crowd,
    "drain rule": _rule,
    "drain rule gone": _no_rule,
    "maintenance": _made,
    "stage": _stage,
    "maintenance gone": lambda world, item: world.api.delete(MAINTENANCES, item.whom),
    "cordoned by hand": lambda world, item: change(world, item.whom, {"spec": {"unschedulable": True}}),
    "uncordoned by hand": lambda world, item: change(world, item.whom, {"spec": {"unschedulable": None}}),
    "ignored": lambda world, item: change(world, item.whom, {"metadata": {"annotations": {names.IGNORED_BY_MAINTENANCE: "by a person"}}}),
    "counts again": lambda world, item: change(world, item.whom, {"metadata": {"annotations": {names.IGNORED_BY_MAINTENANCE: None}}}),
}


async def let_all_go(world: "World") -> None:
    """Nobody but what is declared keeps pods: no rule, no budget; and all that is declared is to be drained."""
    for resource in (DRAIN_RULES, BUDGETS):
        for meta in [found["metadata"] for found in world.cluster.store.all_of(resource)]:
            await world.api.delete(resource, meta["name"], namespace=meta["namespace"])
    for found in list(world.cluster.store.all_of(MAINTENANCES)):
        if found["spec"]["stage"] in ("Idle", "Cordon"):
            await _stage(world, PlannedEvent(world.clock(), "stage", found["metadata"]["name"], detail="Drain"))


async def end_all(world: "World") -> None:
    for found in list(world.cluster.store.all_of(MAINTENANCES)):
        with suppress(NotFound):
            await world.api.delete(MAINTENANCES, found["metadata"]["name"])
