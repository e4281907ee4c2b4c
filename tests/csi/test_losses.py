"""A call that ended with the loss of the driver is made again later and later, and alone."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from sidecar.csi.api import CapacityAnswer, CapacityQuery, CreatedVolume
from sidecar.csi.careful_io import CarefulDriver
from sidecar.csi.losses import NO_LOSS, Losses, creation, deletion
from sidecar.csi.outcome import Code, DriverError, Lost, NotSent
from sidecar.engine.backoff import Backoff
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import create

GONE = Lost(Code.UNAVAILABLE, "Socket closed")


@dataclass
class Calls:
    driver: ScriptedDriver = field(default_factory=ScriptedDriver)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.losses = Losses(Backoff(1.0, 300.0))
        self.careful = CarefulDriver(self.driver, self.losses, clock=lambda: self.now)

    def create(self) -> type[Exception] | None:
        try:
            asyncio.run(self.careful.create_volume(create().request))
        except DriverError as error:
            return type(error)
        return None


def test_each_loss_doubles_the_pause_up_to_the_cap() -> None:
    calls, made = Calls(ScriptedDriver(creates=[GONE])), []
    while calls.now < 2000.0:
        before = calls.driver.count("create")
        calls.create()
        if calls.driver.count("create") > before:
            made.append(calls.now)
        calls.now += 1.0
    assert [later - sooner for sooner, later in pairwise(made)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]


@pytest.mark.parametrize("answer", [DriverError(Code.INTERNAL, "text"), DriverError(Code.UNAVAILABLE, "text")])
def test_a_success_ends_it_and_a_failure_does_not(answer: DriverError) -> None:
    """Else a driver that fails now and then would be sent to its death after it as if for the first time."""
    calls = Calls(ScriptedDriver(creates=[GONE, answer, GONE, CreatedVolume("id")]))
    for now, raised, count in ((0.0, Lost, 1), (5.0, DriverError, 1), (6.0, Lost, 2), (8.0, None, 0)):
        calls.now = now
        assert calls.create() is raised
        assert calls.losses.of(creation("test-testi")).count == count
    assert calls.losses.of(creation("test-testi")) == NO_LOSS


def test_a_call_that_is_not_sent_says_so_and_for_how_long() -> None:
    calls = Calls(ScriptedDriver(creates=[GONE]))
    calls.create()
    calls.now = 1.0
    calls.create()
    with pytest.raises(NotSent, match="2 times, so it is tried in 2 s"):
        asyncio.run(calls.careful.create_volume(create().request))


def test_other_calls_are_made_meanwhile() -> None:
    calls = Calls(ScriptedDriver(creates=[GONE]))
    calls.create()
    asyncio.run(calls.careful.delete_volume("other"))
    assert asyncio.run(calls.careful.get_capacity(CapacityQuery())) == CapacityAnswer(2**40)
    assert calls.careful.info == samples.info()


def test_a_capacity_query_is_one_call_for_each_class() -> None:
    calls = Calls(ScriptedDriver(capacities=[GONE, CapacityAnswer(1)]))
    poison, harmless = CapacityQuery({"pool": "a"}), CapacityQuery({"pool": "b"})
    with pytest.raises(Lost):
        asyncio.run(calls.careful.get_capacity(poison))
    with pytest.raises(NotSent):
        asyncio.run(calls.careful.get_capacity(poison))
    assert asyncio.run(calls.careful.get_capacity(harmless)) == CapacityAnswer(1)


def test_two_suspects_are_not_asked_for_at_once() -> None:
    """So that the guilty one does not take the other one with it once more."""
    calls = Calls()
    for handle in ("one", "two", "third"):
        calls.losses.remember(deletion(handle), 1 if handle == "third" else 2, 0.0)
    calls.now = 10.0
    asked: list[str] = []

    async def story() -> None:
        slow = asyncio.Event()

        async def delete(volume_id: str, **_: object) -> None:
            asked.append(volume_id)
            await slow.wait()

        calls.driver.delete_volume = delete  # type: ignore[method-assign, assignment]
        first = asyncio.create_task(calls.careful.delete_volume("one"))
        third = asyncio.create_task(calls.careful.delete_volume("third"))
        await asyncio.sleep(0)
        with pytest.raises(NotSent, match="after another call"):
            await calls.careful.delete_volume("two")
        slow.set()
        await asyncio.gather(first, third)
        calls.now = 12.0
        await calls.careful.delete_volume("two")

    asyncio.run(story())
    assert asked == ["one", "third", "two"]


def test_what_an_earlier_process_has_seen_counts() -> None:
    calls = Calls()
    calls.losses.remember(creation("test-testi"), 5, 0.0)
    calls.now = 15.0
    assert calls.create() is NotSent
    calls.now = 16.0
    assert calls.create() is None


def test_what_is_remembered_is_bounded() -> None:
    losses = Losses(Backoff(1.0, 300.0))
    for number in range(10_001):
        losses.lost(creation(str(number)), 0.0)
    assert losses.of(creation("0")) == NO_LOSS and losses.of(creation("1")).count == 1
