"""Cases about what marks on a node ask for: the evacuation's course, slots, the gate. The pure rules act on simulated objects.

`Land` does what a controller does with the rules' answers, and no more; what volumes and pods amount to is a verdict that a case sets.
Names begin with `drain` before the case, since other groups of cases have the same letters.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hack.sim.cluster import Refused
from hack.sim.cluster.storage.reading import Query
from hack.sim.cluster.writes.deletion import Options
from sidecar.drain.evacuation import rules, slots
from sidecar.drain.evacuation.closing import asked, standing
from sidecar.drain.evacuation.rules import EvacuationView, Expiry, remaining, told, wants_slot
from sidecar.drain.evacuation.slots import SlotsView, WaitFor, contenders
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.drain.facts.own_notes import State
from sidecar.drain.gate import rules as gate
from sidecar.drain.gate.guard import Post
from sidecar.drain.gate.rules import GateView
from sidecar.drain.judgement.assessment import Assessment, Verdict
from sidecar.drain.leases import Lease, Release, Renew, Take
from sidecar.drain.publish.on_node import PROTECTING, Marks, needs_protection, none, patch, protection, wanted
from sidecar.drain.vocabulary import Intent, Reason, Status
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, LEASES, MERGE_PATCH, NODES, PODS
from sidecar.model import names
from sidecar.model.nodes import Budget, Node, Pod
from sidecar.model.objects import Json
from sidecar.model.standing import OPEN, Standing
from tests.harness.cluster_tools import T0, Clock, new_cluster
from tests.harness.drain.samples import DRIVER

NAMESPACE = "default"
READY = Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, "nothing blocks")
UNKNOWN = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "nothing could be read")
STATE, START = names.of_driver(DRIVER, names.EVACUATION_STATE), names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)


def blocked(*volumes: str) -> Verdict:
    return Verdict(Status.FALSE, Reason.LAST_COPY, ", ".join(volumes)) if volumes else READY


@dataclass
class Land:
    """Nodes n1 … on a simulated API server, and the rules played for each of them."""

    policy: NodePolicy = NodePolicy.NO_SCHEDULE
    limit: int = 0
    allowed: float = 0.0
    expiry: Expiry = Expiry.REPORT
    clock: Clock = field(default_factory=Clock)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    decisions: list[rules.Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = new_cluster(clock=self.clock)
        for name in ("n1", "n2", "n3"):
            self.add(name)

    def add(self, name: str, **meta: Any) -> None:
        self.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **meta}})

    def obj(self, name: str) -> Json:
        return self.cluster.get(NODES, name).obj

    def node(self, name: str) -> Node:
        return Node.of(self.obj(name))

    def patch(self, name: str, change: Json) -> None:
        self.cluster.patch(NODES, name, change, content_type=MERGE_PATCH)

    def taint(self, name: str, intent: str | None) -> None:
        taint = {"key": names.EVACUATE_TAINT, "value": intent, "effect": "NoSchedule"}
        self.patch(name, {"spec": {"taints": None if intent is None else [taint]}})

    def signals(self, name: str) -> Signals:
        return read(self.node(name), DRIVER, now=self.clock.now)

    def standing(self, name: str) -> Standing:
        since = self.clock.now - 60
        return standing(self.signals(name), policy=self.policy, zero_when_closed=True, cordon_stable_since=since, now=self.clock.now)[0]

    def slot(self, name: str, *, wanted: bool) -> slots.Decision:
        nodes = [Node.of(item.obj) for item in self.cluster.list(NODES, Query()).items]
        leases = tuple(Lease.of(item.obj) for item in self.cluster.list(LEASES, Query(namespace=NAMESPACE)).items)
        return slots.decide(
            SlotsView(
                now=self.clock.now,
                driver=DRIVER,
                node=name,
                node_uid=self.node(name).uid,
                namespace=NAMESPACE,
                limit=self.limit,
                wanted=wanted,
                leases=leases,
                contenders=contenders(nodes, DRIVER),
            )
        )

    def look(self, name: str) -> rules.Decision:
        """One pass over one node."""
        signals, closed = self.signals(name), self.standing(name)
        verdict = self.verdicts.get(name, blocked("v1"))
        view = EvacuationView(
            now=self.clock.now,
            signals=signals,
            asked=asked(signals, policy=self.policy, standing=closed),
            drain=verdict,
            retire=verdict,
            allowed=self.allowed,
            expiry=self.expiry,
        )
        slot = self.slot(name, wanted=wants_slot(view))
        decision = rules.decide(replace(view, slot=slot))
        self._seat(slot)
        change = patch(self.node(name), wanted(signals, DRIVER, standing=closed, decision=decision))
        if change:
            self.patch(name, change)
        self.decisions.append(decision)
        self.events += [(name, said[1])] if (said := rules.event(decision)) else []
        return decision

    def _seat(self, slot: slots.Decision) -> None:
        match slot:
            case Take(lease, body, replaces=True) | Renew(lease, body):
                self.cluster.replace(LEASES, body, name=lease, namespace=NAMESPACE)
            case Take(_, body):
                self.cluster.create(LEASES, body, namespace=NAMESPACE)
            case Release(lease, uid, version):
                self.cluster.delete(LEASES, lease, namespace=NAMESPACE, options=Options(uid=uid, resource_version=version))
            case _:
                pass

    def settle(self, *nodes: str) -> None:
        for _ in range(5):
            for name in nodes or ("n1", "n2", "n3"):
                self.look(name)

    def state(self, name: str) -> str | None:
        return (self.obj(name)["metadata"].get("labels") or {}).get(STATE)

    def start(self, name: str) -> str | None:
        return (self.obj(name)["metadata"].get("annotations") or {}).get(START)

    def told(self, name: str, reason: str) -> int:
        return self.events.count((name, reason))


def test_drain_A1_prepare_starts_on_taint_only() -> None:
    land = Land()
    before = {name: land.obj(name) for name in ("n2", "n3")}
    land.settle()
    assert land.state("n1") is None
    land.taint("n1", "retire")
    land.look("n1")
    started = land.start("n1")
    assert started == "2026-01-01T00:00:00Z" and land.state("n1") in ("Pending", "InProgress")
    land.clock.now += 90
    land.settle()
    assert land.start("n1") == started
    assert {name: land.obj(name) for name in ("n2", "n3")} == before
    assert land.told("n1", names.EVACUATION_STARTED) == 1


def test_drain_A3_success_exactly_once_and_only_when_the_last_volume_is_gone() -> None:
    land = Land()
    land.taint("n1", "retire")
    for left in (("v1", "v2", "v3"), ("v2", "v3"), ("v3",)):
        land.verdicts["n1"] = blocked(*left)
        land.settle("n1")
        assert land.state("n1") == "InProgress" and land.decisions[-1].why == ", ".join(left)
    land.verdicts["n1"] = blocked()
    land.settle("n1")
    assert land.state("n1") == "Success"
    land.verdicts["n1"] = UNKNOWN
    land.settle("n1")
    assert land.state("n1") == "Success" and land.told("n1", names.EVACUATION_SUCCEEDED) == 1


def test_drain_A3_a_restart_tells_no_second_success() -> None:
    land = Land(verdicts={"n1": READY})
    land.taint("n1", "retire")
    land.settle("n1")
    again = Land(verdicts={"n1": READY}, clock=land.clock)
    again.cluster = land.cluster
    again.settle("n1")
    assert land.told("n1", names.EVACUATION_SUCCEEDED) == 1 and again.events == []


def test_drain_A4_undo_before_anything_moved() -> None:
    land = Land(limit=1)
    meta = land.obj("n1")["metadata"]
    land.taint("n1", "retire")
    land.settle("n1")
    assert len(land.cluster.list(LEASES, Query(namespace=NAMESPACE)).items) == 1
    land.taint("n1", None)
    land.settle("n1")
    assert land.cluster.list(LEASES, Query(namespace=NAMESPACE)).items == []
    assert land.obj("n1")["metadata"] | {"resourceVersion": ""} == meta | {"resourceVersion": ""}
    assert land.standing("n1") == OPEN and land.told("n1", names.EVACUATION_UNDONE) == 1


def test_drain_A9_overlapping_evacuations_do_not_share_switches() -> None:
    land = Land()
    land.taint("n1", "retire")
    land.taint("n2", "retire")
    land.settle()
    land.taint("n1", None)
    land.settle()
    assert land.standing("n1") == OPEN and land.state("n1") is None
    assert land.standing("n2").closed and land.state("n2") == "InProgress"


@pytest.mark.parametrize("expiry", list(Expiry))
def test_drain_B3_deadline_wins_over_errors(expiry: Expiry) -> None:
    land = Land(allowed=600, expiry=expiry, verdicts={"n1": UNKNOWN})
    land.taint("n1", "retire")
    land.settle("n1")
    land.clock.now += 600
    signals = land.signals("n1")
    nothing_could_be_read = EvacuationView(land.clock.now, signals, "the taint", UNKNOWN, UNKNOWN, None, 600, expiry)
    decision = rules.decide(nothing_could_be_read)
    assert isinstance(decision, rules.Expire if expiry is Expiry.REPORT else rules.Override)


def test_drain_B5_expiry_by_report_keeps_the_verdict_and_the_gate() -> None:
    land = Land(allowed=600, expiry=Expiry.REPORT)
    land.taint("n1", "retire")
    land.settle("n1")
    land.clock.now += 600
    land.settle("n1")
    assert land.state("n1") == "Failed" and land.told("n1", names.EVACUATION_DEADLINE_EXCEEDED) == 1
    judged = Assessment("n1", "uid", DRIVER, T0, READY, blocked("v1"), (), (), (), (), (), ())
    retire = told(judged, intent=Intent.RETIRE, state=State.FAILED, slot=None).retire
    assert (retire.status, retire.reason) == (Status.FALSE, Reason.DEADLINE_EXCEEDED)
    assert isinstance(gate.decide(gated(land, overridden=land.state("n1") == "Overridden")), gate.Build)


def test_drain_B5_expiry_by_override_opens_the_gate_and_is_told_once() -> None:
    land = Land(allowed=600, expiry=Expiry.OVERRIDE)
    land.taint("n1", "retire")
    land.settle("n1")
    stood = build(land)
    land.clock.now += 600
    land.settle("n1")
    assert land.state("n1") == "Overridden" and land.told("n1", names.EVACUATION_OVERRIDDEN) == 1
    assert isinstance(gate.decide(replace(stood, overridden=land.state("n1") == "Overridden")), gate.Open)


def test_drain_D9_a_closed_node_takes_nothing_new_until_it_is_uncordoned() -> None:
    land = Land()
    land.patch("n1", {"spec": {"unschedulable": True}})
    land.settle("n1")
    closed = land.standing("n1")
    assert closed.closed and closed.publishes_zero and closed.since
    land.clock.now += 3600
    land.settle("n1")
    assert land.standing("n1") == closed, "the same closing, whenever it is looked at"
    land.patch("n1", {"spec": {"unschedulable": None}})
    assert land.standing("n1") == OPEN


# the gate


def gated(land: Land, **changes: Any) -> GateView:
    node = land.node("n1")
    base = GateView(Post(node, DRIVER, NAMESPACE, "pause"), True, True, Intent.RETIRE, Status.FALSE, Status.FALSE, False, None, None)
    return replace(base, **changes)


def build(land: Land) -> GateView:
    """What the rule asks for, created; and the guard, as the Deployment's controllers would start it."""
    decision = gate.decide(gated(land))
    assert isinstance(decision, gate.Build)
    budget, deployment = decision.objects
    stored = [land.cluster.create(kind, obj, namespace=NAMESPACE).obj for kind, obj in ((BUDGETS, budget), (DEPLOYMENTS, deployment))]
    template = deployment["spec"]["template"]
    run(land, "guard", template["metadata"]["labels"], template["spec"])
    counted = {"currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1, "observedGeneration": 1}
    land.cluster.patch(
        BUDGETS, budget["metadata"]["name"], {"status": counted}, content_type=MERGE_PATCH, namespace=NAMESPACE, subresource="status"
    )
    return gated(land, budget=stored[0], deployment=stored[1])


def run(land: Land, name: str, labels: dict[str, str], spec: Json) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec | {"nodeName": "n1"}}
    land.cluster.create(PODS, pod, namespace=NAMESPACE)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    land.cluster.patch(PODS, name, {"status": status}, content_type=MERGE_PATCH, namespace=NAMESPACE, subresource="status")


