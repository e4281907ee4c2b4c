import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import KubeApi, Resource
from sidecar.kube.errors import AlreadyExists, Forbidden, NotFound, TooManyRequests, Unavailable
from sidecar.kube.events.correlator import ObjectRef
from sidecar.kube.events.recorder import EventRecorder

CLAIM = ObjectRef("v1", "PersistentVolumeClaim", "ns", "a", "uid-a", "7")


class FakeEvents:
    """Takes events; raises what it is told to, one per call."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.calls: list[tuple[str, str, int, float]] = []

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Any:
        return self._take("create", namespace, body)

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, content_type: str, namespace: str = "", subresource: str = ""
    ) -> Any:
        assert content_type == "application/strategic-merge-patch+json"
        return self._take("patch", namespace, patch)

    def _take(self, verb: str, namespace: str, body: Mapping[str, Any]) -> Any:
        self.calls.append((verb, namespace, body["count"], asyncio.get_running_loop().time()))
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return dict(body)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, *_ in self.calls]


def _recorder(api: FakeEvents, **options: Any) -> EventRecorder:
    clock = asyncio.get_running_loop().time
    return EventRecorder(cast(KubeApi, api), component="driver_node", clock=clock, wall=clock, rng=lambda: 0.5, **options)


def _play(api: FakeEvents, *messages: str, limit: float = 10_000.0) -> EventRecorder:
    async def main() -> EventRecorder:
        recorder = _recorder(api)
        running = asyncio.create_task(recorder.run())
        for message in messages:
            recorder.record(CLAIM, "Normal", "R", message)
        await recorder.flush(limit)
        running.cancel()
        return recorder

    return run_virtual(main())


def test_first_created_then_counted() -> None:
    api = FakeEvents()
    recorder = _play(api, "x", "x", "y")
    assert [call[:3] for call in api.calls] == [("create", "ns", 1), ("patch", "ns", 2), ("create", "ns", 1)]
    assert (recorder.written, recorder.dropped, recorder.withheld) == (3, 0, 0)


def test_an_event_that_has_expired_is_made_afresh() -> None:
    api = FakeEvents(None, NotFound("gone", status=404))
    recorder = _play(api, "x", "x")
    assert [call[0::2][:2] for call in api.calls] == [("create", 1), ("patch", 2), ("create", 2)]
    assert recorder.written == 2


def test_a_try_whose_answer_was_lost_counts() -> None:
    api = FakeEvents(Unavailable("lost"), AlreadyExists("there", status=409))
    recorder = _play(api, "x")
    assert (recorder.written, recorder.dropped) == (1, 0)


def test_an_unavailable_server_is_tried_twelve_times_ten_seconds_apart(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeEvents(*[Unavailable("down")] * 12)
    recorder = _play(api, "x", "y")
    times = [at for *_, at in api.calls[:12]]
    assert times == [0.0, 5.0, *(5.0 + 10.0 * number for number in range(1, 11))]
    assert (recorder.written, recorder.dropped) == (1, 1)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == ["An event was dropped"]


@pytest.mark.parametrize("error", [Forbidden("no", status=403), TooManyRequests("slower", retry_after=1.0), RuntimeError("a bug")])
def test_what_the_server_refuses_is_dropped_with_one_line(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    api = FakeEvents(error)
    recorder = _play(api, "x", "y")
    assert api.verbs == ["create", "create"]
    assert (recorder.written, recorder.dropped) == (1, 1)
    (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert line.__dict__["fields"]["object"] == "ns/a"
    assert str(error) in line.__dict__["fields"]["error"]


def test_a_full_queue_drops_and_never_blocks() -> None:
    async def main() -> EventRecorder:
        recorder = _recorder(FakeEvents(), most_waiting=3)
        for number in range(10):
            recorder.record(CLAIM, "Normal", "R", f"m{number}")
        return recorder

    assert run_virtual(main()).dropped == 7


def test_withheld_events_are_counted() -> None:
    assert _play(FakeEvents(), *["x"] * 30).withheld == 5


def test_recording_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        _recorder(FakeEvents()).record(cast(ObjectRef, None), "Normal", "R", "m")

    run_virtual(main())
    assert "Bug: an event could not be made" in caplog.text


def test_flush_gives_up_at_its_limit() -> None:
    async def main() -> tuple[bool, float]:
        recorder = _recorder(FakeEvents(*[Unavailable("down")] * 12))
        running = asyncio.create_task(recorder.run())
        recorder.record(CLAIM, "Normal", "R", "m")
        done = await recorder.flush(2.0)
        running.cancel()
        return done, asyncio.get_running_loop().time()

    assert run_virtual(main()) == (False, 2.0)


def test_an_event_that_names_no_object_is_a_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """The API server takes one, and no `describe` ever shows it."""

    async def main() -> FakeEvents:
        api = FakeEvents()
        recorder = _recorder(api)
        running = asyncio.create_task(recorder.run())
        recorder.record(replace(CLAIM, name=""), "Normal", "R", "message")
        await recorder.flush(10.0)
        running.cancel()
        return api

    assert run_virtual(main()).calls == []
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.ERROR, "Bug: an event names no object")]
