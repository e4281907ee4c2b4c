"""Nodes that are to be emptied one at a time: who has the slot, when the deadline begins, and what becomes of one that nobody but a person
can help."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from hack.sim.cluster import Call
from sidecar.kube.api import BUDGETS, CLAIMS, LEASES, MERGE_PATCH
from sidecar.kube.errors import AlreadyExists, ApiError, Unavailable
from sidecar.model import names
from tests.harness import replicas_anew as reprovision
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, STATE, Story, change, node_of, report_of, wait
from tests.harness.emptying import Evictions, app, pods, run

ONE_AT_A_TIME: Final = ("--drain-report", "--node-drain-policy=NoSchedule", "--evacuation-evict")
DEADLINE: Final = (*ONE_AT_A_TIME, "--evacuation-deadline=10m")


def play(story: Callable[[Story], Awaitable[None]], seen: Evictions, *, args: tuple[str, ...] = ONE_AT_A_TIME) -> None:
    simulated.play(story, args=args, refuse=seen, nodes=("n0", "n1", "n2"))


async def retire(bench: Story, *nodes: str) -> None:
    await wait(bench, 20)
    for node in nodes:
        await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 10)


async def states(bench: Story) -> list[str]:
    return [(await node_of(bench, name))["metadata"]["labels"].get(STATE, "") for name in ("n0", "n1")]


async def budget(bench: Story, allowed: int) -> None:
    """For all pods."""
    body = {"metadata": {"name": "all"}, "spec": {"selector": {}, "minAvailable": 1}}
    with contextlib.suppress(AlreadyExists):
        await bench.you.create(BUDGETS, body, namespace="default")
    status = {"status": {"disruptionsAllowed": allowed, "observedGeneration": 1}}
    await bench.you.patch(BUDGETS, "all", status, namespace="default", subresource="status", content_type=MERGE_PATCH)


async def may_be_lost(bench: Story, claim: str) -> None:
    note = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
    await bench.you.patch(CLAIMS, claim, note, namespace="default", content_type=MERGE_PATCH)


def test_drain_A9_a_node_that_is_given_up_leaves_the_other_one_to_be_emptied() -> None:
    async def story(bench: Story) -> None:
        for node in ("n0", "n1"):
            await app(bench, f"kept-{node}", node=node, policy="Block")
        await retire(bench, "n0", "n1")
        await wait(bench, 60)
        assert await states(bench) == ["InProgress", "InProgress"]
        await change(bench, "n0", {"taints": None})
        await wait(bench, 30)
        assert await states(bench) == ["", "InProgress"]

    play(story, Evictions())


def test_a_replica_that_is_never_ready_again_keeps_the_slot_for_a_quarter_of_an_hour_and_no_longer() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        await app(bench, "db-0", owner="db")
        await app(bench, "db-1", owner="db")
        await app(bench, "first", node="n1")
        await retire(bench, "n0", "n1")
        await wait(bench, 600)
        assert seen.calls == ["db-0"]
        assert await states(bench) == ["InProgress", "Pending"]
        await wait(bench, 400)
        assert seen.calls == ["db-0", "first"]
        marks = [(await node_of(bench))["metadata"][key] for key in ("labels", "annotations")]
        for _ in range(30):
            await wait(bench, 9)
            assert [(await node_of(bench))["metadata"][key] for key in ("labels", "annotations")] == marks, "it notes nothing anew"

    play(story, seen)


def test_a_node_that_only_a_person_can_help_lets_others_be_emptied_and_waits_its_turn_again() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        await app(bench, "kept", policy="Block")
        await app(bench, "loose")
        await app(bench, "first", node="n1")
        await app(bench, "second", node="n2")
        await retire(bench, "n0", "n1")
        await wait(bench, 300)
        assert seen.calls == ["loose", "first"]
        assert await states(bench) == ["InProgress", "Success"]
        # The next one has the slot, and cannot go on for a moment, when a person has helped the first one.
        await budget(bench, 0)
        await retire(bench, "n2")
        await may_be_lost(bench, "kept")
        await wait(bench, 300)
        assert seen.calls == ["loose", "first"]
        assert (await states(bench))[0] == "Pending"
        await budget(bench, 9)
        await wait(bench, 180)
        assert seen.calls == ["loose", "first", "second", "kept"]
        assert await states(bench) == ["Success", "Success"]

    play(story, seen)


@pytest.mark.parametrize("kept", [True, False])
def test_a_pod_that_its_owner_puts_back_is_evicted_once_and_the_report_says_so(kept: bool) -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        async def put_back() -> None:
            while True:
                with contextlib.suppress(AlreadyExists):
                    await run(bench, "db-0")
                await wait(bench, 2)

        await run(bench, "db-0")
        bench.spawn(put_back())
        if kept:
            await app(bench, "kept", policy="Block")
        await app(bench, "next", node="n1")
        await retire(bench, "n0", "n1")
        await wait(bench, 1200)
        assert sorted(seen.calls) == ["db-0", "next"]
        assert await states(bench) == ["InProgress" if kept else "Success", "Success"]
        assert ("WouldComeBack: default/db-0 was put on this node" in (await report_of(bench))["evacuation"].get("next", "")) is kept

    play(story, seen)


def test_who_waits_for_a_slot_has_no_deadline_and_nothing_succeeds_by_one() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        await app(bench, "slow")
        await app(bench, "next", node="n1")
        await budget(bench, 0)
        await retire(bench, "n0", "n1")
        await wait(bench, 560)
        assert await states(bench) == ["InProgress", "Pending"]
        await wait(bench, 140)
        assert await pods(bench) == {"slow", "next"}
        assert await states(bench) == ["Failed", "InProgress"]
        await wait(bench, 300)
        assert await states(bench) == ["Failed", "InProgress"]
        await budget(bench, 9)
        await wait(bench, 60)
        assert await pods(bench) == {"slow"}
        assert await states(bench) == ["Failed", "Success"]

    play(story, seen, args=DEADLINE)


@pytest.mark.parametrize("verbs", [("list", "get", "create", "replace", "update", "patch"), ("create", "replace", "update", "patch")])
def test_while_the_lease_of_the_slot_cannot_be_kept_nobody_is_evicted(verbs: tuple[str, ...]) -> None:
    broken: list[bool] = []

    def refuse(call: Call) -> ApiError | None:
        return Unavailable("no Lease") if broken and call.resource == LEASES and call.verb in verbs else None

    seen = Evictions(refuse)

    async def story(bench: Story) -> None:
        await app(bench, "a")
        await budget(bench, 0)
        await retire(bench, "n0")
        await wait(bench, 60)
        broken.append(True)
        await wait(bench, 400)  # it has to be renewed by now
        seen.calls.clear()
        await budget(bench, 9)
        await wait(bench, 60)
        assert seen.calls == []
        broken.clear()
        await wait(bench, 120)
        assert seen.calls == ["a"]

    play(story, seen)


def test_a_replica_that_cannot_be_made_anew_before_a_person_helps_lets_others_be_emptied_until_then() -> None:
    seen = reprovision.Seen()
    args = (*ONE_AT_A_TIME, "--allow-reprovision", "--reprovision-pause=0")

    async def story(bench: Story, workload: reprovision.Workload) -> None:
        await app(bench, "next", node="n1")
        await change(bench, "n3", {"unschedulable": True})
        await reprovision.evacuate(bench)
        await retire(bench, "n1")
        await wait(bench, 400)
        assert [each for each in seen.did if each.startswith(("evict", "delete data"))] == ["evict next"]
        assert await states(bench) == ["InProgress", "InProgress"]
        assert "NoNodeFits" in (await report_of(bench))["evacuation"]["next"]
        await change(bench, "n3", {"unschedulable": None})
        for _ in range(600):
            assert len((await reprovision.places(bench)).keys() & {"db-0", "db-1", "db-2"}) >= 2
            await wait(bench, 1)
        assert (await reprovision.places(bench))["db-0"] == "n3"
        assert await states(bench) == ["Success", "Success"]

    reprovision.play(story, seen, args=args)
