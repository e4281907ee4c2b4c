"""The gate through a drain in which the sidecar is killed, the API server is away, or the clock leaps: whole worlds, in virtual time."""

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world import node as world_node
from sidecar.kube.api import MERGE_PATCH, NODES
from sidecar.kube.errors import ApiError, Unavailable
from sidecar.model import names
from tests.harness.drain.gate_life import GATED, OPEN, SHUT, cordon, dispensable, gate, verdict
from tests.harness.drain.simulated import change, node_of, play, wait, with_pod

HOUR = 3600.0


def test_a_sidecar_that_is_killed_anywhere_in_a_drain_opens_and_shuts_its_gate_all_the_same() -> None:
    def case(boundary: int) -> None:
        async def story(bench: NotebookWorld) -> None:
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


@pytest.mark.parametrize("leap", [HOUR, -HOUR])
def test_a_clock_that_leaps_neither_opens_the_gate_nor_ends_an_announced_reboot(leap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 60)
        await change(bench, "n0", annotations={names.DRAIN_INTENT: "reboot"})
        await cordon(bench, True)
        assert await gate(bench) == OPEN
        monkeypatch.setattr(world_node, "EPOCH", world_node.EPOCH + leap)
        await wait(bench, 400)
        assert (await gate(bench), await verdict(bench)) == (OPEN, "False")
        for on in (False, True):
            await cordon(bench, on)
            assert await gate(bench) == SHUT, "the reboot is over with the uncordon"
        assert [node.ends for node in bench.nodes.values()] == [[], []]

    play(story, args=GATED)


def test_while_the_api_server_is_away_nothing_opens_and_afterwards_all_is_as_it_should_be() -> None:
    away: list[str] = []

    def refuse(_: Call) -> ApiError | None:
        return Unavailable("connection refused") if away else None

    async def story(bench: NotebookWorld) -> None:
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
        async def story(bench: NotebookWorld) -> None:
            await with_pod(bench, "a")
            await do(bench, "until running a")
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
