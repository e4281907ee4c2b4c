"""What an answer means. That servers give these answers: tests/contract/test_eviction.py."""

from typing import Any

import pytest

from sidecar.eviction.answers import BUDGET_PAUSE, LOOK_AGAIN, NEXT_PASS, TABLE, Result, answer_to
from sidecar.kube.errors import Unavailable, from_status


def said(status: int, message: str = "no", *, reason: str = "", cause: str = "", retry_after: float | None = None) -> Any:
    causes = [{"reason": cause, "message": f"the cause {cause}"}] if cause else []
    body = {"message": message, "reason": reason, "details": {"causes": causes}}
    return answer_to(from_status(status, body, what="create pods/eviction apps/db-0", retry_after=retry_after))


TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
UID = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated"

VERSION = (
    "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). The object might have been modified"
)


@pytest.mark.parametrize(
    ("answer", "result", "again"),
    [
        pytest.param(said(404), Result.GONE, 0.0, id="gone"),
        pytest.param(said(409, UID), Result.REPLACED, 0.0, id="another-uid"),
        pytest.param(said(409, VERSION), Result.CHANGED, LOOK_AGAIN, id="another-version"),
        pytest.param(said(409, "the object has been modified"), Result.FAILED, NEXT_PASS, id="modified"),
        pytest.param(said(429, cause="DisruptionBudget"), Result.BUDGET, BUDGET_PAUSE, id="budget"),
        pytest.param(said(429, cause="DisruptionBudget", retry_after=10), Result.BUDGET, BUDGET_PAUSE, id="budget-uncounted"),
        pytest.param(said(429, retry_after=30), Result.SERVER_BUSY, 30.0, id="busy"),
        pytest.param(said(429, retry_after=1e9), Result.SERVER_BUSY, 60.0, id="busy-for-ever"),
        pytest.param(said(429), Result.SERVER_BUSY, 1.0, id="busy-without-a-time"),
        pytest.param(said(429, cause="PodDisruption"), Result.SERVER_BUSY, 1.0, id="a-cause-of-others"),
        pytest.param(said(500, TWO), Result.TWO_BUDGETS, NEXT_PASS, id="two-budgets"),
        pytest.param(said(503, TWO), Result.FAILED, NEXT_PASS, id="two-budgets-of-a-proxy"),
        pytest.param(said(500, "broken"), Result.FAILED, NEXT_PASS, id="broken"),
        pytest.param(said(403, cause="NamespaceTerminating"), Result.NAMESPACE_ENDS, BUDGET_PAUSE, id="ending"),
        pytest.param(said(403), Result.FORBIDDEN, NEXT_PASS, id="forbidden"),
        pytest.param(said(401), Result.FAILED, NEXT_PASS, id="unauthorized"),
        pytest.param(said(422), Result.FAILED, NEXT_PASS, id="invalid"),
        pytest.param(answer_to(Unavailable("no connection")), Result.FAILED, NEXT_PASS, id="no-answer"),
    ],
)
def test_an_answer(answer: Any, result: Result, again: float) -> None:
    assert (answer.result, answer.again) == (result, again)
    assert answer.why


def test_the_cause_comes_first() -> None:
    answer = said(429, "Cannot evict pod as it would violate the pod's disruption budget.", cause="DisruptionBudget")
    assert answer.why.startswith("the cause DisruptionBudget (create pods/eviction apps/db-0: Cannot evict")


def test_every_result_but_success_is_in_the_table() -> None:
    assert {row.result for row in TABLE} == {*Result} - {Result.EVICTED}


@pytest.mark.parametrize(
    "body", [{}, {"details": 1}, {"details": {"causes": 1}}, {"details": {"causes": [1, {"reason": 1, "message": 1}]}}]
)
def test_garbage_instead_of_causes_is_no_budget(body: dict[str, Any]) -> None:
    assert answer_to(from_status(429, body, what="evict")).result is Result.SERVER_BUSY
    assert answer_to(from_status(403, body, what="evict")).result is Result.FORBIDDEN
