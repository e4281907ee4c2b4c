"""Making a replica anew beside others who send pods away, or keep them: sidecars that empty nodes, webhooks, people and their tools."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision import effects_io
from sidecar.drain.reprovision.facts import FoundClaim
from sidecar.kube.api import BUDGETS, CLAIMS, CLASSES, LEASES, MERGE_PATCH, NODES, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.reprovision import ANEW, Seen, Workload, at_rest, evacuate, metric, places, play, uids, unready
from tests.harness.drain.simulated import EVACUATE, all_of, change, report_of, wait

HASTY: Final = (*ANEW, "--reprovision-ready-timeout=5m")
ON_ITS_WAY: Final = 9.0
"""Seconds: a little less than a sidecar waits for an answer."""


async def may_be_lost(bench: NotebookWorld, claim: str) -> None:
    """Emptying evicts its pod, and nobody deletes the claim."""
    notes = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Ignore"}}}
    await bench.you.patch(CLAIMS, claim, notes, namespace="default", content_type=MERGE_PATCH)


async def fewest_ready(bench: NotebookWorld, seconds: int) -> int:
    fewest = len(await places(bench))
    for _ in range(seconds):
        await wait(bench, 1)
        fewest = min(fewest, len(await places(bench)))
    return fewest


async def slowly(bench: NotebookWorld) -> None:
    """The replacement of db-0 finds a place elsewhere so late that it is away for long."""
    await change(bench, "n3", labels={"for-db-0": None})
    await wait(bench, 60)
    await change(bench, "n3", labels={"for-db-0": "yes"})


def slow_eviction(pod: str) -> tuple[asyncio.Event, Callable[[Call], Awaitable[None]]]:
    """The first eviction of this pod is on its way for long: when it has been sent, and what delays it."""
    started = asyncio.Event()

    async def delay(call: Call) -> None:
        if call.subresource == "eviction" and call.name == pod and not started.is_set():
            started.set()
            await asyncio.sleep(ON_ITS_WAY)

    return started, delay


def test_an_eviction_of_a_node_that_is_emptied_and_the_eviction_for_a_replica_do_not_cross() -> None:
    """No budget keeps them apart, and the request of the one is on its way while the other looks."""
    seen = Seen()
    started, delay = slow_eviction("db-1")

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await may_be_lost(bench, "data-db-1")
        await wait(bench, 20)
        await change(bench, "n1", {"taints": [EVACUATE]}, labels={"for-db-1": None})
        seen.at("evict db-0", lambda: bench.spawn(slowly(bench)), after=True)
        await started.wait()
        await evacuate(bench)
        assert await fewest_ready(bench, 300) == 2
        assert "evict db-1" in seen.did

    play(story, seen, delay=delay)


def test_a_node_that_is_emptied_waits_for_a_replica_that_is_being_made_anew() -> None:
    seen = Seen()
    started, delay = slow_eviction("db-0")

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await may_be_lost(bench, "data-db-1")
        await wait(bench, 20)
        await evacuate(bench)
        seen.at("evict db-0", lambda: bench.spawn(slowly(bench)), after=True)
        await started.wait()
        await change(bench, "n1", {"taints": [EVACUATE]}, labels={"for-db-1": None})
        assert await fewest_ready(bench, 300) == 2
        assert {"delete data-db-0", "evict db-1"} <= set(seen.did)

    play(story, seen, delay=delay)


def test_a_replica_that_was_evicted_and_may_not_be_made_anew_is_told_as_late() -> None:
    """Another one has fallen since. Somebody has to hear of a replica that is away by our doing for half an hour."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at("evict db-0", lambda: bench.spawn(unready(bench, "db-2")), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert "csi_node_sidecar_replacements_not_ready 1" not in metric(bench)
        await wait(bench, 200)
        assert "delete data-db-0" not in seen.did
        assert "csi_node_sidecar_replacements_not_ready 1" in metric(bench)
        told = [note for note in (await report_of(bench))["notes"] if note.startswith("lock of default/db-0: other replicas: shut")]
        assert "default/db-2 is not ready" in "".join(told), "also while others have their turn"
        await unready(bench, "db-2", False)
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n3"
        assert "csi_node_sidecar_replacements_not_ready 0" in metric(bench)
        assert await at_rest(bench)

    play(story, seen, args=HASTY)


