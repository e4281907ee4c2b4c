"""Making a replica anew, as a process does it: led step by step against a simulated API server."""

import asyncio
from itertools import product
from typing import Any, Final

import pytest

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.drain.anew import READY_TIMEOUT
from sidecar.kube.api import CLAIMS, EVENTS, LEASES, MERGE_PATCH, NODES, PODS, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from sidecar.model import names
from tests.harness import emptying
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, STATE, Story, all_of, change, node_of, wait
from tests.harness.replicas_anew import (
    ANEW,
    ARGS,
    NODES_THERE,
    Seen,
    Workload,
    at_rest,
    evacuate,
    metric,
    places,
    play,
    said,
    uids,
    unready,
)


async def told(bench: Story, reason: str) -> list[str]:
    return sorted(event["involvedObject"]["name"] for event in await all_of(bench, EVENTS) if event["reason"] == reason)


def test_drain_F1_a_replica_is_made_anew_elsewhere_and_its_volume_here_goes() -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        before = await uids(bench)
        await evacuate(bench)
        await wait(bench, 180)
        assert seen.did == [
            "create lease", "note data-db-0", "update lease", "evict db-0", "update lease", "delete data-db-0", "delete lease"
        ]  # fmt: skip
        assert (await places(bench))["db-0"] == "n3"
        after = await uids(bench)
        assert {name for name in before if before[name] != after[name]} == {"data-db-0"}
        assert await at_rest(bench)
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success"
        assert len(await all_of(bench, VOLUMES)) == 3
        assert await told(bench, names.CLAIM_REPROVISIONED) == ["data-db-0"]
        assert await told(bench, names.REPLICA_READY) == await told(bench, names.POD_EVICTED) == ["db-0"]
        page = metric(bench)
        assert 'csi_node_sidecar_reprovisions_total{result="ready"} 1' in page
        assert "csi_node_sidecar_reprovision_seconds_count 1" in page

    play(story, seen)


STEPS: Final = ("create lease", "note data-db-0", "evict db-0", "delete data-db-0", "delete lease")
BEFORE: Final = {"note data-db-0": "create lease", "evict db-0": "note data-db-0", "delete data-db-0": "evict db-0"}
"""What was done last before a step."""


def undo(bench: Story) -> None:
    """The replica may be here again, too."""
    change = {"spec": {"taints": None}, "metadata": {"labels": {"for-db-0": "yes"}}}
    bench.cluster.patch(NODES, "n0", change, content_type=MERGE_PATCH)


def test_after_a_crash_at_a_step_it_goes_on_rightly() -> None:
    def case(step: str, after: bool) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            seen.at(step, bench.nodes["n0"].kill, after=after)
            await evacuate(bench)
            await wait(bench, 300)
            assert (await places(bench)) == {"db-0": "n3", "db-1": "n1", "db-2": "n2"}
            assert await at_rest(bench)
            assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success"
            assert [seen.did.count(what) for what in ("evict db-0", "delete data-db-0")] == [1, 1]

        play(story, seen)

    for step, after in product(STEPS, (False, True)):
        case(step, after)


TWO: Final = ("data", "log")


def test_after_a_crash_between_the_deletions_of_two_claims_the_second_one_goes_too() -> None:
    """Its StatefulSet may have made the first one again by then. Without it the replica could be nowhere."""

    def case(step: str, after: bool) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            before = await uids(bench)
            seen.at(step, bench.nodes["n0"].kill, after=after)
            await evacuate(bench)
            await wait(bench, 300)
            assert (await places(bench)) == {"db-0": "n3", "db-1": "n1", "db-2": "n2"}
            now = await uids(bench)
            assert {name for name in before if before[name] != now[name]} == {"data-db-0", "log-db-0"}
            assert await at_rest(bench)
            assert [seen.did.count(what) for what in ("evict db-0", "delete data-db-0", "delete log-db-0")] == [1, 1, 1]

        play(story, seen, templates=TWO)

    for step, after in product(("delete data-db-0", "delete log-db-0"), (False, True)):
        case(step, after)


