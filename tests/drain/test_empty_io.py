"""Emptying a node, as a process does it, and what other programs may do meanwhile: led step by step against a simulated API server."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from sidecar.engine.health import OK, Degraded
from sidecar.kube.api import BUDGETS, CLAIMS, EVENTS, LEASES, MERGE_PATCH, NAMESPACES, NODES, PODS, REPLICA_SETS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from tests.harness.drain.simulated import EVACUATE, STATE, Story, all_of, change, node_of, running, wait
from tests.harness.emptying import ARGS, EVICTING, Evictions, app, one_more, owner, play, pods, run
from tests.harness.replicas_anew import unready

REBOOT: Final = EVACUATE | {"value": "reboot"}


async def told(bench: Story) -> list[str]:
    events = await all_of(bench, EVENTS)
    return sorted(event["involvedObject"]["name"] for event in events if event["reason"] == names.POD_EVICTED)


async def state(bench: Story) -> str | None:
    return (await node_of(bench))["metadata"]["labels"].get(STATE)


def test_what_may_leave_is_evicted_and_told_once_and_then_the_evacuation_succeeds() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        for number in range(3):
            await app(bench, f"app-{number}")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert await pods(bench) == set()
        assert await told(bench) == sorted(seen.calls) == ["app-0", "app-1", "app-2"]
        assert await state(bench) == "Success"
        assert len(await all_of(bench, CLAIMS)) == 3
        tools = bench.nodes["n0"].tools
        assert tools is not None
        page = tools.metrics.render()[0].decode()
        assert 'csi_node_sidecar_evictions_total{result="evicted"} 3' in page

    play(story, seen)


def test_pods_that_nobody_waits_for_leave_one_after_the_other_at_once() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        for number in range(10):
            await app(bench, f"app-{number}")
        await wait(bench, 70)
        await change(bench, "n0", {"taints": [EVACUATE]})
        begun = bench.clock()
        assert await bench.until(lambda: len(seen.calls) == 10, 120)
        assert 2.0 < bench.clock() - begun < 12.0

    play(story, seen)


def test_nobody_is_evicted_otherwise() -> None:
    def case(args: tuple[str, ...], taint: dict[str, str]) -> None:
        seen = Evictions()

        async def story(bench: Story) -> None:
            await app(bench, "app-0")
            await app(bench, "kept-0", policy="Block")  # so that nothing is over at once
            await wait(bench, 20)
            await change(bench, "n0", {"taints": [taint], "unschedulable": True})
            await wait(bench, 120)

        play(story, seen, args=args)
        assert seen.calls == []

    for args, taint in [
        (ARGS, EVACUATE),  # not asked to evict
        ((*EVICTING, "--dry-run"), EVACUATE),  # dry run
        (EVICTING, REBOOT),  # reboot
        ((*ARGS, "--evacuation-evict", "--node-drain-policy=Ignore"), EVACUATE),  # the node is not drained by us
    ]:
        case(args, taint)


def test_a_restart_as_a_dry_run_brakes_what_was_begun() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        for number in range(3):
            await run(bench, f"a{number}", stays=False)
        await wait(bench, 100)
        await change(bench, "n0", {"taints": [EVACUATE]})
        assert await bench.until(lambda: bool(seen.calls), 60)
        before = list(seen.calls)
        bench.plan.args = (*bench.plan.args, "--dry-run")  # type: ignore[misc]
        bench.nodes["n0"].kill()
        await wait(bench, 300)
        assert seen.calls == before

    play(story, seen)


def test_two_of_one_workload_never_leave_at_once() -> None:
    """The second stays until the first was made again elsewhere and is ready."""
    seen = Evictions()

    async def story(bench: Story) -> None:
        await app(bench, "db-0", owner="db")
        await app(bench, "db-1", owner="db")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert seen.calls == ["db-0"]
        (of,) = next(pod for pod in await all_of(bench, PODS) if pod["metadata"]["name"] == "db-1")["metadata"]["ownerReferences"]
        body = {"metadata": {"name": "db-0", "ownerReferences": [of]}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        await bench.you.create(PODS, body | {"spec": body["spec"] | {"nodeName": "n1"}}, namespace="default")
        await wait(bench, 120)
        assert seen.calls == ["db-0", "db-1"]

    play(story, seen)


def test_of_a_workload_whose_owner_does_not_say_how_many_pods_there_are_to_be_none_leaves_without_a_budget() -> None:
    """As the kinds of operators. The first one is not made again here, and nothing would show that it is missing."""
    seen = Evictions()
    of = {"apiVersion": "postgresql.example/v1", "kind": "Cluster", "name": "pg", "uid": "uid-pg", "controller": True}

    async def story(bench: Story) -> None:
        for name in ("pg-1", "pg-2"):
            await app(bench, name)
            await bench.you.patch(PODS, name, {"metadata": {"ownerReferences": [of]}}, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 400)
        assert seen.calls == []

    play(story, seen)


def test_while_a_deployment_is_rolled_out_its_two_replica_sets_lose_one_pod_together() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        for pod_hash in ("old", "new"):
            notes = {names.DESIRED_REPLICAS: "2"}
            body = {"metadata": {"name": f"web-{pod_hash}", "annotations": notes}, "spec": {"replicas": 1}}
            made = await bench.you.create(REPLICA_SETS, body, namespace="default")
            name = f"web-{pod_hash}-0"
            await run(bench, name, of=owner(f"web-{pod_hash}", made["metadata"]["uid"], "ReplicaSet"))
            labels = {"metadata": {"labels": {"pod-template-hash": pod_hash}}}
            await bench.you.patch(PODS, name, labels, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 100)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 20)
        (first,) = seen.calls
        await wait(bench, 100)
        assert seen.calls == [first]
        # It is made again, and is not ready yet.
        uid = (await bench.you.get(REPLICA_SETS, first.removesuffix("-0"), namespace="default"))["metadata"]["uid"]
        await run(bench, "again", of=owner(first.removesuffix("-0"), uid, "ReplicaSet"), nodeName="n1")
        again = {"metadata": {"labels": {"pod-template-hash": first.split("-")[1]}}}
        await bench.you.patch(PODS, "again", again, namespace="default", content_type=MERGE_PATCH)
        await unready(bench, "again")
        await wait(bench, 200)
        assert seen.calls == [first]

    play(story, seen)


def test_a_stricter_word_of_a_namespace_keeps_its_pods_here_at_once() -> None:
    """Its words are listed once a minute; before an eviction they are read again."""
    seen = Evictions()

    async def word(bench: Story, policy: str) -> None:
        body = {"metadata": {"annotations": {names.DRAIN_POLICY: policy}}}
        await bench.you.patch(NAMESPACES, "default", body, content_type=MERGE_PATCH)

    async def story(bench: Story) -> None:
        await word(bench, "Ignore")
        for name, node in (("a", "n0"), ("b", "n1")):
            await running(bench, name, node=node)
            reference = {"metadata": {"ownerReferences": [owner("db", await one_more(bench, "db"))]}}
            await bench.you.patch(PODS, name, reference, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 100)
        await unready(bench, "b")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 67)
        await word(bench, "Block")
        await unready(bench, "b", False)
        await wait(bench, 120)
        assert seen.calls == []

    play(story, seen)


def test_after_an_undo_nobody_is_evicted_though_no_watch_has_shown_it_yet() -> None:
    """It is undone when the pods of the workload are read, the last thing that is asked before the Node itself."""
    benches: list[Story] = []

    def undo(call: Call) -> None:
        if benches and (call.verb, call.resource, call.namespace) == ("list", PODS, "default"):
            benches.pop().cluster.patch(NODES, "n0", {"spec": {"taints": None}}, content_type=MERGE_PATCH)

    seen = Evictions(undo)

    async def story(bench: Story) -> None:
        await app(bench, "app-0")
        await wait(bench, 20)
        benches.append(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert not benches, "nobody asked"
        assert await state(bench) is None

    play(story, seen)
    assert seen.calls == []


@pytest.mark.parametrize("asked", [("create", PODS, "eviction"), ("get", STATEFUL_SETS, ""), ("list", BUDGETS, "")], ids=str)
def test_a_right_that_is_missing_is_told_once_until_it_is_there(asked: Any, caplog: pytest.LogCaptureFixture) -> None:
    refused = Forbidden("no such right", status=403)
    lacking = True
    seen = Evictions(lambda call: refused if lacking and (call.verb, call.resource, call.subresource) == asked else None)

    def complaints() -> list[str]:
        return [str(vars(each)["fields"]) for each in caplog.records if each.getMessage() == "Drain decisions are incomplete"]

    async def story(bench: Story) -> None:
        nonlocal lacking
        tools = bench.nodes["n0"].tools
        assert tools is not None

        def health() -> object:
            return next(row.state for row in tools.health.rows() if row.path == "drain")

        for number in range(7):
            await run(bench, f"app-{number}")
        await wait(bench, 70)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        for _ in range(60):
            await wait(bench, 10)
            assert health() == Degraded("could not be written or read: what is sent away; the log says why")
        (line,) = complaints()
        assert "no such right" in line
        lacking = False
        await wait(bench, 60)
        assert (health(), len(await told(bench)), len(complaints())) == (OK(), 7, 1)

    play(story, seen)


def test_an_eviction_whose_answer_was_lost_lets_no_second_pod_go_at_once() -> None:
    """It may have happened: until that is known nobody else is evicted."""
    seen = Evictions(lambda call: Unavailable("no answer") if call.subresource == "eviction" and len(seen.calls) == 1 else None)

    async def story(bench: Story) -> None:
        await app(bench, "app-0")
        await app(bench, "app-1")
        await wait(bench, 20)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 150)
        assert await told(bench) == ["app-0", "app-1"]

    play(story, seen)
    assert seen.calls == ["app-0", "app-1", "app-0"]


def test_an_eviction_whose_answer_was_lost_keeps_its_workload_here_until_it_can_come_no_more() -> None:
    at: list[float] = []
    benches: list[Story] = []

    def refuse(call: Call) -> ApiError | None:
        if call.subresource == "eviction":
            at.append(benches[0].clock())
        return Unavailable("no answer") if call.subresource == "eviction" and call.name == "db-0" else None

    async def story(bench: Story) -> None:
        benches.append(bench)
        for name in ("db-0", "db-1", "web-0"):
            await app(bench, name, owner=name.partition("-")[0])
        await wait(bench, 70)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 200)
        assert "db-1" in await pods(bench), "db-0 was evicted again and again meanwhile"
        assert "web-0" not in await pods(bench)

    play(story, Evictions(refuse))
    assert len(at) >= 3


# --- What tenants and other programs may do while a node is emptied, and that it keeps nobody else from leaving ---


def refusing(pod: str, error: ApiError) -> Callable[[Call], ApiError | None]:
    return lambda call: error if call.subresource == "eviction" and call.name == pod else None


def test_a_pod_that_somebody_refuses_to_let_go_keeps_no_other_one_here() -> None:
    """Operators of databases, and tenants whose labels policies look at, may refuse evictions."""

    def case(error: ApiError) -> None:
        seen = Evictions(refusing("a", error))

        async def story(bench: Story) -> None:
            for name in ("a", "b", "c"):
                await app(bench, name)
            await wait(bench, 70)
            await change(bench, "n0", {"taints": [EVACUATE]})
            await wait(bench, 90)
            assert await pods(bench) == {"a"}

        play(story, seen)
        assert seen.calls[:3] == ["a", "b", "c"]
        assert 2 <= seen.calls.count("a") <= 5

    for error in [Forbidden("a webhook denied it", status=403), ApiError("a webhook denied it", status=500)]:
        case(error)


def test_a_namespace_that_cannot_be_read_keeps_only_its_own_pods_here() -> None:
    def case(resource: Any, error: ApiError) -> None:
        asked = {"list": PODS, "get": STATEFUL_SETS}
        away = True
        seen = Evictions(
            lambda call: error if away and call.namespace == "a" and asked.get(call.verb) is call.resource is resource else None
        )

        async def story(bench: Story) -> None:
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

    for resource in [PODS, STATEFUL_SETS]:
        for error in [Unavailable("no answer"), Forbidden("no such right", status=403)]:
            case(resource, error)


# --- Slots: one node after the other, and none is kept by a node that only a person can help ---


async def slots(bench: Story) -> dict[str, str]:
    """By slot: the node that has it."""
    leases = [each for each in await all_of(bench, LEASES) if each["metadata"]["name"].startswith("evacuation-slot")]
    return {each["metadata"]["name"].partition(".")[0]: each["metadata"]["ownerReferences"][0]["name"] for each in leases}


def test_drain_F8_two_nodes_are_emptied_one_after_the_other() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        await run(bench, "a-0", stays=True)
        await app(bench, "other-0", node="n1")
        await wait(bench, 70)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 10)
        await change(bench, "n1", {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert (seen.calls, await slots(bench)) == (["a-0"], {"evacuation-slot-0": "n0"})
        assert (await node_of(bench, "n1"))["metadata"]["labels"].get(STATE) == "Pending"
        await bench.you.patch(PODS, "a-0", {"metadata": {"finalizers": None}}, namespace="default", content_type=MERGE_PATCH)
        await wait(bench, 120)
        assert (await node_of(bench, "n1"))["metadata"]["labels"].get(STATE) == "Success"

    play(story, seen)
    assert seen.calls == ["a-0", "other-0"]


def test_a_workload_of_which_another_node_makes_a_replica_anew_waits_and_others_go() -> None:
    seen = Evictions()

    async def story(bench: Story) -> None:
        await app(bench, "app-0")
        await app(bench, "web-0")
        name = names.reprovision("uid-app-0", DRIVER)
        await bench.you.create(LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": "uid-n1"}}, namespace="default")
        await wait(bench, 70)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 120)
        assert seen.calls == ["web-0"]
        await bench.you.delete(LEASES, name, namespace="default")
        await wait(bench, 60)

    play(story, seen)
    assert seen.calls == ["web-0", "app-0"]
