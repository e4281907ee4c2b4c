"""One look at the race. Upstream's table is in the cases (N1 …); here also what must hold for any number of nodes."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.names import TRIED_BY
from sidecar.model.standing import Standing
from sidecar.model.topology import Segment
from sidecar.ownership.placement import RandomDelay, Ranked
from sidecar.ownership.roster import Roster
from sidecar.ownership.rules import (
    Bid,
    Decision,
    LostTo,
    Measure,
    NotForUs,
    Ours,
    OwnershipView,
    Race,
    Tell,
    Wait,
    after_conflict,
    decide,
    step_back,
)
from sidecar.ownership.waiting import Want
from tests.harness import samples

TIB = CapacityAnswer(2**40)
DUE = Race(0, 0.0)


def view(**changes: Any) -> OwnershipView:
    base = OwnershipView(
        now=100.0,
        node=samples.NODE,
        segment=samples.info().segment,
        with_topology=True,
        bids=True,
        placement=RandomDelay(20.0, 60.0),
        chance=0.25,
        claim=samples.claim(),
        class_=samples.class_(volumeBindingMode="Immediate"),
        race=None,
        free=None,
    )
    return replace(base, **changes)


def test_N1_late_binding_with_this_node_selected_is_ours() -> None:
    assert decide(view(claim=samples.claim(selected="foo"), class_=samples.class_())) == Ours()


def test_N2_late_binding_without_a_node_is_not_for_us() -> None:
    assert isinstance(decide(view(class_=samples.class_())), NotForUs)


def test_N3_another_node_is_selected() -> None:
    assert decide(view(claim=samples.claim(selected="bar"))) == LostTo("bar")


def test_the_first_look_draws_a_delay_and_keeps_it() -> None:
    first = decide(view())
    assert first == Wait(115.0, Race(0, 115.0), first.why)
    again = decide(view(now=110.0, race=first.race, chance=0.9))
    assert isinstance(again, Wait) and again.race == first.race


def test_N5_after_the_delay_free_space_is_measured_and_then_the_claim_is_taken() -> None:
    assert decide(view(race=DUE)) == Measure()
    assert isinstance(decide(view(race=DUE, free=TIB)), Bid)


def test_N6_without_enough_space_the_claim_is_left_and_the_next_delay_is_longer() -> None:
    decision = decide(view(race=DUE, free=CapacityAnswer(99)))
    assert isinstance(decision, Wait)
    assert decision.race == Race(1, 100.0 + 40.0 - 5.0, hindered_since=100.0, why=decision.why, want=Want("fake-class", "fake-ns", 100))
    assert "100 bytes needed, 99 free" in decision.why


def test_N7_exactly_enough_is_enough() -> None:
    assert isinstance(decide(view(race=DUE, free=CapacityAnswer(100))), Bid)


def test_N9_a_class_without_binding_mode_is_not_immediate() -> None:
    assert isinstance(decide(view(class_=samples.class_(volumeBindingMode=None))), NotForUs)


@pytest.mark.parametrize(("node", "taken"), [("foo", True), ("bar", False)])
def test_N10_allowed_topologies(node: str, taken: bool) -> None:
    allowed = [{"matchLabelExpressions": [{"key": samples.KEY, "values": [node]}]}]
    decision = decide(view(race=DUE, class_=samples.class_(volumeBindingMode="Immediate", allowedTopologies=allowed)))
    if taken:
        assert isinstance(decision, Measure)
    else:
        assert isinstance(decision, Wait) and math.isinf(decision.race.bid_at), "it looks again only for the sake of the claim's user"


@pytest.mark.parametrize("placement", [RandomDelay(20.0, 60.0), Ranked(RandomDelay(20.0, 60.0))])
def test_where_the_source_comes_late_nothing_of_before_hinders_the_race(placement: RandomDelay | Ranked) -> None:
    away = view(placement=placement, source_here=False)
    behind = decide(away)
    assert isinstance(behind, Wait) and behind.until > 120.0 and "come first" in behind.why
    at_its_turn = replace(away, now=behind.until, race=behind.race)
    assert decide(at_its_turn) == Measure()
    out = decide(replace(at_its_turn, free=TIB, source_unfit="it is not Bound"))
    assert isinstance(out, Wait) and out.race.bid_at >= behind.until + 30.0 and out.why == "it is not Bound"
    told = decide(replace(away, now=behind.until + 200.0, race=replace(out.race, bid_at=1000.0)))
    assert isinstance(told, Tell) and "it is not Bound" in told.why
    for race in (None, behind.race, out.race, told.race):
        here = decide(view(placement=placement, now=500.0, race=race))
        assert isinstance(here, Wait) and 500.0 < here.until <= 520.0
        assert decide(view(placement=placement, now=here.until, race=here.race)) == Measure()


def test_N11_a_driver_that_cannot_say_how_much_is_free_does_not_leave_the_claim_without_an_owner() -> None:
    decision = decide(view(race=DUE, free=Unmeasured("rpc error: code = Internal")))
    assert isinstance(decision, Bid) and "Internal" in decision.why


def test_N11_a_driver_that_is_away_could_not_create_anything_either() -> None:
    decision = decide(view(race=DUE, free=Unmeasured("not sent", away=True)))
    assert isinstance(decision, Wait) and "away" in decision.why


def test_N11_a_driver_that_says_unavailable_and_is_there_is_taken_at_its_word_the_second_time() -> None:
    unavailable = Unmeasured("the pool is being scrubbed", perhaps=True)
    first = decide(view(race=DUE, free=unavailable))
    assert isinstance(first, Wait) and first.until > 100.0 and "may have gone" in first.why
    assert isinstance(decide(view(now=first.until, race=first.race, free=unavailable)), Bid)
    full = decide(view(race=DUE, free=CapacityAnswer(0)))
    assert isinstance(full, Wait)
    assert isinstance(decide(view(now=full.until, race=full.race, free=unavailable)), Wait), "until now it only had no room"


@pytest.mark.parametrize(("maximum", "fits"), [(-1, True), (0, False), (None, True)])
def test_a_negative_largest_volume_is_none(maximum: int | None, fits: bool) -> None:
    decision = decide(view(race=DUE, free=CapacityAnswer(2**40, maximum=maximum)))
    assert isinstance(decision, Bid) is fits


def test_a_conflict_that_changed_nothing_is_asked_about_and_bars_nobody() -> None:
    """Some webhooks answer with a conflict, and then no change will ever be shown."""
    beaten = after_conflict(view(race=DUE))
    doubt = decide(view(now=beaten.until, race=beaten.race))
    assert isinstance(doubt, Wait) and doubt.until >= beaten.until + 1.0
    assert decide(view(now=doubt.until, race=doubt.race)) == Measure()
    decision = decide(view(now=doubt.until, race=doubt.race, free=TIB))
    assert isinstance(decision, Bid) and decision.out_of_turn


def test_a_node_whose_driver_reports_no_topology_leaves_the_claim_to_the_others() -> None:
    decision = decide(view(segment=Segment()))
    assert isinstance(decision, Wait) and math.isinf(decision.race.bid_at)
    assert "reports no topology" in decision.why


def test_a_node_whose_topology_no_object_can_name_leaves_the_claim_to_the_others() -> None:
    decision = decide(view(segment=Segment.of({"rack": "no 1"})))
    assert isinstance(decision, Wait) and math.isinf(decision.race.bid_at)
    assert "reports a topology that no PersistentVolume can name: 'rack' has the value 'no 1'" in decision.why
    without = decide(view(segment=Segment(), with_topology=False))
    assert isinstance(without, Wait) and not math.isinf(without.race.bid_at)


def test_N13_a_claim_of_nothing_is_taken_without_measuring() -> None:
    claim = samples.claim(resources={"requests": {"storage": "0"}})
    assert isinstance(decide(view(race=DUE, claim=claim)), Bid)


def test_N16_after_a_conflict_the_winner_ends_it() -> None:
    wait = after_conflict(view(race=DUE))
    assert wait.race.attempt == 1
    assert decide(view(race=wait.race, claim=samples.claim(selected="bar"))) == LostTo("bar")


def test_N17_after_a_conflict_without_a_winner_the_delay_is_longer() -> None:
    wait = after_conflict(view(race=DUE))
    assert wait.until == 100.0 + 40.0 - 5.0
    relabelled = samples.claim(meta={"resourceVersion": "8"})
    assert decide(view(now=wait.until, race=wait.race, claim=relabelled)) == Measure()


def test_N30_larger_than_the_largest_volume_is_left() -> None:
    assert isinstance(decide(view(race=DUE, free=CapacityAnswer(1000, maximum=99))), Wait)


def test_a_node_that_does_not_bid_leaves_claims_alone() -> None:
    assert isinstance(decide(view(bids=False)), NotForUs)


def test_a_class_that_is_gone_leaves_the_claim_to_its_return() -> None:
    assert isinstance(decide(view(class_=None)), NotForUs)


def test_without_a_delay_the_first_look_measures_and_a_full_node_does_not_spin() -> None:
    eager = RandomDelay(0.0, 0.0)
    assert decide(view(placement=eager)) == Measure()
    full = decide(view(placement=eager, free=CapacityAnswer(0)))
    assert isinstance(full, Wait) and full.until >= 101.0


CLOSED = Standing(closed=True, why="it is cordoned", since="2026-01-01T00:00:00Z")
ALONE = Roster.of([samples.NODE], {})


def until_it_stands_still(look: OwnershipView) -> tuple[list[Decision], OwnershipView]:
    """What is decided, one look after the other at the times that are asked for, until nothing more is."""
    decisions: list[Decision] = []
    for _ in range(10):
        decisions.append(decision := decide(look))
        match decision:
            case Wait(until, race):
                look = replace(look, now=until, race=race)
            case Tell(race):
                look = replace(look, race=race)
            case _:
                return decisions, look
    raise AssertionError(decisions)


@pytest.mark.parametrize("race", [None, Race(0, 115.0), DUE, Race(3, 90.0, hindered_since=10.0, why="no room")])
@pytest.mark.parametrize("free", [None, TIB, Unmeasured("?")])
def test_D9_a_closed_node_does_not_bid_even_if_its_delay_is_over(race: Race | None, free: CapacityAnswer | Unmeasured | None) -> None:
    decisions, _ = until_it_stands_still(view(race=race, free=free, standing=CLOSED, roster=ALONE))
    assert not any(isinstance(item, Bid | Measure) for item in decisions)
    assert isinstance(decisions[-1], NotForUs) and decisions[-1].why == "node foo takes no volumes: it is cordoned"


@pytest.mark.parametrize("race", [None, Race(0, 115.0), Race(0, 115.0, hindered_since=95.0, why="no room")])
def test_a_claim_that_nobody_takes_because_nodes_are_closed_has_its_user_told(race: Race | None) -> None:
    decisions, look = until_it_stands_still(view(race=race, standing=CLOSED, roster=ALONE))
    (told,) = (item for item in decisions if isinstance(item, Tell))
    assert told.why == "node foo takes no volumes: it is cordoned, and no other node has taken the claim"
    assert 120.0 <= look.now <= 200.0


def test_a_closed_node_leaves_what_is_selected_to_whoever_asks() -> None:
    assert decide(view(claim=samples.claim(selected="foo"), standing=CLOSED)) == Ours()
    assert decide(view(claim=samples.claim(selected="bar"), standing=CLOSED)) == LostTo("bar")


def test_a_late_claim_without_a_node_is_no_more_a_closed_nodes_than_an_open_ones() -> None:
    assert decide(view(class_=samples.class_(), standing=CLOSED)) == decide(view(class_=samples.class_()))


@pytest.mark.parametrize("told", [False, True])
def test_a_node_that_opens_races_as_if_the_claim_were_new(told: bool) -> None:
    left_out = decide(view(race=Race(4, 90.0), standing=CLOSED, roster=ALONE))
    assert isinstance(left_out, Wait)
    opened = decide(view(now=1000.0, race=replace(left_out.race, told=told)))
    assert isinstance(opened, Wait) and opened.race == Race(0, 1015.0, told=told), opened
    assert decide(view(now=1015.0, race=opened.race)) == Measure()


@given(
    room=st.lists(st.sampled_from([TIB, CapacityAnswer(0), Unmeasured("?")]), min_size=1, max_size=6),
    chances=st.lists(st.floats(min_value=0, max_value=1, exclude_max=True), min_size=1, max_size=20),
    local_delay=st.floats(min_value=0.0, max_value=30.0),
)
def test_nodes_that_play_against_each_other_never_share_a_claim_and_one_with_room_gets_it(
    room: list[CapacityAnswer | Unmeasured], chances: list[float], local_delay: float
) -> None:
    """Each node sees the owner `lag` seconds late; a write with an old version loses, as on the API server."""
    owner, owned_at, version = "", 0.0, 7
    due: dict[int, tuple[float, Race | None]] = dict.fromkeys(range(len(room)), (0.0, None))
    for step in range(200):
        node = min(due, key=lambda item: due[item][0])
        now, race = due.pop(node)
        seen = owner if owner and now >= owned_at + local_delay else ""
        name = f"n{node}"
        look = view(now=now, node=name, race=race, claim=samples.claim(selected=seen), chance=chances[step % len(chances)])
        decision = decide(look)
        if isinstance(decision, Measure):
            decision = decide(replace(look, free=room[node]))
        match decision:
            case Wait(until, next_race):
                due[node] = (until, next_race)
            case Bid() if owner and version != 7:
                conflict = after_conflict(look)
                due[node] = (conflict.until, conflict.race)
            case Bid():
                assert not owner
                owner, owned_at, version = name, now, 8
            case LostTo(winner):
                assert winner == owner
        if not due:
            break
        if owner and now > owned_at + local_delay + 200:
            break
    someone_bids = any(not isinstance(answer, CapacityAnswer) or answer.available for answer in room)
    assert bool(owner) == someone_bids
    if owner:
        assert room[int(owner[1:])] != CapacityAnswer(0)


RANKED = Ranked(RandomDelay(20.0, 60.0), step=0.4)
TWO = Roster.of(["foo", "bar"], {})


def behind(**changes: Any) -> OwnershipView:
    """This node is second for the claim, and its turn has come."""
    uid = next(f"uid-{number}" for number in range(99) if TWO.order(f"uid-{number}", 100)[0] == "bar")
    return view(placement=RANKED, roster=TWO, claim=samples.claim(meta={"uid": uid}), race=Race(0, 100.0), **changes)


def test_the_second_gives_the_first_more_time_where_all_things_are_late() -> None:
    assert isinstance(decide(behind(local_delay=0.1)), Measure)
    late = decide(behind(local_delay=2.0))
    assert isinstance(late, Wait) and late.until >= 104.0 and "lags 2.0 s" in late.why
    put_off_long = replace(behind(local_delay=2.0), race=replace(late.race, bid_at=0.0, put_off=60.0))
    assert isinstance(decide(put_off_long), Measure), "but not for ever"


def test_the_second_does_not_bid_while_it_cannot_hear_of_a_winner() -> None:
    watch_down = decide(behind(watch_down=True))
    assert isinstance(watch_down, Wait) and "watch of claims is down" in watch_down.why


def test_who_is_not_first_has_the_api_server_asked_before_it_writes() -> None:
    room = CapacityAnswer(1000)
    assert decide(behind(free=room)) == Bid("100 bytes needed, 1000 free", out_of_turn=True)
    uid = next(f"uid-{number}" for number in range(99) if TWO.order(f"uid-{number}", 100)[0] == "foo")
    first = view(placement=RANKED, roster=TWO, claim=samples.claim(meta={"uid": uid}), race=DUE, free=room)
    assert decide(first) == Bid("100 bytes needed, 1000 free")
    assert decide(view(race=DUE, free=room)) == Bid("100 bytes needed, 1000 free"), "by chance nobody is first"


def test_the_first_waits_for_nothing() -> None:
    uid = next(f"uid-{number}" for number in range(99) if TWO.order(f"uid-{number}", 100)[0] == "foo")
    assert decide(view(placement=RANKED, roster=TWO, claim=samples.claim(meta={"uid": uid}), local_delay=9.0, watch_down=True)) == Measure()


def test_N16_a_version_that_was_beaten_once_is_not_bid_for_again() -> None:
    wait = after_conflict(view(race=DUE))
    assert wait.race.beaten == "7"
    again = decide(view(now=wait.until, race=wait.race))
    assert isinstance(again, Wait) and again.race is not None and again.until > wait.until
    changed = samples.claim(meta={"resourceVersion": "8"})
    assert decide(view(now=wait.until, race=wait.race, claim=changed)) == Measure()


def test_a_turn_drawn_before_the_contenders_were_known_is_drawn_again_by_the_order() -> None:
    """A claim that comes while a node starts must not wait for the end of a delay as long as those of the race by chance."""
    blind = decide(view(placement=RANKED))
    assert isinstance(blind, Wait) and blind.until >= 115.0 and blind.race.blind
    unchanged = decide(view(placement=RANKED, now=101.0, race=blind.race))
    assert isinstance(unchanged, Wait) and unchanged.race == blind.race
    second = decide(replace(behind(), now=102.0, race=blind.race))
    assert isinstance(second, Wait) and 102.4 <= second.until < 102.5 and not second.race.blind
    uid = next(f"uid-{number}" for number in range(99) if TWO.order(f"uid-{number}", 100)[0] == "foo")
    first = view(placement=RANKED, roster=TWO, claim=samples.claim(meta={"uid": uid}), race=replace(blind.race, told=True))
    assert decide(first) == Measure()


def test_by_chance_nobody_is_blind() -> None:
    drawn = decide(view())
    assert isinstance(drawn, Wait) and not drawn.race.blind


def test_what_a_blind_race_has_learnt_is_not_forgotten_with_its_delay() -> None:
    uid = next(f"uid-{number}" for number in range(99) if TWO.order(f"uid-{number}", 100)[0] == "foo")
    first = view(placement=RANKED, roster=TWO, claim=samples.claim(meta={"uid": uid}), race=Race(0, 118.0, blind=True))
    beaten = after_conflict(replace(first, free=TIB))
    again = decide(replace(first, now=100.01, race=beaten.race))
    assert (isinstance(again, Wait) and "the watch has not shown it yet" in again.why) or again == Wait(
        beaten.until, beaten.race, again.why
    )
    passed_over = decide(replace(first, free=Unmeasured("no answer")))
    assert isinstance(passed_over, Wait) and "the others come first" in passed_over.why
    assert isinstance(decide(replace(first, now=100.05, race=passed_over.race)), Wait)


def test_a_long_delay_for_lack_of_room_is_drawn_anew_too() -> None:
    hindered = decide(view(placement=RANKED, race=Race(0, 100.0, blind=True), free=CapacityAnswer(1)))
    assert isinstance(hindered, Wait) and hindered.race.blind and hindered.until > 110.0
    known = decide(replace(behind(), race=hindered.race))
    assert isinstance(known, Wait) and known.until < 101.0
    assert known.race.hindered_since == 100.0


THREE = Roster.of(["foo", "bar", "baz"], {})
IN_ORDER = THREE.order("testid", 100)


def tried(text: str, node: str, **changes: Any) -> OwnershipView:
    claim = samples.claim(annotations={TRIED_BY: text})
    return view(placement=RANKED, roster=THREE, node=node, claim=claim, **changes)


def due(look: OwnershipView) -> float:
    decision = decide(look)
    return decision.until if isinstance(decision, Wait) else look.now


def test_who_has_had_a_claim_comes_after_all_others_whoever_had_it_since() -> None:
    first, second, third = IN_ORDER
    note = f"1 {first} {second}"
    assert due(tried(note, third)) == 100.0, "it is next, and waits for nobody"
    assert 123.0 < due(tried(note, first)) < due(tried(note, second)) < 130.0


def test_a_new_round_begins_with_a_pause_and_then_all_others_follow_at_once() -> None:
    first, second, third = IN_ORDER
    assert due(tried(f"1 {second} {third} {first}", first)) > 120.0
    begun = f"2 {first}"
    assert [due(tried(begun, node)) < 101.0 for node in (second, third)] == [True, True]
    assert due(tried(begun, first)) > 140.0


def test_after_many_tries_they_are_spaced() -> None:
    others = " ".join(f"n{number}" for number in range(8))
    assert due(tried(f"1 {others}", IN_ORDER[0])) >= 102.0


def test_who_steps_back_keeps_to_the_note_and_without_one_lets_the_others_go_first() -> None:
    first = IN_ORDER[0]
    assert step_back(tried(f"3 {first}", first)).bid_at > 180.0
    assert 103.0 < step_back(tried("", first)).bid_at < 106.0


def test_without_a_list_of_contenders_a_try_counts_all_the_same() -> None:
    look = replace(tried("1 foo", "foo"), roster=None)
    assert due(look) > due(replace(look, node="bar")) + 20.0


def test_by_chance_tries_do_not_count() -> None:
    look = replace(tried("1 foo", "foo"), placement=RandomDelay(20.0, 60.0))
    assert due(look) == due(view())


def test_a_node_that_cannot_fill_a_volume_from_the_snapshot_does_not_bid_and_looks_again_ever_more_seldom() -> None:
    race, until = DUE, 100.0
    for least in (1350.0, 2700.0, 5400.0):
        decision = decide(view(now=until, race=race, free=TIB, source_elsewhere="it lies on bar"))
        assert isinstance(decision, Wait) and decision.race.bid_at - until == least and decision.why == "it lies on bar"
        race, until = decision.race, decision.race.bid_at
