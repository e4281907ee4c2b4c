"""All seventeen codes, with and without a way to give the claim back."""

import pytest

from sidecar.csi.outcome import BadAnswer, Code, DriverError, MaybeRunning, NoSpaceHere, NotSent, Refused, is_over, of_failure

FAILURES = [code for code in Code if code is not Code.OK]
RUNNING = {Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED}


@pytest.mark.parametrize("may_reschedule", [False, True], ids=["stays", "may go elsewhere"])
@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.value)
def test_V9_what_a_code_means(code: Code, may_reschedule: bool) -> None:
    outcome = of_failure(DriverError(code, "because"), may_reschedule=may_reschedule)
    kind = MaybeRunning if code in RUNNING else NoSpaceHere if code is Code.RESOURCE_EXHAUSTED and may_reschedule else Refused
    assert type(outcome) is kind
    assert getattr(outcome, "infeasible", False) == (code is Code.INVALID_ARGUMENT)
    assert outcome.why == f"rpc error: code = {code.value} desc = because"


@pytest.mark.parametrize("code", FAILURES, ids=lambda code: code.value)
def test_a_call_is_over_only_when_the_driver_has_said_so_and_why(code: Code) -> None:
    silent = {Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS}
    assert is_over(DriverError(code, "because")) == (code not in RUNNING | silent)
    assert not is_over(NotSent(code, "")) and not is_over(BadAnswer(""))


@pytest.mark.parametrize("may_reschedule", [False, True])
def test_V10_a_bad_answer_is_never_final(may_reschedule: bool) -> None:
    outcome = of_failure(BadAnswer("the driver answered nonsense"), may_reschedule=may_reschedule)
    assert outcome == MaybeRunning("rpc error: code = Internal desc = the driver answered nonsense")
