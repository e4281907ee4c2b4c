"""What tenants and other programs do while replicas are made anew, and that it keeps nobody else's here for long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hack.sim.cluster import Call
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from tests.harness import replicas_anew as reprovision
from tests.harness.drain import simulated
from tests.harness.drain.simulated import EVACUATE, Story, change, wait
from tests.harness.replicas_anew import ANEW, Seen, Workload, at_rest, evacuate, places, said

NODES_THERE: Final = ("n0", "n1", "n2", "n3")
TENANT: Final = "a-tenant"
SOON: Final = 150.0
"""Seconds within which a replica has left where nobody is in its way."""

Plot = Callable[[Story, Workload], Awaitable[None]]


def play(story: Plot, seen: Seen, *, args: tuple[str, ...] = ANEW, **of_aa: Any) -> None:
    """Replica 0 of db and of aa are both on n0, and aa, which somebody makes trouble with, comes first."""

    async def whole(bench: Story) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        db, aa = Workload(bench), Workload(bench, name="aa", namespace=TENANT, **of_aa)
        await db.begin()
        await aa.begin()
        await wait(bench, 70)
        assert [(await places(bench))[name] for name in ("db-0", "aa-0")] == ["n0", "n0"]
        await story(bench, aa)

    simulated.play(whole, args=args, refuse=seen, nodes=NODES_THERE)


async def left(bench: Story, pod: str, within: float) -> float:
    """Seconds after which it was ready elsewhere."""
    begun = bench.clock()
    while bench.clock() - begun < within:
        await wait(bench, 5)
        if (await places(bench)).get(pod, "n0") != "n0":
            return bench.clock() - begun
    raise AssertionError(f"{pod} is still here after {within:g} s")


DENIED: Final = Forbidden("a webhook denied it", status=403)


def test_what_is_refused_for_one_replica_keeps_no_other_ones_here() -> None:
    def case(step: str, error: ApiError) -> None:
        def refuse(call: Call) -> ApiError | None:
            reads = call.verb == "get" and call.resource in (CLAIMS, STATEFUL_SETS)
            return error if said(call) == step or (reads and step == f"read {call.name}") else None

        seen = Seen(refuse)

        async def story(bench: Story, _: Workload) -> None:
            await evacuate(bench, True, "aa")
            await left(bench, "db-0", SOON)

        play(story, seen)

    for step, error in [
        ("note data-aa-0", DENIED),
        ("evict aa-0", DENIED),
        ("evict aa-0", ApiError("a webhook broke", status=500)),
        ("delete data-aa-0", DENIED),
        ("read aa", DENIED),
        ("read data-aa-0", Unavailable("no answer")),
    ]:
        case(step, error)


def test_pods_that_forge_another_tenants_owner_neither_hold_it_up_nor_lose_data() -> None:
    """An owner's uid is only a word: its Lease is taken by nobody but who has the set itself in the namespace."""
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        of = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
        of["uid"] = (await bench.you.get(STATEFUL_SETS, "db", namespace="default"))["metadata"]["uid"]
        await bench.you.patch(PODS, "aa-0", {"metadata": {"ownerReferences": [of]}}, namespace=TENANT, content_type=MERGE_PATCH)
        await evacuate(bench)
        await left(bench, "db-0", SOON)
        await wait(bench, 60)
        assert not {"evict aa-0", "delete data-aa-0"} & set(seen.did)
        assert await at_rest(bench)

    play(story, seen)


ON_ITS_WAY: Final = 9.0
"""Seconds: a little less than a sidecar waits for an answer."""


async def may_be_lost(bench: Story, claim: str) -> None:
    """Emptying evicts its pod, and nobody deletes the claim."""
    notes = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Ignore"}}}
    await bench.you.patch(CLAIMS, claim, notes, namespace="default", content_type=MERGE_PATCH)


async def fewest_ready(bench: Story, seconds: int) -> int:
    fewest = len(await places(bench))
    for _ in range(seconds):
        await wait(bench, 1)
        fewest = min(fewest, len(await places(bench)))
    return fewest


async def slowly(bench: Story) -> None:
    """The replacement of db-0 finds a place elsewhere so late that it is away for long."""
    await change(bench, "n3", labels={"for-db-0": None})
    await wait(bench, 60)
    await change(bench, "n3", labels={"for-db-0": "yes"})


def test_an_eviction_of_another_emptied_node_and_one_for_a_replica_do_not_cross() -> None:
    """No budget keeps them apart, and the request of the one is on its way while the other looks."""
    seen = Seen()
    started = asyncio.Event()

    async def delay(call: Call) -> None:
        if call.subresource == "eviction" and call.name == "db-1" and not started.is_set():
            started.set()
            await asyncio.sleep(ON_ITS_WAY)

    async def story(bench: Story, _: Workload) -> None:
        await may_be_lost(bench, "data-db-1")
        await wait(bench, 20)
        await change(bench, "n1", {"taints": [EVACUATE]}, labels={"for-db-1": None})
        seen.at("evict db-0", lambda: bench.spawn(slowly(bench)), after=True)
        await started.wait()
        await evacuate(bench)
        assert await fewest_ready(bench, 300) == 2
        assert "evict db-1" in seen.did

    reprovision.play(story, seen, delay=delay)


def test_without_the_right_to_delete_its_claim_no_pod_is_evicted_for_it_and_others_go_on() -> None:
    """The flag was given, and the component's role was not."""
    denied = Forbidden("no such right", status=403)
    seen = Seen(lambda call: denied if call.resource == CLAIMS and call.verb == "delete" else None)

    async def story(bench: Story, _: Workload) -> None:
        await simulated.with_pod(bench, "app-0")
        await may_be_lost(bench, "app-0")
        await wait(bench, 20)
        await evacuate(bench)
        await wait(bench, 200)
        assert "evict db-0" not in seen.did
        assert "evict app-0" in seen.did
        assert len(await places(bench)) >= 3

    reprovision.play(story, seen)
