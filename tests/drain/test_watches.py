"""What the room sees between two looks, and what is refused to it."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from sidecar.csi.api import PUBLISH_UNPUBLISH_VOLUME
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.watches import DrainWatches
from sidecar.drain.wording import first_few
from sidecar.kube import reflector_state as reflector
from sidecar.kube.api import ATTACHMENTS, CLAIMS, PODS, Change, Resource
from sidecar.kube.errors import Forbidden, Unavailable
from sidecar.kube.event_prefix import EventPrefix
from sidecar.local.caches import Caches
from sidecar.local.here import Here, Options
from sidecar.local.watch import Watch
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Attachment
from tests.harness import samples
from tests.harness.drain.listed_cluster import meta

ATTACHING = samples.info(controller=(PUBLISH_UNPUBLISH_VOLUME,))


class Scene:
    def __init__(self, *, state: Any = None, judges: bool = True, info: Any = ATTACHING) -> None:
        self.now, self.woken, self.caches = 1000.0, 0, Caches.empty()
        here = Here("n1", info, Options(), "me")
        self.watches = DrainWatches(here, self.caches, judges=judges, state=lambda _: state or reflector.Synced(), clock=lambda: self.now)
        self.watches.on_change = self.wake

    def wake(self) -> None:
        self.woken += 1

    def watch(self, resource: Resource) -> Watch[Any] | None:
        return next((watch for watch in self.watches.watches() if watch.resource == resource), None)

    def change(self, resource: Resource, old: Any, new: Any) -> None:
        watch = self.watch(resource)
        assert watch is not None
        watch.wakes(Change("key", old, new))

    def lately(self) -> frozenset[str]:
        return self.watches.recent.among(["default/a"], observed=False)


def pod(phase: str = "Running") -> Pod:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]
    return Pod.of({"metadata": meta("p", namespace="default"), "spec": {"nodeName": "n1", "volumes": volumes}, "status": {"phase": phase}})


def test_a_pod_that_leaves_or_ends_has_used_its_claims_until_now() -> None:
    for new in (None, pod("Succeeded")):
        scene = Scene()
        scene.change(PODS, None, pod())
        scene.now += 5000
        assert not scene.lately()
        scene.change(PODS, pod(), new)
        assert scene.lately() == {"default/a"}


def test_from_the_first_list_of_pods_on_it_is_known_who_leaves() -> None:
    scene = Scene()
    watch = scene.watch(PODS)
    assert watch is not None
    watch.on_list()
    assert scene.watches.recent.among(["default/a"], observed=True) == {"default/a"}
    scene.now += 60
    watch.on_list()
    assert not scene.watches.recent.among(["default/a"], observed=True)


def test_attachments_to_this_node_count_and_wake() -> None:
    scene = Scene()
    ours, theirs = Attachment("x", "pv-1", "n1"), Attachment("y", "pv-2", "n2")
    for item in (ours, theirs):
        scene.caches.attachments.apply(Change(item.name, None, item))
    assert scene.watches.watched().attached() == {"pv-1"}
    for old, new, wakes in ((None, ours, 1), (ours, None, 1), (None, theirs, 0), (theirs, replace(theirs, volume="pv-3"), 0)):
        before = scene.woken
        scene.change(ATTACHMENTS, old, new)
        assert scene.woken - before == wakes


def test_attachments_that_cannot_be_read_are_unknown() -> None:
    assert f"{ATTACHMENTS}: no right" in Scene(state=reflector.Denied("no right")).watches.ignorance()
    assert f"{ATTACHMENTS}: no right" not in Scene(state=reflector.Denied("no right"), info=samples.info()).watches.ignorance()


def test_a_claim_of_this_node_that_has_its_volume_is_read_where_the_node_is_judged() -> None:
    for node, judges, skipped in (("n1", True, False), ("n2", True, True), ("n1", False, True)):
        watch = Scene(judges=judges).watch(CLAIMS)
        assert watch is not None and watch.skip is not None
        obj = samples.claim_json(annotations={names.SELECTED_NODE: node}, volumeName="pvc-1")
        line = json.dumps({"type": "MODIFIED", "object": obj}, separators=(",", ":")).encode()
        assert watch.skip(EventPrefix("data", "u", "7"), line) is skipped


# --- What is refused in one look: it keeps nothing else from being tried, and is told in one sentence ---


async def answer() -> str:
    return "done"


async def refused(error: Exception) -> str:
    raise error


def test_what_is_refused_is_remembered_until_the_next_look() -> None:
    refusals = Refusals()
    assert not refusals and str(refusals) == ""
    assert asyncio.run(refusals.attempt("the gate", refused(Forbidden("no right")))) is None
    assert asyncio.run(refusals.attempt("a report", refused(Unavailable("no answer")))) is None
    assert asyncio.run(refusals.attempt("marks", answer())) == "done"
    assert refusals and (refusals.of("the gate"), refusals.of("marks")) == ("no right", "")
    assert str(refusals) == "a report could not be written or read: no answer; the gate could not be written or read: no right"
    assert refusals.shown == "a report could not be written or read; the gate could not be written or read; the log says why"
    refusals.begin()
    assert not refusals and refusals.of("the gate") == ""


def test_what_may_not_be_read_is_told_and_has_nothing_tried_again() -> None:
    refusals = Refusals()
    refusals.left_unread({"namespace b": "no right", "class a": "no right either"})
    refusals.note("the gate", "no")
    assert str(refusals) == (
        "the gate could not be written or read: no; class a could not be read, so that a verdict may be Unknown: no right either;"
        " namespace b could not be read, so that a verdict may be Unknown: no right"
    )
    assert "namespace b" not in refusals.shown and "may be Unknown; the log says why" in refusals.shown
    refusals.begin()
    assert str(refusals) == refusals.shown == ""
    refusals.left_unread({"class a": "no right"})
    assert str(refusals) and not refusals


def test_a_fault_of_the_program_is_no_refusal() -> None:
    with pytest.raises(ValueError, match="a bug"):
        asyncio.run(Refusals().attempt("the gate", refused(ValueError("a bug"))))


# --- Parts of sentences ---


def test_of_many_the_first_few_are_named() -> None:
    assert (first_few(["a"]), first_few(["a", "b", "c"]), first_few(list("abcde"))) == ("a", "a, b, c", "a, b, c and 2 more")
