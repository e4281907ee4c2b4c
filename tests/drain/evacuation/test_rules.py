"""An evacuation step by step, what must hold at every step, and its deadline while the wall clock jumps."""

from dataclasses import dataclass, replace
from typing import Any

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
    StandAside,
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
from sidecar.drain.evacuation.steady_clock import AT_LEAST, SteadyClock
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


def test_of_two_clocks_the_one_that_leaves_more_time_counts() -> None:
    """The wall clock may jump, the other one not."""
    for expiry in list(Expiry):
        assert isinstance(decide(late(expiry=expiry)), Expire | Override)
        assert decide(late(expiry=expiry, steady=NOW - 1)) == Rest(BLOCKED.message, NOW + 1)
        assert isinstance(decide(late(expiry=expiry, steady=NOW)), Expire | Override)
        assert isinstance(decide(late(expiry=expiry, steady=NOW + 3600)), Expire | Override)
        assert not lets_go(late(expiry=expiry, steady=NOW - 1))


def test_the_whole_evacuation() -> None:
    assert decide(view(marks())) == Begin(NOW, "the taint asks for it")
    begun = marks("Pending", stamp(0))
    assert isinstance(decide(view(begun, slot=None)), AskForSlot)
    assert isinstance(decide(view(begun, slot=leases.Take("slot", {}, False, "free"))), AskForSlot)
    assert decide(view(begun)) == Proceed(NOW, BLOCKED.message)
    going = marks("InProgress", stamp(0))
    assert decide(view(going)) == Rest(BLOCKED.message)
    assert decide(view(going, retire=READY)) == Succeed("nothing blocks")
    assert decide(view(marks("Success", stamp(0)), retire=READY)) == Rest("nothing blocks")


def test_a_start_that_is_of_no_use_becomes_now_and_an_event_says_so() -> None:
    for text, why in [("garbage", "not a time"), (stamp(-60), "future"), ("", "is gone")]:
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


def test_what_blocks_after_success_begins_another_evacuation() -> None:
    for force in ["", "the disk is dead"]:
        for expiry in list(Expiry):
            for slot in [slots.NoLimit(), leases.NotWanted(), None]:
                decision = decide(view(marks("Success", stamp(900), force=force), slot=slot, allowed=600.0, expiry=expiry))
                assert isinstance(decision, Begin) and decision.started_at == NOW and BLOCKED.message in decision.why
                assert state_after(decision, State.SUCCESS) is State.PENDING


def test_a_stricter_intent_begins_another_evacuation_only_after_success() -> None:
    judged = {"drain": READY, "retire": BLOCKED, "allowed": 600.0}
    assert isinstance(decide(view(marks("Success", stamp(900), intent="reboot"), **judged)), Rest)
    assert isinstance(decide(view(marks("Success", stamp(900), intent="retire"), **judged)), Begin)
    for intent in ("reboot", "retire"):
        assert isinstance(decide(view(marks("InProgress", stamp(900), intent=intent), **judged | {"drain": BLOCKED})), Expire)


def test_a_pod_that_can_be_evicted_after_success_begins_another_evacuation() -> None:
    after = view(marks("Success", stamp(599)), retire=READY, leaving="apps/web-0", allowed=600.0)
    assert decide(after) == Begin(NOW, "it had succeeded, and now a pod can be evicted: apps/web-0")
    assert isinstance(decide(replace(after, allowed=0.0)), Begin)
    assert decide(replace(after, signals=marks("Success", stamp(600)))) == Rest("nothing blocks")
    assert isinstance(decide(replace(after, retire=UNKNOWN)), Rest)


def test_ignorance_after_success_changes_nothing() -> None:
    assert isinstance(decide(view(marks("Success", stamp(60)), retire=UNKNOWN, slot=leases.NotWanted())), Rest)
    assert isinstance(decide(late("Success", retire=UNKNOWN)), Rest)


def test_who_waits_for_a_slot_says_so_and_looks_again_in_time() -> None:
    assert decide(view(marks("Pending", stamp(60)), slot=QUEUED)) == Rest("place 2", NOW + 60)
    # Its time does not run while it waits, and begins when it has its slot.
    assert decide(view(marks("Pending", stamp(60)), slot=QUEUED, allowed=50.0)) == Rest("place 2", NOW + 60)
    assert decide(view(marks("Pending", stamp(60)), allowed=50.0)) == Proceed(NOW, BLOCKED.message)
    assert isinstance(decide(view(marks("InProgress", stamp(60)), slot=QUEUED)), Wait)


def test_a_slot_is_wanted_while_there_is_something_to_do() -> None:
    wanting = {state for state in ("", *State) if wants_slot(view(marks(state, stamp(60))))}
    assert wanting == {State.PENDING, State.IN_PROGRESS, State.BLOCKED}
    assert not wants_slot(view(asked=""))
    assert not wants_slot(view(stuck=True))
    assert decide(view(stuck=True)) == StandAside(NOW - 60, BLOCKED.message)
    assert decide(view(marks("Pending", stamp(60)), stuck=True)) == StandAside(NOW, BLOCKED.message)
    assert isinstance(decide(view(marks("Blocked", stamp(60)), stuck=True)), Rest)
    assert isinstance(decide(view(marks("Blocked", stamp(60)), slot=QUEUED)), Wait)
    assert isinstance(decide(late("Blocked", stuck=True)), Expire)


