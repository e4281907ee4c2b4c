"""What is done about a decision on a class."""

import asyncio
from dataclasses import dataclass, field

from sidecar.capacity.controller import CapacityPublisher
from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Code, DriverError
from sidecar.engine.backoff import Backoff
from sidecar.kube.api import Change
from sidecar.kube.errors import Conflict
from sidecar.kube.store import Store
from sidecar.model.objects import CapacityRecord, Class
from sidecar.observe.decisions import Decisions
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from tests import samples
from tests.capacity.test_rules import PUBLISHER, record
from tests.doors import ScriptedDriver, ScriptedKube


@dataclass
class Bench:
    """The room between scripted doors."""

    driver: ScriptedDriver = field(default_factory=lambda: ScriptedDriver(capacities=[CapacityAnswer(2**30)]))
    kube: ScriptedKube = field(default_factory=ScriptedKube)
    dry_run: bool = False
    now: float = 100.0

    def __post_init__(self) -> None:
        self.metrics = Metrics("test")
        self.classes: Store[Class] = Store()
        self.records: Store[CapacityRecord] = Store({"class": lambda item: (item.class_name,)})
        self.classes.apply(Change("fake-class", None, samples.class_()))
        self.room = CapacityPublisher(
            publisher=PUBLISHER,
            namespace="ns",
            kube=self.kube,  # type: ignore[arg-type]
            driver=self.driver,
            classes=self.classes,
            records=self.records,
            metrics=self.metrics,
            narrator=Narrator(Decisions(), self.metrics, lambda: 0.0),
            retry=Backoff(1.0, 300.0),
            clock=lambda: self.now,
            dry_run=self.dry_run,
        )

    def see(self, *records: CapacityRecord) -> "Bench":
        for item in records:
            self.records.apply(Change(item.name, None, item))
        return self

    def look(self) -> float | None:
        return asyncio.run(self.room.handle("fake-class"))

    def gauge(self, name: str) -> float:
        page = self.metrics.render()[0].decode()
        return float(next(line.split()[1] for line in page.splitlines() if line.startswith(f"csistoragecapacities_{name} ")))


def test_C2_nothing_published_yet() -> None:
    bench = Bench()
    assert bench.look() == 110.0
    assert bench.kube.asked[0][:2] == ("create", "csistoragecapacities")
    assert (bench.gauge("desired_goal"), bench.gauge("desired_current"), bench.gauge("obsolete")) == (1, 0, 0)


def test_until_the_watch_shows_it_nothing_is_created_twice_and_afterwards_it_rests() -> None:
    bench = Bench()
    bench.look()
    assert bench.look() == 110.0
    bench.see(record())
    assert bench.look() == 160.0
    assert len(bench.kube.asked) == 1
    assert bench.gauge("desired_current") == 1


def test_an_object_that_never_shows_up_is_created_again_ever_less_often() -> None:
    bench = Bench()
    for _ in range(9):
        bench.now = bench.look() or 0.0
    assert len(bench.kube.wrote("create")) == 9
    assert bench.look() == bench.now + 300.0


def test_C5_a_changed_figure_is_replaced() -> None:
    bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)])).see(record())
    bench.look()
    (body,) = bench.kube.wrote("replace")
    assert (body["metadata"]["name"], body["capacity"]) == ("csisc-1", "7")


def test_C7_an_object_of_a_vanished_class_is_deleted_and_counted_until_then() -> None:
    bench = Bench().see(record())
    bench.classes.apply(Change("fake-class", None, None))
    bench.look()
    assert bench.kube.wrote("delete") == ["uid-csisc-1"]
    assert bench.gauge("obsolete") == 1
    assert bench.room.class_names() == {"fake-class"}


def test_C21_a_conflict_is_tried_again_with_back_off() -> None:
    bench = Bench(ScriptedDriver(capacities=[CapacityAnswer(7)]), ScriptedKube(failures={"replace": [Conflict("old"), Conflict("old")]}))
    bench.see(record())
    assert [bench.look(), bench.look()] == [101.0, 102.0]


def test_a_driver_that_fails_is_asked_again_with_back_off_and_nothing_is_written() -> None:
    bench = Bench(ScriptedDriver(capacities=[DriverError(Code.UNIMPLEMENTED, "no")])).see(record())
    assert [bench.look(), bench.look()] == [101.0, 102.0]
    assert bench.kube.asked == []


def test_a_dry_run_writes_nothing() -> None:
    bench = Bench(dry_run=True)
    assert bench.look() == 160.0
    assert bench.kube.asked == []