def test_a_pod_that_was_evicted_and_does_not_end_is_told_as_late() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        keep = {"metadata": {"finalizers": ["example.com/keep"]}}
        await bench.you.patch(PODS, "db-0", keep, namespace="default", content_type=MERGE_PATCH)
        await evacuate(bench)
        await wait(bench, 400)
        assert seen.did.count("evict db-0") == 1
        assert "csi_node_sidecar_replacements_not_ready 1" in metric(bench)
        await bench.you.patch(PODS, "db-0", {"metadata": {"finalizers": None}}, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 100)
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, seen, args=HASTY)


def _deletes(call: Call) -> bool:
    return call.resource == CLAIMS and call.verb == "delete" and not call.dry_run


@pytest.mark.parametrize("error", [Forbidden("a webhook denied it", status=403), ApiError("a webhook broke", status=500)], ids=str)
def test_a_deletion_that_is_always_refused_is_told_as_late(error: ApiError) -> None:
    refusing = [True]
    seen = Seen(lambda call: error if refusing and _deletes(call) else None)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 400)
        assert "evict db-0" in seen.did
        assert "csi_node_sidecar_replacements_not_ready 1" in metric(bench)
        refusing.clear()
        await wait(bench, 100)
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, seen, args=HASTY)


@pytest.mark.parametrize("happens", ["scaled down", "deleted"])
def test_a_replica_that_nobody_wants_any_more_after_its_eviction_keeps_nobody_waiting(happens: str) -> None:
    """Its claim is somebody else's business then, and nothing is left to wait for."""
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        before = await uids(bench)

        def change_it() -> None:
            workload.stop()
            if happens == "deleted":
                bench.cluster.delete(STATEFUL_SETS, "db", namespace="default")
            else:
                spec = {"spec": {"replicas": 2, "ordinals": {"start": 1}}}
                bench.cluster.patch(STATEFUL_SETS, "db", spec, namespace="default", content_type=MERGE_PATCH)

        seen.at("evict db-0", change_it, after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert "evict db-0" in seen.did
        assert await uids(bench) == before
        assert await at_rest(bench)

    play(story, seen)


@pytest.mark.parametrize("happens", ["scaled down", "deleted"])
def test_a_replica_that_nobody_wants_any_more_after_the_first_of_its_claims_is_gone_leaves_nothing_behind(happens: str) -> None:
    """The other claim keeps its data: nobody makes that again."""
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        before = await uids(bench)

        def change_it() -> None:
            workload.stop()
            if happens == "deleted":
                bench.cluster.delete(STATEFUL_SETS, "db", namespace="default")
            else:
                spec = {"spec": {"replicas": 2, "ordinals": {"start": 1}}}
                bench.cluster.patch(STATEFUL_SETS, "db", spec, namespace="default", content_type=MERGE_PATCH)

        seen.at("delete data-db-0", lambda: None)  # the first try does not come there, and then the other one goes first
        seen.at("delete log-db-0", lambda: None)
        seen.at("delete data-db-0", change_it, after=True)
        await evacuate(bench)
        await wait(bench, 200)
        after = await uids(bench)
        assert "data-db-0" not in after
        assert after["log-db-0"] == before["log-db-0"]
        assert await at_rest(bench)

    play(story, seen, templates=("data", "log"))


@pytest.mark.parametrize("mark", ["n9/uid-n9", "n0/uid-of-a-former-node"])
def test_a_copied_mark_that_may_not_be_taken_off_does_not_keep_the_lease_after_an_undo(mark: str) -> None:
    """A backup of the claim is restored over it, with the mark of another machine, which a policy lets nobody else take off."""
    copied: list[bool] = []
    denied = Forbidden("csi-node-sidecar takes no mark off but its own", status=403)
    seen = Seen(lambda call: denied if copied and call.resource == CLAIMS and call.verb == "patch" else None)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        def restored() -> None:
            notes = {"metadata": {"annotations": {names.REPROVISIONED_BY: mark}}}
            bench.cluster.patch(CLAIMS, "data-db-0", notes, namespace="default", content_type=MERGE_PATCH)
            copied.append(True)

        seen.at("evict db-0", restored, after=True)
        await evacuate(bench)
        await wait(bench, 60)
        assert "delete data-db-0" not in seen.did
        await evacuate(bench, False)
        await wait(bench, 120)
        assert (await places(bench))["db-0"] == "n0"
        assert not [lease for lease in await all_of(bench, LEASES) if names.REPROVISION_FOR in (lease["metadata"].get("labels") or {})]

    play(story, seen)


def test_no_replica_is_evicted_where_another_one_falls_after_the_locks_were_looked_at() -> None:
    """What was recorded for that eviction is taken back too: nobody waits for one that nobody has asked for."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        def falls() -> None:
            status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
            bench.cluster.patch(PODS, "db-2", status, namespace="default", subresource="status", content_type=MERGE_PATCH)

        seen.at("note data-db-0", lambda: seen.at("update lease", falls, after=True), after=True)
        await evacuate(bench)
        await wait(bench, 40)
        assert "evict db-0" not in seen.did
        assert await at_rest(bench)
        await unready(bench, "db-2", False)
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)


@pytest.mark.parametrize("step", ["note data-db-0", "evict db-0"])
def test_an_undo_that_no_watch_has_shown_yet_costs_few_requests(step: str) -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, workload: Workload) -> None:
        def undo() -> None:
            workload.stop()
            assert isinstance(bench.api, InProcessApi)
            bench.api.hold_watches()
            bench.cluster.patch(NODES, "n0", {"spec": {"taints": None}}, content_type=MERGE_PATCH)
            begun.append(seen.requests)

        begun: list[int] = []
        seen.at(step, undo, after=True)
        await evacuate(bench)
        await wait(bench, 80)
        assert seen.requests - begun[0] < 250
        assert "delete data-db-0" not in seen.did

    play(story, seen)


def test_without_the_right_to_delete_its_claim_no_pod_is_evicted_for_it_and_others_go_on() -> None:
    """The flag was given, and the component's role was not."""
    denied = Forbidden("no such right", status=403)
    seen = Seen(lambda call: denied if call.resource == CLAIMS and call.verb == "delete" else None)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        await may_be_lost(bench, "app-0")
        await wait(bench, 20)
        await evacuate(bench)
        await wait(bench, 200)
        assert "evict db-0" not in seen.did
        assert "evict app-0" in seen.did
        assert len(await places(bench)) >= 3

    play(story, seen)


def test_a_webhook_that_cannot_be_tried_is_no_reason_to_wait() -> None:
    def refuse(call: Call) -> ApiError | None:
        return ApiError("admission webhook does not support dry run", status=400) if call.dry_run else None

    seen = Seen(refuse)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 100)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)


