"""What a tenant, or another program, may do while replicas are made anew, and that it keeps nobody else's here for long."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.record import Target
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, NODES, PODS, STATEFUL_SETS
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.model import names
from tests.harness.drain import simulated
from tests.harness.drain.reprovision import ANEW, Seen, Workload, at_rest, evacuate, places, said, unready
from tests.harness.drain.simulated import EVACUATE, change, wait

NODES_THERE: Final = ("n0", "n1", "n2", "n3")
TENANT: Final = "a-tenant"
TIMEOUT: Final = 120
SLOW: Final = 300.0
"""For so long a pod that leaves holds up those of other namespaces."""
SOON: Final = 150.0
"""Seconds within which a replica has left where nobody is in its way."""
PATIENT: Final = (*ANEW, f"--reprovision-ready-timeout={TIMEOUT}s")
Story = Callable[[NotebookWorld, Workload], Awaitable[None]]


def play(story: Story, seen: Seen, *, args: tuple[str, ...] = PATIENT, **of_aa: Any) -> None:
    """Replica 0 of db and of aa are both on n0, and aa, which somebody makes trouble with, comes first."""

    async def whole(bench: NotebookWorld) -> None:
        await bench.you.create(NAMESPACES, {"metadata": {"name": TENANT}})
        db, aa = Workload(bench), Workload(bench, name="aa", namespace=TENANT, **of_aa)
        await db.begin()
        await aa.begin()
        await wait(bench, 70)
        assert [(await places(bench))[name] for name in ("db-0", "aa-0")] == ["n0", "n0"]
        await story(bench, aa)

    simulated.play(whole, args=args, refuse=seen, nodes=NODES_THERE)


async def left(bench: NotebookWorld, pod: str, within: float) -> float:
    """Seconds after which it was ready elsewhere."""
    begun = bench.clock()
    while bench.clock() - begun < within:
        await wait(bench, 5)
        if (await places(bench)).get(pod, "n0") != "n0":
            return bench.clock() - begun
    raise AssertionError(f"{pod} is still here after {within:g} s")


async def patch(bench: NotebookWorld, resource: Any, name: str, change: dict[str, Any]) -> None:
    await bench.you.patch(resource, name, change, namespace=TENANT, content_type=MERGE_PATCH)


def notes(**said: str) -> dict[str, Any]:
    return {"metadata": {"annotations": said}}


def test_both_leave_where_nobody_makes_trouble() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench, True, "aa")
        await left(bench, "aa-0", SOON)
        await left(bench, "db-0", SOON)
        await wait(bench, 60)
        assert await at_rest(bench)

    play(story, seen)


async def pod_stays(bench: NotebookWorld) -> None:
    await patch(bench, PODS, "aa-0", {"metadata": {"finalizers": ["example.com/stays"]}})


async def claim_stays(bench: NotebookWorld) -> None:
    await patch(bench, CLAIMS, "data-aa-0", {"metadata": {"finalizers": [names.CLAIM_PROTECTION, "example.com/stays"]}})


async def peer_falls(bench: NotebookWorld) -> None:
    await unready(bench, "aa-2", namespace=TENANT)


async def no_claim_elsewhere(bench: NotebookWorld) -> None:
    await bench.you.delete(STATEFUL_SETS, "aa", namespace=TENANT)


async def another_set(bench: NotebookWorld) -> None:
    """As operators do to change what cannot be changed: the pods are left, and the new one adopts them."""
    found = await bench.you.get(STATEFUL_SETS, "aa", namespace=TENANT)
    await bench.you.delete(STATEFUL_SETS, "aa", namespace=TENANT)
    await bench.you.create(STATEFUL_SETS, {"metadata": {"name": "aa"}, "spec": found["spec"]}, namespace=TENANT)


async def scaled_to_nothing(bench: NotebookWorld) -> None:
    await patch(bench, STATEFUL_SETS, "aa", {"spec": {"replicas": 0}})


async def another_policy(bench: NotebookWorld) -> None:
    await patch(bench, CLAIMS, "data-aa-0", notes(**{names.DRAIN_POLICY_RETIRE: "Block"}))


AFTER_THE_EVICTION: Final = (pod_stays, claim_stays, peer_falls, no_claim_elsewhere, another_set, scaled_to_nothing, another_policy)


@pytest.mark.parametrize(
    ("step", "happens"),
    [("note data-aa-0", pod_stays), ("delete data-aa-0", no_claim_elsewhere), *(("evict aa-0", each) for each in AFTER_THE_EVICTION)],
)
def test_what_befalls_one_replica_keeps_no_other_ones_here(step: str, happens: Callable[[NotebookWorld], Awaitable[None]]) -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        seen.at(step, lambda: bench.spawn(quietly(happens(bench))), after=True)
        await evacuate(bench, True, "aa")
        await left(bench, "db-0", (SLOW if happens is pod_stays else TIMEOUT) + SOON)

    play(story, seen)


async def quietly(doing: Awaitable[None]) -> None:
    with contextlib.suppress(NotFound):
        await doing


def test_a_replica_that_counts_as_ready_after_years_only_keeps_no_other_ones_here() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench, True, "aa")
        await left(bench, "db-0", TIMEOUT + SOON)
        assert "delete data-aa-0" in seen.did

    play(story, seen, minReadySeconds=2**31 - 1)


DENIED: Final = Forbidden("a webhook denied it", status=403)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("note data-aa-0", DENIED),
        ("evict aa-0", DENIED),
        ("evict aa-0", ApiError("a webhook broke", status=500)),
        ("delete data-aa-0", DENIED),
        ("read aa", DENIED),
        ("read data-aa-0", Unavailable("no answer")),
    ],
)
def test_what_is_refused_for_one_replica_keeps_no_other_ones_here(step: str, error: ApiError) -> None:
    def refuse(call: Call) -> ApiError | None:
        reads = call.verb == "get" and call.resource in (CLAIMS, STATEFUL_SETS)
        return error if said(call) == step or (reads and step == f"read {call.name}") else None

    seen = Seen(refuse)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench, True, "aa")
        took = await left(bench, "db-0", TIMEOUT + SOON)
        assert took < SOON or step in ("note data-aa-0", "delete data-aa-0")

    play(story, seen)


def test_a_tenant_whose_pods_take_long_to_read_keeps_no_other_ones_here(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Reading.facts

    async def slow(self: Reading, target: Target, *, users: frozenset[str], **options: Any) -> Facts:
        await asyncio.sleep(60.0 if target.namespace == TENANT else 0.0)
        return await facts(self, target, users=users, **options)

    monkeypatch.setattr(Reading, "facts", slow)
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        await evacuate(bench, True, "aa")
        await left(bench, "db-0", SOON)

    play(story, seen)


def test_a_claim_that_somebody_changes_all_the_time_costs_few_requests_and_keeps_no_other_ones_here() -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        async def changes() -> None:
            for number in range(20 * 120):
                await asyncio.sleep(0.05)
                with contextlib.suppress(NotFound):
                    await patch(bench, CLAIMS, "data-aa-0", notes(**{"example.com/tick": str(number)}))

        bench.spawn(changes())
        await evacuate(bench, True, "aa")
        await wait(bench, 20)
        before = seen.requests
        await wait(bench, 100)
        assert seen.requests - before < 300
        await left(bench, "db-0", TIMEOUT + SOON)

    play(story, seen)


@pytest.mark.parametrize("error", [DENIED, Conflict("somebody was faster", status=409)])
def test_marks_that_somebody_forges_and_that_cannot_be_taken_off_keep_nobody_here(error: ApiError) -> None:
    def refuse(call: Call) -> ApiError | None:
        tried.append(call.name) if forged and call.resource == CLAIMS and call.verb == "patch" and call.name == "data-aa-0" else None
        return error if tried and call.name == "data-aa-0" and call.verb == "patch" else None

    forged: list[bool] = []
    tried: list[str] = []
    seen = Seen(refuse)

    async def story(bench: NotebookWorld, _: Workload) -> None:
        uid = (await bench.you.get(NODES, "n0"))["metadata"]["uid"]
        said = {names.REPROVISIONED_BY: f"n0/{uid}", names.DRAIN_POLICY_RETIRE: "Block"}
        await patch(bench, CLAIMS, "data-aa-0", notes(**said))
        forged.append(True)
        await evacuate(bench)
        await left(bench, "db-0", SOON)
        assert 1 <= len(tried) < 20

    play(story, seen)


def test_pods_that_claim_to_be_of_another_tenants_set_neither_hold_it_up_nor_lose_anything() -> None:
    """An owner's uid is only a word: its Lease is taken by nobody but who has the set itself in the namespace."""
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        of = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
        of["uid"] = (await bench.you.get(STATEFUL_SETS, "db", namespace="default"))["metadata"]["uid"]
        await bench.you.patch(PODS, "aa-0", {"metadata": {"ownerReferences": [of]}}, namespace=TENANT, content_type=MERGE_PATCH)
        await evacuate(bench)
        await left(bench, "db-0", SOON)
        await wait(bench, 60)
        assert not {"evict aa-0", "delete data-aa-0"} & set(seen.did)
        assert await at_rest(bench)

    play(story, seen)


@pytest.mark.parametrize("why", ["retired as well", "cordoned"])
def test_nothing_is_deleted_for_a_place_on_a_node_that_takes_no_pods(why: str) -> None:
    seen = Seen()

    async def story(bench: NotebookWorld, _: Workload) -> None:
        for node in ("n1", "n2", "n3"):
            await change(bench, node, {"taints": [EVACUATE]} if why == "retired as well" else {"unschedulable": True})
        await evacuate(bench, True, "aa")
        await wait(bench, 90)
        assert not any(what.startswith(("delete data", "evict")) for what in seen.did)

    play(story, seen)
