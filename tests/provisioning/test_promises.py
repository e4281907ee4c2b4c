"""How long a claim that cannot be made holds space back, and how much of it."""

import asyncio
from dataclasses import replace

import pytest

from sidecar.csi.api import CapacityAnswer, CreatedVolume
from sidecar.csi.outcome import Code, NotSent
from sidecar.model.objects import Claim
from sidecar.ownership import rules as ownership
from sidecar.ownership.promises import Promise
from sidecar.ownership.rules import Race
from sidecar.ownership.waiting import Want
from sidecar.provisioning.progress import Racing
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, Bench, late, rpc

HELD = {UID: Promise("fake-class", 100)}
SECRET = {"csi.storage.k8s.io/provisioner-secret-name": "keys", "csi.storage.k8s.io/provisioner-secret-namespace": "kube-system"}


@pytest.mark.parametrize("code", [Code.OUT_OF_RANGE, Code.FAILED_PRECONDITION, Code.PERMISSION_DENIED, Code.UNIMPLEMENTED, Code.NOT_FOUND])
def test_a_final_refusal_ends_the_promise(code: Code) -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(code)]))
    assert bench.promises() == HELD
    bench.claim()
    assert bench.promises() == {}


@pytest.mark.parametrize("code", [Code.INTERNAL, Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.UNAVAILABLE])
def test_a_few_failures_end_it_that_may_pass(code: Code) -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(code)]))
    held = []
    for _ in range(4):
        bench.now = bench.claim() or 0.0
        held.append(bench.promises() == HELD)
    assert held == [True, True, False, False]


def test_a_secret_that_is_missing_ends_it_without_a_call() -> None:
    bench = Bench().see(claim=samples.claim(selected="foo"), class_=samples.class_(parameters=SECRET))
    assert bench.promises() == HELD
    bench.claim()
    assert bench.driver.asked == [] and bench.promises() == {}


def test_a_driver_that_is_away_says_nothing_about_the_claim() -> None:
    bench = late(driver=ScriptedDriver(creates=[NotSent(Code.UNAVAILABLE, "away")]))
    for _ in range(5):
        bench.now = bench.claim() or 0.0
    assert bench.promises() == HELD


def test_whoever_publishes_is_told_when_a_promise_ends() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.OUT_OF_RANGE)]))
    told: list[bool] = []
    bench.space.on_change = lambda classes, *, at_once: told.append(at_once)
    bench.claim()
    assert told[-1] is False


def test_during_a_further_attempt_of_one_that_failed_often_nothing_is_held() -> None:
    bench = late(driver=ScriptedDriver(creates=[rpc(Code.INTERNAL)] * 3 + [CreatedVolume("test-volume-id", 100)]))
    for _ in range(3):
        bench.now = bench.claim() or 0.0
    seen = []
    really = bench.driver.create_volume

    async def create(*args: object, **more: object) -> CreatedVolume:
        seen.append(bench.promises())
        return await really(*args, **more)  # type: ignore[arg-type]

    bench.driver.create_volume = create  # type: ignore[method-assign]
    bench.claim()
    assert seen == [{}] and bench.table.progress(UID) != Racing


WANT = Want("fake-class", "fake-ns", 100)


def hindered(bench: Bench, *, since: float = 100.0) -> Bench:
    bench.see(claim=samples.claim(), class_=samples.class_(volumeBindingMode="Immediate"))
    bench.table.advance(UID, Racing(Race(1, 1000.0, hindered_since=since, why="no room", want=WANT)))
    return bench


FAKE = frozenset({"fake-class"})


@pytest.mark.parametrize(
    ("answer", "promised", "woken"),
    [
        (CapacityAnswer(100), 0, True),
        (CapacityAnswer(2**40, maximum=99), 0, False),
        (CapacityAnswer(2**40, maximum=100), 0, True),
        (CapacityAnswer(150), 51, False),
        (CapacityAnswer(99), 0, False),
    ],
)
def test_who_waits_for_room_is_woken_only_if_there_is_enough_now(answer: CapacityAnswer, promised: int, woken: bool) -> None:
    bench = hindered(Bench())
    assert bench.room.room_grew(FAKE, answer, promised) == ([(UID, 100.0)] if woken else [])