def test_undone_just_before_a_step_it_is_not_taken() -> None:
    """The node is asked for anew before what cannot be taken back, whatever a watch has shown."""

    def case(step: str) -> None:
        seen = Seen()

        async def story(bench: Story, workload: Workload) -> None:
            before = await uids(bench)
            seen.at(BEFORE[step], lambda: undo(bench), after=True)
            await evacuate(bench)
            await wait(bench, 200)
            assert "delete data-db-0" not in seen.did
            assert ("evict db-0" in seen.did) is (step == "delete data-db-0")
            assert await uids(bench) == before
            assert (await places(bench))["db-0"] == "n0"
            assert await at_rest(bench)

        play(story, seen)

    for step in BEFORE:
        case(step)


def test_undone_right_after_the_deletion_of_a_claim_the_next_one_stays() -> None:
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        before = await uids(bench)

        def undo() -> None:
            bench.cluster.patch(NODES, "n0", {"spec": {"taints": None}}, content_type=MERGE_PATCH)

        seen.at("delete data-db-0", undo, after=True)
        await evacuate(bench)
        await wait(bench, 200)
        after = await uids(bench)
        assert "delete log-db-0" not in seen.did
        assert (after["data-db-0"] != before["data-db-0"], after["log-db-0"] == before["log-db-0"]) == (True, True)
        marked = [claim for claim in await all_of(bench, CLAIMS) if names.REPROVISIONED_BY in (claim["metadata"].get("annotations") or {})]
        assert not marked

    play(story, seen, templates=TWO)


def test_nothing_is_made_anew_otherwise() -> None:
    def case(args: tuple[str, ...], word: str) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            await change(bench, "n0", {"taints": [EVACUATE | {"value": word}], "unschedulable": True}, labels={"for-db-0": None})
            await wait(bench, 120)

        play(story, seen, args=args)
        assert seen.did == []

    for args, word in [
        (ARGS, "retire"),  # not allowed
        ((*ANEW, "--node-drain-policy=Ignore"), "retire"),  # the node is not drained by us
        (ANEW, "reboot"),
    ]:
        case(args, word)


def test_a_replacement_that_is_late_is_told_and_waited_for() -> None:
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        away = {"metadata": {"labels": {"for-db-0": None}}}
        seen.at("delete data-db-0", lambda: bench.cluster.patch(NODES, "n3", away, content_type=MERGE_PATCH), after=True)
        await evacuate(bench)
        await wait(bench, 200)
        assert len(await all_of(bench, VOLUMES)) == 2
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "InProgress", "its replica is on its way"
        await wait(bench, READY_TIMEOUT)
        assert "csi_node_sidecar_replacements_not_ready 1" in metric(bench)
        assert 'reprovisions_total{result="replacement_not_ready"} 1' in metric(bench)
        assert (await node_of(bench))["metadata"]["labels"].get(STATE) == "Success", "nothing of it is here any more"
        await change(bench, "n3", labels={"for-db-0": "yes"})
        await wait(bench, 120)
        assert await at_rest(bench)
        assert "csi_node_sidecar_replacements_not_ready 0" in metric(bench)
        assert await told(bench, names.REPLICA_READY) == ["db-0"]

    play(story, seen)


def test_what_is_refused_midway_is_tried_again_at_a_measured_pace() -> None:
    def case(error: ApiError, step: str) -> None:
        tried: list[str] = []

        def refuse(call: Call) -> ApiError | None:
            if said(call) != step or granted:
                return None
            tried.append(step)
            return error

        granted: list[bool] = []
        seen = Seen(refuse)

        async def story(bench: Story, _: Workload) -> None:
            await evacuate(bench)
            await wait(bench, 200)
            assert 1 <= len(tried) <= 15
            assert "delete data-db-0" not in seen.did
            granted.append(True)
            await wait(bench, 200)
            assert (await places(bench))["db-0"] == "n3"
            assert await at_rest(bench)

        play(story, seen)

    steps = ("note data-db-0", "evict db-0", "delete data-db-0", "update lease", "create lease")
    for error, step in product((Forbidden("no such right", status=403), Unavailable("no answer")), steps):
        case(error, step)


def test_with_garbage_in_its_lease_a_replica_is_begun_anew() -> None:
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        name = names.reprovision(workload.uid, DRIVER)

        def spoil() -> None:
            change = {"metadata": {"annotations": {names.REPROVISION_RECORD: "{"}}}
            bench.cluster.patch(LEASES, name, change, namespace="default", content_type=MERGE_PATCH)

        seen.at("create lease", spoil, after=True)
        await evacuate(bench)
        await wait(bench, 120)
        assert seen.did.index("delete lease") < seen.did.index("evict db-0")
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, seen)


