"""An evacuation step by step, and what must hold at every step."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain import leases
from sidecar.drain.evacuation import slots
from sidecar.drain.evacuation.rules import (
    AskForSlot,
    Begin,
    EvacuationView,
    Expire,
    Expiry,
    Override,
    Proceed,
    Restart,
    Succeed,
    Undo,
    Wait,
    believed,
    decide,
    event,
    lets_go,
    override_due,
    remaining,
    state_after,
    told,
    wants_slot,
)
from sidecar.drain.facts.node_marks import NodePolicy, Signals, read
from sidecar.drain.facts.own_notes import State, digest
from sidecar.drain.judgement.assessment import Assessment, Verdict
from sidecar.drain.rest import Rest
from sidecar.drain.vocabulary import Intent, Reason, Status
from sidecar.model import names
from tests.harness.drain.samples import DRIVER, NOW, node, stamp, taint

START = names.of_driver(DRIVER, names.EVACUATION_STARTED_AT)
STATE = names.of_driver(DRIVER, names.EVACUATION_STATE)
SPENT = names.of_driver(DRIVER, names.SPENT_OVERRIDE)
REBOOT = names.of_driver(DRIVER, names.REBOOT_INTENT)
READY = Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, "nothing blocks")
BLOCKED = Verdict(Status.FALSE, Reason.LAST_COPY, "PersistentVolumeClaim apps/data-0: LastCopy")
UNKNOWN = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "pods could not be listed")
HELD = leases.Hold("slot", NOW + 60, "held")
QUEUED = slots.WaitFor(2, ("n0",), ("n3",), False, NOW + 60, "place 2")


def marks(state: str = "", started: str = "", *, intent: str = "retire", force: str = "", spent: bool = False, now: float = NOW) -> Signals:
    notes = {START: started, names.FORCE_DRAIN: force, SPENT: digest(force) if spent else ""}
    return read(
        node(taints=(taint(names.EVACUATE_TAINT, intent),), labels={STATE: state} if state else {}, annotations=notes), DRIVER, now=now
    )


def view(signals: Signals | None = None, **changes: Any) -> EvacuationView:
    base = EvacuationView(
        now=NOW,
        signals=marks("InProgress", stamp(60)) if signals is None else signals,
        asked="the taint asks for it",
        drain=BLOCKED,
        retire=BLOCKED,
        slot=HELD,
    )
    return replace(base, **changes)


def late(state: str = "InProgress", **changes: Any) -> EvacuationView:
    """Ten minutes were allowed, and are over."""
    return view(marks(state, stamp(600)), **{"allowed": 600.0} | changes)


@pytest.mark.parametrize("expiry", list(Expiry))
def test_of_two_clocks_the_one_that_leaves_more_time_counts(expiry: Expiry) -> None:
    """The wall clock may jump, the other one not."""
    assert isinstance(decide(late(expiry=expiry)), Expire | Override)
    assert decide(late(expiry=expiry, steady=NOW - 1)) == Rest(BLOCKED.message, NOW + 1)
    assert isinstance(decide(late(expiry=expiry, steady=NOW)), Expire | Override)
    assert isinstance(decide(late(expiry=expiry, steady=NOW + 3600)), Expire | Override)
    assert not lets_go(late(expiry=expiry, steady=NOW - 1))


def test_nothing_is_done_on_a_node_that_nobody_asks_about() -> None:
    quiet = read(node(), DRIVER, now=NOW)
    assert decide(view(quiet, asked="")) == Rest("nobody asks for the node to be emptied")


def test_the_whole_evacuation() -> None:
    assert decide(view(marks())) == Begin(NOW, "the taint asks for it")
    begun = marks("Pending", stamp(0))
    assert isinstance(decide(view(begun, slot=None)), AskForSlot)
    assert isinstance(decide(view(begun, slot=leases.Take("slot", {}, False, "free"))), AskForSlot)
    assert decide(view(begun)) == Proceed(BLOCKED.message)
    going = marks("InProgress", stamp(0))
    assert decide(view(going)) == Rest(BLOCKED.message)
    assert decide(view(going, retire=READY)) == Succeed("nothing blocks")
    assert decide(view(marks("Success", stamp(0)), retire=READY)) == Rest("nothing blocks")


@pytest.mark.parametrize(("text", "why"), [("garbage", "not a time"), (stamp(-60), "future"), ("", "is gone")])
def test_a_start_that_is_of_no_use_becomes_now_and_an_event_says_so(text: str, why: str) -> None:
    decision = decide(view(marks("InProgress", text)))
    assert isinstance(decision, Restart) and decision.started_at == NOW and why in decision.why
    told_ = event(decision)
    assert told_ is not None and told_[:2] == ("Warning", names.EVACUATION_START_REWRITTEN)
    assert state_after(decision, State.IN_PROGRESS) is State.IN_PROGRESS


def test_a_reboot_needs_one_verdict_and_retiring_the_other() -> None:
    reboot, retire = (marks("InProgress", stamp(60), intent=intent) for intent in ("reboot", "retire"))
    assert isinstance(decide(view(reboot, drain=READY)), Succeed)
    assert isinstance(decide(view(reboot, retire=READY)), Rest)
    assert isinstance(decide(view(retire, retire=READY)), Succeed)
    assert isinstance(decide(view(retire, drain=READY)), Rest)


@pytest.mark.parametrize("slot", [slots.NoLimit(), leases.NotWanted(), None])
@pytest.mark.parametrize("expiry", list(Expiry))
@pytest.mark.parametrize("force", ["", "the disk is dead"])
def test_what_blocks_after_success_begins_another_evacuation_whatever_would_end_the_old_one(
    slot: slots.Decision | None, expiry: Expiry, force: str
) -> None:
    decision = decide(view(marks("Success", stamp(900), force=force), slot=slot, allowed=600.0, expiry=expiry))
    assert isinstance(decision, Begin) and decision.started_at == NOW and BLOCKED.message in decision.why
    assert state_after(decision, State.SUCCESS) is State.PENDING


def test_a_stricter_intent_after_success_is_another_evacuation_and_one_before_it_defers_no_deadline() -> None:
    judged = {"drain": READY, "retire": BLOCKED, "allowed": 600.0}
    assert isinstance(decide(view(marks("Success", stamp(900), intent="reboot"), **judged)), Rest)
    assert isinstance(decide(view(marks("Success", stamp(900), intent="retire"), **judged)), Begin)
    for intent in ("reboot", "retire"):
        assert isinstance(decide(view(marks("InProgress", stamp(900), intent=intent), **judged | {"drain": BLOCKED})), Expire)


def test_a_pod_that_can_be_evicted_after_success_begins_another_evacuation_while_time_is_left() -> None:
    after = view(marks("Success", stamp(599)), retire=READY, leaving="apps/web-0", allowed=600.0)
    assert decide(after) == Begin(NOW, "it had succeeded, and now a pod can be evicted: apps/web-0")
    assert isinstance(decide(replace(after, allowed=0.0)), Begin)
    assert decide(replace(after, signals=marks("Success", stamp(600)))) == Rest("nothing blocks")
    assert isinstance(decide(replace(after, retire=UNKNOWN)), Rest)


@pytest.mark.parametrize("force", ["", "the disk is dead"])
@pytest.mark.parametrize("leaving", ["", "apps/web-0"])
@pytest.mark.parametrize("ago", [599.0, 600.0])
def test_what_has_just_succeeded_does_not_begin_anew_for_the_same_reasons(force: str, leaving: str, ago: float) -> None:
    going = view(marks("InProgress", stamp(ago), force=force), retire=READY, leaving=leaving, allowed=600.0)
    if isinstance(decide(going), Succeed):
        assert isinstance(decide(replace(going, signals=marks("Success", stamp(ago), force=force))), Rest)


def test_ignorance_after_success_changes_nothing() -> None:
    assert isinstance(decide(view(marks("Success", stamp(60)), retire=UNKNOWN, slot=leases.NotWanted())), Rest)
    assert isinstance(decide(late("Success", retire=UNKNOWN)), Rest)


def test_who_waits_for_a_slot_says_so_and_looks_again_in_time() -> None:
    assert decide(view(marks("Pending", stamp(60)), slot=QUEUED)) == Rest("place 2", NOW + 60)
    soon = view(marks("Pending", stamp(60)), slot=QUEUED, allowed=90.0)
    assert decide(soon) == Rest("place 2", NOW + 30)
    assert isinstance(decide(view(marks("InProgress", stamp(60)), slot=QUEUED)), Wait)


def test_nothing_to_do_needs_no_slot() -> None:
    assert isinstance(decide(view(marks("Pending", stamp(60)), slot=QUEUED, retire=READY)), Succeed)


def test_a_slot_is_wanted_while_there_is_something_to_do() -> None:
    wanting = {state for state in ("", *State) if wants_slot(view(marks(state, stamp(60))))}
    assert wanting == {State.PENDING, State.IN_PROGRESS}
    assert not wants_slot(view(asked=""))


@pytest.mark.parametrize("expiry", list(Expiry))
@pytest.mark.parametrize("verdict", [BLOCKED, UNKNOWN])
@pytest.mark.parametrize("slot", [HELD, QUEUED, None])
def test_the_deadline_passes_whatever_else_can_be_told(expiry: Expiry, verdict: Verdict, slot: slots.Decision | None) -> None:
    decision = decide(late(expiry=expiry, retire=verdict, slot=slot))
    assert isinstance(decision, Override if expiry is Expiry.OVERRIDE else Expire)
    assert "600 s" in decision.why


def test_the_deadline_is_told_once_and_lifted_by_success() -> None:
    assert isinstance(decide(late("Failed")), Rest)
    assert isinstance(decide(late("Overridden", expiry=Expiry.OVERRIDE)), Rest)
    assert isinstance(decide(late("Failed", retire=READY)), Succeed)


def test_a_changed_configuration_counts() -> None:
    assert isinstance(decide(late("Failed", expiry=Expiry.OVERRIDE)), Override)
    assert isinstance(decide(late("Overridden")), Expire)
    assert isinstance(decide(late("Failed", allowed=1200.0, slot=leases.NotWanted())), Wait)
    assert isinstance(decide(late("InProgress", allowed=0.0)), Rest)


def test_the_deadline_is_when_to_look_again() -> None:
    assert decide(view(allowed=100.0)) == Rest(BLOCKED.message, NOW + 40)


def test_an_override_by_hand_says_why_once_and_goes_with_its_annotation() -> None:
    forced = marks("Pending", stamp(60), force="the disk is dead")
    decision = decide(view(forced, retire=UNKNOWN, slot=None))
    assert isinstance(decision, Override) and "the disk is dead" in decision.why
    assert event(decision) == ("Warning", names.EVACUATION_OVERRIDDEN, decision.why)
    assert isinstance(decide(view(marks("Overridden", stamp(60), force="the disk is dead"))), Rest)
    assert isinstance(decide(view(marks("Overridden", stamp(60)), slot=leases.NotWanted())), Wait)


@pytest.mark.parametrize("verdict", [READY, UNKNOWN])
def test_an_override_by_hand_has_nothing_to_do_after_success(verdict: Verdict) -> None:
    assert isinstance(decide(view(marks("Success", stamp(60), force="the disk is dead"), retire=verdict)), Rest)


@pytest.mark.parametrize(
    ("seen", "is_so"),
    [
        pytest.param(view(marks("Overridden", stamp(60))), False, id="somebody wrote the label"),
        pytest.param(view(marks("Overridden", stamp(60)), allowed=600.0, expiry=Expiry.OVERRIDE), False, id="before the deadline"),
        pytest.param(late("Overridden"), False, id="the deadline is only reported"),
        pytest.param(view(marks("Overridden", "garbage"), allowed=600.0, expiry=Expiry.OVERRIDE), False, id="when it began is not known"),
        pytest.param(late("Overridden", expiry=Expiry.OVERRIDE, asked=""), False, id="nobody asks"),
        pytest.param(view(marks("Overridden", stamp(60), force="dead", spent=True)), False, id="by hand, for an earlier evacuation"),
        pytest.param(late("Overridden", expiry=Expiry.OVERRIDE), True, id="by the deadline"),
        pytest.param(view(marks("Overridden", stamp(60), force="dead")), True, id="by hand"),
    ],
)
def test_a_label_overridden_is_believed_only_where_the_rule_would_override_again(seen: EvacuationView, is_so: bool) -> None:
    ignorant = replace(seen, drain=UNKNOWN, retire=UNKNOWN)
    assert believed(ignorant).state is (State.OVERRIDDEN if is_so else State.PENDING)
    assert lets_go(ignorant) is is_so


@pytest.mark.parametrize("state", sorted({*State} - {State.OVERRIDDEN}))
def test_labels_of_other_states_are_believed(state: State) -> None:
    seen = late(state, expiry=Expiry.OVERRIDE)
    assert believed(seen).state is state
    assert lets_go(seen) is (state is not State.SUCCESS), "whether that is noted or not"


def test_an_override_of_an_earlier_evacuation_is_not_applied() -> None:
    assert isinstance(decide(view(marks("InProgress", stamp(60), force="the disk is dead", spent=True))), Rest)


@pytest.mark.parametrize("state", list(State))
def test_an_evacuation_is_undone_from_any_state(state: State) -> None:
    decision = decide(view(marks(state, stamp(60)), asked=""))
    assert isinstance(decision, Undo) and state_after(decision, state) is None


def test_an_evacuation_is_undone_though_its_marks_are_garbage() -> None:
    assert isinstance(decide(view(marks("gone", ""), asked="")), Undo)
    assert isinstance(decide(view(marks("", "gone"), asked="")), Undo)


def assessment() -> Assessment:
    return Assessment("n1", "uid-n1", DRIVER, NOW, BLOCKED, BLOCKED, (), (), (), (), (), ())


def test_what_the_evacuation_adds_to_the_judgement() -> None:
    plain = assessment()
    waiting = told(plain, intent=None, state=State.PENDING, slot=QUEUED)
    assert (waiting.retire.status, waiting.retire.reason, waiting.drain) == (Status.FALSE, Reason.WAITING_FOR_SLOT, plain.drain)
    assert "place 2" in waiting.retire.message and BLOCKED.message in waiting.retire.message
    expired = told(plain, intent=Intent.REBOOT, state=State.FAILED, slot=None)
    assert (expired.drain.status, expired.drain.reason, expired.retire) == (Status.FALSE, Reason.DEADLINE_EXCEEDED, plain.retire)
    assert told(plain, intent=None, state=State.IN_PROGRESS, slot=HELD) == plain


@pytest.mark.parametrize("verdict", [READY, UNKNOWN])
@pytest.mark.parametrize("state", list(State))
def test_an_evacuation_adds_nothing_to_a_verdict_that_is_not_false(verdict: Verdict, state: State) -> None:
    judged = replace(assessment(), retire=verdict)
    assert told(judged, intent=Intent.RETIRE, state=state, slot=QUEUED) == judged


def test_every_decision_leaves_a_state_that_asks_for_no_second_one_of_its_kind() -> None:
    for state in State:
        for verdict in (READY, BLOCKED, UNKNOWN):
            for allowed in (0.0, 60.0):
                first = decide(view(marks(state, stamp(60)), retire=verdict, allowed=allowed))
                after = state_after(first, state)
                second = decide(view(marks(after or "", stamp(60)), retire=verdict, allowed=allowed))
                assert isinstance(first, Rest) or type(second) is not type(first), (state, verdict, allowed)


starts = st.floats(0, 10_000)
allowances = st.floats(0.001, 10_000)


@given(starts, allowances, st.floats(-10_000, 20_000), st.floats(0, 10_000))
def test_deadlines_only_tighten_as_time_passes(started: float, allowed: float, now: float, later: float) -> None:
    at = NOW + now
    assert remaining(NOW - started, allowed=allowed, clocks=[at + later]) <= remaining(NOW - started, allowed=allowed, clocks=[at])


@given(starts, allowances, st.floats(0, 10_000), st.sampled_from(State), st.sampled_from([BLOCKED, UNKNOWN]), st.sampled_from(Expiry))
def test_what_has_expired_stays_so(started: float, allowed: float, later: float, state: State, verdict: Verdict, expiry: Expiry) -> None:
    def at(now: float) -> bool:
        signals = marks(state, stamp(started), now=now)
        decision = decide(view(signals, now=now, retire=verdict, allowed=allowed, expiry=expiry))
        return isinstance(decision, Expire | Override) or (isinstance(decision, Rest) and "longer than" in decision.why)

    assert not at(NOW) or at(NOW + later)


@given(st.sampled_from(["", *State]), st.sampled_from([HELD, QUEUED, None]), st.floats(0, 2000), st.sampled_from(Expiry))
def test_what_is_not_known_never_succeeds(state: str, slot: slots.Decision | None, allowed: float, expiry: Expiry) -> None:
    decision = decide(view(marks(state, stamp(60)), drain=UNKNOWN, retire=UNKNOWN, slot=slot, allowed=allowed, expiry=expiry))
    assert not isinstance(decision, Succeed)


# what a neighbour knows from the marks alone

EVACUATED = NodePolicy.EVACUATE


def due(signals: Signals, *clocks: float, policy: NodePolicy = NodePolicy.NO_SCHEDULE, **changes: Any) -> str:
    facts: dict[str, Any] = {"allowed": 600.0, "expiry": Expiry.OVERRIDE, "clocks": clocks or (NOW,)} | changes
    return override_due(signals, policy=policy, **facts)


@pytest.mark.parametrize("state", ["Pending", "InProgress", "Failed", "Overridden", ""])
def test_a_neighbour_knows_the_deadline_from_the_marks_alone(state: str) -> None:
    assert "longer than 600 s" in due(marks(state, stamp(600)))
    assert due(marks(state, stamp(599))) == ""


@pytest.mark.parametrize(
    ("changes", "clocks"),
    [({"expiry": Expiry.REPORT}, ()), ({"allowed": 0.0}, ()), ({"policy": NodePolicy.IGNORE}, ()), ({}, (NOW, NOW - 1))],
    ids=["it only reports", "no deadline", "the policy is Ignore", "by the other clock there is time left"],
)
def test_a_neighbour_lets_no_node_go_without_need(changes: dict[str, Any], clocks: tuple[float, ...]) -> None:
    assert due(marks("InProgress", stamp(600)), *clocks, **changes) == ""


def test_a_neighbour_lets_no_node_go_that_nobody_asks_for_any_more() -> None:
    """Its sidecar died before it could undo its marks."""
    left = read(node(labels={STATE: "InProgress"}, annotations={START: stamp(600)}), DRIVER, now=NOW)
    assert due(left, policy=EVACUATED) == ""
    forgotten = read(
        node(labels={STATE: "InProgress"}, annotations={START: stamp(600), names.DRAIN_INTENT: "reboot", REBOOT: "InEffect"}),
        DRIVER,
        now=NOW,
    )
    assert due(forgotten) == "", "the node was uncordoned meanwhile"


def test_a_neighbour_trusts_no_start_that_cannot_be_used_and_none_of_a_success_or_a_former_node() -> None:
    for signals in (marks("InProgress", stamp(-5)), marks("InProgress", "soon"), marks("InProgress"), marks("Success", stamp(600))):
        assert due(signals) == ""
    notes = {START: stamp(600), names.of_driver(DRIVER, names.MARKED_NODE): "uid-of-another"}
    assert due(read(node(taints=(taint(names.EVACUATE_TAINT, "retire"),), annotations=notes), DRIVER, now=NOW)) == ""


def test_a_neighbour_counts_a_cordon_that_nobody_explains_from_the_noted_closing() -> None:
    closed = names.of_driver(DRIVER, names.CLOSED_AT)
    cordoned = node(unschedulable=True, labels={STATE: "InProgress"}, annotations={START: stamp(600), closed: stamp(660)})
    by_policy = {policy: due(read(cordoned, DRIVER, now=NOW, default_policy=policy), policy=policy) for policy in NodePolicy}
    assert [bool(by_policy[policy]) for policy in (NodePolicy.IGNORE, NodePolicy.NO_SCHEDULE, EVACUATED)] == [False, False, True]


def test_a_neighbour_knows_a_force_drain_of_an_evacuation_that_has_begun() -> None:
    assert "the disk is dead" in due(marks("InProgress", stamp(60), force="the disk is dead"), expiry=Expiry.REPORT)
    assert due(marks("InProgress", stamp(60), force="the disk is dead", spent=True)) == ""


def test_an_evacuation_for_a_reboot_goes_by_its_verdict_with_and_without_a_cordon() -> None:
    for cordoned in (False, True):
        signals = read(
            node(
                taints=(taint(names.EVACUATE_TAINT, "reboot"),),
                unschedulable=cordoned,
                labels={STATE: "InProgress"},
                annotations={START: stamp(60)},
            ),
            DRIVER,
            now=NOW,
        )
        assert isinstance(decide(view(signals, drain=READY)), Succeed)
