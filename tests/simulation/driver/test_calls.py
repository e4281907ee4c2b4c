"""What happens to one call: in virtual time, because faults are about time."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hack.sim.clock import run_virtual
from hack.sim.driver.calls import Call, Reception, Record, read_calls
from hack.sim.driver.faults import parse_fault
from sidecar.csi.outcome import Code, DriverError

Scene = Callable[["Stage"], Awaitable[None]]


class Stage:
    """A reception, and the effects that calls had, with their times."""

    def __init__(self) -> None:
        self.reception = Reception(record=Record(now=asyncio.get_running_loop().time))
        self.done: list[tuple[str, float]] = []

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def call(self, name: str = "pvc-1", *, method: str = "CreateVolume", deadline: float | None = None) -> Code:
        try:
            async with asyncio.timeout(deadline):
                await self.reception.attend(method, name, request={}, act=lambda: self.done.append((name, self.now())))
        except DriverError as error:
            return error.code
        except TimeoutError:
            return Code.DEADLINE_EXCEEDED
        return Code.OK

    @property
    def codes(self) -> list[Code | None]:
        return [call.code for call in self.reception.record.calls]


def play(scene: Scene, *faults: str) -> None:
    async def main() -> None:
        stage = Stage()
        stage.reception.faults.set([parse_fault(text) for text in faults])
        await scene(stage)
        await stage.reception.close()

    run_virtual(main())


def test_without_a_fault_it_is_done_and_answered_at_once() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call() is Code.OK
        assert stage.done == [("pvc-1", 0.0)]

    play(scene)


def test_fail_does_nothing() -> None:
    async def scene(stage: Stage) -> None:
        assert [await stage.call() for _ in range(2)] == [Code.UNAVAILABLE, Code.OK]
        assert len(stage.done) == 1
        assert stage.codes == [Code.UNAVAILABLE, Code.OK]

    play(scene, "CreateVolume:times=1,fail=UNAVAILABLE")


def test_a_lost_answer_has_had_its_effect() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call() is Code.DEADLINE_EXCEEDED
        assert (stage.done, stage.now()) == ([("pvc-1", 0.0)], 3.0)

    play(scene, "CreateVolume:linger=3,lose=DEADLINE_EXCEEDED")


def test_a_delayed_call_is_done_although_its_caller_has_gone() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call(deadline=2) is Code.DEADLINE_EXCEEDED
        assert await stage.call() is Code.ABORTED, "the volume is busy"
        assert await stage.call("pvc-2", deadline=2) is Code.DEADLINE_EXCEEDED, "another volume is not"
        await asyncio.sleep(10)
        assert stage.done == [("pvc-1", 5.0), ("pvc-2", 7.0)]
        stage.reception.faults.set([])
        assert await stage.call() is Code.OK
        assert stage.codes == [Code.CANCELLED, Code.ABORTED, Code.CANCELLED, Code.OK]

    play(scene, "CreateVolume:delay=5")


def test_a_hanging_call_is_taken_back_with_its_caller() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.call(deadline=2) is Code.DEADLINE_EXCEEDED
        assert stage.done == []
        assert await stage.call() is Code.OK, "the volume is not busy any more"

    play(scene, "CreateVolume:times=1,hang=inf")


def test_who_lingers_holds_up_nobody() -> None:
    async def scene(stage: Stage) -> None:
        first = asyncio.ensure_future(stage.call())
        await asyncio.sleep(1)
        assert await stage.call() is Code.OK
        assert await first is Code.OK
        assert stage.now() == 9.0

    play(scene, "CreateVolume:times=1,linger=9")


def test_a_call_that_only_looks_may_come_at_any_time() -> None:
    async def scene(stage: Stage) -> None:
        asking = [stage.call("", method="GetCapacity") for _ in range(3)]
        assert await asyncio.gather(*asking) == [Code.OK] * 3
        assert stage.now() == 4.0

    play(scene, "GetCapacity:delay=4")


def test_closing_drops_what_was_delayed() -> None:
    async def scene(stage: Stage) -> None:
        await stage.call(deadline=1)
        await stage.reception.close()
        await asyncio.sleep(10)
        assert stage.done == []

    play(scene, "CreateVolume:delay=5")


def test_a_bug_is_recorded_and_not_swallowed() -> None:
    def broken() -> None:
        raise ZeroDivisionError("oops")

    async def scene(stage: Stage) -> None:
        with pytest.raises(ZeroDivisionError):
            await stage.reception.attend("CreateVolume", "pvc-1", request={}, act=broken)
        assert stage.codes == [Code.UNKNOWN]
        assert await stage.call() is Code.OK

    play(scene)


def test_the_record_merges_processes_and_knows_unanswered_calls(tmp_path: Path) -> None:
    path, times = tmp_path / "calls", iter([1.0, 2.0, 3.5, 4.0, 4.0])

    def clock() -> float:
        return next(times)

    first = Record(path, now=clock)
    begun = first.begin("CreateVolume", "pvc-1", request={"name": "pvc-1"})
    first.begin("CreateVolume", "pvc-2", request={})
    first.end(begun, Code.ABORTED, message="busy")
    first.close()
    second = Record(path, now=clock)
    second.end(second.begin("Probe", "", request={}), Code.OK)
    expected = [
        Call(1.0, "CreateVolume", "pvc-1", {"name": "pvc-1"}, Code.ABORTED, "busy", 2.5),
        Call(2.0, "CreateVolume", "pvc-2", {}),
        Call(4.0, "Probe", "", {}, Code.OK, "", 0.0),
    ]
    assert read_calls(path) == expected == second.calls
    second.close()


def test_a_closed_record_writes_nothing_more(tmp_path: Path) -> None:
    record = Record(tmp_path / "calls")
    record.close()
    record.begin("Probe", "", request={})
    assert read_calls(tmp_path / "calls") == []
