"""deploy/components/maintenance/crd.yaml on a real API server: each rule of the types, and what the program reads of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.lib.control_plane import ApiError, ControlPlane, until
from hack.lib.programs import Json
from sidecar.drain.maintenance.objects import Behavior, Entry, Maintenance, PodType, Rule, Stage
from sidecar.drain.maintenance.status_io import summary
from sidecar.drain.words import Intent
from sidecar.kube.api import MERGE_PATCH
from sidecar.model.nodes import Node
from tests.deploy.manifests import DEPLOY
from tests.harness.cluster import REPORTS

TYPES = (DEPLOY / "components" / "maintenance" / "crd.yaml").read_text()
PLANNED = "/apis/csi-node-sidecar.io/v1alpha1/plannedmaintenances"
RULES = "/apis/csi-node-sidecar.io/v1alpha1/namespaces/default/drainrules"
BY_NAME = {"nodes": ["n1"], "intent": "reboot"}
DATABASES = {"matchLabels": {"app": "db"}}
PLAN = [{"maxPriority": 5}, {"podSelector": DATABASES, "namespaceSelector": {}}, {"podType": "DaemonSet"}]


@pytest.fixture(scope="module")
def types(plane: ControlPlane) -> ControlPlane:
    plane.apply(TYPES)
    until(lambda: all(plane.serves(path) for path in (PLANNED, RULES)), "the API server serves both types")
    established = [f"crd/{item['metadata']['name']}" for item in yaml.safe_load_all(TYPES)]
    for name in established:
        conditions = plane.kubectl("get", name, "-o", "jsonpath={.status.conditions[*].type}")
        assert "NonStructuralSchema" not in conditions, "the server keeps to the schema"
    return plane


@pytest.fixture
def stored(types: ControlPlane) -> Iterator[Json]:
    """In stage Cordon, with a plan."""
    yield make(types, PLANNED, {**BY_NAME, "stage": "Cordon", "drainPlan": PLAN})
    types.request("DELETE", f"{PLANNED}/m1")


def declared(path: str, spec: Json | None, name: str = "m1") -> Json:
    obj = {"apiVersion": "csi-node-sidecar.io/v1alpha1", "kind": "PlannedMaintenance" if path == PLANNED else "DrainRule"}
    return {**obj, "metadata": {"name": name}, **({} if spec is None else {"spec": spec})}


def make(plane: ControlPlane, path: str, spec: Json | None, *, dry: bool = False) -> Json:
    return plane.request("POST", f"{path}{'?dryRun=All' if dry else ''}", declared(path, spec))


def refused(plane: ControlPlane, path: str, spec: Json | None, says: str) -> None:
    with pytest.raises(ApiError) as found:
        make(plane, path, spec, dry=True)
    assert found.value.status == 422 and says in str(found.value), found.value


def selector(**of: Any) -> Json:
    return {"nodeSelector": of, "intent": "reboot"}


def expression(operator: str, *values: str) -> Json:
    return selector(matchExpressions=[{"key": "zone", "operator": operator, **({"values": list(values)} if values else {})}])


REFUSED: dict[str, tuple[Json | None, str]] = {
    "no spec": (None, "spec: Required"),
    "no intent": ({"nodes": ["n1"]}, "spec.intent: Required"),
    "another intent": ({**BY_NAME, "intent": "upgrade"}, "spec.intent: Unsupported"),
    "no nodes": ({"intent": "reboot"}, "either nodes or a nodeSelector"),
    "both": ({**BY_NAME, "nodeSelector": DATABASES}, "either nodes or a nodeSelector"),
    "an empty list of nodes": ({"nodes": [], "intent": "reboot"}, "spec.nodes"),
    "a node twice": ({"nodes": ["n1", "n1"], "intent": "reboot"}, "Duplicate value"),
    "a node without a name": ({"nodes": [""], "intent": "reboot"}, "spec.nodes[0]"),
    "an empty selector": (selector(), "would select every node"),
    "a selector with empty parts": (selector(matchLabels={}, matchExpressions=[]), "would select every node"),
    "In without values": (expression("In"), "In and NotIn need values"),
    "NotIn without values": (expression("NotIn"), "In and NotIn need values"),
    "Exists with values": (expression("Exists", "a"), "the other operators have none"),
    "an unknown operator": (expression("Gt", "1"), "operator: Unsupported"),
    "an unknown stage": ({**BY_NAME, "stage": "Reboot"}, "spec.stage: Unsupported"),
    "an entry twice": ({**BY_NAME, "drainPlan": [PLAN[0], PLAN[1], PLAN[0]]}, "stands in a drainPlan once"),
    "an entry twice by its default": ({**BY_NAME, "drainPlan": [{}, {"podType": "Default"}]}, "stands in a drainPlan once"),
    "too many entries": ({**BY_NAME, "drainPlan": [{"maxPriority": number} for number in range(51)]}, "at most 50 items"),
    "an unknown type of pods": ({**BY_NAME, "drainPlan": [{"podType": "Job"}]}, "podType: Unsupported"),
    "a priority beyond any": ({**BY_NAME, "drainPlan": [{"maxPriority": 2**31}]}, "maxPriority"),
    "a deadline without a unit": ({**BY_NAME, "deadline": "10"}, "spec.deadline"),
    "an empty deadline": ({**BY_NAME, "deadline": ""}, "spec.deadline"),
    "a deadline in the wrong order": ({**BY_NAME, "deadline": "10m1h"}, "spec.deadline"),
    "a deadline in days": ({**BY_NAME, "deadline": "2d"}, "spec.deadline"),
    "Override without a deadline": ({**BY_NAME, "onDeadline": "Override"}, "needs a deadline"),
    "an unknown end": ({**BY_NAME, "deadline": "1h", "onDeadline": "Delete"}, "spec.onDeadline: Unsupported"),
    "no date": ({**BY_NAME, "plannedFor": "tomorrow"}, "spec.plannedFor"),
    "a long reason": ({**BY_NAME, "reason": "x" * 257}, "spec.reason"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused(types: ControlPlane, case: str) -> None:
    refused(types, PLANNED, *REFUSED[case])


FULL = {
    **expression("NotIn", "a", "b"),
    "intent": "retire",
    "stage": "Drain",
    "drainPlan": PLAN,
    "deadline": "1h30m",
    "onDeadline": "Override",
    "plannedFor": "2026-11-28T10:00:00Z",
    "reason": "new disks",
}


def test_what_is_stored_is_what_the_program_reads(types: ControlPlane) -> None:
    """And with nothing but what has to be said: Idle, and a deadline that only reports."""
    one = Maintenance.of(make(types, PLANNED, FULL, dry=True))
    assert one is not None
    assert (one.stage, one.intent, one.deadline, one.overrides) == (Stage.DRAIN, Intent.RETIRE, 5400.0, True)
    assert one.selects("n", {"zone": "c"}) and not one.selects("n", {"zone": "a"})
    assert {Entry(priority=5), Entry(PodType.DaemonSet)} <= set(one.plan) and len(one.plan) == 7
    bare = make(types, PLANNED, BY_NAME, dry=True)
    assert bare["spec"] == {**BY_NAME, "stage": "Idle", "onDeadline": "Report"}
    least = Maintenance.of(bare)
    assert least is not None and (least.stage, least.deadline, least.overrides) == (Stage.IDLE, None, False)


@pytest.mark.parametrize("finished", [-1, 0])
def test_no_node_publishes_that_it_has_done_less_than_nothing(types: ControlPlane, drainer: Path, finished: int) -> None:
    """The other nodes of the maintenance go by it. `drainer` has installed the type of reports."""
    name = "n1.bounds.example"
    report = {"apiVersion": "csi-node-sidecar.io/v1alpha1", "kind": "NodeDrainReport", "metadata": {"name": name}}
    types.request("POST", REPORTS, {**report, "spec": {"nodeName": "n1", "driver": "bounds.example"}})
    said = changed_at(types, f"{REPORTS}/{name}/status", {"status": {"maintenance": [{"name": "m1", "finished": finished}]}})
    types.request("DELETE", f"{REPORTS}/{name}")
    assert ("greater than or equal to 0" in said) if finished < 0 else not said, said


def test_the_largest_plan_is_let_in(types: ControlPlane) -> None:
    labels = {f"key-{number}": "v" * 60 for number in range(20)}
    largest = [{"podSelector": {"matchLabels": labels}, "maxPriority": number} for number in range(50)]
    assert len(make(types, PLANNED, {**BY_NAME, "drainPlan": largest}, dry=True)["spec"]["drainPlan"]) == 50


@pytest.mark.parametrize("text", ["10m", "90s", "1h", "1h30m", "24h0m1s"])
def test_each_deadline_that_is_let_in_is_understood(types: ControlPlane, text: str) -> None:
    one = Maintenance.of(make(types, PLANNED, {**BY_NAME, "deadline": text}, dry=True))
    assert one is not None and one.deadline


def test_what_the_page_shows_is_let_in(types: ControlPlane) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DEPLOY / "components" / "maintenance" / "README.md").read_text(), re.DOTALL)
    shown, plan, rule = (yaml.safe_load(block) for block in blocks)
    made = types.request("POST", f"{PLANNED}?dryRun=All", {**shown, "spec": {**shown["spec"], **plan}})
    one = Maintenance.of(made)
    assert one is not None and len(one.plan) == 4 + len(plan["drainPlan"]) and one.deadline
    rule["metadata"]["namespace"] = "default"
    assert Rule.of(types.request("POST", f"{RULES}?dryRun=All", rule)) is not None


# --- what may change --------------------------------------------------------------------------------------------------


def changed(plane: ControlPlane, spec: Json) -> str:
    return changed_at(plane, f"{PLANNED}/m1", {"spec": spec})


def changed_at(plane: ControlPlane, path: str, change: Json) -> str:
    """What is said against it; empty if nothing is."""
    try:
        plane.request("PATCH", f"{path}?dryRun=All", change, content_type=MERGE_PATCH)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("stage", "says"), [("Idle", "only goes forward"), (None, "only goes forward"), ("Drain", ""), ("Complete", "")])
def test_a_stage_only_goes_forward_and_may_skip(types: ControlPlane, stored: Json, stage: str | None, says: str) -> None:
    said = changed(types, {"stage": stage})
    assert (says in said) if says else not said


@pytest.mark.parametrize("plan", [None, [], PLAN[:2], [*PLAN, {}], [{"maxPriority": 6}, *PLAN[1:]]], ids=str)
def test_a_plan_stays(types: ControlPlane, stored: Json, plan: list[Json] | None) -> None:
    assert "a drainPlan stays as it is" in changed(types, {"drainPlan": plan})


def test_a_plan_is_not_given_later(types: ControlPlane) -> None:
    make(types, PLANNED, BY_NAME)
    assert "a drainPlan stays as it is" in changed(types, {"drainPlan": PLAN})
    assert changed(types, {"deadline": "10m", "onDeadline": "Override", "reason": "sooner"}) == ""
    types.request("DELETE", f"{PLANNED}/m1")


# --- what it shows ----------------------------------------------------------------------------------------------------


def test_all_that_the_looker_writes_is_kept_and_shown(types: ControlPlane, stored: Json) -> None:
    one = Maintenance.of(stored)
    assert one is not None
    node = Node.of({"metadata": {"name": "n1", "uid": "u"}, "spec": {}, "status": {}})
    said = summary(one, [node], {}, now=1_700_000_000.0)
    kept = types.request("PATCH", f"{PLANNED}/m1/status", {"status": said}, content_type=MERGE_PATCH)
    assert kept["status"] == said
    head, row = types.kubectl("get", "pm").splitlines()
    assert head.split() == ["NAME", "STAGE", "INTENT", "NODES", "PROGRESS", "BLOCKED", "AGE"]
    assert row.split()[:-1] == ["m1", "Cordon", "reboot", "1", "0/1", "drained", "0"]


# --- rules of teams ---------------------------------------------------------------------------------------------------

WRONG_RULES: dict[str, tuple[Json | None, str]] = {
    "no spec": (None, "spec: Required"),
    "no selector": ({"behavior": "Skip"}, "spec.podSelector: Required"),
    "an unknown behavior": ({"podSelector": DATABASES, "behavior": "Delete"}, "spec.behavior: Unsupported"),
    "an order beyond bounds": ({"podSelector": DATABASES, "order": 1001}, "spec.order"),
    "an operator without values": ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "In and NotIn need values"),
}


@pytest.mark.parametrize("case", WRONG_RULES)
def test_a_rule_that_cannot_be_meant_is_refused(types: ControlPlane, case: str) -> None:
    refused(types, RULES, *WRONG_RULES[case])


def test_a_rule_is_stored_as_it_is_read(types: ControlPlane) -> None:
    full = Rule.of(make(types, RULES, {"podSelector": DATABASES, "behavior": "WaitCompleted", "order": -3}, dry=True))
    assert full is not None and (full.behavior, full.order) == (Behavior.WAIT_COMPLETED, -3)
    assert full.pods.selects({"app": "db"}) and not full.pods.selects({})
    least = Rule.of(make(types, RULES, {"podSelector": {}}, dry=True))
    assert least is not None and (least.behavior, least.order) == (Behavior.DRAIN, 0) and least.pods.selects({})
