"""Volumes under a role that does not allow to patch PersistentVolumes, as those of external-provisioner before version 5."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from sidecar.kube.api import Change
from sidecar.kube.errors import Conflict, Forbidden, Unavailable
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.provisioning.progress import RemovalStep
from sidecar.provisioning.view import VolumeView
from sidecar.provisioning.volume_rules import Empty, Finalize, Remove, Rest, Unfinalize, Unpermitted, VolumeDecision, decide_volume
from sidecar.rights.rights import FinalizerWrites
from tests.harness import samples
from tests.harness.provisioning.bench import Bench, late, released
from tests.harness.provisioning.room import KeepingKube

OURS = names.VOLUME_FINALIZER
NEVER, BY_UPDATE, BY_PATCH = FinalizerWrites.NEVER, FinalizerWrites.BY_UPDATE, FinalizerWrites.BY_PATCH
GOING = {"deletionTimestamp": "now", "uid": "volume-uid"}


# --- what is decided --------------------------------------------------------------------------------------------------


RETAIN = {"persistentVolumeReclaimPolicy": "Retain"}


def look(volume: Volume, **changes: Any) -> VolumeDecision:
    base = VolumeView(here=samples.here(), volume=volume, class_=samples.class_(), finalizers=NEVER)
    return decide_volume(replace(base, **changes))


def test_a_finalizer_that_could_not_be_taken_off_is_not_put_on() -> None:
    bound = samples.volume(meta={"finalizers": ["other"]}, status={"phase": "Bound"})
    assert isinstance(look(bound), Rest)
    assert isinstance(look(bound, finalizers=BY_UPDATE), Finalize) and isinstance(look(bound, finalizers=BY_PATCH), Finalize)


def test_a_released_volume_is_emptied_and_then_removed_with_or_without_the_finalizer() -> None:
    for finalizers in [[OURS], ["other"], []]:
        volume = samples.volume(meta={"finalizers": finalizers})
        assert isinstance(look(volume), Empty)
        assert isinstance(look(volume, progress=RemovalStep.EMPTIED), Remove)


# --- what is done -----------------------------------------------------------------------------------------------------


def test_a_new_volume_has_the_finalizer_if_it_can_be_taken_off() -> None:
    for writes, finalizers in [(NEVER, None), (BY_UPDATE, [OURS]), (BY_PATCH, [OURS])]:
        bench = late(finalizers=writes)
        bench.claim()
        (made,) = bench.kube.wrote("create")
        assert made["metadata"].get("finalizers") == finalizers


def going(bench: Bench, *, finalizers: tuple[str, ...] = ("other", OURS)) -> Bench:
    """Its deletion was accepted, and the finalizer holds it."""
    obj = samples.volume_json(meta=GOING | {"finalizers": list(finalizers), "resourceVersion": "10"})
    bench.kube.objects["persistentvolumes", "test-testi"] = obj
    held = bench.caches.volumes.get("test-testi")
    bench.caches.volumes.apply(Change("test-testi", held, Volume.of(obj)))
    return bench


def emptied(**doors: Any) -> Bench:
    bench = released(**doors)
    assert bench.volume() == bench.now
    assert bench.volume() is None
    assert bench.driver.count("delete") == 1
    return going(bench)


def test_update_takes_the_finalizer_off_and_leaves_the_others_and_whatever_else_is_written_there() -> None:
    bench = emptied(kube=KeepingKube(), finalizers=BY_UPDATE)
    bench.kube.objects["persistentvolumes", "test-testi"]["metadata"]["labels"] = {"of": "somebody else"}
    assert bench.volume() is None
    assert bench.kube.wrote("patch") == []
    (body,) = bench.kube.wrote("replace")
    meta = json.loads(body)["metadata"]
    assert meta["finalizers"] == ["other"] and meta["resourceVersion"] == "10" and meta["labels"] == {"of": "somebody else"}


def test_an_update_that_failed_is_tried_again() -> None:
    for error in [Conflict("changed", status=409), Unavailable("away")]:
        bench = emptied(kube=KeepingKube(failures={"replace": [error]}), finalizers=BY_UPDATE)
        assert bench.volume() == 101.0
        assert bench.volume_when_due() is None
        assert len(bench.kube.wrote("replace")) == 2 and bench.driver.count("delete") == 1


def test_one_that_has_it_from_before_is_told_of_ever_less_often_and_asks_nothing_until_the_right_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = emptied(kube=KeepingKube(), finalizers=NEVER)
    asked, begun = len(bench.kube.asked), bench.now
    pauses = []
    bench.until = bench.now
    while bench.now < begun + 86400.0:
        at = bench.now
        assert bench.volume_when_due() is not None
        assert bench.until is not None
        pauses.append(bench.until - max(at, bench.now))
    assert pauses[0] == 1.0 and max(pauses) <= 300.0 and len(pauses) < 86400 / 200
    assert len(bench.kube.asked) == asked and bench.driver.count("delete") == 1
    assert set(bench.told.reasons()) == {"VolumeFailedDelete"} and "grant patch on persistentvolumes" in bench.told.events[-1][3]
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1 and "grant patch on persistentvolumes" in str(lines[0].__dict__["fields"])
    bench.finalizers = BY_PATCH
    assert bench.volume() is None, "a right that comes ends the pause"
    assert bench.kube.wrote("patch") != [] and bench.driver.count("delete") == 1


def test_without_knowing_better_it_is_tried_and_a_refusal_makes_the_role_be_asked_about() -> None:
    denied = Forbidden('persistentvolumes "test-testi" is forbidden: cannot patch resource "persistentvolumes"')
    bench = emptied(kube=KeepingKube(failures={"patch": [denied]}))
    assert bench.forbidden == 0
    assert bench.volume() == 101.0
    assert bench.forbidden == 1
    bound = samples.volume_json(meta={"finalizers": []}, status={"phase": "Bound"})
    other = Bench(kube=KeepingKube(failures={"patch": [denied]})).see(volume=Volume.of(bound))
    other.volume()
    assert other.forbidden == 1


def test_update_puts_the_finalizer_on() -> None:
    obj = samples.volume_json(meta={"finalizers": ["other"]}, status={"phase": "Bound"})
    bench = Bench(kube=KeepingKube(), finalizers=BY_UPDATE)
    bench.kube.objects["persistentvolumes", "test-testi"] = obj
    bench.see(volume=Volume.of(obj))
    assert bench.volume() is None
    (body,) = bench.kube.wrote("replace")
    assert json.loads(body)["metadata"]["finalizers"] == ["other", OURS]


def test_update_never_touches_another_volume_of_that_name() -> None:
    bench = emptied(kube=KeepingKube(), finalizers=BY_UPDATE)
    bench.kube.objects["persistentvolumes", "test-testi"]["metadata"]["uid"] = "another"
    assert bench.volume() == 101.0
    assert bench.kube.wrote("replace") == []


def test_one_that_is_kept_is_told_of_only_when_it_is_deleted() -> None:
    kept = {"finalizers": [OURS]}
    assert isinstance(look(samples.volume(meta=kept, spec=RETAIN)), Rest)
    decision = look(samples.volume(meta=GOING | kept, spec=RETAIN))
    assert isinstance(decision, Unpermitted) and "Retain" in decision.why
    assert isinstance(look(samples.volume(meta=kept, spec=RETAIN), finalizers=BY_UPDATE), Unfinalize)
