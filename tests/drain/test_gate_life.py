"""The gate of a running sidecar from one drain to the next, also where processes die, servers are away, and others take it away."""

import asyncio
from collections import Counter
from dataclasses import replace

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, CLAIMS, DEPLOYMENTS, MERGE_PATCH, NODES, Resource
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Story, all_of, change, node_of, play, report_of, running, wait

GATED = (*JUDGING, "--drain-gate-image=pause")
SHUT, OPEN = ["PodDisruptionBudget", "Deployment"], list[str]()


async def dispensable(bench: Story) -> None:
    """A pod with a volume whose data may be lost: nothing blocks."""
    await running(bench, "a")
    patch = {"metadata": {"annotations": {names.DRAIN_POLICY: "Ignore"}}}
    await bench.you.patch(CLAIMS, "a", patch, content_type=MERGE_PATCH, namespace="default")
    await wait(bench, 80)  # until the driver has been asked what it has
    assert await verdict(bench) == "True"


async def verdict(bench: Story) -> str:
    return str((await report_of(bench))["verdicts"]["retire"]["status"])


async def gate(bench: Story) -> list[str]:
    """What there is of n0's."""
    name = names.guard("n0", (await node_of(bench))["metadata"]["uid"], DRIVER)
    return [kind.kind for kind in (BUDGETS, DEPLOYMENTS) for item in await all_of(bench, kind) if item["metadata"]["name"] == name]


async def cordon(bench: Story, on: bool) -> None:
    await change(bench, "n0", {"unschedulable": on or None})
    await wait(bench, 15)


def test_a_gate_opens_for_each_drain_and_stands_in_between() -> None:
    async def story(bench: Story) -> None:
        assert await gate(bench) == OPEN, "nothing is there"
        await dispensable(bench)
        for _ in range(2):
            assert await gate(bench) == SHUT
            await cordon(bench, True)
            assert await gate(bench) == OPEN
            await cordon(bench, False)
        assert await gate(bench) == SHUT

    play(story, args=GATED)


def test_what_an_unannounced_drain_is_taken_for_is_a_flag() -> None:
    def case(assumes: str, there: list[str]) -> None:
        async def story(bench: Story) -> None:
            await running(bench, "a")
            await wait(bench, 20)
            assert await verdict(bench) == "False"
            await cordon(bench, True)
            assert await gate(bench) == there
            await change(bench, "n0", annotations={names.DRAIN_INTENT: "retire"})
            await wait(bench, 15)
            assert await gate(bench) in (SHUT, there), "what is open already is not shut under a drainer that has gone on"

        play(story, args=(*GATED, f"--drain-gate-assumes={assumes}"))

    for assumes, there in [("retire", SHUT), ("reboot", OPEN)]:
        case(assumes, there)


def test_a_sidecar_killed_anywhere_in_a_drain_opens_and_shuts_its_gate() -> None:
    def case(boundary: int) -> None:
        async def story(bench: Story) -> None:
            await dispensable(bench)
            for on, there in ((True, OPEN), (False, SHUT)):
                bench.nodes["n0"].doom(boundary)
                await cordon(bench, on)
                await wait(bench, 60)
                assert await gate(bench) == there
            assert len(bench.nodes["n0"].ends) == 2

        play(story, args=GATED)

    for boundary in range(1, 11):
        case(boundary)


def test_while_the_api_server_is_away_the_gate_stays_as_it_is() -> None:
    away: list[str] = []

    def refuse(_: Call) -> ApiError | None:
        return Unavailable("connection refused") if away else None

    async def story(bench: Story) -> None:
        await dispensable(bench)
        for on, there in ((True, OPEN), (False, SHUT)):
            before = await gate(bench)
            away.append("now")
            bench.api.cut_watches(Unavailable("connection refused"))
            await cordon(bench, on)
            await wait(bench, 600)
            assert await gate(bench) == before
            away.clear()
            await wait(bench, 120)
            assert await gate(bench) == there

    play(story, args=GATED, refuse=refuse)


def test_a_machine_that_registers_anew_gets_a_gate_of_its_own() -> None:
    def case(restarted: bool) -> None:
        async def story(bench: Story) -> None:
            await running(bench, "a")
            await wait(bench, 20)
            assert await gate(bench) == SHUT
            labels = (await node_of(bench))["metadata"]["labels"]
            await bench.you.delete(NODES, "n0")
            await wait(bench, 20)
            bench.cluster.collect_garbage()
            await bench.you.create(NODES, {"metadata": {"name": "n0", "labels": labels}})
            answers = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await bench.you.patch(NODES, "n0", answers, content_type=MERGE_PATCH, subresource="status")
            if restarted:
                bench.nodes["n0"].kill()
            await wait(bench, 100)
            assert (await gate(bench), await verdict(bench)) == (SHUT, "False")

        play(story, args=GATED)

    for restarted in [False, True]:
        case(restarted)


# --- A gate that somebody takes away is built again at once, and one that somebody takes away for ever costs no node a write a second ---


A_WHILE = 1200.0


# Seven in the first two minutes, then one a minute; and a gate is two objects.
MOST_WRITES = 2 * 27


async def taken_away(bench: Story, kinds: tuple[Resource, ...]) -> None:
    """A controller that knows nothing of gates, and deletes what it does not know as soon as it sees it."""
    name = names.guard("n0", (await node_of(bench))["metadata"]["uid"], DRIVER)
    while True:
        for kind in kinds:
            for obj in await all_of(bench, kind):
                if obj["metadata"]["name"] == name:
                    await bench.you.delete(kind, name, namespace=obj["metadata"]["namespace"])
        await asyncio.sleep(0.1)


def test_who_takes_it_away_for_ever_has_no_node_write_for_ever() -> None:
    def case(kinds: tuple[Resource, ...], drained: bool) -> None:
        writes, written = Counter[str](), list[int]()

        def count(call: Call) -> None:
            if call.resource in (DEPLOYMENTS, BUDGETS):
                writes[call.verb] += 1

        async def story(bench: Story) -> None:
            await running(bench, "a")
            await wait(bench, 20)
            await cordon(bench, drained)
            assert await gate(bench) == SHUT
            taking = asyncio.create_task(taken_away(bench, kinds))
            writes.clear()
            await wait(bench, A_WHILE)
            written.append(writes["create"] + writes["delete"])
            taking.cancel()
            await wait(bench, 150)
            assert await gate(bench) == SHUT

        play(story, args=GATED, refuse=count)
        assert written[0] <= MOST_WRITES

    for kinds, drained in [((BUDGETS, DEPLOYMENTS), False), ((DEPLOYMENTS,), True)]:
        case(kinds, drained)


def test_a_gate_that_is_switched_off_goes_although_its_deletion_was_refused_at_first() -> None:
    refuses = False

    def refuse(call: Call) -> ApiError | None:
        of_gate = call.verb == "delete" and call.resource in (BUDGETS, DEPLOYMENTS)
        return Forbidden("a policy keeps budgets", status=403) if refuses and of_gate else None

    async def story(bench: Story) -> None:
        nonlocal refuses
        await running(bench, "a")
        await wait(bench, 90)
        assert await gate(bench) == SHUT
        refuses = True
        bench.plan = replace(bench.plan, args=JUDGING)
        bench.nodes["n0"].kill()
        await wait(bench, 300)
        assert await gate(bench) == SHUT
        refuses = False
        await wait(bench, 600)
        assert await gate(bench) == OPEN

    play(story, args=GATED, refuse=refuse)
