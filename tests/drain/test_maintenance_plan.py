"""Which pods a maintenance drains, in which order, and whom it waits for: the rules alone."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.maintenance.executor_io import _peer
from sidecar.drain.maintenance.objects import (
    CAPI_LABEL,
    MOST_PRIORITY,
    STANDARD,
    Behavior,
    Entry,
    Maintenance,
    PodType,
    Rule,
    Runner,
    Selector,
    Stage,
    effective,
)
from sidecar.drain.maintenance.plan import END, Draining, Peer, Treatment, due, finished, target, treatments
from sidecar.drain.words import Intent
from sidecar.model import names
from sidecar.model.objects import Json
from sidecar.model.topology import Requirement
from tests.harness.drain import samples

AGENT = Selector((Requirement("app", "In", ("agent",)),))
DAEMON = samples.owner("DaemonSet", "agent")
A, B = "maintenance-a", "maintenance-b"


def maintenance(name: str = A, *written: Entry, stage: Stage = Stage.DRAIN, intent: Intent = Intent.REBOOT, **more: Any) -> Maintenance:
    return Maintenance(name, f"uid-{name}", stage, intent, frozenset({"n1"}), Selector(), effective(written), **more)


def runner(name: str = "web", priority: int = 0, **pod: Any) -> Runner:
    return Runner(samples.pod(name, **{"owner": samples.owner("ReplicaSet", "web"), **pod}), priority)


def treated(one: Maintenance, *runners: Runner, rules: tuple[Rule, ...] = (), **more: Any) -> dict[str, tuple[int | None, Behavior, int]]:
    found = treatments(one, runners, rules, more.pop("namespaces", {}), **more)
    return {each.runner.pod.name: (each.entry, each.behavior, each.order) for each in found}


def draining(one: Maintenance, *runners: Runner, finished: int = 0, peers: tuple[Peer, ...] = (), rules: tuple[Rule, ...] = ()) -> Draining:
    return Draining(one, finished, tuple(treatments(one, runners, rules, {})), peers)


def asked(drains: list[Draining], reached: Any = None) -> list[str]:
    return [each.runner.pod.name for each in due(drains, target(drains, reached))]


# --- objects ----------------------------------------------------------------------------------------------------------


def test_drain_C4_what_is_written_and_the_four_standard_entries_stand_by_type_priority_and_selection() -> None:
    chosen = Entry(priority=5000, pods=AGENT)
    static, daemon = Entry(PodType.Static, 10), Entry(PodType.DaemonSet, 2_000_000_000)
    assert effective([static, daemon, Entry(priority=5000), chosen]) == (chosen, Entry(priority=5000), *STANDARD, daemon, static)
    assert effective([]) == STANDARD and [each.priority for each in STANDARD] == [10**9, 2 * 10**9, 2 * 10**9 + 1000, MOST_PRIORITY]
    assert effective([*STANDARD, Entry(priority=10**9)]) == STANDARD, "a standard entry that somebody writes is not there twice"


def obj(**spec: Any) -> Json:
    return {"metadata": {"name": A, "uid": "uid"}, "spec": {"nodes": ["n1"], **spec}}


@pytest.mark.parametrize(
    "spec",
    [
        {"stage": "Evacuate"},
        {"intent": "scrap"},
        {"deadline": "soon"},
        {"deadline": ""},
        {"drainPlan": [{"podType": "Job"}]},
        {"drainPlan": [{"maxPriority": "high"}]},
        {"drainPlan": ["everything"]},
        {"nodeSelector": {"matchLabels": ["a"]}},
    ],
)
def test_what_cannot_be_carried_out_is_no_maintenance(spec: Json) -> None:
    assert Maintenance.of(obj(**spec)) is None


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600.0), ("1h30m", 5400.0), ("90s", 90.0), ("0s", 0.0)])
def test_a_deadline_is_read_as_kubernetes_writes_durations(text: str, seconds: float) -> None:
    found = Maintenance.of(obj(deadline=text))
    assert found is not None and found.deadline == seconds and not found.overrides


def test_drain_C3_one_that_is_being_deleted_counts_as_complete() -> None:
    found = Maintenance.of({"metadata": {"name": A, "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"stage": "Drain"}})
    assert found is not None and found.stage is Stage.COMPLETE


def test_nodes_are_selected_by_name_or_by_labels_and_an_empty_selector_selects_none() -> None:
    by_name = Maintenance.of(obj())
    by_label = Maintenance.of(obj(nodes=[], nodeSelector={"matchLabels": {"pool": "a"}}))
    by_nothing = Maintenance.of(obj(nodes=[], nodeSelector={}))
    assert by_name and by_label and by_nothing
    assert by_name.selects("n1", {}) and not by_name.selects("n2", {"pool": "a"})
    assert by_label.selects("n2", {"pool": "a"}) and not by_label.selects("n1", {"pool": "b"})
    assert not by_nothing.selects("n1", {"pool": "a"})


# --- pods -------------------------------------------------------------------------------------------------------------


def test_pods_of_daemon_sets_and_static_ones_stay_unless_an_entry_names_them() -> None:
    there = (runner("agent", owner=DAEMON), runner("static", static=True), runner("web"))
    assert {name: entry for name, (entry, _, _) in treated(maintenance(), *there).items()} == {"web": 0, "agent": None, "static": None}
    named = maintenance(A, Entry(PodType.DaemonSet, 0), Entry(PodType.Static))
    assert {name: entry for name, (entry, _, _) in treated(named, *there).items()} == {"web": 0, "agent": 4, "static": 5}


def test_our_own_pods_and_our_guards_are_drained_by_no_plan() -> None:
    everything = maintenance(A, Entry(PodType.DaemonSet), Entry(PodType.Static))
    guard = runner("guard", labels={names.GUARDED_NODE: "n1"})
    there = (runner("sidecar", owner=DAEMON), guard)
    assert set(treated(everything, *there, ours=frozenset({"apps/sidecar"})).values()) == {(None, Behavior.SKIP, 0)}


@pytest.mark.parametrize(
    ("priority", "entry"), [(-5, 0), (0, 0), (10**9, 0), (10**9 + 1, 1), (2 * 10**9, 1), (2 * 10**9 + 1000, 2), (MOST_PRIORITY, 3)]
)
def test_pods_of_users_go_first_then_those_that_are_critical(priority: int, entry: int) -> None:
    assert treated(maintenance(), runner(priority=priority))["web"][0] == entry


def test_drain_C13_an_entry_selects_by_the_labels_of_pods_and_of_namespaces() -> None:
    monitoring = Selector((Requirement("team", "In", ("monitoring",)),))
    plan = maintenance(A, Entry(priority=100, namespaces=monitoring), Entry(priority=200, pods=AGENT))
    there = (runner("a", namespace="mon"), runner("b", labels={"app": "agent"}), runner("c"))
    found = treated(plan, *there, namespaces={"mon": {"team": "monitoring"}})
    assert {name: entry for name, (entry, _, _) in found.items()} == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("label", "behavior", "wanted"),
    [
        ("", Behavior.SKIP, Behavior.SKIP),
        ("", Behavior.WAIT_COMPLETED, Behavior.WAIT_COMPLETED),
        ("Skip", Behavior.DRAIN, Behavior.SKIP),
        ("wait-completed", Behavior.SKIP, Behavior.WAIT_COMPLETED),
        ("whatever", Behavior.SKIP, Behavior.SKIP),
    ],
)
def test_drain_C13_a_rule_says_how_and_when_and_cluster_api_s_label_beats_it(label: str, behavior: Behavior, wanted: Behavior) -> None:
    rule = Rule("apps", "agents", AGENT, behavior, 100)
    found = treated(maintenance(), runner("a", labels={"app": "agent", CAPI_LABEL: label}), runner("web"), rules=(rule,))
    assert found == {"web": (0, Behavior.DRAIN, 0), "a": (0, wanted, 100)}, "in the order of eviction"


def test_drain_C14_a_rule_has_no_effect_outside_its_namespace_and_the_first_by_name_that_selects_the_pod_counts() -> None:
    rules = (
        Rule("team", "all", Selector(), Behavior.SKIP),
        Rule("apps", "z", AGENT, Behavior.WAIT_COMPLETED),
        Rule("apps", "b", AGENT, Behavior.SKIP),
        Rule("apps", "a", Selector((Requirement("app", "In", ("other",)),)), order=7),
    )
    found = treated(maintenance(), runner("a", labels={"app": "agent"}), runner("web", labels={}), rules=rules)
    assert found == {"a": (0, Behavior.SKIP, 0), "web": (0, Behavior.DRAIN, 0)}


def test_drain_C13_those_of_the_lowest_order_go_first_and_one_that_is_skipped_or_has_ended_holds_nobody() -> None:
    rules = (
        Rule("apps", "a", AGENT, Behavior.SKIP, -5),
        Rule("apps", "b", Selector((Requirement("app", "In", ("portworx",)),)), order=100),
        Rule("apps", "c", Selector((Requirement("app", "In", ("job",)),)), Behavior.WAIT_COMPLETED),
    )
    agent, px = runner("agent", labels={"app": "agent"}), runner("px", labels={"app": "portworx"})
    job, web = runner("job", labels={"app": "job"}), runner("web")
    done = replace(job, pod=replace(job.pod, phase="Succeeded"))

    def left(*there: Runner) -> list[str]:
        return asked([draining(maintenance(), *there, rules=rules)])

    assert left(agent, px, job, web) == ["job", "web"]
    assert left(agent, px, job) == ["job"]
    assert left(agent, px, done) == ["px"]
    assert left(agent, done) == []


def test_drain_C14_the_order_of_one_namespace_holds_no_pod_of_another() -> None:
    rules = (
        Rule("apps", "hold", AGENT, Behavior.WAIT_COMPLETED, -1000),
        Rule("other", "later", AGENT, order=5),
    )
    there = (
        runner("agent", labels={"app": "agent"}),
        runner("web"),
        runner("other", namespace="other"),
        runner("last", namespace="other", labels={"app": "agent"}),
    )
    assert asked([draining(maintenance(), *there, rules=rules)]) == ["agent", "other"]
    assert asked([draining(maintenance(), *there[:2], there[3], rules=rules)]) == ["agent", "last"]


def test_drain_C15_one_that_comes_back_is_left_and_holds_nobody() -> None:
    found = treatments(maintenance(), [runner("agent")], (), {}, undrainable={"apps/agent": "it tolerates everything"})
    assert found[0].why == "Undrainable: it tolerates everything" and not found[0].is_waited_for


# --- entries, peers, several maintenances -------------------------------------------------------------------------------

FIVE, TEN, FIFTEEN = (Entry(priority=priority) for priority in (5000, 10000, 15000))
MA, MB = maintenance(A, FIVE, FIFTEEN), maintenance(B, TEN, FIFTEEN)
LOW, MIDDLE, HIGH = runner("low", 5000), runner("middle", 10000), runner("high", 15000)
EVERYBODY = (LOW, MIDDLE, HIGH)


def test_an_entry_is_worked_on_only_once_all_nodes_have_done_those_before_it() -> None:
    one = draining(MA, HIGH, finished=1, peers=(Peer("n2", 0), Peer("n3", 4)))
    assert one.at == 0 and one.key == FIVE.key and asked([one]) == []
    assert [peer.node for peer in one.waits_for()] == ["n2"]
    one = draining(MA, HIGH, finished=1, peers=(Peer("n2", 1), Peer("n3", 4)))
    assert one.at == 1 and asked([one]) == ["high"] and one.waits_for() == []


def test_how_far_another_maintenance_has_come_opens_no_entry_whose_nodes_are_not_there_yet() -> None:
    """This node has reached the end for another one; n2 has not done the first entry of this one."""
    waits, opened = (draining(MA, HIGH, finished=1, peers=(Peer("n2", done),)) for done in (0, 1))
    assert asked([waits], END) == [] and asked([opened], END) == ["high"]
    assert asked([waits, draining(MB, HIGH, finished=1)], END) == ["high"], "by the other one it goes"


@pytest.mark.parametrize("said", [-1, -(10**9)])
def test_a_peer_that_reports_fewer_than_no_entries_has_done_none(said: int) -> None:
    status = {"nodeUID": "uid-n2", "maintenance": [{"uid": MA.uid, "finished": said}]}
    peer = _peer(samples.node("n2"), MA, status)
    one = draining(MA, *EVERYBODY, peers=(peer,))
    assert peer.finished == 0 and one.key == FIVE.key and asked([one]) == ["low"]
    assert asked([draining(MA, HIGH, peers=(peer,))]) == [], "it has the key of no later entry"


@pytest.mark.parametrize(("peer", "counts"), [(Peer("n2", None), True), (Peer("n2", None, ignored=True), False)])
def test_drain_C10_one_that_never_says_anything_keeps_all_until_somebody_says_that_it_does_not_count(peer: Peer, counts: bool) -> None:
    one = draining(MA, HIGH, finished=1, peers=(peer,))
    assert asked([one]) == ([] if counts else ["high"])
    assert one.waits_for() == ([peer] if counts else [])


def test_drain_C7_a_node_of_two_maintenances_works_on_the_least_advanced_entry_of_both() -> None:
    """n1 is in both, n2 in A only, n3 in B only."""
    n1 = [draining(MA, *EVERYBODY, peers=(Peer("n2", 0),)), draining(MB, *EVERYBODY, peers=(Peer("n3", 0),))]
    assert target(n1, None) == FIVE.key and asked(n1) == ["low"]
    assert asked([draining(MB, *EVERYBODY, peers=(Peer("n1", 0),))]) == ["low", "middle"]
    n1 = [draining(MA, MIDDLE, HIGH, peers=(Peer("n2", 0),)), draining(MB, MIDDLE, HIGH)]
    assert [finished(one, target(n1, None)) for one in n1] == [1, 0], "the entry of B is not done by it"
    n1 = [draining(MA, MIDDLE, HIGH, finished=1, peers=(Peer("n2", 1),)), draining(MB, MIDDLE, HIGH)]
    assert target(n1, FIVE.key) == TEN.key and asked(n1) == ["middle"]
    assert target([draining(MA, HIGH, finished=1, peers=(Peer("n1", 1),))], FIVE.key) == FIFTEEN.key


def test_drain_C8_no_plan_goes_back() -> None:
    new = maintenance("c", Entry(priority=2000))
    both = [draining(MB, MIDDLE, HIGH), draining(new, MIDDLE, HIGH)]
    assert target(both, TEN.key) == TEN.key and asked(both, TEN.key) == ["middle"]
    assert asked([draining(new, *EVERYBODY)]) == [], "another node begins where the new plan begins"
    assert finished(draining(new, finished=3), (0, 0, 0)) == 3


def test_an_entry_is_done_once_none_of_its_pods_nor_of_those_before_it_is_left() -> None:
    def done(*there: Runner, before: int = 0) -> int:
        one = draining(MA, *there, finished=before)
        return finished(one, target([one], None))

    assert [done(*EVERYBODY), done(HIGH), done(HIGH, before=1), done(), done(before=5), done(LOW, before=2)] == [0, 1, 1, 1, 6, 2]


def test_a_pod_that_appears_late_goes_before_those_of_later_entries() -> None:
    assert asked([draining(MA, LOW, HIGH, finished=1)]) == ["low"]


def test_a_pod_of_two_plans_goes_with_the_earlier_entry_and_by_its_order() -> None:
    drains = [draining(MB, LOW), draining(MA, LOW)]
    found: list[Treatment] = due(drains, END)
    assert len(found) == 1 and found[0].why.startswith("the plan, entry 1: Default pods up to priority 5000")
    assert target([], None) == END
