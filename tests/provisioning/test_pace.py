"""What has failed is tried again at its pace, whatever happens to it meanwhile."""

from dataclasses import replace

from hack.sim.world.records import CREATIONS, MOST, most_in_a_minute
from sidecar.engine.backoff import Backoff
from sidecar.provisioning.decisions import Create, Wait
from sidecar.provisioning.pace import APART, NO_PACE, PacedAttempts
from sidecar.provisioning.rules import decide
from tests.harness.provisioning.bench import view

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


def test_what_is_due_costs_no_early_try() -> None:
    attempts = failing(1)
    before = attempts.pace("a", 101.0)
    assert before.due == 101.0
    assert attempts.begun("a", 101.0, ends_pause=True) == before


def test_failures_outlive_that_the_claim_leaves_and_comes_back() -> None:
    attempts = failing(6)
    attempts.forget("a")
    assert attempts.count("a") == 0
    assert attempts.failed("a", 120.0, RETRY) == 120.0 + 64.0
    assert attempts.count("a") == 7


def test_nobody_makes_more_tries_in_a_minute_than_worlds_allow() -> None:
    """After a while something happens to the claim twenty times a second, and no try succeeds."""
    for quiet in [0.0, 7.0, 30.0]:
        for leaves in [False, True]:
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


def test_a_claim_that_left_long_ago_begins_anew() -> None:
    attempts = failing(1)
    attempts.forget("a")
    assert attempts.pace("a", 700.0).failures == 1
    assert attempts.pace("a", 701.0) == NO_PACE
    assert attempts.failed("a", 701.0, RETRY) == 702.0


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


def test_those_that_left_long_ago_go() -> None:
    attempts = PacedAttempts()
    for number in range(500):
        attempts.failed(str(number), float(number), RETRY)
        attempts.forget(str(number))
        attempts.leaves("another", float(number))
    attempts.leaves("another", 801.0)
    assert next(iter(attempts._left)) == "201" and len(attempts._paces) == 299


def test_of_claims_that_left_a_thousand_are_remembered() -> None:
    attempts = PacedAttempts()
    for number in range(10_000):
        attempts.failed(str(number), 0.0, RETRY)
        attempts.forget(str(number))
    assert (len(attempts._paces), len(attempts._left), len(attempts)) == (1000, 1000, 0)
    assert attempts.pace("9000", 1.0).failures == 1 and attempts.pace("8999", 1.0) == NO_PACE
