"""What is done about a decision on a class."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from sidecar.capacity.controller import CapacityPublisher
from sidecar.capacity.view import Publisher
from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Code, DriverError
from sidecar.errors import Fatal
from sidecar.kube.api import Change
from sidecar.kube.errors import Conflict, Forbidden, NotFound
from sidecar.kube.store import Store
from sidecar.model.objects import CapacityRecord, Class, Owner
from sidecar.observe.metrics import Metrics
from sidecar.ownership.promises import Promise
from sidecar.ownership.reserved_space import ReservedSpace
from tests.harness import samples
from tests.harness.capacity import PUBLISHER, record
from tests.harness.doors import ScriptedDriver, ScriptedKube, tools

EPOCH = 1_767_225_600.0


@dataclass
class Bench:
    """The room between scripted doors."""

    driver: ScriptedDriver = field(default_factory=lambda: ScriptedDriver(capacities=[CapacityAnswer(2**30)]))
    kube: ScriptedKube = field(default_factory=ScriptedKube)
    dry_run: bool = False
    now: float = 100.0
    promises: dict[str, Promise] = field(default_factory=dict)
    publisher: Publisher = PUBLISHER
    owners: list[Owner | Exception] = field(default_factory=list)
    """What looking up the owner anew finds, the last one for ever."""

    def __post_init__(self) -> None:
        self.metrics = Metrics("test")
        self.classes: Store[Class] = Store()
        self.records: Store[CapacityRecord] = Store({"class": lambda item: (item.class_name,)})
        self.classes.apply(Change("fake-class", None, samples.class_()))
        self.room = CapacityPublisher(
            tools(
                self.kube,
                self.driver,
                metrics=self.metrics,
                clock=lambda: self.now,
                wall=lambda: EPOCH + self.now,
                dry_run=self.dry_run,
            ),
            publisher=self.publisher,
            namespace="ns",
            classes=self.classes,
            records=self.records,
            owner=self.look_up,
            space=(space := ReservedSpace(classes=lambda: {item.name: item for item in self.classes.values()})),
        )
        for uid, promise in self.promises.items():
            space.promises.put(uid, promise)

    async def look_up(self) -> Owner | None:
        found = (self.owners.pop(0) if len(self.owners) > 1 else self.owners[0]) if self.owners else PUBLISHER.owner
        if isinstance(found, Exception):
            raise found
        return found

    def see(self, *records: CapacityRecord) -> "Bench":
        for item in records:
            self.records.apply(Change(item.name, None, item))
            self.room.appeared(item.class_name)
        return self

    def look(self) -> float | None:
        return asyncio.run(self.room.handle("fake-class"))

    def gauge(self, name: str) -> float:
        return self.number(f"csistoragecapacities_{name}")

    def number(self, name: str) -> float:
        page = self.metrics.render()[0].decode()
        return float(next(line.split()[1] for line in page.splitlines() if line.startswith(f"{name} ")))


def collected(bench: Bench, seconds: float) -> list[str]:
    """The garbage collector deletes each object whose owner is gone. Returns the owners of those that were made."""
    owners: list[str] = []
    end = bench.now + seconds
    while bench.now < end:
        before = len(bench.kube.wrote("create"))
        until = bench.look()
        if len(made := bench.kube.wrote("create")) > before:
            owners.append(made[-1]["metadata"]["ownerReferences"][0]["uid"])
            bench.see(record())
            if owners[-1] == "pod-uid":
                bench.records.apply(Change("csisc-1", None, None))
                until = bench.now + 1.0
        bench.now = max(bench.now + 1.0, until or 0.0)
    return owners


def test_an_owner_that_was_made_anew_is_looked_up_when_the_objects_are_deleted_again_and_again() -> None:
    """A DaemonSet that was deleted with --cascade=orphan and made anew adopts the pods, which are not restarted."""
    bench = Bench(owners=[Fatal("the pod has no controller"), Owner("v1", "Pod", "pod-1", "new-uid", controller=True)])
    assert collected(bench, 300.0) == ["pod-uid"] * 3 + ["new-uid"]


def test_what_is_deleted_again_and_again_is_made_ever_less_often(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    assert len(collected(bench, 300.0)) <= 10
    assert [item.message for item in caplog.records] == ["What is published of a class is deleted again and again"]


def test_an_object_that_never_shows_up_is_created_again_ever_less_often() -> None:
    bench = Bench()
    for _ in range(9):
        bench.now = bench.look() or 0.0
    assert len(bench.kube.wrote("create")) == 9
    assert bench.look() == bench.now + 300.0


def test_C7_an_object_of_a_vanished_class_is_deleted_and_counted_until_then() -> None:
    bench = Bench().see(record())
    bench.classes.apply(Change("fake-class", None, None))
    bench.look()
    assert bench.kube.wrote("delete") == ["uid-csisc-1"]
    assert bench.gauge("obsolete") == 1
    assert bench.room.class_names() == {"fake-class"}


def test_C21_a_conflict_is_tried_again_with_back_off_and_at_least_at_every_poll() -> None:
    bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)]), ScriptedKube(failures={"replace": [Conflict("old")] * 10}))
    bench.see(record())
    waits = []
    for _ in range(10):
        until = bench.look()
        assert until is not None
        waits.append(until - bench.now)
        bench.now = until
    assert (waits[:2], waits[-1]) == ([1.0, 2.0], 60.0)


WRONG = record("csisc-0", node_topology={samples.KEY: "bar"})


def played(bench: Bench, seconds: float, verb: str) -> list[float]:
    """When the verb was asked for, from now on."""
    at, end = [], bench.now + seconds
    while bench.now < end:
        before = len(bench.kube.wrote(verb))
        until = bench.look()
        at += [bench.now - 100.0] if len(bench.kube.wrote(verb)) > before else []
        assert until is not None and until > bench.now
        bench.now = until
    return at


def test_what_may_not_be_written_is_tried_ever_less_often_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The rights are missing for hours; meanwhile the driver is asked at every poll, for claims may wait for room."""
    for verb in ["create", "replace"]:
        caplog.clear()
        bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)]), ScriptedKube(failures={verb: [Forbidden("no")] * 100}))
        if verb == "replace":
            bench.see(record())
        at = played(bench, 3600.0, verb)
        assert at[:9] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0]
        assert all(later - sooner == 300.0 for sooner, later in pairwise(at[9:])) and len(at) < 22
        assert bench.driver.count("capacity") >= 55
        assert caplog.messages == ["Publishing capacity is forbidden: tried again ever less often"]
        assert bench.number("csi_node_sidecar_capacities_forbidden") == 1


