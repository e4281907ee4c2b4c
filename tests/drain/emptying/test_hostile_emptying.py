"""What tenants and other programs may do while a node is emptied, and that it keeps nobody else from leaving."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.emptying.controller import EmptyingDuty
from sidecar.kube.api import PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model.nodes import Pod
from tests.harness.drain.emptying import Evictions, app, owner, play, pods, run
from tests.harness.drain.simulated import EVACUATE, change, wait


def refusing(pod: str, error: ApiError) -> Callable[[Call], ApiError | None]:
    return lambda call: error if call.subresource == "eviction" and call.name == pod else None


@pytest.mark.parametrize("error", [Forbidden("a webhook denied it", status=403), ApiError("a webhook denied it", status=500)])
def test_a_pod_that_somebody_refuses_to_let_go_keeps_no_other_one_here(error: ApiError) -> None:
    """Operators of databases, and tenants whose labels policies look at, may refuse evictions."""
    seen = Evictions(refusing("a", error))

    async def story(bench: NotebookWorld) -> None:
        for name in ("a", "b", "c"):
            await app(bench, name)
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 90)
        assert await pods(bench) == {"a"}

    play(story, seen)
    assert seen.calls[:3] == ["a", "b", "c"]
    assert 2 <= seen.calls.count("a") <= 5


def test_tenants_whose_replicas_are_not_ready_keep_no_other_one_here() -> None:
    """However many there are, and though their pods would come first."""
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        for number in range(50):
            await run(bench, "a-0", namespace=f"sick-{number:02}", of=owner("a"))
            await run(bench, "a-1", namespace=f"sick-{number:02}", of=owner("a"), ready=False, nodeName="", nodeSelector={"no": "node"})
        await run(bench, "last", namespace="well")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)

    play(story, seen)
    assert seen.calls == ["last"]


@pytest.mark.parametrize("error", [Unavailable("no answer"), Forbidden("no such right", status=403)])
@pytest.mark.parametrize("resource", [PODS, STATEFUL_SETS])
def test_a_namespace_that_cannot_be_read_keeps_only_its_own_pods_here(error: ApiError, resource: Any) -> None:
    asked = {"list": PODS, "get": STATEFUL_SETS}
    away = True
    seen = Evictions(lambda call: error if away and call.namespace == "a" and asked.get(call.verb) is call.resource is resource else None)

    async def story(bench: NotebookWorld) -> None:
        nonlocal away
        await run(bench, "a-0", namespace="a")
        await run(bench, "b-0", namespace="b")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 600)
        assert seen.calls == ["b-0"]
        away = False
        await wait(bench, 30)

    play(story, seen)
    assert seen.calls == ["b-0", "a-0"], "soon after it can be read again"


def test_a_namespace_that_takes_long_to_read_keeps_only_its_own_pods_here(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Evictions()
    read = EmptyingDuty._pods_of

    async def slowly(self: EmptyingDuty, namespace: str, versions: dict[str, str]) -> tuple[Pod, ...]:
        await asyncio.sleep(60.0 if namespace == "a" else 0.0)
        return await read(self, namespace, versions)

    monkeypatch.setattr(EmptyingDuty, "_pods_of", slowly)

    async def story(bench: NotebookWorld) -> None:
        await run(bench, "a-0", namespace="a")
        await run(bench, "b-0", namespace="b")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 90)

    play(story, seen)
    assert seen.calls == ["b-0"]


def test_a_pod_that_takes_a_day_to_leave_holds_up_others_for_some_minutes() -> None:
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        await run(bench, "a-0", namespace="a", stays=True)
        await run(bench, "a-1", namespace="a", stays=True)
        for number in range(5):
            await run(bench, f"b-{number}", namespace="b")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 250)
        assert seen.calls == ["a-0"]
        await wait(bench, 150)

    play(story, seen)
    assert seen.calls == ["a-0", *(f"b-{number}" for number in range(5)), "a-1"]


def test_an_owner_that_is_forged_keeps_nobody_else_here() -> None:
    """A pod of another namespace names the workload that is to be held up."""
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        await run(bench, "a-0", namespace="evil", of=owner("db"))
        await run(bench, "db-0", of=owner("db"))
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)

    play(story, seen)
    assert sorted(seen.calls) == ["a-0", "db-0"]


def test_a_workload_whose_last_pod_nobody_makes_again_loses_no_second_one() -> None:
    """Its tenant has no quota left, say, and the sidecar was started again since it evicted that pod."""
    seen = Evictions()

    async def story(bench: NotebookWorld) -> None:
        labels = {"app": "db"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        spec = {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": labels}, "template": template}
        made = await bench.you.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": spec}, namespace="default")
        of = owner("db", made["metadata"]["uid"])
        await run(bench, "db-0", of=of)
        await run(bench, "db-1", of=of)
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 900)
        assert seen.calls == []
        await run(bench, "db-2", of=of, nodeName="n1")
        await wait(bench, 60)
        assert seen.calls == ["db-0"]
        await wait(bench, 900)

    play(story, seen)
    assert seen.calls == ["db-0"]