def test_two_nodes_never_send_two_replicas_away_at_once() -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        await change(bench, "n1", labels={"for-db-1": None})
        await change(bench, "n1", {"taints": [EVACUATE]})
        await evacuate(bench)
        fewest = 3
        for _ in range(400):
            await wait(bench, 1)
            fewest = min(fewest, len(await places(bench)))
        assert fewest == 2
        assert await at_rest(bench)
        assert set(seen.did) >= {"delete data-db-0", "delete data-db-1"}

    play(story, seen)


def test_undone_after_the_last_look_at_the_locks_it_is_not_taken_either() -> None:
    """No watch can have shown it: it happens between the record of the step and the step."""

    def case(step: str) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            seen.at(BEFORE[step], lambda: seen.at("update lease", lambda: undo(bench), after=True), after=True)
            await evacuate(bench)
            await wait(bench, 200)
            assert step not in seen.did
            assert (await places(bench))["db-0"] == "n0"
            assert await at_rest(bench)

        play(story, seen)

    for step in ("evict db-0", "delete data-db-0"):
        case(step)


def test_while_a_replica_is_on_its_way_nobody_else_is_evicted() -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        notes = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
        await bench.you.patch(CLAIMS, "app-0", notes, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 20)
        await evacuate(bench)
        await wait(bench, 200)
        assert seen.did.index("evict app-0") > seen.did.index("delete lease")
        assert "delete data-db-0" in seen.did

    play(story, seen)


def test_a_replica_that_falls_after_the_eviction_keeps_the_data() -> None:
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        before = await uids(bench)
        seen.at("evict db-0", lambda: bench.spawn(unready(bench, "db-2")), after=True)
        await evacuate(bench)
        await wait(bench, 120)
        assert "evict db-0" in seen.did
        assert "delete data-db-0" not in seen.did
        assert await uids(bench) == before
        assert not await at_rest(bench), "a replica is away by our doing"
        await evacuate(bench, False)
        await wait(bench, 60)
        assert (await places(bench))["db-0"] == "n0"
        assert await at_rest(bench)

    play(story, seen)


def test_a_lease_whose_making_was_not_answered_is_given_back_after_an_undo() -> None:
    seen = Seen()
    lost: list[str] = []

    async def answering(call: Call) -> None:
        if said(call) == "create lease" and not lost:
            lost.append(call.name)
            raise Unavailable("the answer is lost")

    async def story(bench: Story, _: Workload) -> None:
        await evacuate(bench)
        while not lost:
            await wait(bench, 0.1)
        await evacuate(bench, False)
        await wait(bench, 120)
        assert seen.did.count("create lease") == 1
        assert "evict db-0" not in seen.did
        assert await at_rest(bench)

    play(story, seen, answering=answering)


def test_a_claim_that_is_changed_right_before_its_deletion_stays() -> None:
    """After the last look at it: only its version tells."""
    benches: list[Story] = []

    async def delay(call: Call) -> None:
        if said(call) == "delete data-db-0" and benches:
            note = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Block"}}}
            benches.pop().cluster.patch(CLAIMS, "data-db-0", note, namespace="default", content_type=MERGE_PATCH)

    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        before = await uids(bench)
        benches.append(bench)
        await evacuate(bench)
        await wait(bench, 200)
        assert not benches
        assert await uids(bench) == before

    play(story, seen, delay=delay)


def test_a_deletion_that_was_not_answered_comes_to_nothing_when_it_arrives_late() -> None:
    """An undo, and a pod that is back on its data, may have come before it."""
    benches: list[Story] = []
    late: list[Any] = []

    async def delay(call: Call) -> None:
        if said(call) == "delete data-db-0" and not late:
            late.append(benches[0].cluster.get(CLAIMS, "data-db-0", namespace="default").obj["metadata"])
            raise Unavailable("no answer in time")

    async def story(bench: Story, _: Workload) -> None:
        benches.append(bench)
        await evacuate(bench)
        assert await bench.until(lambda: bool(late), 200)
        await wait(bench, 1)
        guards = {"uid": late[0]["uid"], "resource_version": late[0]["resourceVersion"]}
        with pytest.raises(Conflict):
            await bench.you.delete(CLAIMS, "data-db-0", namespace="default", **guards)
        await wait(bench, 200)
        assert (await places(bench))["db-0"] == "n3"
        assert await at_rest(bench)

    play(story, Seen(), delay=delay)


