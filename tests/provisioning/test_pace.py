"""What has failed is tried again at its pace, whatever happens to it meanwhile."""

from dataclasses import replace

import pytest

from hack.sim.world.claim_rates import CREATIONS, MOST, most_in_a_minute
from sidecar.engine.backoff import Backoff
from sidecar.provisioning.decisions import Create, Wait
from sidecar.provisioning.pace import APART, NO_PACE, PacedAttempts
from sidecar.provisioning.rules import decide
from tests.harness.provisioning.views import view

RETRY = Backoff(1.0, 300.0)


def early(attempts: PacedAttempts, uid: str, now: float) -> bool:
    """Whether a try is made then, which fails."""
    if attempts.pace(uid, now).turn() > now:
        return False
    attempts.begun(uid, now, ends_pause=True)
    attempts.failed(uid, now, RETRY)
    return True


def failing(times: int = 9) -> PacedAttempts:
    """A claim `a` that is due long after these tests."""
    attempts = PacedAttempts()
    for _ in range(times):
        attempts.failed("a", 100.0, RETRY)
    return attempts


def test_two_early_tries_are_made_at_once_and_further_ones_apart() -> None:
    attempts = failing()
    assert [at for at in range(100, 161) if early(attempts, "a", float(at))] == [100, 101, 115, 130, 145, 160]


def test_a_long_pause_earns_no_more_than_two() -> None:
    attempts = failing()
    assert [at for at in range(300, 320) if early(attempts, "a", float(at))] == [300, 301, 315]


def test_what_is_due_costs_no_early_try() -> None:
    attempts = failing(1)
    before = attempts.pace("a", 101.0)
    assert before.due == 101.0
    assert attempts.begun("a", 101.0, ends_pause=True) == before


def test_a_try_of_several_steps_is_one() -> None:
    attempts = failing()
    for _ in range(5):
        assert attempts.begun("a", 110.0, ends_pause=True).turn() <= 110.0
    attempts.failed("a", 110.0, RETRY)
    assert attempts.pace("a", 110.0).turn() == 110.0


def test_one_that_ends_no_pause_is_each_time_one() -> None:
    attempts = failing()
    for _ in range(2):
        attempts.begun("a", 110.0, ends_pause=False)
    assert attempts.pace("a", 110.0).turn() == 110.0 + APART


def test_failures_outlive_that_the_claim_leaves_and_comes_back() -> None:
    attempts = failing(6)
    attempts.forget("a")
    assert attempts.count("a") == 0
    assert attempts.failed("a", 120.0, RETRY) == 120.0 + 64.0
    assert attempts.count("a") == 7


def test_early_tries_outlive_it_too() -> None:
    attempts = failing()
    made = []
    for at in range(100, 161):
        if early(attempts, "a", float(at)):
            made.append(at)
        attempts.forget("a")
    assert made == [100, 101, 115, 130, 145, 160]


def test_who_comes_back_soon_has_two_tries_and_then_those_of_an_edited_one() -> None:
    """Also where the pause was short and is over."""
    attempts = failing(1)
    made = []
    for at in range(102, 140):
        attempts.leaves("a", float(at))
        attempts.forget("a")
        if attempts.pace("a", float(at)).turn() <= at:
            made.append(at)
            attempts.begun("a", float(at), ends_pause=True)
            attempts.paused("a", float(at), at + 1.0)
    assert made == [102, 103, 117, 132]


@pytest.mark.parametrize("quiet", [0.0, 7.0, 30.0])
@pytest.mark.parametrize("leaves", [False, True])
def test_nobody_makes_more_tries_in_a_minute_than_worlds_allow(quiet: float, leaves: bool) -> None:
    """After a while something happens to the claim twenty times a second, and no try succeeds."""
    attempts, tries = PacedAttempts(), list[float]()
    for step in range(20 * 600):
        now = step / 20
        if leaves:
            attempts.leaves("a", now)
            attempts.forget("a")
        pace = attempts.pace("a", now)
        if (pace.turn() if now >= quiet else pace.due) <= now:
            tries.append(now)
            attempts.begun("a", now, ends_pause=bool(step % 3))
            attempts.failed("a", now, RETRY)
    assert 30 < len(tries) < 60 and most_in_a_minute(tries) <= MOST[CREATIONS]


