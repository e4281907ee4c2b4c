"""The wire: what a broken server does to one request, and what one request does to a server."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from hack.sim.clock import run_virtual
from sidecar.engine.limiter import TokenBucket
from sidecar.http1 import answers
from sidecar.kube.api import CLAIMS, EVENTS, PODS, VOLUMES, WatchEvent
from sidecar.kube.errors import ApiError, BadEvent, Forbidden, Gone, TooManyRequests, Unavailable
from sidecar.kube.transport import Limiter, Observer
from tests.harness.clock import Clock
from tests.harness.loops import real, run
from tests.kube.server import Answer, ScriptedServer, event, hangs, hangs_up, refuses, says, streams


async def _get(server: ScriptedServer, **options: Any) -> Any:
    async with await server.client(**options) as client:
        return await client.get(VOLUMES, "pv")


async def _watch(server: ScriptedServer, **options: Any) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    async with await server.client(**options) as client:
        async for each in client.watch(VOLUMES, resource_version="5"):
            events.append(each)
    return events


async def _outcome(answer: Answer, call: Any, **options: Any) -> ApiError:
    async with ScriptedServer(answer) as server:
        with pytest.raises(ApiError) as caught:
            await call(server, **options)
        assert len(server.seen) == 1, "the transport must not ask again by itself"
        return caught.value


@pytest.mark.parametrize("call", [_get, _watch])
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (hangs_up, Unavailable),
        (says("<html>502</html>", status=503, content_type="text/html"), Unavailable),
        (says("<html>welcome</html>\n", content_type="text/html"), BadEvent),
        (says("not json\n"), BadEvent),
        (says(b"\xff\xfe\n"), BadEvent),
        (says("", status=302, headers={"Location": "http://127.0.0.1:1/"}), ApiError),
        (refuses(403, "may not", reason="Forbidden"), Forbidden),
        (refuses(410, "too old", reason="Expired"), Gone),
        (refuses(429, "slower", headers={"Retry-After": "7"}), TooManyRequests),
        (refuses(500, "etcd", reason="InternalError"), Unavailable),
        (hangs, Unavailable),
    ],
    ids=["eof", "html503", "html200", "garbage", "binary", "redirect", "403", "410", "429", "500", "silent"],
)
def test_every_broken_answer_is_one_exception_and_one_request(call: Any, answer: Answer, kind: type[ApiError]) -> None:
    error = run(_outcome(answer, call, request_timeout=0.2 if answer is hangs else 60.0))
    assert type(error) is (Unavailable if kind is BadEvent and call is _get else kind), "only a watch has events"
    assert "persistentvolumes" in str(error)


@pytest.mark.parametrize(("call", "status"), [(_get, 200), (_get, 500), (_watch, 500)])
def test_no_answer_takes_all_the_memory(call: Any, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_BODY", 10_000)

    async def piecemeal(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for _ in range(10):
            await response.write(b" " * 3000)
            await asyncio.sleep(0.02)
        return response

    error = run(_outcome(piecemeal, call))
    assert type(error) is Unavailable and "longer than 10000 bytes" in str(error)


@real
async def test_refused_connection() -> None:
    async with ScriptedServer() as server:
        pass
    with pytest.raises(Unavailable, match="get persistentvolumes pv"):
        await _get(server)


@pytest.mark.parametrize("method", ["get", "replace", "delete", "patch"])
@real
async def test_a_connection_that_dies_between_requests_is_not_tried_again(method: str) -> None:
    """The server may have done it."""

    async with ScriptedServer(says({"metadata": {}}), hangs_up) as server, await server.client() as client:
        await client.get(VOLUMES, "pv")
        with pytest.raises(Unavailable):
            match method:
                case "get":
                    await client.get(VOLUMES, "pv")
                case "replace":
                    await client.replace(VOLUMES, {}, name="pv")
                case "delete":
                    await client.delete(VOLUMES, "pv")
                case _:
                    await client.patch(VOLUMES, "pv", {}, content_type="application/merge-patch+json")
        assert len(server.seen) == 2


def test_watch_events_then_normal_end() -> None:
    async def main() -> list[WatchEvent]:
        async with ScriptedServer(streams(event("ADDED", "a", 6), event("BOOKMARK", "", 9))) as server:
            return await _watch(server)

    assert [(each.type, each.resource_version) for each in run(main())] == [("ADDED", "6"), ("BOOKMARK", "9")]


@pytest.mark.parametrize(
    "answer",
    [
        streams(event("ADDED", "a", 6), then="breaks"),
        streams(event("ADDED", "a", 6), then="silent"),
        streams(event("ADDED", "a", 6), b'{"type":"ADD'),
        streams(event("ADDED", "a", 6), b'{"type":"ADD', then="breaks"),
        streams(event("ADDED", "a", 6), b"x" * 5_000_000 + b"\n"),
        streams(event("ADDED", "a", 6), b"<html>\n"),
    ],
    ids=["truncated", "half-open", "cut-line", "cut-line-and-broken", "endless-line", "garbage"],
)
@real
async def test_a_watch_that_goes_wrong_later_keeps_what_it_said(answer: Answer) -> None:
    events = []
    async with ScriptedServer(answer) as server, await server.client(watch_silence=0.2) as client:
        with pytest.raises(Unavailable):
            async for each in client.watch(VOLUMES, resource_version="5"):
                events.append(each)
    assert [each.resource_version for each in events] == ["6"]


def test_a_quiet_kind_is_given_more_and_more_time_until_it_speaks() -> None:
    async def main() -> list[str]:
        texts: list[str] = []
        silent, speaks = streams(then="silent"), streams(event("ADDED", "a", 6), then="silent")
        async with ScriptedServer(silent, silent, speaks, silent) as server, await server.client(watch_silence=0.1) as client:
            for _ in range(4):
                with pytest.raises(Unavailable) as caught:
                    async for _ in client.watch(VOLUMES, resource_version="5"):
                        pass
                texts.append(str(caught.value).rpartition("for ")[2])
        return texts

    assert run(main()) == ["0.1 s", "0.2 s", "0.4 s", "0.1 s"]


@real
async def test_an_error_event_ends_a_watch() -> None:
    error = {"type": "ERROR", "object": {"code": 410, "message": "too old", "reason": "Expired"}}
    async with ScriptedServer(streams(event("ADDED", "a", 6), error)) as server:
        with pytest.raises(Gone, match="watch persistentvolumes: too old"):
            await _watch(server)


@real
async def test_a_watch_outlives_the_request_deadline_and_leaving_it_closes_the_connection() -> None:
    async def slowly(request: Any) -> Any:
        from aiohttp import web

        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for version in range(1000):
                await response.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % version)
                await asyncio.sleep(0.05)
        finally:
            gone.set()
        return response

    gone = asyncio.Event()
    async with ScriptedServer(slowly) as server, await server.client(request_timeout=0.2) as client:
        stream = client.watch(VOLUMES, resource_version="5")
        heard = 0
        async for _ in stream:
            heard += 1
            if heard == 10:
                break
        await stream.aclose()
        await gone.wait()


def test_every_request_is_reported_with_its_status() -> None:
    seen: list[tuple[str, str, int]] = []
    observer = Observer(on_request=lambda verb, resource, status, seconds: seen.append((verb, resource, status)))

    async def main() -> None:
        async with (
            ScriptedServer(says({}), refuses(404, "no"), hangs_up, streams()) as server,
            await server.client(observer=observer) as client,
        ):
            await client.get(VOLUMES, "pv")
            for _ in range(2):
                with pytest.raises(ApiError):
                    await client.get(CLAIMS, "a", namespace="ns")
            async for _ in client.watch(PODS, resource_version="1"):
                pass

    run(main())
    assert seen == [
        ("get", "persistentvolumes", 200),
        ("get", "persistentvolumeclaims", 404),
        ("get", "persistentvolumeclaims", 0),
        ("watch", "pods", 200),
    ]


class Throttled:
    """The options of a client whose pauses take no time and are noted."""

    def __init__(self) -> None:
        self.clock, self.pauses = Clock(), list[float]()
        self.options = {"clock": self.clock, "sleep": self._sleep, "rng": lambda: 0.0}

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.now += seconds


@real
async def test_429_makes_all_of_this_client_wait_and_no_other() -> None:
    throttled, busy = Throttled(), refuses(429, "slower", headers={"Retry-After": "7"})
    async with ScriptedServer(busy, says({})) as server, await server.client(**throttled.options) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.get(VOLUMES, "pv")
        assert caught.value.retry_after == 7.0
        await client.with_limits(qps=-1.0, burst=1).get(VOLUMES, "pv")
        assert throttled.pauses == []
        await asyncio.gather(client.get(VOLUMES, "pv"), client.get(VOLUMES, "pw"))
        assert sum(throttled.pauses) >= 7.0


@real
async def test_a_disruption_budget_holds_nobody_back() -> None:
    throttled = Throttled()
    budget = refuses(429, "budget", headers={"Retry-After": "10"}, causes=[{"reason": "DisruptionBudget", "message": "needs 1"}])
    async with ScriptedServer(budget, says({})) as server, await server.client(**throttled.options) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.create_subresource(PODS, "p", "eviction", {}, namespace="ns")
        assert caught.value.retry_after == 10.0
        await client.get(VOLUMES, "pv")
        assert throttled.pauses == []


class TestLimiter:
    """In virtual time."""

    def _limiter(self, waits: list[float], *, qps: float = 5.0, burst: int = 2, jitter: float = 0.0) -> Limiter:
        clock = asyncio.get_running_loop().time
        return Limiter(TokenBucket(qps, burst), clock=clock, sleep=asyncio.sleep, rng=lambda: jitter, on_throttled=waits.append)

    def test_burst_then_rate(self) -> None:
        async def main() -> list[float]:
            waits: list[float] = []
            limiter = self._limiter(waits)
            await asyncio.gather(*(limiter.admit() for _ in range(5)))
            return waits

        assert run_virtual(main()) == pytest.approx([0.2, 0.4, 0.6])

    def test_what_is_withdrawn_in_line_costs_nobody_any_time_nor_a_token(self) -> None:
        async def main() -> tuple[list[bool], float]:
            limiter = self._limiter([], qps=1.0, burst=1)
            wanted = [True, True, *[False] * 50, True]
            admitted = await asyncio.gather(*(limiter.admit(is_current=lambda it=it: it) for it in wanted))
            return admitted, asyncio.get_running_loop().time()

        admitted, ended = run_virtual(main())
        assert admitted == [True, True, *[False] * 50, True]
        assert ended == pytest.approx(2.0)

    def test_what_steps_aside_waits_for_what_is_under_way_but_not_for_ever(self) -> None:
        async def main() -> list[float]:
            limiter, ends = self._limiter([]), []
            for others in (0.0, 0.05, 60.0):
                began = asyncio.get_running_loop().time()

                async def busy(seconds: float = others) -> None:
                    with limiter.under_way():
                        await asyncio.sleep(seconds)

                task = asyncio.create_task(busy())
                await asyncio.sleep(0)
                await limiter.wait_until_idle()
                ends.append(asyncio.get_running_loop().time() - began)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            return ends

        assert run_virtual(main()) == pytest.approx([0.0, 0.05, 0.2])

    def test_quiet_is_kept_also_by_those_who_wait_already(self) -> None:
        async def main() -> list[float]:
            limiter = self._limiter([], burst=1)
            times: list[float] = []

            async def one() -> None:
                await limiter.admit()
                times.append(asyncio.get_running_loop().time())

            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(one())
                await asyncio.sleep(0)
                limiter.pause_for(10.0)
            return times

        first, *late = run_virtual(main())
        assert first == 0.0
        assert all(at >= 10.0 for at in late)

    def test_quiet_is_spread_and_bounded(self) -> None:
        async def main() -> float:
            limiter = self._limiter([], jitter=0.999)
            limiter.pause_for(86_400.0)
            await limiter.admit()
            return asyncio.get_running_loop().time()

        assert 60.0 < run_virtual(main()) < 90.1


def test_an_event_is_written_after_what_is_under_way() -> None:
    async def main() -> list[str]:
        async with ScriptedServer(says({}), says({}), says({})) as server, await server.client() as client:
            await asyncio.gather(
                client.get(VOLUMES, "one"),
                client.create(EVENTS, {"metadata": {"name": "e"}}, namespace="ns"),
                client.get(VOLUMES, "two"),
            )
            return [seen.path.rsplit("/", 1)[-1] for seen in server.seen]

    assert run(main())[-1] == "events"
