"""An evacuation step by step: what is noted, when a slot is taken and given back, the deadline, and what must hold at every step."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from sidecar.drain.anew import Target
from sidecar.drain.assess import Verdict
from sidecar.drain.course import (
    Away,
    Held,
    Note,
    NotKnown,
    Rest,
    SendAway,
    TakenBy,
    TakeSlot,
    View,
    as_json,
    decide,
    is_under_way,
    lets_go,
)
from sidecar.drain.empty import Candidate, Hold
from sidecar.drain.marks import Record, State, Wish
from sidecar.drain.settings import Expiry
from sidecar.drain.words import Intent, Reason, Status
from sidecar.model import names
from tests.harness.drain.replica import target
from tests.harness.drain.samples import NOW, pod, stamp

READY = Verdict(Status.TRUE, Reason.NOTHING_BLOCKS, "nothing blocks")
BLOCKED = Verdict(Status.FALSE, Reason.LAST_COPY, "PersistentVolumeClaim apps/data-0: LastCopy")
UNKNOWN = Verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "pods could not be listed")
WISH = Wish("the taint asks for it", Intent.RETIRE)
FORCED = replace(WISH, forced="the disk is dead")
CANDIDATE = Candidate(pod(), ())
REPLICA: Target = target()
AWAY = Away("reprovision-x", REPLICA)
PASSES = Hold(Reason.REPLICA_NOT_READY, "apps/db-0", "apps/db-1 is not ready")
FOR_A_PERSON = Hold(Reason.BARE_POD, "apps/web", "no controller owns it", lasting=True)
HAS = {"slot": Held("")}
THEIRS = TakenBy("n3")


def view(state: State | None = State.IN_PROGRESS, **changes: Any) -> View:
    record = changes.pop("record", Record(state=state, started_at=NOW if state not in (None, State.PENDING) else None))
    base = View(
        wish=WISH,
        record=record,
        verdict=BLOCKED,
        late=False,
        expiry=Expiry.REPORT,
        slot=None,
        has_slot=True,
        next=CANDIDATE,
    )
    return replace(base, **changes)


def noted(of: View) -> State | None:
    decision = decide(of)
    assert isinstance(decision, Note), decision
    return decision.state


def test_the_whole_evacuation() -> None:
    assert decide(view(None, wish=None)) == Rest("nobody asks for the node to be emptied")
    assert decide(view(None)) == Note(State.PENDING, WISH.by, names.EVACUATION_STARTED)
    assert decide(view(State.PENDING)) == TakeSlot(BLOCKED.message)
    begun = decide(view(State.PENDING, **HAS))
    assert isinstance(begun, Note)
    assert (begun.state, begun.begins, begun.gives_back) == (State.IN_PROGRESS, True, False)
    assert decide(view()) == TakeSlot(BLOCKED.message), "it is asked for in each look before anybody is sent away"
    assert decide(view(**HAS)) == SendAway(CANDIDATE, "apps/db-0 is evicted: its volumes may leave with it")
    assert decide(view(next=REPLICA, **HAS)) == SendAway(REPLICA, f"{REPLICA.full_name} is to be made anew: its policy is Reprovision")
    assert decide(view(next=AWAY, **HAS)) == SendAway(AWAY, f"{REPLICA.full_name} is being made anew")
    waits = decide(view(next=PASSES, **HAS))
    assert waits == Rest(PASSES.why, PASSES.reason)
    over = decide(view(next=None, verdict=READY))
    assert over == Note(State.SUCCESS, "nothing blocks", names.EVACUATION_SUCCEEDED, gives_back=True)
    assert decide(view(State.SUCCESS, next=None, verdict=READY)) == Rest("nothing blocks")


@pytest.mark.parametrize("doing", [{"next": AWAY}, {"next": CANDIDATE}, {"next": REPLICA}, {"next": PASSES}], ids=str)
def test_it_has_not_succeeded_while_something_can_be_sent_away(doing: Any) -> None:
    assert not isinstance(decide(view(verdict=READY, **doing)), Note)
    assert noted(view(verdict=READY, **doing | {"wish": FORCED})) is State.SUCCESS


def test_the_course_is_told_with_its_times_and_what_comes_next() -> None:
    begun = Record(State.IN_PROGRESS, NOW)
    assert as_json(begun, Held(""), "db-0 is evicted", allowed=60.0) == {
        "state": "InProgress",
        "startedAt": stamp(0),
        "deadline": stamp(-60),
        "slot": "held",
        "next": "db-0 is evicted",
    }
    assert as_json(begun, THEIRS, "x" * 5000, allowed=0.0) == {
        "state": "InProgress",
        "startedAt": stamp(0),
        "slot": "waits",
        "next": "x" * 1024,
    }
    assert as_json(Record(), None, "", allowed=60.0) == {}


# --- slots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("following", [None, FOR_A_PERSON], ids=["nothing is left to send away", "only a person can help"])
def test_the_slot_is_given_back_while_nobody_can_be_sent_away_and_the_time_runs_on(following: Any) -> None:
    back = decide(view(next=following))
    assert isinstance(back, Note)
    assert (back.state, back.gives_back, back.begins) == (State.IN_PROGRESS, True, False)
    assert str(back.reason) not in back.why, "the report says it before"
    assert isinstance(decide(view(next=following, has_slot=False)), Rest)
    begun = decide(view(State.PENDING, next=following))
    assert isinstance(begun, Note)
    assert (begun.state, begun.begins) == (State.IN_PROGRESS, True), "it waits for nobody's turn"
    assert isinstance(decide(view(next=following, late=True)), Note)


def test_a_replica_that_is_away_keeps_the_slot() -> None:
    assert isinstance(decide(view(next=AWAY, stuck=True)), TakeSlot)


def test_while_another_node_has_the_slot_nobody_is_sent_away() -> None:
    told = decide(view(State.PENDING, slot=THEIRS))
    assert told == Rest("node n3 is being emptied, and its turn is first", Reason.WAITING_FOR_SLOT)
    assert noted(view(slot=THEIRS)) is State.PENDING, "its own has run out"
    assert noted(view(slot=THEIRS, next=AWAY)) is State.PENDING


def test_while_it_is_not_known_whose_turn_it_is_nobody_is_sent_away() -> None:
    for doing in ({}, {"next": AWAY}, {"next": REPLICA}):
        assert decide(view(slot=NotKnown("no answer"), **doing)) == Rest("no answer", Reason.NOT_KNOWN)


# --- the deadline -----------------------------------------------------------------------------------------------------


def test_at_the_deadline_it_fails_or_is_overridden_once_whatever_is_known() -> None:
    for verdict, slot in product((BLOCKED, UNKNOWN), (None, Held(""), THEIRS, NotKnown("no answer"))):
        late = view(late=True, verdict=verdict, slot=slot)
        failed, overridden = decide(late), decide(replace(late, expiry=Expiry.OVERRIDE))
        assert isinstance(failed, Note) and isinstance(overridden, Note)
        assert (failed.state, failed.gives_back, failed.reason) == (State.FAILED, True, Reason.DEADLINE_EXCEEDED)
        assert (overridden.state, overridden.event) == (State.OVERRIDDEN, names.EVACUATION_OVERRIDDEN)
        assert not lets_go(late)
        assert "longer than" in lets_go(replace(late, expiry=Expiry.OVERRIDE))
    assert isinstance(decide(view(State.FAILED, late=True)), Rest)
    assert isinstance(decide(view(State.OVERRIDDEN, late=True, expiry=Expiry.OVERRIDE)), Rest)
    assert noted(view(State.FAILED, late=True, verdict=READY, next=None)) is State.SUCCESS


def test_a_node_that_waits_for_its_turn_loses_no_time() -> None:
    """It had a slot before, gave it back, and another node has it now."""
    waits = view(record=Record(state=State.PENDING, started_at=NOW - 3600), late=True, expiry=Expiry.OVERRIDE, slot=THEIRS)
    assert isinstance(decide(waits), Rest)
    assert not lets_go(waits)
    begun = decide(replace(waits, **HAS))
    assert isinstance(begun, Note)
    assert (begun.state, begun.begins) == (State.IN_PROGRESS, True)


def test_a_start_that_makes_no_sense_becomes_now() -> None:
    begun = decide(view(record=Record(state=State.IN_PROGRESS), **HAS))
    assert isinstance(begun, Note)
    assert (begun.state, begun.begins) == (State.IN_PROGRESS, True)


def test_an_override_by_hand_says_why_once_and_ends_with_its_word() -> None:
    decision = decide(view(State.PENDING, wish=FORCED, verdict=UNKNOWN))
    assert isinstance(decision, Note)
    assert (decision.state, decision.event) == (State.OVERRIDDEN, names.EVACUATION_OVERRIDDEN)
    assert "the disk is dead" in decision.why
    assert isinstance(decide(view(State.OVERRIDDEN, wish=FORCED)), Rest)
    assert isinstance(decide(view(State.OVERRIDDEN)), TakeSlot)
    assert noted(view(State.OVERRIDDEN, **HAS)) is State.IN_PROGRESS


@pytest.mark.parametrize(
    ("seen", "is_so"),
    [
        pytest.param({}, False, id="somebody wrote the label"),
        pytest.param({"expiry": Expiry.OVERRIDE}, False, id="before the deadline"),
        pytest.param({"late": True}, False, id="the deadline is only reported"),
        pytest.param({"late": True, "expiry": Expiry.OVERRIDE, "wish": None}, False, id="nobody asks"),
        pytest.param({"late": True, "expiry": Expiry.OVERRIDE}, True, id="by the deadline"),
        pytest.param({"wish": FORCED}, True, id="by hand"),
    ],
)
def test_a_label_overridden_is_believed_only_where_the_rule_would_override_again(seen: Any, is_so: bool) -> None:
    assert bool(lets_go(view(State.OVERRIDDEN, verdict=UNKNOWN, **seen))) is is_so


# --- after success, and the undo --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"late": True}, {"wish": FORCED}], ids=["in time", "late", "forced"])
def test_what_blocks_after_success_begins_another_evacuation(changes: Any) -> None:
    decision = decide(view(State.SUCCESS, **changes))
    assert isinstance(decision, Note)
    assert (decision.state, BLOCKED.message in decision.why) == (State.PENDING, True)


def test_a_pod_that_can_be_sent_away_after_success_begins_another_one_while_time_is_left() -> None:
    for following in (CANDIDATE, REPLICA):
        assert noted(view(State.SUCCESS, verdict=READY, next=following)) is State.PENDING
        assert isinstance(decide(view(State.SUCCESS, verdict=READY, next=following, late=True)), Rest)
    for resting in ({"verdict": UNKNOWN}, {"verdict": READY, "next": PASSES}, {"verdict": READY, "wish": FORCED}):
        assert isinstance(decide(view(State.SUCCESS, **resting)), Rest)


@pytest.mark.parametrize("state", list(State))
def test_it_is_undone_from_any_state(state: State) -> None:
    decision = decide(view(state, wish=None, next=AWAY))
    assert isinstance(decision, Note)
    assert (decision.state, decision.event, decision.gives_back) == (None, names.EVACUATION_UNDONE, True)


def test_what_cannot_be_undone_is_done_only_while_the_node_says_that_it_is_being_retired() -> None:
    assert is_under_way(Record(state=State.IN_PROGRESS), WISH)
    for state, wish in [
        *((state, WISH) for state in (None, *State) if state is not State.IN_PROGRESS),
        (State.IN_PROGRESS, None),
        (State.IN_PROGRESS, FORCED),
        (State.IN_PROGRESS, replace(WISH, intent=Intent.REBOOT)),
    ]:
        assert not is_under_way(Record(state=state), wish)


EVERYTHING = list(
    product(
        (None, *State),
        (WISH, FORCED, None),
        (READY, BLOCKED, UNKNOWN),
        (False, True),
        Expiry,
        (None, Held(""), THEIRS, NotKnown("no answer")),
        (None, AWAY, CANDIDATE, REPLICA, PASSES, FOR_A_PERSON),
    )
)


def test_whatever_is_seen_nobody_is_sent_away_without_a_slot_and_what_is_not_known_never_succeeds() -> None:
    for state, wish, verdict, late, expiry, slot, following in EVERYTHING:
        seen = view(state, wish=wish, verdict=verdict, late=late, expiry=expiry, slot=slot, next=following)
        decision = decide(seen)
        if isinstance(decision, SendAway):
            assert isinstance(slot, Held) and is_under_way(seen.record, wish)
        if isinstance(decision, Note) and decision.state is State.SUCCESS:
            assert verdict.status is Status.TRUE
        if isinstance(decision, Note) and decision.state is State.OVERRIDDEN:
            assert wish is not None and (wish.forced or (late and expiry is Expiry.OVERRIDE and state is not State.PENDING))


def test_whatever_is_noted_is_not_noted_again() -> None:
    for state, wish, verdict, late, expiry, slot, following in EVERYTHING:
        seen = view(state, wish=wish, verdict=verdict, late=late, expiry=expiry, slot=slot, next=following)
        first = decide(seen)
        if isinstance(first, Note):
            record = replace(
                seen.record, state=first.state, started_at=NOW if first.begins or first.state is None else seen.record.started_at
            )
            again = decide(replace(seen, record=record, late=late and not first.begins, has_slot=seen.has_slot and not first.gives_back))
            assert not isinstance(again, Note) or again.state is not first.state, (seen, first)
