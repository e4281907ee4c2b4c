"""Pods that wait for a node with a volume on one that is emptied, as a process meets them: on a simulated API server."""

from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import CLAIMS, EVENTS, MERGE_PATCH, PODS
from sidecar.model import names
from tests.harness.drain.emptying import Evictions, play, pods, waiting
from tests.harness.drain.simulated import EVACUATE, STATE, all_of, change, node_of, wait


def test_it_is_evicted_and_then_the_evacuation_succeeds() -> None:
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        node = await waiting(bench)
        await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert await pods(bench) == set()
        await bench.you.delete(CLAIMS, "db-0-scratch", namespace="default")  # as the garbage collector does
        await wait(bench, 120)
        assert (await node_of(bench, node))["metadata"]["labels"].get(STATE) == "Success"
        [event] = [event for event in await all_of(bench, EVENTS) if event["reason"] == names.POD_EVICTED]
        assert "waits for a node" in event["message"]

    play(story, seen)
    assert seen.calls == ["db-0"]


def test_one_that_gets_its_node_in_the_same_moment_is_not_touched() -> None:
    """Its uid is the same as before, and it is not yet running. What runs is judged as whatever runs."""
    benches: list[NotebookWorld] = []
    nodes: list[str] = []

    def bind(call: Call) -> None:
        if benches and call.subresource == "eviction":
            target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": call.name}, "target": {"kind": "Node", "name": nodes[0]}}
            benches.pop().cluster.post(PODS, call.name, "binding", target, namespace=call.namespace)

    seen = Evictions(bind)

    async def story(bench: NotebookWorld) -> None:
        nodes.append(await waiting(bench))
        held = {"metadata": {"finalizers": ["example.com/held"]}}  # so that it shows how it is asked to end
        await bench.you.patch(PODS, "db-0", held, namespace="default", content_type=MERGE_PATCH)
        benches.append(bench)
        await change(bench, nodes[0], {"taints": [EVACUATE]})
        while not seen.calls:
            await wait(bench, 0.1)
        pod = await bench.you.get(PODS, "db-0", namespace="default")
        assert pod["spec"]["nodeName"] == nodes[0]
        assert "deletionTimestamp" not in pod["metadata"]

    play(story, seen)
    assert not benches


@pytest.mark.parametrize("spec", [{"tolerations": [{"operator": "Exists"}]}])
def test_one_that_the_node_would_take_is_left_alone(spec: dict[str, Any]) -> None:
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        node = await waiting(bench, **spec)
        await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert await pods(bench) == {"db-0"}

    play(story, seen)
    assert seen.calls == []
