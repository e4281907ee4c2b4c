"""What sidecars have put on nodes is taken away, and nothing else, when nobody is there to do it."""

import pytest

from sidecar.config import UsageError
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, DRAIN_REPORTS, LEASES, NODES
from sidecar.model import names
from sidecar.simulation.node import DRIVER
from sidecar.simulation.notebook.bench import Bench
from sidecar.simulation.notebook.commands import do
from sidecar.uninstall import _take, run, steps
from tests.drain.test_controller import EVACUATE, all_of, change, node_of, play, wait, with_pod
from tests.world.test_drain_kills import ARGS


def test_g7_nothing_of_ours_is_left_and_all_that_others_wrote_is() -> None:
    async def story(bench: Bench) -> None:
        await change(bench, "n0", annotations={names.NODE_DRAIN_POLICY: "Evacuate", names.SCALE_DOWN_DISABLED: "true", "mine": "1"})
        before = await node_of(bench)
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        assert all([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS, LEASES, DRAIN_REPORTS)])
        bench.nodes["n0"].stop()
        await wait(bench, 0.3)
        async for step in steps(bench.you, DRIVER):
            assert await _take(bench.you, step)
        assert not any([await all_of(bench, resource) for resource in (BUDGETS, DEPLOYMENTS, LEASES, DRAIN_REPORTS)])
        after = await node_of(bench)
        theirs = {key: value for key, value in before["metadata"]["annotations"].items() if DRIVER not in key}
        assert after["metadata"]["annotations"] == theirs
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert after["spec"]["taints"] == [EVACUATE]
        assert [condition["type"] for condition in after["status"]["conditions"]] == ["Ready"]
        assert [step async for step in steps(bench.you, DRIVER)] == []

    play(story, args=ARGS, nodes=("n0",))


def test_another_drivers_is_left_alone() -> None:
    async def story(bench: Bench) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await wait(bench, 10)
        assert [step async for step in steps(bench.you, "other.example")] == []
        assert [step async for step in steps(bench.you, DRIVER)] != []
        assert (await bench.you.list_page(NODES)).items

    play(story, args=ARGS, nodes=("n0",))


@pytest.mark.parametrize("words", [[], ["--driver"], ["--driver="]])
def test_without_a_driver_it_says_how_it_is_used(words: list[str]) -> None:
    with pytest.raises(UsageError, match="usage: csi-node-sidecar uninstall"):
        run(words, {})