def test_success_ends_the_failures() -> None:
    attempts = failing()
    attempts.succeeded("a", 100.0)
    attempts.forget("a")
    assert (attempts.pace("a", 100.0).failures, attempts.count("a")) == (0, 0)
    assert attempts.pace("a", 100.0).turn() <= 100.0


def test_volumes_that_are_made_one_after_the_other_for_a_claim_have_its_pace() -> None:
    """As a late watch shows it again and again, which is long gone."""
    attempts, now, made = PacedAttempts(), 0.0, list[float]()
    while now < 120.0:
        if attempts.pace("a", now).turn() <= now:
            attempts.begun("a", now, ends_pause=True)
            attempts.succeeded("a", now)
            attempts.forget("a")
            made.append(now)
        now += 0.5
    assert 5 < len(made) < 15 and most_in_a_minute(made) <= MOST[CREATIONS]


def test_a_claim_that_left_long_ago_begins_anew() -> None:
    attempts = failing(1)
    attempts.forget("a")
    assert attempts.pace("a", 700.0).failures == 1
    assert attempts.pace("a", 701.0) == NO_PACE
    assert attempts.failed("a", 701.0, RETRY) == 702.0


def test_a_claim_that_stays_is_never_forgotten() -> None:
    assert failing().pace("a", 1e6).failures == 9


def test_of_claims_that_left_a_thousand_are_remembered() -> None:
    attempts = PacedAttempts()
    for number in range(10_000):
        attempts.failed(str(number), 0.0, RETRY)
        attempts.forget(str(number))
    assert (len(attempts._paces), len(attempts._left), len(attempts)) == (1000, 1000, 0)
    assert attempts.pace("9000", 1.0).failures == 1 and attempts.pace("8999", 1.0) == NO_PACE


def test_those_that_left_long_ago_go() -> None:
    attempts = PacedAttempts()
    for number in range(500):
        attempts.failed(str(number), float(number), RETRY)
        attempts.forget(str(number))
        attempts.leaves("another", float(number))
    attempts.leaves("another", 801.0)
    assert next(iter(attempts._left)) == "201" and len(attempts._paces) == 299


def test_what_has_no_room_is_paced_without_having_failed() -> None:
    attempts = PacedAttempts()
    attempts.paused("a", 100.0, 160.0)
    made = []
    for at in range(100, 131):
        if attempts.pace("a", at).turn() <= at:
            made.append(at)
            attempts.begun("a", at, ends_pause=False)
    assert made == [100, 101, 115, 130]
    assert attempts.count("a") == 0


def test_a_look_before_its_turn_waits() -> None:
    pace = replace(NO_PACE, failures=3, due=500.0, spent=130.0)
    waits = decide(view(now=114.0, pace=pace))
    assert isinstance(waits, Wait) and waits.until == 115.0 and "failed 3 times" in waits.why
    assert isinstance(decide(view(now=115.0, pace=pace)), Create)
    assert isinstance(decide(view(now=500.0, pace=replace(pace, spent=1e9))), Create)


def test_what_waits_for_the_api_server_is_tried_soon_and_so_are_the_first_failures_after_that() -> None:
    attempts, now = PacedAttempts(), 100.0
    pauses = []
    for _ in range(7):
        until = attempts.waits("a", now, RETRY)
        pauses.append(until - now)
        now = until
    assert pauses == [1.0, 2.0, 4.0, 8.0, APART, APART, APART]
    assert attempts.count("a") == 7
    assert [attempts.failed("a", now, RETRY) - now for _ in range(4)] == [APART, APART, 300.0, 300.0]


def test_what_is_done_with_needs_no_more_patience() -> None:
    attempts = PacedAttempts()
    attempts.waits("a", 100.0, RETRY)
    attempts.succeeded("a", 101.0)
    assert not attempts._outages
