"""One look at the race. Upstream's table is in the cases (N1 …); here also what must hold for any number of nodes."""

import math
from dataclasses import replace
from typing import Any

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


def test_N2_N9_late_binding_without_a_node_is_not_for_us_and_a_class_without_binding_mode_is_not_immediate() -> None:
    for class_ in (samples.class_(), samples.class_(volumeBindingMode=None)):
        assert isinstance(decide(view(class_=class_)), NotForUs)


def test_N3_another_node_is_selected() -> None:
    assert decide(view(claim=samples.claim(selected="bar"))) == LostTo("bar")


def test_N5_after_the_delay_free_space_is_measured_and_then_the_claim_is_taken() -> None:
    assert decide(view(race=DUE)) == Measure()
    assert isinstance(decide(view(race=DUE, free=TIB)), Bid)


def test_N6_without_enough_space_the_claim_is_left_and_the_next_delay_is_longer() -> None:
    decision = decide(view(race=DUE, free=CapacityAnswer(99)))
    assert isinstance(decision, Wait)
    assert decision.race == Race(1, 100.0 + 40.0 - 5.0, hindered_since=100.0, why=decision.why, want=Want("fake-class", "fake-ns", 100))
    assert "100 bytes needed, 99 free" in decision.why


def test_N10_allowed_topologies() -> None:
    for node, taken in [("foo", True), ("bar", False)]:
        allowed = [{"matchLabelExpressions": [{"key": samples.KEY, "values": [node]}]}]
        decision = decide(view(race=DUE, class_=samples.class_(volumeBindingMode="Immediate", allowedTopologies=allowed)))
        if taken:
            assert isinstance(decision, Measure)
        else:
            assert isinstance(decision, Wait) and math.isinf(decision.race.bid_at), "it looks again only for the sake of the claim's user"


def test_where_the_source_comes_late_nothing_of_before_hinders_the_race() -> None:
    for placement in [RandomDelay(20.0, 60.0), Ranked(RandomDelay(20.0, 60.0))]:
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


def test_N7_N30_what_fits() -> None:
    """Exactly enough is enough, also for the largest volume, of which a negative one is none."""
    for available, maximum, fits in [(100, None, True), (1000, 100, True), (1000, 99, False), (1000, 0, False), (1000, -1, True)]:
        decision = decide(view(race=DUE, free=CapacityAnswer(available, maximum=maximum)))
        assert isinstance(decision, Bid if fits else Wait)


def test_a_conflict_that_changed_nothing_is_asked_about_and_bars_nobody() -> None:
    """Some webhooks answer with a conflict, and then no change will ever be shown."""
    beaten = after_conflict(view(race=DUE))
    doubt = decide(view(now=beaten.until, race=beaten.race))
    assert isinstance(doubt, Wait) and doubt.until >= beaten.until + 1.0
    assert decide(view(now=doubt.until, race=doubt.race)) == Measure()
    decision = decide(view(now=doubt.until, race=doubt.race, free=TIB))
    assert isinstance(decision, Bid) and decision.out_of_turn


def test_a_node_without_a_topology_that_an_object_can_name_leaves_the_claim_to_the_others() -> None:
    no_label = "reports a topology that no PersistentVolume can name: 'rack' has the value 'no 1'"
    for segment, why in [(Segment(), "reports no topology"), (Segment.of({"rack": "no 1"}), no_label)]:
        decision = decide(view(segment=segment))
        assert isinstance(decision, Wait) and math.isinf(decision.race.bid_at) and why in decision.why
    without = decide(view(segment=Segment(), with_topology=False))
    assert isinstance(without, Wait) and not math.isinf(without.race.bid_at)


def test_N13_a_claim_of_nothing_is_taken_without_measuring() -> None:
    claim = samples.claim(resources={"requests": {"storage": "0"}})
    assert isinstance(decide(view(race=DUE, claim=claim)), Bid)


def test_N17_after_a_conflict_without_a_winner_the_delay_is_longer() -> None:
    wait = after_conflict(view(race=DUE))
    assert wait.until == 100.0 + 40.0 - 5.0
    relabelled = samples.claim(meta={"resourceVersion": "8"})
    assert decide(view(now=wait.until, race=wait.race, claim=relabelled)) == Measure()


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


def test_D9_a_closed_node_does_not_bid_even_if_its_delay_is_over() -> None:
    for race in [None, Race(0, 115.0), DUE, Race(3, 90.0, hindered_since=10.0, why="no room")]:
        for free in [None, TIB, Unmeasured("?")]:
            decisions, _ = until_it_stands_still(view(race=race, free=free, standing=CLOSED, roster=ALONE))
            assert not any(isinstance(item, Bid | Measure) for item in decisions)
            assert isinstance(decisions[-1], NotForUs) and decisions[-1].why == "node foo takes no volumes: it is cordoned"


def test_a_claim_that_nobody_takes_because_nodes_are_closed_has_its_user_told() -> None:
    for race in [None, Race(0, 115.0), Race(0, 115.0, hindered_since=95.0, why="no room")]:
        decisions, look = until_it_stands_still(view(race=race, standing=CLOSED, roster=ALONE))
        (told,) = (item for item in decisions if isinstance(item, Tell))
        assert told.why == "node foo takes no volumes: it is cordoned, and no other node has taken the claim"
        assert 120.0 <= look.now <= 200.0


def test_a_closed_node_leaves_what_is_selected_to_whoever_asks() -> None:
    assert decide(view(claim=samples.claim(selected="foo"), standing=CLOSED)) == Ours()
    assert decide(view(claim=samples.claim(selected="bar"), standing=CLOSED)) == LostTo("bar")


def test_a_node_that_opens_races_as_if_the_claim_were_new() -> None:
    for told in [False, True]:
        left_out = decide(view(race=Race(4, 90.0), standing=CLOSED, roster=ALONE))
        assert isinstance(left_out, Wait)
        opened = decide(view(now=1000.0, race=replace(left_out.race, told=told)))
        assert isinstance(opened, Wait) and opened.race == Race(0, 1015.0, told=told), opened
        assert decide(view(now=1015.0, race=opened.race)) == Measure()


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


def test_a_node_that_cannot_fill_a_volume_from_the_snapshot_does_not_bid_and_looks_again_ever_more_seldom() -> None:
    race, until = DUE, 100.0
    for least in (1350.0, 2700.0, 5400.0):
        decision = decide(view(now=until, race=race, free=TIB, source_elsewhere="it lies on bar"))
        assert isinstance(decision, Wait) and decision.race.bid_at - until == least and decision.why == "it lies on bar"
        race, until = decision.race, decision.race.bid_at
