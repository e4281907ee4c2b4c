"""The gate of a running sidecar, from one drain to the next: it is open only while somebody drains and the sidecar looks."""

import pytest

from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.kube.api import DEPLOYMENTS, EVENTS, MERGE_PATCH
from sidecar.model import names
from tests.harness.drain.gate_life import GATED, NONE, OPEN, SHUT, cordon, dispensable, gate, verdict
from tests.harness.drain.simulated import Json, all_of, change, node_of, play, wait, with_pod


def test_a_gate_opens_for_each_drain_and_stands_in_between() -> None:
    async def story(bench: NotebookWorld) -> None:
        assert await gate(bench) == NONE, "nothing is there"
        await dispensable(bench)
        for _ in range(2):
            assert await gate(bench) == SHUT
            await cordon(bench, True)
            assert await gate(bench) == OPEN, "the lease stays: a neighbour sees by it whether somebody looks"
            await cordon(bench, False)
        assert await gate(bench) == SHUT

    play(story, args=GATED)


def test_the_event_of_a_gate_says_how_to_find_out_what_blocks() -> None:
    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 20)
        (held,) = [item["message"] for item in await all_of(bench, EVENTS) if item["reason"] == names.DRAIN_HELD]
        assert held.endswith("what blocks: csi-node-sidecar explain node n0")

    play(story, args=GATED)


def test_a_sidecar_that_dies_in_peace_leaves_its_gate_shut() -> None:
    async def story(bench: NotebookWorld) -> None:
        await dispensable(bench)
        bench.nodes["n0"].driver_away()
        bench.nodes["n0"].kill()
        await wait(bench, 7200)
        assert await gate(bench) == SHUT

    play(story, args=GATED)


def test_a_sidecar_that_is_killed_in_the_midst_of_a_drain_comes_back_to_an_open_gate() -> None:
    async def story(bench: NotebookWorld) -> None:
        await dispensable(bench)
        await cordon(bench, True)
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        assert await gate(bench) == OPEN
        await cordon(bench, False)
        assert await gate(bench) == SHUT

    play(story, args=GATED)


def test_one_that_stays_dead_is_noticed_by_its_neighbour() -> None:
    async def story(bench: NotebookWorld) -> None:
        await dispensable(bench)
        await cordon(bench, True)
        assert await gate(bench) == OPEN
        bench.nodes["n0"].lay_down()
        await wait(bench, 1400)
        assert await gate(bench) == NONE
        told = {item["type"]: (item["status"], item.get("reason")) for item in (await node_of(bench))["status"]["conditions"]}
        assert told[names.condition(DRIVER, names.RETIRE_READY)] == ("Unknown", "AgentUnavailable")
        bench.nodes["n0"].get_up()
        await wait(bench, 60)
        assert await gate(bench) == OPEN
        await cordon(bench, False)
        assert await gate(bench) == SHUT

    play(story, args=GATED)


@pytest.mark.parametrize(("assumes", "there"), [("retire", SHUT), ("reboot", OPEN)])
def test_what_an_unannounced_drain_is_taken_for_is_a_flag(assumes: str, there: list[str]) -> None:
    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 20)
        assert await verdict(bench) == "False"
        await cordon(bench, True)
        assert await gate(bench) == there
        await change(bench, "n0", annotations={names.DRAIN_INTENT: "retire"})
        await wait(bench, 15)
        assert await gate(bench) in (SHUT, there), "what is open already is not shut under a drainer that has gone on"

    play(story, args=(*GATED, f"--drain-gate-assumes={assumes}"))


def earlier_release(deployment: Json) -> Json:
    spec = deployment["spec"]["template"]["spec"]
    kept = [item for item in spec["tolerations"] if item["key"] not in names.SILENCE_TAINTS]
    return {"spec": {"template": {"spec": {"tolerations": kept}}}}


@pytest.mark.parametrize("draining", [True, False])
def test_a_gate_of_an_earlier_release_is_made_anew_once_nobody_drains(draining: bool) -> None:
    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 20)
        (deployment,) = await all_of(bench, DEPLOYMENTS)
        if draining:
            await cordon(bench, True)
        name, uid = deployment["metadata"]["name"], deployment["metadata"]["uid"]
        await bench.you.patch(DEPLOYMENTS, name, earlier_release(deployment), content_type=MERGE_PATCH, namespace="default")
        await wait(bench, 300)
        (now,) = await all_of(bench, DEPLOYMENTS)
        assert (now["metadata"]["uid"] == uid) is draining
        await cordon(bench, False)
        await wait(bench, 300)
        (now,) = await all_of(bench, DEPLOYMENTS)
        assert now["metadata"]["uid"] != uid
        assert earlier_release(now) != {"spec": {"template": {"spec": {"tolerations": now["spec"]["template"]["spec"]["tolerations"]}}}}

    play(story, args=GATED, nodes=("n0",))
