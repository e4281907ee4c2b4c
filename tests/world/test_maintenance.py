"""Declared maintenance in a world without trouble, in which every sentence of its referee has something to judge."""

import json
from typing import Any

from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.themes import plan_of
from sidecar.kube.api import EVENTS
from sidecar.model import names
from tests.world.playing import played

NODES = ("n0", "n1", "n2")


def crowd(number: int, namespace: str, priority: int, *, claims: bool = False, label: str = "", replicas: int = 6) -> PlannedEvent:
    drawn = {"namespace": namespace, "priority": priority, "replicas": replicas, "claims": claims, "label": label, "budget": None}
    return PlannedEvent(5.0 + number, "crowd", f"crowd-{number}", detail=json.dumps(drawn))


def maintenance(at: float, name: str, nodes: tuple[str, ...], *priorities: int, stage: str = "Drain", **spec: Any) -> PlannedEvent:
    plan = [{"maxPriority": priority} for priority in priorities]
    whole = {"nodes": list(nodes), "stage": stage, "intent": "reboot", "drainPlan": plan, **spec}
    return PlannedEvent(at, "maintenance", name, detail=json.dumps(whole))


def rule(name: str, behavior: str, app: str = "") -> PlannedEvent:
    spec = {"podSelector": {"matchLabels": {"app": app}} if app else {}, "behavior": behavior, "order": 0}
    return PlannedEvent(12.0, "drain rule", name, detail=json.dumps(spec))


def test_all_stages_two_maintenances_of_one_node_rules_of_teams_and_hands() -> None:
    events = (
        crowd(0, "team", 0, label="skip"),
        crowd(1, "team", 4000),
        crowd(2, "default", 4000, replicas=9),
        crowd(3, "default", 9000, claims=True),
        crowd(4, "team", 20_000),
        crowd(5, "default", 20_000, replicas=9),
        rule("team/wait", "WaitCompleted", "crowd-4"),
        rule("team/all", "Skip", "crowd-9"),
        rule("default/none", "Skip", "crowd-1"),
        PlannedEvent(40.0, "cordoned by hand", "n2"),
        maintenance(60.0, "a", ("n0", "n1"), 5000, stage="Idle", deadline="5m"),
        maintenance(205.0, "b", ("n0", "n2"), 10000),
        PlannedEvent(150.0, "kubelet hangs", "n1"),
        PlannedEvent(130.0, "stage", "a", detail="Cordon"),
        PlannedEvent(200.0, "stage", "a", detail="Drain"),
        maintenance(320.0, "c", ("n0",), 100),
        PlannedEvent(340.0, "uncordoned by hand", "n0"),
        PlannedEvent(341.0, "uncordoned by hand", "n2"),
        PlannedEvent(400.0, "kubelet works", "n1"),
        PlannedEvent(520.0, "stage", "a", detail="Complete"),
        PlannedEvent(521.0, "maintenance gone", "b"),
        PlannedEvent(522.0, "maintenance gone", "c"),
    )
    ordered = tuple(sorted(events, key=lambda event: event.at))
    report, world = played(Plan(1, NODES, "maintenance", events=ordered, args=plan_of(1, "maintenance").args, settle=150.0))
    assert report.ok, report
    assert world.maintained.evictions > 5
    told = {event["reason"] for event in world.cluster.store.all_of(EVENTS)}
    assert {names.MAINTENANCE_FAST_FORWARDED, names.MAINTENANCE_DRAINING, names.MAINTENANCE_OVER, names.MAINTENANCE_LATE} <= told
