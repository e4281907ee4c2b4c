"""A sidecar that is silent: another one takes back what it said of its node, opens its gate on a person's word alone, and lets go the pods
that it holds on such a word too, or once nobody drains the node."""

import json
from typing import Any, Final

import pytest

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, DRAIN_REPORTS, EVENTS, LEASES, NODES, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Story, all_of, change, node_of, play, report_of, running, wait

GATED: Final = (*JUDGING, "--drain-gate-image=pause")
RETIRE: Final = names.condition(DRIVER, names.RETIRE_READY)


async def verdict(bench: Story, node: str = "n0") -> tuple[str, str]:
    (found,) = [item for item in (await node_of(bench, node))["status"]["conditions"] if item["type"] == RETIRE]
    return found["status"], found["reason"]


async def has_gate(bench: Story) -> list[bool]:
    name = names.guard("n0", (await node_of(bench))["metadata"]["uid"], DRIVER)
    return [name in [item["metadata"]["name"] for item in await all_of(bench, resource)] for resource in (BUDGETS, DEPLOYMENTS)]


async def let_go(bench: Story) -> list[Any]:
    return [event for event in await all_of(bench, EVENTS) if event["reason"] == names.DRAIN_LET_GO]


async def looked_after(bench: Story, *, besides: str = "n0") -> None:
    """Until the sidecar of another node looks after silent ones."""
    for _ in range(20):
        await wait(bench, 100)
        lease = await bench.you.get(LEASES, names.watch(DRIVER), namespace="default")
        holder = lease["metadata"]["ownerReferences"][0]["name"]
        if holder != besides:
            return
        await bench.you.delete(LEASES, names.watch(DRIVER), namespace="default")
        bench.nodes[holder].kill()
    raise AssertionError("nobody else takes the Lease")


def test_after_a_quarter_of_an_hour_nobody_stands_for_what_a_silent_sidecar_said() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "data")
        await looked_after(bench)
        assert (await verdict(bench))[0] == "False"
        bench.nodes["n0"].lay_down()
        await wait(bench, 850)
        assert (await verdict(bench))[0] == "False"
        await wait(bench, 650)
        assert await verdict(bench) == ("Unknown", "AgentUnavailable")
        before = (await node_of(bench))["metadata"]["resourceVersion"]
        await wait(bench, 1000)
        assert (await node_of(bench))["metadata"]["resourceVersion"] == before, "it is said once"
        assert await verdict(bench, "n1") == ("True", "NothingBlocks")

    play(story)


def test_a_sidecar_that_renews_its_conditions_right_before_they_are_taken_back_keeps_them() -> None:
    """The list of nodes comes from a cache, and may be older than that."""
    benches: list[Story] = []
    renewed: list[str] = []

    def renew(call: Call) -> None:
        if benches and not renewed and (call.verb, call.resource, call.name) == ("get", NODES, "n0"):
            bench = benches[0]
            renewed.append(call.name)
            item = {"type": RETIRE, "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
            patch = {"status": {"conditions": [item]}}
            bench.cluster.patch(NODES, "n0", patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")

    async def story(bench: Story) -> None:
        await running(bench, "data")
        await looked_after(bench)
        bench.nodes["n0"].lay_down()
        benches.append(bench)
        await wait(bench, 1300)
        assert renewed
        assert (await verdict(bench))[0] == "False"

    play(story, refuse=renew)


def test_the_gate_of_a_silent_sidecar_opens_on_a_persons_word_alone() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "data")
        await looked_after(bench)
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 60)
        assert await has_gate(bench) == [True, True]
        bench.nodes["n0"].lay_down()
        await wait(bench, 7200)
        assert await has_gate(bench) == [True, True]
        # Nor does what its own sidecar had noted of a deadline: no person is there who saw that its data may go.
        noted = {"uid": (await node_of(bench))["metadata"]["uid"], "prior": False, "intent": "retire", "forced": "a deadline is over"}
        await change(bench, "n0", annotations={names.of_driver(DRIVER, names.MAINTENANCE_RECORD): json.dumps(noted)})
        await wait(bench, 800)
        assert await has_gate(bench) == [True, True]
        await change(bench, "n0", annotations={names.FORCE_DRAIN: "the disk is dead"})
        await wait(bench, 400)
        assert await has_gate(bench) == [False, False]
        (event,) = await let_go(bench)
        assert "the disk is dead" in event["message"]

    play(story, args=GATED)


def test_a_word_that_was_taken_back_a_moment_ago_opens_nothing() -> None:
    benches: list[Story] = []

    def take_back(call: Call) -> None:
        if benches and (call.verb, call.resource, call.name) == ("get", NODES, "n0"):
            patch = {"metadata": {"annotations": {names.FORCE_DRAIN: None}}}
            benches.pop().cluster.patch(NODES, "n0", patch, content_type=STRATEGIC_MERGE_PATCH)

    async def story(bench: Story) -> None:
        await running(bench, "data")
        await looked_after(bench)
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 60)
        bench.nodes["n0"].lay_down()
        await wait(bench, 1600)
        await change(bench, "n0", annotations={names.FORCE_DRAIN: "the disk is dead"})
        benches.append(bench)
        await wait(bench, 400)
        assert not benches
        assert await has_gate(bench) == [True, True]

    play(story, args=GATED, refuse=take_back)


async def held(bench: Story) -> list[str]:
    status = await report_of(bench)
    found = list(status.get("held") or ())  # the API server stores no empty list here
    assert bool(found) == bool(status["heldBecause"]) == bool(status["heldCount"])
    return found


@pytest.mark.parametrize(
    "word",
    [
        pytest.param({"annotations": {names.FORCE_DRAIN: "the disk is dead"}}, id="a person's word"),
        pytest.param({"spec": {"unschedulable": None}}, id="an uncordon"),
    ],
)
def test_the_pods_of_a_silent_sidecar_are_let_go_when_nothing_holds_them_any_more(word: dict[str, Any]) -> None:
    async def story(bench: Story) -> None:
        await running(bench, "data")
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 60)
        assert await held(bench) == ["default/data"]
        bench.nodes["n0"].lay_down()
        await wait(bench, 3600)
        lease = await bench.you.get(LEASES, names.watch(DRIVER), namespace="default")
        assert lease["metadata"]["ownerReferences"][0]["name"] == "n1"
        assert await held(bench) == ["default/data"], "nobody has said anything"
        before = await bench.you.get(DRAIN_REPORTS, names.drain_report("n0", DRIVER))
        await change(bench, "n0", word.get("spec"), annotations=word.get("annotations"))
        await wait(bench, 700)
        assert await held(bench) == []
        after = await bench.you.get(DRAIN_REPORTS, names.drain_report("n0", DRIVER))
        changed = {key for key in before["status"] if before["status"][key] != after["status"].get(key)}
        assert (
            changed <= {"held", "heldBecause", "heldCount", "drainFor"}
            and before["metadata"]["ownerReferences"] == after["metadata"]["ownerReferences"]
        )

    play(story, args=GATED)