def test_whose_lease_another_node_has_taken_evicts_and_deletes_nothing_more() -> None:
    """This process was stopped for long, and goes on between two steps."""

    def case(step: str) -> None:
        seen = Seen()

        async def story(bench: Story, workload: Workload) -> None:
            name = names.reprovision(workload.uid, DRIVER)
            theirs = {"spec": {"holderIdentity": f"uid-other/{DRIVER}"}}
            seen.at(
                BEFORE[step], lambda: bench.cluster.patch(LEASES, name, theirs, namespace="default", content_type=MERGE_PATCH), after=True
            )
            before = await uids(bench)
            await evacuate(bench)
            await wait(bench, 200)
            assert BEFORE[step] in seen.did
            assert step not in seen.did
            assert await uids(bench) == before

        play(story, seen)

    for step in ["evict db-0", "delete data-db-0"]:
        case(step)


def test_another_machine_under_the_nodes_name_is_not_emptied_for_this_one() -> None:
    """The Node is deleted and registered again between the record of a step and the step."""
    benches: list[Story] = []
    seen = Seen()

    async def delay(call: Call) -> None:
        if (call.verb, call.resource, call.name) == ("get", NODES, "n0") and benches and seen.did[-1:] == ["update lease"]:
            cluster = benches.pop().cluster
            old = cluster.get(NODES, "n0").obj
            cluster.delete(NODES, "n0")
            meta = {key: old["metadata"][key] for key in ("name", "labels", "annotations") if key in old["metadata"]}
            cluster.create(NODES, {"metadata": meta, "spec": old["spec"]})

    async def story(bench: Story, _: Workload) -> None:
        benches.append(bench)
        await evacuate(bench)
        await wait(bench, 60)
        assert not benches
        assert "evict db-0" not in seen.did

    play(story, seen, delay=delay)


def test_a_lease_that_somebody_has_deleted_is_taken_anew() -> None:
    def case(step: str) -> None:
        seen = Seen()

        async def story(bench: Story, workload: Workload) -> None:
            name = names.reprovision(workload.uid, DRIVER)
            seen.at(step, lambda: bench.cluster.delete(LEASES, name, namespace="default"), after=True)
            await evacuate(bench)
            await wait(bench, 300)
            assert (await places(bench))["db-0"] == "n3"
            assert [seen.did.count(what) for what in ("evict db-0", "delete data-db-0")] == [1, 1]
            assert await at_rest(bench)

        play(story, seen)

    for step in ["note data-db-0", "evict db-0", "delete data-db-0"]:
        case(step)


def test_a_replica_that_falls_between_the_record_of_a_step_and_the_step_keeps_the_data() -> None:
    """All locks are looked at once more right before what cannot be taken back."""

    def case(step: str) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            status = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}

            def falls() -> None:
                bench.cluster.patch(PODS, "db-2", status, namespace="default", subresource="status", content_type=MERGE_PATCH)

            seen.at(BEFORE[step], lambda: seen.at("update lease", falls, after=True), after=True)
            before = await uids(bench)
            await evacuate(bench)
            await wait(bench, 120)
            assert BEFORE[step] in seen.did
            assert step not in seen.did
            assert await uids(bench) == before

        play(story, seen)

    for step in ["evict db-0", "delete data-db-0"]:
        case(step)


def test_a_slow_api_server_keeps_a_replica_here_and_nobody_else() -> None:
    """What is read right before the eviction counts for fifteen seconds, and takes longer. Then another node has its turn."""
    slow = False
    seen = Seen()

    async def delay(call: Call) -> None:
        if slow and (call.verb, call.resource, call.namespace) == ("list", PODS, "default"):
            await asyncio.sleep(16.0)

    async def story(bench: Story, _: Workload) -> None:
        nonlocal slow
        await emptying.run(bench, "free-0", namespace="other", nodeName="n4")
        await wait(bench, 70)
        slow = True
        await evacuate(bench)
        await wait(bench, 400)
        await change(bench, "n4", {"taints": [EVACUATE]})
        await wait(bench, 5400)
        assert "evict free-0" in seen.did and "evict db-0" not in seen.did

    play(story, seen, delay=delay, nodes=(*NODES_THERE, "n4"))
