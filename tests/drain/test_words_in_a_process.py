"""Announced reboots, a forgotten override and a long cordon as running processes act on them: gate, marks, and what a restart leaves."""

import json
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import DEPLOYMENTS, NODES
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names
from tests.harness.drain.simulated import STATE, Story, all_of, change, node_of, play, report_of, running, wait

GATED = ("--drain-report", "--drain-gate-image=pause")
CORDONED, UNCORDON = {"unschedulable": True}, {"unschedulable": None}
SOON = 8
"""Longer than a look, and much shorter than any delay."""


async def stands(bench: Story) -> bool:
    """Whether the gate does, once the room has had time to look."""
    await wait(bench, SOON)
    return bool(await all_of(bench, DEPLOYMENTS))


async def record(bench: Story) -> dict[str, Any]:
    found = (await node_of(bench))["metadata"].get("annotations") or {}
    return dict(json.loads(found.get(names.of_driver(DRIVER, names.DRAIN_RECORD), "{}")))


async def restart(bench: Story) -> None:
    bench.nodes["n0"].kill()
    await wait(bench, 6)


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "killed in between"])
@pytest.mark.parametrize("policy", ["Ignore", "NoSchedule"])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(names.DRAIN_INTENT, "reboot", id="a reboot that is announced"),
        pytest.param(names.KURED_REBOOTS, "2026-01-01T00:00:00Z", id="kured"),
    ],
)
def test_a_word_that_is_forgotten_opens_the_gate_for_one_cordon(key: str, text: str, policy: str, restarts: bool) -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        assert await stands(bench)
        await change(bench, "n0", annotations={key: text})
        assert await stands(bench), "a node that is not cordoned is not rebooted"
        await change(bench, "n0", CORDONED)
        assert not await stands(bench)
        if restarts:
            await restart(bench)
        await change(bench, "n0", UNCORDON)
        assert await stands(bench)
        assert (await record(bench)).keys() == {"uid", "spent"}
        if restarts:
            await restart(bench)
        await change(bench, "n0", CORDONED)
        assert await stands(bench), "the annotation was for the cordon before"
        assert [note for note in (await report_of(bench))["notes"] if "for a drain that is over" in note]
        await change(bench, "n0", annotations={key: None})
        assert await stands(bench) and "spent" not in await record(bench)
        await change(bench, "n0", annotations={key: text})
        assert not await stands(bench)

    play(story, args=(*GATED, f"--node-drain-policy={policy}"), nodes=("n0",))


@pytest.mark.parametrize("shut", [False, True], ids=["announced", "announced and cordoned"])
def test_an_override_that_is_forgotten_lets_no_later_drain_go(shut: bool) -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        assert await stands(bench)
        spec = CORDONED if shut else {}
        await change(bench, "n0", spec, annotations={names.DRAIN_INTENT: "retire", names.FORCE_DRAIN: "the disk is dead"})
        assert not await stands(bench)
        await change(bench, "n0", UNCORDON, annotations={names.DRAIN_INTENT: None})
        assert await stands(bench)
        await restart(bench)
        await change(bench, "n0", CORDONED, annotations={names.DRAIN_INTENT: "retire"})
        assert await stands(bench), "what stands here now is data that nobody has given up"
        await change(bench, "n0", annotations={names.FORCE_DRAIN: "and again"})
        assert not await stands(bench)

    play(story, args=(*GATED, "--node-drain-policy=NoSchedule"), nodes=("n0",))


def test_a_process_that_is_killed_again_and_again_does_not_put_off_what_a_long_cordon_means() -> None:
    async def story(bench: Story) -> None:
        await change(bench, "n0", CORDONED)
        for _ in range(4):
            await wait(bench, 14)
            await restart(bench)
        assert "closedAt" in await record(bench)
        assert STATE in (await node_of(bench))["metadata"]["labels"], "80 seconds have passed, and no process has run for 30"

    play(story, args=("--drain-report", "--node-drain-policy=Evacuate"), nodes=("n0",))


@pytest.mark.parametrize("word", [(names.DRAIN_INTENT, "reboot"), (names.FORCE_DRAIN, "its disk is dead")], ids=["a reboot", "an override"])
def test_a_word_that_was_for_an_earlier_drain_stays_spent_while_that_cannot_be_noted(word: tuple[str, str]) -> None:
    """A webhook refuses writes of Nodes from the uncordon on, and the process lives on."""
    refuses = False

    def refuse(call: Call) -> ApiError | None:
        of_node = (call.verb, call.resource, call.subresource) == ("patch", NODES, "")
        return Forbidden("a webhook", status=403) if refuses and of_node else None

    async def story(bench: Story) -> None:
        nonlocal refuses
        await running(bench, "a")
        await wait(bench, 90)
        await change(bench, "n0", CORDONED, annotations=dict([word]))
        await wait(bench, 60)
        assert not await stands(bench)
        refuses = True
        await change(bench, "n0", UNCORDON)
        await wait(bench, 300)
        assert await stands(bench)
        await change(bench, "n0", CORDONED)
        await wait(bench, 60)
        assert await stands(bench)

    play(story, args=(*GATED, "--node-drain-policy=NoSchedule"), refuse=refuse)
