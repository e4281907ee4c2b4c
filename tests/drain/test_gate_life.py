"""The gate of a running sidecar from one drain to the next, also where processes die, servers are away, and others take it away."""

from dataclasses import replace

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, CLAIMS, DEPLOYMENTS, MERGE_PATCH
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