def test_the_deadline_is_told_once_and_lifted_by_success() -> None:
    assert isinstance(decide(late("Failed")), Rest)
    assert isinstance(decide(late("Overridden", expiry=Expiry.OVERRIDE)), Rest)
    assert isinstance(decide(late("Failed", retire=READY)), Succeed)
    assert decide(late(retire=READY, leaving="apps/web-0")) == Expire("the evacuation has taken longer than 600 s: apps/web-0")


def test_an_override_by_hand_says_why_once_and_goes_with_its_annotation() -> None:
    forced = marks("Pending", stamp(60), force="the disk is dead")
    decision = decide(view(forced, retire=UNKNOWN, slot=None))
    assert isinstance(decision, Override) and "the disk is dead" in decision.why
    assert event(decision) == ("Warning", names.EVACUATION_OVERRIDDEN, decision.why)
    assert isinstance(decide(view(marks("Overridden", stamp(60), force="the disk is dead"))), Rest)
    assert isinstance(decide(view(marks("Overridden", stamp(60)), slot=leases.NotWanted())), Wait)


def test_a_label_overridden_is_believed_only_where_the_rule_would_override_again() -> None:
    for seen, is_so in [
        (view(marks("Overridden", stamp(60))), False),  # somebody wrote the label
        (view(marks("Overridden", stamp(60)), allowed=600.0, expiry=Expiry.OVERRIDE), False),  # before the deadline
        (late("Overridden"), False),  # the deadline is only reported
        (view(marks("Overridden", "garbage"), allowed=600.0, expiry=Expiry.OVERRIDE), False),  # when it began is not known
        (late("Overridden", expiry=Expiry.OVERRIDE, asked=""), False),  # nobody asks
        (view(marks("Overridden", stamp(60), force="dead", spent=True)), False),  # by hand, for an earlier evacuation
        (late("Overridden", expiry=Expiry.OVERRIDE), True),  # by the deadline
        (view(marks("Overridden", stamp(60), force="dead")), True),  # by hand
    ]:
        ignorant = replace(seen, drain=UNKNOWN, retire=UNKNOWN)
        assert believed(ignorant).state is (State.OVERRIDDEN if is_so else State.PENDING)
        assert lets_go(ignorant) is is_so


def test_an_evacuation_is_undone_from_any_state() -> None:
    for state in list(State):
        decision = decide(view(marks(state, stamp(60)), asked=""))
        assert isinstance(decision, Undo) and state_after(decision, state) is None


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


def test_a_neighbour_knows_the_deadline_from_the_marks_alone() -> None:
    assert due(marks("Pending", stamp(600))) == "", "it waits for its slot"
    for state in ["InProgress", "Blocked", "Failed", "Overridden"]:
        assert "longer than 600 s" in due(marks(state, stamp(600)))
        assert due(marks(state, stamp(599))) == ""


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


# --- The deadline of an evacuation while the wall clock jumps ---


ALLOWED, BEGUN = 600.0, 1_767_225_600.0


@dataclass
class Clocks:
    """What a process sees: how long it has lived, and what the wall clock of its node says."""

    lived: float = 0.0
    wall: float = BEGUN

    def __post_init__(self) -> None:
        self.steady = SteadyClock()

    def passes(self, seconds: float, *, jump: float = 0.0) -> None:
        self.lived += seconds
        self.wall += seconds + jump

    def left(self, started_at: float = BEGUN, *, overridden: bool = False) -> float:
        steady = self.steady.now(started_at, allowed=ALLOWED, overridden=overridden, wall=self.wall, clock=self.lived)
        return remaining(started_at, allowed=ALLOWED, clocks=(self.wall, steady))


def test_without_a_jump_it_is_the_wall_clock() -> None:
    clocks = Clocks()
    for left in (600.0, 300.0, 0.0, -300.0):
        assert clocks.left() == left
        clocks.passes(300.0)


def test_a_leap_ahead_ends_nothing_early() -> None:
    for jump in [60.0, 3600.0, 1e9]:
        clocks = Clocks()
        clocks.left()
        clocks.passes(10.0, jump=jump)
        assert clocks.left() == 590.0
        clocks.passes(590.0)
        assert clocks.left() == 0.0, "nor late"


def test_a_new_process_gives_an_expired_deadline_one_more_minute() -> None:
    clocks = Clocks()
    clocks.passes(0.0, jump=1e9)
    assert clocks.left() == AT_LEAST
    clocks.passes(AT_LEAST)
    assert clocks.left() == 0.0
    assert Clocks(wall=BEGUN + 590.0).left() == AT_LEAST