def test_who_waits_for_room_is_woken_once_a_second_for_each_class() -> None:
    bench = hindered(Bench())
    for now, at in ((100.0, 100.0), (100.1, 101.0), (100.2, 101.0), (101.5, 102.0), (109.0, 109.0)):
        bench.now = now
        bench.table.advance(UID, Racing(Race(1, 1000.0, hindered_since=100.0, why="no room", want=WANT)))
        assert bench.room.room_grew(FAKE, CapacityAnswer(100), 0) == [(UID, at)]
        race = bench.table.hindered_races([UID])[0][1]
        assert race.bid_at == at


def test_growth_wakes_nobody_whose_snapshot_is_elsewhere() -> None:
    bench = hindered(Bench())
    bench.table.advance(UID, Racing(Race(1, 1000.0, hindered_since=100.0, why="it lies on bar", source_elsewhere=True, want=WANT)))
    assert bench.room.room_grew(FAKE, CapacityAnswer(2**40), 0) == []


def test_free_space_that_wobbles_is_measured_no_more_than_once_a_second() -> None:
    """Between the largest volume and what is free: each measurement is growth, and none of it helps."""
    answers = [CapacityAnswer(1000 + 4 * (number % 2), maximum=99) for number in range(50)]
    bench = hindered(Bench(driver=ScriptedDriver(capacities=list(answers))))
    looks: list[tuple[str, float]] = []
    bench.space.on_growth = lambda classes, answer, promised: looks.extend(bench.room.room_grew(classes, answer, promised))
    bench.table.advance(UID, Racing(Race(1, 100.0, hindered_since=100.0, why="no room", want=WANT)))
    bench.now = bench.claim() or 0.0
    for _ in range(20):
        bench.space.bid_for("fake-class", asyncio.run(bench.driver.get_capacity(None)))  # type: ignore[arg-type]
    assert looks == [] and bench.now > 101.0


def test_who_waits_for_a_larger_volume_is_woken_when_the_largest_has_grown_and_once_a_second() -> None:
    bench = hindered(Bench())
    looks: list[tuple[str, float]] = []
    bench.space.on_growth = lambda classes, answer, promised: looks.extend(bench.room.room_grew(classes, answer, promised))
    for maximum in (98, 99, 100, 99, 101):
        bench.table.advance(UID, Racing(Race(1, 1000.0, hindered_since=100.0, why="no room", want=WANT)))
        bench.space.published("fake-class", CapacityAnswer(2**40, maximum=maximum))
    assert looks == [(UID, 100.0), (UID, 101.0)]


def test_claims_of_another_namespace_that_wait_are_known_to_whoever_publishes() -> None:
    bench = hindered(Bench())
    assert bench.room.waiting() == {"fake-ns"}
    other: Claim = replace(samples.claim(), selected_node="bar", resource_version="8")
    bench.see(claim=other)
    bench.claim()
    assert bench.room.waiting() == set()


def test_growth_that_is_enough_for_none_of_thousands_is_weighed_against_the_smallest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measurement may be growth, and thousands that wait are measured again and again."""
    bench = hindered(Bench())
    for number in range(3000):
        want = Want("fake-class", f"ns-{number % 7}", 1000 + number)
        bench.see(claim=replace(samples.claim(), uid=f"uid-{number}", requested=want.size))
        bench.table.advance(f"uid-{number}", Racing(Race(1, 1000.0, hindered_since=100.0, why="no room", want=want)))
    weighed: list[int] = []

    def lacks(answer: CapacityAnswer, needed: int, promised: int) -> bool:
        weighed.append(needed)
        return needed > answer.available - promised

    monkeypatch.setattr(ownership, "lacks_room", lacks)
    assert bench.room.room_grew(FAKE, CapacityAnswer(99), 0) == [] and weighed == [100]
    assert bench.room.room_grew(FAKE, CapacityAnswer(1000), 0) == [(UID, 100.0)] and len(weighed) == 1 + 3 + 2
    assert len(bench.room.waiting()) == 8
