"""The judgement in each look: what opens a gate is asked anew, for what is a minute old is not good enough then."""

import asyncio

from hack.sim.cluster import Call
from sidecar.kube.api import CLAIMS, DEPLOYMENTS, MERGE_PATCH, NAMESPACES, NODES, PODS
from sidecar.model import names
from tests.harness.drain.simulated import JUDGING, Json, Story, all_of, change, play, report_of, running, wait

GATED = (*JUDGING, "--drain-gate-image=pause")


async def verdicts(bench: Story) -> tuple[str, str]:
    said = (await report_of(bench))["verdicts"]
    return said["drain"]["status"], said["retire"]["status"]


async def say(bench: Story, claim: str, policy: str) -> None:
    notes = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: policy}}}
    await bench.you.patch(CLAIMS, claim, notes, content_type=MERGE_PATCH, namespace="default")


async def of_namespace(bench: Story, notes: Json) -> None:
    await bench.you.patch(NAMESPACES, "default", {"metadata": {"annotations": notes}}, content_type=MERGE_PATCH)


async def gates(bench: Story) -> int:
    return len(await all_of(bench, DEPLOYMENTS))


def test_a_word_that_a_namespace_has_taken_back_opens_no_gate_when_the_drain_begins() -> None:
    async def story(bench: Story) -> None:
        await of_namespace(bench, {names.DRAIN_POLICY: "Ignore"})
        await running(bench, "a")
        await wait(bench, 120)
        assert (await verdicts(bench), await gates(bench)) == (("True", "True"), 1)
        await of_namespace(bench, {names.DRAIN_POLICY: None})
        await wait(bench, 1)
        await change(bench, "n0", {"unschedulable": True})
        for _ in range(15):
            await wait(bench, 1)
            assert await gates(bench) == 1
        assert await verdicts(bench) == ("True", "False")

    play(story, args=GATED)


def test_a_pod_that_is_made_again_while_something_else_blocks_keeps_its_volume_in_use() -> None:
    async def story(bench: Story) -> None:
        for name in ("a", "b"):
            await running(bench, name)
        await say(bench, "a", "AllowIdle")
        again = await bench.you.get(PODS, "a", namespace="default")
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 130)
        await change(bench, "n0", {"unschedulable": True})
        await wait(bench, 85)
        spec = {key: value for key, value in again["spec"].items() if key != "nodeName"}
        meta = {key: again["metadata"][key] for key in ("name", "ownerReferences")}
        await bench.you.create(PODS, {"metadata": meta, "spec": spec}, namespace="default")
        await wait(bench, 3)
        await say(bench, "b", "Ignore")
        for _ in range(70):
            await wait(bench, 1)
            assert await gates(bench) == 1
        assert await verdicts(bench) == ("True", "False")

    play(story, args=GATED)


def test_a_reboot_that_becomes_a_retirement_while_it_is_judged_opens_no_gate() -> None:
    benches: list[Story] = []
    deleted: list[Call] = []

    async def answering(call: Call) -> None:
        if call.verb == "delete" and call.resource == DEPLOYMENTS:
            deleted.append(call)
        if benches and (call.verb, call.resource) == ("list", NAMESPACES):
            retire = {"metadata": {"annotations": {names.DRAIN_INTENT: "retire"}}}
            benches.pop().cluster.patch(NODES, "n0", retire, content_type=MERGE_PATCH)
            await asyncio.sleep(1)

    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 100)
        assert (await verdicts(bench), await gates(bench)) == (("True", "False"), 1)
        benches.append(bench)
        await change(bench, "n0", {"unschedulable": True}, annotations={names.DRAIN_INTENT: "reboot"})
        await wait(bench, 15)
        assert not benches, "nobody asked anew"
        assert (await gates(bench), deleted) == (1, [])

    play(story, args=GATED, nodes=("n0",), answering=answering)


def test_a_word_of_a_namespace_after_a_reboot_was_announced_opens_no_gate_at_the_cordon() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "a")
        await wait(bench, 100)
        await change(bench, "n0", annotations={names.DRAIN_INTENT: "reboot"})
        await wait(bench, 63)
        await of_namespace(bench, {names.DRAIN_POLICY_REBOOT: "Block"})
        await wait(bench, 1)
        await change(bench, "n0", {"unschedulable": True})
        for _ in range(15):
            await wait(bench, 1)
            assert await gates(bench) == 1
        assert await verdicts(bench) == ("False", "False")

    play(story, args=GATED)
