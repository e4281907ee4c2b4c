"""One POST with the uid and no more than that: how often, for how long, what an answer means, and what the log says of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.eviction.rules import BUDGET_PAUSE, NEXT_PASS, TABLE, Answer, May, Result, answer_to
from sidecar.kube.errors import ApiError, Forbidden, Unavailable, from_status

POD = May("apps", "db-0", "uid-db-0")


def budget(says: str = "needs 1 and has 1") -> ApiError:
    causes = [{"reason": "DisruptionBudget", "message": says}]
    return from_status(429, {"message": "Cannot evict pod", "details": {"causes": causes}}, what="evict")


class Server:
    """Notes every call, whichever it is."""

    def __init__(self, error: ApiError | None = None, *, slow: float = 0.0) -> None:
        self.error = error
        self.slow = slow
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **named: Any) -> dict[str, Any]:
            self.calls.append((name, args, named))
            await asyncio.sleep(self.slow)
            if self.error:
                raise self.error
            return {}

        return call


def scene(server: Server, *, now: Callable[[], float] = lambda: 0.0, rng: float = 0.0) -> Evictor:
    return Evictor(server, clock=now, rng=lambda: rng)  # type: ignore[arg-type]


def evict(evictor: Evictor, pod: May = POD) -> Answer:
    return asyncio.run(evictor.evict(pod))


def test_one_post_that_names_the_uid_and_no_grace_period() -> None:
    for error in [None, budget(), Forbidden("no", status=403), ApiError("broken", status=500)]:
        server = Server(error)
        evict(scene(server))
        [(verb, (resource, name, subresource, sent), named)] = server.calls
        assert (verb, str(resource), name, subresource, named) == ("create_subresource", "pods", "db-0", "eviction", {"namespace": "apps"})
        assert sent == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "db-0", "namespace": "apps"},
            "deleteOptions": {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "uid-db-0"}},
        }


def test_drain_B6_a_slow_server_ends_the_pass_and_the_next_one_is_jittered() -> None:
    evictor = scene(Server(slow=1e6), rng=0.5)

    async def play() -> tuple[Answer, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        return await evictor.evict(POD), loop.time() - began

    answer, took = run_virtual(play())
    assert (answer.result, took) == (Result.FAILED, LONGEST_PASS)
    assert answer.again == NEXT_PASS * 1.1


def test_drain_B7_a_budget_is_no_error_and_is_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(budget())
    evictor = scene(server, rng=0.9)
    with caplog.at_level(logging.INFO):
        assert [evict(evictor).again for _ in range(3)] == [BUDGET_PAUSE] * 3  # kubectl's pace, not jittered
        server.error = budget("needs 2 and has 1")
        evict(evictor)
        evict(evictor, May("apps", "db-1", "uid-db-1"))
    lines = [record for record in caplog.records if record.name.startswith("sidecar.eviction")]
    assert [record.levelno for record in lines] == [logging.INFO] * 3
    assert [record.fields["err"].partition(" (")[0] for record in lines] == ["needs 1 and has 1", "needs 2 and has 1", "needs 2 and has 1"]  # type: ignore[attr-defined]


def test_what_somebody_has_to_do_something_about_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        evict(scene(Server(Forbidden("no", status=403))))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_the_memory_of_what_was_logged_is_bounded() -> None:
    evictor = scene(Server(budget()))
    for number in range(2500):
        evict(evictor, May("apps", f"db-{number}", f"uid-{number}"))
    assert len(evictor._told) <= 1000


def test_the_rate_is_five_a_second_after_a_burst_of_five() -> None:
    now = [100.0]
    evictor = scene(Server(), now=lambda: now[0])
    waits = []
    for _ in range(7):
        waits.append(evictor.wait())
        now[0] += waits[-1]
        evict(evictor)
    assert waits == pytest.approx([0, 0, 0, 0, 0, 0.2, 0.2])


def test_asking_for_the_wait_costs_nothing() -> None:
    evictor = scene(Server())
    assert [evictor.wait() for _ in range(20)] == [0] * 20


# --- What an answer means. That servers give these answers: tests/contract/test_eviction.py ---


def said(status: int, message: str = "no", *, reason: str = "", cause: str = "", retry_after: float | None = None) -> Any:
    causes = [{"reason": cause, "message": f"the cause {cause}"}] if cause else []
    body = {"message": message, "reason": reason, "details": {"causes": causes}}
    return answer_to(from_status(status, body, what="create pods/eviction apps/db-0", retry_after=retry_after))


TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
UID = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated"


def test_an_answer() -> None:
    for answer, result, again in [
        (said(404), Result.GONE, 0.0),  # gone
        (said(409, UID), Result.REPLACED, 0.0),  # another-uid
        (said(409, "the object has been modified"), Result.FAILED, NEXT_PASS),  # modified
        (said(429, cause="DisruptionBudget"), Result.BUDGET, BUDGET_PAUSE),  # budget
        (said(429, cause="DisruptionBudget", retry_after=10), Result.BUDGET, BUDGET_PAUSE),  # budget-uncounted
        (said(429, retry_after=30), Result.SERVER_BUSY, 30.0),  # busy
        (said(429, retry_after=1e9), Result.SERVER_BUSY, 60.0),  # busy-for-ever
        (said(429), Result.SERVER_BUSY, 1.0),  # busy-without-a-time
        (said(429, cause="PodDisruption"), Result.SERVER_BUSY, 1.0),  # a-cause-of-others
        (said(500, TWO), Result.TWO_BUDGETS, NEXT_PASS),  # two-budgets
        (said(503, TWO), Result.FAILED, NEXT_PASS),  # two-budgets-of-a-proxy
        (said(500, "broken"), Result.FAILED, NEXT_PASS),  # broken
        (said(403, cause="NamespaceTerminating"), Result.NAMESPACE_ENDS, BUDGET_PAUSE),  # ending
        (said(403), Result.FORBIDDEN, NEXT_PASS),  # forbidden
        (said(401), Result.FAILED, NEXT_PASS),  # unauthorized
        (said(422), Result.FAILED, NEXT_PASS),  # invalid
        (answer_to(Unavailable("no connection")), Result.FAILED, NEXT_PASS),  # no-answer
    ]:
        assert (answer.result, answer.again) == (result, again)
        assert answer.why


def test_the_cause_comes_first() -> None:
    answer = said(429, "Cannot evict pod as it would violate the pod's disruption budget.", cause="DisruptionBudget")
    assert answer.why.startswith("the cause DisruptionBudget (create pods/eviction apps/db-0: Cannot evict")


def test_every_result_but_success_is_in_the_table() -> None:
    assert {row.result for row in TABLE} == {*Result} - {Result.EVICTED}


def test_garbage_instead_of_causes_is_no_budget() -> None:
    for body in [{}, {"details": 1}, {"details": {"causes": 1}}, {"details": {"causes": [1, {"reason": 1, "message": 1}]}}]:
        assert answer_to(from_status(429, body, what="evict")).result is Result.SERVER_BUSY
        assert answer_to(from_status(403, body, what="evict")).result is Result.FORBIDDEN
