"""How long a claim that cannot be made holds space back, and how much of it."""

from dataclasses import replace

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Code, NotSent
from sidecar.model.objects import Claim
from sidecar.ownership.promises import Promise
from sidecar.ownership.rules import Race
from sidecar.ownership.waiting import Want
from sidecar.provisioning.progress import Racing
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.provisioning.bench import UID, Bench, late, rpc

HELD = {UID: Promise("fake-class", 100)}
SECRET = {"csi.storage.k8s.io/provisioner-secret-name": "keys", "csi.storage.k8s.io/provisioner-secret-namespace": "kube-system"}


def test_a_final_refusal_ends_the_promise() -> None:
    for code in [Code.OUT_OF_RANGE, Code.FAILED_PRECONDITION, Code.PERMISSION_DENIED, Code.UNIMPLEMENTED, Code.NOT_FOUND]:
        bench = late(driver=ScriptedDriver(creates=[rpc(code)]))
        assert bench.promises() == HELD
        bench.claim()
        assert bench.promises() == {}


def test_a_few_failures_end_it_that_may_pass() -> None:
    for code in [Code.INTERNAL, Code.UNKNOWN, Code.DEADLINE_EXCEEDED, Code.ABORTED, Code.UNAVAILABLE]:
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


WANT = Want("fake-class", "fake-ns", 100)


def hindered(bench: Bench, *, since: float = 100.0) -> Bench:
    bench.see(claim=samples.claim(), class_=samples.class_(volumeBindingMode="Immediate"))
    bench.table.advance(UID, Racing(Race(1, 1000.0, hindered_since=since, why="no room", want=WANT)))
    return bench


FAKE = frozenset({"fake-class"})


def test_who_waits_for_room_is_woken_only_if_there_is_enough_now() -> None:
    for answer, promised, woken in [
        (CapacityAnswer(100), 0, True),
        (CapacityAnswer(2**40, maximum=99), 0, False),
        (CapacityAnswer(2**40, maximum=100), 0, True),
        (CapacityAnswer(150), 51, False),
        (CapacityAnswer(99), 0, False),
    ]:
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


def test_claims_of_another_namespace_that_wait_are_known_to_whoever_publishes() -> None:
    bench = hindered(Bench())
    assert bench.room.waiting() == {"fake-ns"}
    other: Claim = replace(samples.claim(), selected_node="bar", resource_version="8")
    bench.see(claim=other)
    bench.claim()
    assert bench.room.waiting() == set()


def test_as_many_are_woken_as_fit_together() -> None:
    bench = hindered(Bench())
    bench.see(claim=replace(samples.claim(), uid="another"))
    bench.table.advance("another", Racing(Race(1, 1000.0, hindered_since=101.0, why="no room", want=WANT)))
    assert [uid for uid, _ in bench.room.room_grew(FAKE, CapacityAnswer(150), 0)] == [UID]
