"""The API server refuses our credentials when it has accepted nothing for half a minute, whatever was read anew meanwhile."""

import pytest

from sidecar.kube.acceptance import PATIENCE, Acceptance


def told(*answers: tuple[float, int]) -> list[bool | None]:
    acceptance = Acceptance()
    return [acceptance.answered(status, now=at) for at, status in answers]


def test_one_refusal_and_then_a_newer_token_is_no_failure() -> None:
    assert told((0, 200), (10, 401), (11, 401), (20, 200)) == [True, None, None, True]


def test_refusals_for_half_a_minute_are_one() -> None:
    assert told((5, 401), (5 + PATIENCE - 1, 401), (5 + PATIENCE, 401), (99, 401)) == [None, None, False, False]


def test_what_is_accepted_ends_it_at_once_and_the_time_counts_anew() -> None:
    assert told((0, 401), (40, 401), (50, 200), (60, 401), (80, 401), (90, 401)) == [None, False, True, None, None, False]


@pytest.mark.parametrize("status", [200, 201, 400, 403, 404, 409, 410, 422])
def test_whoever_is_answered_was_known(status: int) -> None:
    assert told((0, 401), (20, status), (40, 401)) == [None, True, None]


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503])
def test_an_answer_that_may_come_from_anybody_says_nothing(status: int) -> None:
    assert told((0, 401), (20, status), (40, 401)) == [None, None, False]
