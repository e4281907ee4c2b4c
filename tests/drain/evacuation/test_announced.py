"""Announced reboots and cordons as a running process acts on them: the gate, the evacuation's marks, and what a restart leaves."""

import pytest

from hack.sim.world.node import DRIVER
from sidecar.kube.api import DEPLOYMENTS
from sidecar.model import names
from tests.harness.drain.simulated import STATE, Bench, all_of, change, do, node_of, play, report_of, wait, with_pod

REBOOT, CLOSED = names.of_driver(DRIVER, names.REBOOT_INTENT), names.of_driver(DRIVER, names.CLOSED_AT)
GATED = ("--drain-report", "--drain-gate", "--drain-gate-image=pause")
CORDON, UNCORDON = {"unschedulable": True}, {"unschedulable": None}


# Longer than a look, and much shorter than any delay.
SOON = 8


async def stands(bench: Bench) -> bool:
    """Whether the gate does, once the room has had time to look."""
    await wait(bench, SOON)
    return bool(await all_of(bench, DEPLOYMENTS))


async def with_volume_in_use(bench: Bench) -> None:
    await with_pod(bench, "a")
    await do(bench, "until running a")
    assert await stands(bench)


async def annotate(bench: Bench, notes: dict[str, str | None]) -> None:
    await change(bench, "n0", annotations=notes)


async def noted(bench: Bench, key: str) -> str | None:
    found: dict[str, str] = (await node_of(bench))["metadata"].get("annotations") or {}
    return found.get(key)


async def restart(bench: Bench) -> None:
    bench.nodes["n0"].kill()
    await wait(bench, 6)


@pytest.mark.parametrize("policy", ["Ignore", "NoSchedule"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_forgotten_reboot_opens_the_gate_for_one_cordon(policy: str, restarts: bool) -> None:
    async def story(bench: Bench) -> None:
        await with_volume_in_use(bench)
        await annotate(bench, {names.DRAIN_INTENT: "reboot"})
        assert await stands(bench), "a node that is not cordoned is not rebooted"
        await change(bench, "n0", CORDON)
        assert not await stands(bench)
        if restarts:
            await restart(bench)
        await change(bench, "n0", UNCORDON)
        assert await stands(bench)
        assert await noted(bench, REBOOT) == "Spent" and await noted(bench, CLOSED) is None
        if restarts:
            await restart(bench)
        await change(bench, "n0", CORDON)
        assert await stands(bench), "the annotation was for the cordon before"
        assert [note for note in (await report_of(bench))["notes"] if "cordon that is over" in note]
        await annotate(bench, {names.DRAIN_INTENT: None})
        assert await stands(bench) and await noted(bench, REBOOT) is None
        await annotate(bench, {names.DRAIN_INTENT: "reboot"})
        assert not await stands(bench)

    play(story, args=(*GATED, f"--node-drain-policy={policy}"), nodes=("n0",))


def test_cordon_uncordon_cordon_within_a_second_is_two_cordons() -> None:
    async def story(bench: Bench) -> None:
        await with_volume_in_use(bench)
        await annotate(bench, {names.DRAIN_INTENT: "reboot"})
        await change(bench, "n0", CORDON)
        assert not await stands(bench)
        await change(bench, "n0", UNCORDON)
        await wait(bench, 0.3)
        await change(bench, "n0", CORDON)
        assert await stands(bench)
        assert await noted(bench, REBOOT) == "Spent"

    play(story, args=(*GATED, "--node-drain-policy=NoSchedule"), nodes=("n0",))


async def starts_after(bench: Bench, seconds: int) -> bool:
    """Whether the evacuation begins so many seconds from now, and not before."""
    if seconds:
        await wait(bench, seconds - 5)
        assert STATE not in (await node_of(bench))["metadata"]["labels"]
    await wait(bench, SOON)
    return STATE in (await node_of(bench))["metadata"]["labels"]


EVACUATES = ("--drain-report", "--node-drain-policy=Evacuate")


def test_a_cordon_that_is_lifted_before_the_delay_starts_nothing() -> None:
    async def story(bench: Bench) -> None:
        for _ in range(3):
            await change(bench, "n0", CORDON)
            await wait(bench, 55)
            await change(bench, "n0", UNCORDON)
            await wait(bench, 10)
            assert STATE not in (await node_of(bench))["metadata"]["labels"]
        await wait(bench, 120)
        assert STATE not in (await node_of(bench))["metadata"]["labels"] and await noted(bench, CLOSED) is None

    play(story, args=EVACUATES, nodes=("n0",))


def test_a_process_that_is_killed_again_and_again_puts_the_start_off_no_further() -> None:
    async def story(bench: Bench) -> None:
        await change(bench, "n0", CORDON)
        for _ in range(4):
            await wait(bench, 14)
            await restart(bench)
        assert await noted(bench, CLOSED)
        assert STATE in (await node_of(bench))["metadata"]["labels"], "80 seconds have passed, and no process has run for 30"

    play(story, args=EVACUATES, nodes=("n0",))


def test_the_delay_is_a_flag() -> None:
    def case(delay: str, by: int) -> None:
        async def story(bench: Bench) -> None:
            await change(bench, "n0", CORDON)
            assert await starts_after(bench, by if by > 60 else 0)

        play(story, args=(*EVACUATES, f"--evacuation-cordon-delay={delay}"), nodes=("n0",))

    for delay, by in [("0s", 3), ("5m", 305)]:
        case(delay, by)