def test_where_a_webhook_takes_the_mark_off_nobody_is_evicted_and_nobody_writes_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def stripped(_: object, found: FoundClaim, __: object) -> FoundClaim:
        tried.append(found.claim.name)
        return found

    monkeypatch.setattr(effects_io, "mark", stripped)
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 200)
        assert "evict db-0" not in seen.did
        assert 1 <= len(tried) <= 6

    play(story, seen)


def test_a_finalizer_that_a_webhook_adds_to_the_marked_claim_keeps_the_pod_here(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = effects_io.mark

    async def with_finalizer(kube: Any, found: FoundClaim, machine: Machine) -> FoundClaim:
        return replace(await mark(kube, found, machine), finalizers=("example.com/protects",))

    monkeypatch.setattr(effects_io, "mark", with_finalizer)
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench)
        await wait(bench, 20)
        assert "evict db-0" not in seen.did

    play(story, seen)


def test_an_eviction_that_a_webhook_refuses_keeps_no_other_pod_of_the_node_waiting() -> None:
    denied = Forbidden("a webhook denied it", status=403)
    seen = Seen(lambda call: denied if call.subresource == "eviction" and call.name == "db-0" else None)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        await may_be_lost(bench, "app-0")
        await wait(bench, 20)
        await evacuate(bench)
        await wait(bench, 200)
        assert "evict app-0" in seen.did
        assert "delete data-db-0" not in seen.did

    play(story, seen)


def test_what_the_locks_look_at_is_asked_for_once_in_a_look_and_words_of_people_no_more_often_than_needed() -> None:
    """Three looks: before the Lease, before the eviction, before the deletion. The second takes the class from the first."""
    asked: Counter[str] = Counter()

    def count(call: Call) -> None:
        if call.verb in ("get", "list") and call.resource in (CLAIMS, CLASSES, BUDGETS):
            asked[f"{call.verb} {call.resource}"] += 1

    seen = Seen(count)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        asked.clear()
        await evacuate(bench)
        await wait(bench, 100)
        assert (await places(bench))["db-0"] == "n3"

    play(story, seen)
    assert (asked[f"get {CLAIMS}"], asked[f"get {CLASSES}"], asked[f"list {BUDGETS}"]) == (3, 2, 2)