def evict(land: Land, pod: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    try:
        land.cluster.post(PODS, pod, "eviction", body, namespace=NAMESPACE)
    except Refused as refused:
        return refused.code
    return 201


def test_drain_E1_the_gate_holds_and_releases() -> None:
    land = Land()
    run(land, "db-0", {"app": "db"}, {"containers": [{"name": "db", "image": "db"}]})
    stood = build(land)
    assert (evict(land, "db-0"), evict(land, "guard")) == (201, 429)
    decision = gate.decide(replace(stood, retire=Status.TRUE))
    assert isinstance(decision, gate.Open)
    first = decision.objects[0]
    assert first["kind"] == "PodDisruptionBudget"
    land.cluster.delete(BUDGETS, first["metadata"]["name"], namespace=NAMESPACE, options=Options(uid=first["metadata"]["uid"]))
    assert evict(land, "guard") == 201


def test_drain_E3_a_gate_built_by_another_nodes_sidecar_holds_only_its_own_guard() -> None:
    land = Land()
    made = {name: gate.wanted(gated(land, post=Post(land.node(name), DRIVER, NAMESPACE, "pause"))) for name in ("n1", "n2")}
    guards = {}
    for name, found in made.items():
        assert found is not None
        template = found.deployment["spec"]["template"]
        guards[name] = Pod.of(template | {"metadata": template["metadata"] | {"name": name, "namespace": NAMESPACE}})
    assert made["n1"] is not None
    budget = Budget.of(made["n1"].budget)
    assert [name for name, pod in guards.items() if budget.covers(pod)] == ["n1"]


def test_drain_E5_no_leftovers_when_the_node_goes_though_nobody_acts() -> None:
    land = Land(limit=1)
    land.taint("n1", "retire")
    land.settle("n1")
    build(land)
    land.cluster.delete(NODES, "n1")
    land.cluster.collect_garbage()
    for kind in (BUDGETS, DEPLOYMENTS, LEASES):
        assert land.cluster.list(kind, Query(namespace=NAMESPACE)).items == [], kind.plural


@pytest.mark.parametrize("by_user", [(), (names.DO_NOT_DISRUPT,), PROTECTING])
def test_drain_E7_autoscaler_annotations_are_added_and_removed_only_where_they_are_ours(by_user: tuple[str, ...]) -> None:
    land = Land()
    land.patch("n1", {"metadata": {"annotations": dict.fromkeys(by_user, "true")}})

    def annotate(retire: Status) -> dict[str, str]:
        marks = protection(land.node("n1"), DRIVER, needed=needs_protection(enabled=True, retire=retire, overridden=False))
        change = patch(land.node("n1"), marks, resource_version=land.obj("n1")["metadata"]["resourceVersion"])
        if change:
            land.patch("n1", change)
        return dict(land.obj("n1")["metadata"].get("annotations") or {})

    marker = names.of_driver(DRIVER, names.AUTOSCALER_MARKER)
    noted = annotate(Status.FALSE)
    assert all(noted[key] == "true" for key in PROTECTING)
    assert json.loads(noted.get(marker, "[]")) == [key for key in PROTECTING if key not in by_user]
    assert annotate(Status.UNKNOWN) == noted
    assert annotate(Status.TRUE) == dict.fromkeys(by_user, "true")


def test_drain_F8_admission_is_by_progress_then_age_then_name() -> None:
    land = Land(limit=1)
    for name in ("n1", "n3", "n2"):
        land.taint(name, "retire")
        if name == "n1":
            land.settle("n1")
            land.clock.now += 60
    land.settle()
    assert [land.state(name) for name in ("n1", "n2", "n3")] == ["InProgress", "Pending", "Pending"]
    waiting = [land.slot(name, wanted=True) for name in ("n2", "n3")]
    assert [(item.position, item.ahead, item.holders) for item in waiting if isinstance(item, WaitFor)] == [
        (1, (), ("n1",)),
        (2, ("n2",), ("n1",)),
    ]
    judged = Assessment("n3", "uid", DRIVER, T0, READY, blocked("v1"), (), (), (), (), (), ())
    said = told(judged, intent=None, state=State.PENDING, slot=waiting[1]).retire
    assert said.reason is Reason.WAITING_FOR_SLOT and "place 2" in said.message
    assert isinstance(gate.decide(gated(land, retire=said.status)), gate.Build), "its gate stays closed"
    land.taint("n1", None)
    land.settle()
    assert [land.state(name) for name in ("n1", "n2", "n3")] == [None, "InProgress", "Pending"]


def test_drain_G1_nothing_of_a_former_node_is_applied_to_a_new_one_of_its_name() -> None:
    land = Land(limit=1, allowed=600)
    land.taint("n1", "retire")
    land.settle("n1")
    former = build(land)
    meta = land.obj("n1")["metadata"]
    land.cluster.delete(NODES, "n1")
    land.add("n1", annotations=meta["annotations"], labels=meta["labels"])
    land.clock.now += 3600
    assert land.standing("n1") == OPEN
    signals = land.signals("n1")
    assert (signals.started_at, signals.state) == (None, None) and any(meta["uid"] in text for text in signals.problems)
    assert isinstance(land.slot("n1", wanted=True), Take | WaitFor), "the former node's lease is not its own"
    new = gate.wanted(gated(land))
    assert new is not None and former.budget is not None
    assert new.budget["metadata"]["name"] != former.budget["metadata"]["name"], "its gate is another one"
    land.settle("n1")
    assert (land.state("n1"), land.start("n1")) == (None, None)
    land.taint("n1", "retire")
    land.settle("n1")
    assert land.start("n1") == "2026-01-01T01:00:00Z" and land.state("n1") != "Failed"


def test_drain_G4_a_patch_keeps_what_others_have_there_byte_for_byte() -> None:
    land = Land(limit=1)
    foreign = {"labels": {"zone": "a"}, "annotations": {"example.com/note": '{"a": 1}\n'}}
    land.patch("n1", {"metadata": foreign, "spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoExecute"}]}})
    land.patch("n1", {"spec": {"unschedulable": True}})
    before = land.obj("n1")
    land.settle("n1")
    after = land.obj("n1")
    assert after["spec"] == before["spec"] and after.get("status") == before.get("status")
    for part, values in foreign.items():
        assert {key: after["metadata"][part][key] for key in values} == values
        assert all(key.startswith(f"{DRIVER}.{names.GROUP}/") for key in after["metadata"][part].keys() - values.keys())


