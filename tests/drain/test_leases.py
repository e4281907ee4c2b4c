"""Leases: what a stored one says however it was edited, what is done with it, two writers at once, and what an earlier process left."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.node import DRIVER
from sidecar.drain import leases
from sidecar.drain.lease_io import LeaseWriter, Overtaken, Untouched, Written
from sidecar.drain.leases import (
    DURATION,
    Hold,
    Lease,
    LeaseView,
    Leave,
    NotWanted,
    Release,
    Renew,
    Take,
    Terms,
    body,
    decide,
)
from sidecar.kube.api import CLAIMS, LEASES
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import simulated
from tests.harness.drain.reprovision import ARGS
from tests.harness.drain.samples import NOW
from tests.harness.drain.simulated import Bench, all_of, node_of, wait, with_pod

TERMS = Terms("one", "storage", {"a": "b"}, "n1", "uid-n1", "me")


def made(now: float = NOW, *, resource_version: str = "") -> dict[str, Any]:
    return body(TERMS, now=now, resource_version=resource_version)


def test_a_lease_that_was_made_is_read_back() -> None:
    stored = made(resource_version="7")
    stored["metadata"]["uid"] = "u"
    assert Lease.of(stored) == Lease("one", "u", "7", "me", "n1", "uid-n1", NOW, float(DURATION), {"a": "b"})


def test_a_lease_is_fresh_for_five_minutes() -> None:
    for ago in [0.0, 299.0]:
        assert Lease.of(made(now=NOW - ago)).is_fresh(NOW)


def test_a_lease_is_not_fresh_later_or_when_renewed_in_the_future() -> None:
    for ago in [300.0, 1e6, -1.0]:
        assert not Lease.of(made(now=NOW - ago)).is_fresh(NOW)


def test_a_lease_that_says_nothing_is_nobodys_and_was_never_renewed() -> None:
    for obj in [
        {"metadata": {"name": "one"}},
        {"metadata": {"name": "one"}, "spec": None},
        {"metadata": {"name": "one", "ownerReferences": None}, "spec": {"renewTime": "yesterday", "holderIdentity": None}},
        {"metadata": {"name": "one", "ownerReferences": [{"kind": "Pod", "name": "n1", "uid": "u"}]}, "spec": {}},
    ]:
        assert Lease.of(obj) == Lease("one", "", "", "", "", "", 0.0, float(DURATION))


# --- the rule ---------------------------------------------------------------------------------------------------------

MINE = Lease("one", "u", "7", "me", "n1", "uid-n1", NOW - 10, float(DURATION))
THEIRS = replace(MINE, holder="them")


def view(stored: Lease | None, *, wanted: bool = True, takeable: str = "", own: bool = False) -> LeaseView:
    return LeaseView(NOW, TERMS, wanted=wanted, stored=stored, takeable=takeable, own=own)


def test_a_lease_that_is_wanted_is_created_held_renewed_and_released() -> None:
    taken = decide(view(None))
    assert taken == Take("one", made(), False, "there is none yet")
    held = decide(view(MINE))
    assert isinstance(held, Hold) and held.until == MINE.renewed + 300
    assert decide(view(replace(MINE, renewed=NOW - 300))) == Renew("one", made(resource_version="7"), "it is held, and renewed")
    assert decide(view(MINE, wanted=False)) == Release("one", "u", "7", "it is not needed any more")
    assert isinstance(decide(view(None, wanted=False)), NotWanted)


def test_another_holders_lease_is_taken_only_for_a_reason_and_never_released() -> None:
    for wanted in [True, False]:
        assert decide(view(THEIRS, wanted=wanted)) == Leave("them has it")
        for changes in ({"takeable": "it has run out"}, {"own": True}):
            taken = decide(view(THEIRS, wanted=wanted, **changes))
            assert isinstance(taken, Take) and taken.replaces and taken.body == made(resource_version="7")


# --- Leases on an API server: two that write one at the same moment, what is refused, and what an earlier process left ---


ONES = Terms("one", "default", {"a": "b"}, "n1", "uid-n1", "me")


class Scene:
    """`refuse` says with which error a request is answered."""

    def __init__(self, refuse: Callable[[Call], ApiError | None] = lambda _: None, *, dry_run: bool = False) -> None:
        async def before(call: Call) -> None:
            self.calls.append(call)
            if error := refuse(call):
                raise error

        self.calls: list[Call] = []
        self.cluster = new_cluster(clock=lambda: NOW)
        self.writer = LeaseWriter(InProcessApi(self.cluster, before=before), namespace="default", dry_run=dry_run)

    def stored(self) -> Lease | None:
        return asyncio.run(self.writer.find("one"))

    def perform(self, decision: leases.Decision) -> object:
        return asyncio.run(self.writer.perform(decision))


def free(stored: Lease | None, *, wanted: bool = True) -> LeaseView:
    return LeaseView(NOW, ONES, wanted=wanted, stored=stored, takeable="it has run out")


def test_the_second_of_two_writers_is_overtaken_by_name_and_by_version() -> None:
    scene = Scene()
    take = decide(free(None))
    assert isinstance(scene.perform(take), Written)
    assert scene.perform(take) == Overtaken(name_taken=True)
    seen = scene.stored()
    assert seen is not None and seen.holder == "me"
    replace, release = leases.renewal(ONES, seen, now=NOW + 1), leases.release(seen, "over")
    assert isinstance(scene.perform(replace), Written)
    assert scene.perform(replace) == scene.perform(release) == Overtaken(name_taken=False)
    newest = scene.stored()
    assert newest is not None and scene.perform(leases.release(newest, "over")) == Written(None)
    assert scene.perform(replace) == scene.perform(leases.release(newest, "over")) == Overtaken(name_taken=False)


def test_a_decision_without_a_write_and_a_dry_run_ask_nothing() -> None:
    scene, dry = Scene(), Scene(dry_run=True)
    assert scene.perform(NotWanted()) == scene.perform(Leave("theirs")) == Untouched()
    assert dry.perform(decide(free(None))) == dry.perform(Release("one", "u", "7", "over")) == Untouched()
    assert not scene.calls and not dry.calls


def test_another_failure_is_raised() -> None:
    with pytest.raises(Unavailable):
        Scene(lambda _: Unavailable("no answer")).perform(decide(free(None)))


# --- What an earlier process with --allow-reprovision has left, where this one runs without it ---


async def left_by(bench: Bench, holder: str, claim: str, mark: str) -> None:
    await with_pod(bench, claim)
    notes = {"metadata": {"annotations": {names.REPROVISIONED_BY: mark}}}
    uid = (await bench.you.patch(CLAIMS, claim, notes, namespace="default", content_type="application/merge-patch+json"))["metadata"]["uid"]
    said = {"stage": "Evicting", "namespace": "default", "pod": claim, "podUID": "u", "workload": "db", "workloadUID": f"w-{claim}"}
    said |= {"claims": [{"name": claim, "uid": uid}], "begunAt": 1.0, "at": 1.0}
    meta = {"name": names.reprovision(f"w-{claim}", DRIVER), "labels": {names.REPROVISION_FOR: DRIVER}}
    meta["annotations"] = {names.REPROVISION_RECORD: json.dumps(said)}
    await bench.you.create(LEASES, {"metadata": meta, "spec": {"holderIdentity": holder}}, namespace="default")


def test_the_own_lease_and_its_marks_go_and_those_of_others_stay() -> None:
    def case(may_patch: bool, args: tuple[str, ...]) -> None:
        def refuse(call: Call) -> ApiError | None:
            return None if may_patch or call.resource != CLAIMS or call.verb != "patch" else Forbidden("no such right", status=403)

        async def story(bench: Bench) -> None:
            uid = (await node_of(bench))["metadata"]["uid"]
            await left_by(bench, f"{uid}/{DRIVER}", "mine", f"n0/{uid}")
            await left_by(bench, f"uid-other/{DRIVER}", "foreign", "n9/uid-other")
            bench.nodes["n0"].kill()
            await wait(bench, 60)
            of_workloads = {
                lease["metadata"]["name"] for lease in await all_of(bench, LEASES) if lease["metadata"]["name"].startswith("repr")
            }
            assert of_workloads == {names.reprovision("w-foreign", DRIVER)}
            marked = {
                item["metadata"]["name"]
                for item in await all_of(bench, CLAIMS)
                if names.REPROVISIONED_BY in item["metadata"]["annotations"]
            }
            assert marked == ({"foreign"} if may_patch else {"foreign", "mine"})

        simulated.play(story, args=args, refuse=refuse)

    for may_patch in [True, False]:
        for args in [
            ARGS,  # evicts
            simulated.JUDGING,  # evicts nobody either
        ]:
            case(may_patch, args)
