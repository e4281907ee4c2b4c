"""Released volumes that no node deletes are told of, by one node, and never deleted."""

from typing import Any

from sidecar.engine.loop import WORK
from sidecar.kube.api import VOLUMES
from sidecar.model import names
from tests.harness import samples
from tests.harness.provisioning.bench import Bench, run

NAME = "test-testi"
Json = dict[str, Any]


def released(identity: str = "", *, affinity: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    attributes = {names.PROVISIONER_IDENTITY: identity} if identity else {}
    csi = {"driver": samples.DRIVER, "volumeHandle": "h", "volumeAttributes": attributes}
    return samples.volume_json(meta=meta, spec={"csi": csi, "nodeAffinity": affinity, **spec})


def told(obj: Json, *, topology: bool = False) -> Bench:
    """What comes of it when the watch has shown it and its turn has come."""
    bench = Bench()
    bench.driver.info = samples.info(topology=topology)
    bench.kube.objects["persistentvolumes", NAME] = obj
    for _ in range(3):  # a list shows it again
        at = bench.room.removal.unowned.noticed(obj)
        if at is not None:
            bench.now = at
            assert bench.room.removal.glance(NAME) is WORK
            bench.volume()
            assert bench.room.removal.glance(NAME) is None
    return bench


IN_A_RACK = samples.placed("7", key="rack")


def test_it_is_told_once_why_nobody_deletes_it() -> None:
    for topology in [True, False]:
        for obj, said in [
            (released("mine"), "(mine) names no node"),
            (released(), "(missing) names no node"),
            (released(affinity=IN_A_RACK), "names no node"),
        ]:
            bench = told(obj, topology=topology)
            ((name, type_, reason, text),) = bench.told.events
            assert (name, type_, reason) == (NAME, "Warning", "VolumeFailedDelete")
            assert said in text and "no node is known to have this volume" in text
            assert bench.driver.asked == [] and {verb for verb, *_ in bench.kube.asked} == {"get"}
            assert 130.0 <= bench.now <= 300.0, "one of thousands of nodes at a time"


def test_of_others_nothing_is_said_and_nothing_asked() -> None:
    for obj in [
        released(f"1700000000000-1-{samples.DRIVER}-bar"),
        released(f"1700000000000-1-{samples.DRIVER}-{samples.NODE}"),
        released(persistentVolumeReclaimPolicy="Retain"),
        released(csi={"driver": "another", "volumeHandle": "h"}),
        released(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        released() | {"status": {"phase": "Bound"}},
        samples.volume_json(annotations={"pv.kubernetes.io/provisioned-by": "another"}, spec={"nodeAffinity": None}),
    ]:
        bench = told(obj)
        assert (bench.told.events, bench.kube.asked) == ([], [])


def test_what_has_changed_until_then_is_not_told() -> None:
    for now in [None, released(persistentVolumeReclaimPolicy="Retain"), released(meta={"uid": "another"})]:
        bench = Bench()
        at = bench.room.removal.unowned.noticed(released())
        assert at is not None
        if now is not None:
            bench.kube.objects["persistentvolumes", NAME] = now
        bench.now = at
        bench.volume()
        assert bench.told.events == []


def test_the_watch_shows_them_and_the_cache_does_not_keep_them() -> None:
    bench = Bench()
    bench.driver.info = samples.info(topology=False)
    woken: list[tuple[str, float]] = []
    watches = bench.watches(volume_not_kept=bench.room.removal.unowned.noticed, wake_volume_at=lambda name, at: woken.append((name, at)))
    volumes = next(watch for watch in watches.watches() if watch.resource == VOLUMES)
    for _ in range(2):
        assert volumes.project is not None and volumes.project(released("mine")) is None
    assert [name for name, at in woken if at > bench.now] == [NAME]


def test_a_thousand_that_were_told_keep_nobody_from_hearing_of_the_next() -> None:
    bench = Bench()
    bench.driver.info = samples.info(topology=False)
    unowned = bench.room.removal.unowned

    def notice(number: int) -> float | None:
        return unowned.noticed(released(meta={"name": f"v{number}", "uid": f"u{number}"}))

    assert [number for number in range(1100) if notice(number) is None] == list(range(1000, 1100)), "not all at once"
    for number in range(1000):
        bench.kube.objects["persistentvolumes", f"v{number}"] = released(meta={"name": f"v{number}", "uid": f"u{number}"})
        run(unowned.look(f"v{number}"))
    assert len(bench.told.events) == 1000
    assert notice(1000) is not None and notice(1000) is None
    assert notice(999) is None and notice(0) is not None, "the one that was told first is forgotten first"
