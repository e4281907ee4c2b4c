"""One POST with the uid, and no more than that; how often, for how long, and what the log says of it."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.eviction.answers import BUDGET_PAUSE, NEXT_PASS, Answer, Result
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.eviction.rules import May
from sidecar.kube.errors import ApiError, Forbidden, from_status

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


@pytest.mark.parametrize("error", [None, budget(), Forbidden("no", status=403), ApiError("broken", status=500)])
def test_one_post_that_names_the_uid_and_no_grace_period(error: ApiError | None) -> None:
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


def test_the_rate_is_one_a_second_after_a_burst_of_five() -> None:
    now = [100.0]
    evictor = scene(Server(), now=lambda: now[0])
    waits = []
    for _ in range(7):
        waits.append(evictor.wait())
        now[0] += waits[-1]
        evict(evictor)
    assert waits == [0, 0, 0, 0, 0, 1, 1]


def test_asking_for_the_wait_costs_nothing() -> None:
    evictor = scene(Server())
    assert [evictor.wait() for _ in range(20)] == [0] * 20


def test_of_a_pod_that_waits_for_a_node_the_version_is_named_too() -> None:
    server = Server()
    evict(scene(server), May("apps", "db-0", "uid-db-0", "7"))
    [(_, (_, _, _, sent), _)] = server.calls
    assert sent["deleteOptions"]["preconditions"] == {"uid": "uid-db-0", "resourceVersion": "7"}