def test_a_write_that_is_forbidden_keeps_no_other_from_being_made() -> None:
    """The object of another place may not be deleted; the right one is renewed all the same."""
    kube = ScriptedKube(failures={"delete": [Forbidden("no")] * 100})
    bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)]), kube).see(WRONG, record())
    assert len(played(bench, 3600.0, "delete")) < 22
    assert len(kube.wrote("replace")) >= 50


def test_changes_that_come_thick_and_fast_are_one_look_a_second() -> None:
    bench = Bench().see(record())
    assert bench.room.soonest("fake-class") == 100.0
    bench.look()
    bench.now = 100.4
    assert bench.room.soonest("fake-class") == 101.0
    bench.now = 105.0
    assert bench.room.soonest("fake-class") == 105.0


def test_a_driver_that_keeps_failing_is_asked_at_least_at_every_poll_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(ScriptedDriver(capacities=[DriverError(Code.INTERNAL, "no")])).see(record())
    for _ in range(10):
        until = bench.look()
        assert until is not None and until <= bench.now + 60.0
        bench.now = until
    assert [item.message for item in caplog.records].count(
        "The driver does not say how much space is free; the published figure stays"
    ) == 1


def test_a_figure_that_cannot_be_renewed_is_marked_and_the_mark_goes_with_the_next_answer() -> None:
    bench = Bench(ScriptedDriver(capacities=[DriverError(Code.INTERNAL, "no")])).see(record(annotations={"somebody": "else"}))
    bench.look()
    assert bench.kube.asked == []
    bench.now += 60.0
    bench.look()
    (marked,) = bench.kube.wrote("replace")
    assert marked["metadata"]["annotations"] == {"somebody": "else", "csi-node-sidecar.io/stale-since": "2026-01-01T00:01:40Z"}
    assert marked["capacity"] == "1Gi"
    bench.records.apply(Change("csisc-1", None, CapacityRecord.of(marked)))
    bench.look()
    assert len(bench.kube.asked) == 1, "once is enough"
    assert "csi_node_sidecar_capacities_stale 1" in bench.metrics.render()[0].decode()
    bench.driver.capacities = [CapacityAnswer(2**30)]
    bench.look()
    assert bench.kube.wrote("replace")[-1]["metadata"]["annotations"] == {"somebody": "else"}


def test_a_node_without_a_place_has_no_goal_and_withdraws_what_it_had() -> None:
    bench = Bench().see(record(node_topology={}))
    bench.driver.info = samples.info(segment={})
    bench.look()
    assert bench.kube.wrote("delete") == ["uid-csisc-1"]
    assert bench.driver.count("capacity") == 0
    assert (bench.gauge("desired_goal"), bench.gauge("obsolete")) == (0, 1)


def test_a_dry_run_writes_nothing() -> None:
    bench = Bench(dry_run=True)
    assert bench.look() == 160.0
    assert bench.kube.asked == []


def test_that_nothing_can_be_made_is_said_and_that_something_has_gone_is_not(caplog: pytest.LogCaptureFixture) -> None:
    gone = NotFound("no such object")
    bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)]), ScriptedKube(failures={"replace": [gone], "delete": [gone]}))
    bench.see(record(), record("csisc-2", node_topology=None))
    bench.look()
    bench.look()
    assert [verb for verb, *_ in bench.kube.asked] == ["delete", "replace"]
    assert caplog.messages == []
    lost = Bench(kube=ScriptedKube(failures={"create": [NotFound('namespaces "wrong" not found')]}))
    lost.look()
    assert caplog.messages == ["Publishing capacity failed"]


def test_C10_also_when_the_watch_was_faster_than_the_answer() -> None:
    bench = Bench()

    async def slow(*_: object, **__: object) -> dict[str, object]:
        bench.see(record())
        return {}

    bench.kube.create, really = slow, bench.kube.create  # type: ignore[method-assign]
    bench.look()
    bench.kube.create = really  # type: ignore[method-assign]
    bench.records.apply(Change("csisc-1", None, None))
    bench.look()
    assert len(bench.kube.wrote("create")) == 1
