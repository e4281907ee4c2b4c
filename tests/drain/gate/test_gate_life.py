"""The gate of a running sidecar, from one drain to the next: it is open only while somebody drains and the sidecar looks."""

from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import EVENTS
from sidecar.model import names
from tests.harness.drain.gate_life import GATED, NONE, OPEN, SHUT, cordon, dispensable, gate, verdict
from tests.harness.drain.simulated import all_of, change, play, wait, with_pod


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


def test_what_an_unannounced_drain_is_taken_for_is_a_flag() -> None:
    def case(assumes: str, there: list[str]) -> None:
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

    for assumes, there in [("retire", SHUT), ("reboot", OPEN)]:
        case(assumes, there)