def test_drain_G4_of_two_writers_the_later_is_refused_and_asks_again() -> None:
    land = Land()
    seen, version = land.node("n1"), land.obj("n1")["metadata"]["resourceVersion"]
    land.patch("n1", {"metadata": {"annotations": {"example.com/note": "meanwhile"}}})
    change = patch(seen, protection(seen, DRIVER, needed=True), resource_version=version)
    with pytest.raises(Refused) as caught:
        land.patch("n1", change or {})
    assert caught.value.code == 409


def test_drain_G7_an_uninstall_leaves_nothing_of_ours_on_nodes() -> None:
    land = Land(limit=1)
    land.patch("n1", {"metadata": {"annotations": {names.DRAIN_INTENT: "retire", "example.com/note": "mine"}}})
    before = land.obj("n1")["metadata"]
    land.taint("n1", "retire")
    land.settle("n1")
    node = land.node("n1")
    land.patch("n1", patch(node, protection(node, DRIVER, needed=True) | summary("{}")) or {})
    land.patch("n1", patch(land.node("n1"), none(land.node("n1"), DRIVER)) or {})
    after = land.obj("n1")["metadata"]
    assert (after.get("annotations"), after.get("labels")) == (before.get("annotations"), before.get("labels"))
    build(land)
    found = [land.cluster.list(kind, Query(namespace=NAMESPACE, labels=gate.selector(DRIVER))).items for kind in (BUDGETS, DEPLOYMENTS)]
    leases = land.cluster.list(LEASES, Query(namespace=NAMESPACE, labels=slots.selector(DRIVER))).items
    assert [len(items) for items in (*found, leases)] == [1, 1, 1]


def summary(text: str) -> Marks:
    return Marks({names.of_driver(DRIVER, names.DRAIN_SUMMARY): text})


@pytest.mark.parametrize("skew", [-300.0, -1.0, 0.0, 1.0, 300.0])
@pytest.mark.parametrize("passed", [0.0, 299.0, 600.0, 901.0])
def test_drain_G8_a_peer_uses_the_larger_remaining_time(skew: float, passed: float) -> None:
    local = T0 + passed
    own = remaining(T0, allowed=600, clocks=[local])
    peers = remaining(T0, allowed=600, clocks=[local + skew, local])
    assert own <= peers <= own + abs(skew)
