"""A lock that is shut between the eviction of a replica and the deletion of its claims is seen, whatever watches show."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from hack.sim.cluster import ApiServer, Call
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, NODES, PODS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from tests.harness.drain.simulated import Story, all_of, wait
from tests.harness.replicas_anew import Seen, Workload, evacuate, play, uids


def change_claim(cluster: ApiServer, change: dict[str, Any]) -> None:
    cluster.patch(CLAIMS, "data-db-0", change, namespace="default", content_type=MERGE_PATCH)


def change_set(cluster: ApiServer, change: dict[str, Any], subresource: str = "") -> None:
    cluster.patch(STATEFUL_SETS, "db", change, namespace="default", subresource=subresource, content_type=MERGE_PATCH)


def roll_out(cluster: ApiServer) -> None:
    """By hand: such a rollout waits for no pod."""
    change_set(cluster, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    generation = cluster.get(STATEFUL_SETS, "db", namespace="default").obj["metadata"].get("generation", 1)
    change_set(cluster, {"status": {"updateRevision": "db-2", "observedGeneration": generation}}, "status")


def volume_of(cluster: ApiServer) -> str:
    return str(cluster.get(CLAIMS, "data-db-0", namespace="default").obj["spec"]["volumeName"])


def another_pod(cluster: ApiServer) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeName": "n0"}
    cluster.create(PODS, {"metadata": {"name": "job"}, "spec": spec}, namespace="default")


NOT_READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
BLOCK: Final = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Block"}}}
SHUT_AT_LAST: Final[dict[str, Callable[[ApiServer], object]]] = {
    "same": lambda cluster: cluster.delete(CLAIMS, "data-db-0", namespace="default"),
    "policy": lambda cluster: cluster.patch(VOLUMES, volume_of(cluster), BLOCK, content_type=MERGE_PATCH),
    "marks": lambda cluster: change_claim(cluster, {"metadata": {"annotations": {names.REPROVISIONED_BY: "n9/uid-n9"}}}),
    "made again": lambda cluster: change_set(cluster, {"spec": {"replicas": 0}}),
    "replicas": lambda cluster: cluster.patch(PODS, "db-2", NOT_READY, namespace="default", subresource="status", content_type=MERGE_PATCH),
    "not rolling": roll_out,
    "kept off": lambda cluster: change_set(cluster, {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
    "finalizers": lambda cluster: change_claim(cluster, {"metadata": {"finalizers": [names.CLAIM_PROTECTION, "example.com/backup"]}}),
    "nobody else": another_pod,
}
"""How each lock is shut while no watch shows it. The others are about the node, which is read anew, and about places."""


def test_a_lock_that_is_shut_at_the_last_moment_is_seen_whatever_the_watches_show() -> None:
    def case(lock: str) -> None:
        seen = Seen()

        async def story(bench: Story, _: Workload) -> None:
            def shut() -> None:
                bench.network.local_delay("n0", 600.0)
                if lock:
                    SHUT_AT_LAST[lock](bench.cluster)

            seen.at("evict db-0", shut, after=True)
            await evacuate(bench)
            await wait(bench, 60)
            assert "evict db-0" in seen.did
            assert ("delete data-db-0" in seen.did) is (not lock)

        play(story, seen)

    for lock in ["", *SHUT_AT_LAST]:
        case(lock)


def test_a_claim_is_not_deleted_on_what_the_api_server_said_half_a_minute_ago() -> None:
    """Each request is answered, the last one after half a minute: meanwhile another replica may have fallen."""
    slow = [False]

    async def delay(call: Call) -> None:
        if slow[0] and (call.verb, call.resource) == ("get", NODES):
            await asyncio.sleep(29.0)

    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        seen.at("evict db-0", lambda: slow.__setitem__(0, True), after=True)
        await evacuate(bench)
        await wait(bench, 300)
        assert "evict db-0" in seen.did and "delete data-db-0" not in seen.did
        slow[0] = False
        await wait(bench, 60)
        assert "delete data-db-0" in seen.did

    play(story, seen, delay=delay)


@pytest.mark.parametrize("step", ["create lease", "note data-db-0", "update lease"])
def test_no_claim_is_deleted_on_what_its_namespace_said_before(step: str) -> None:
    """It takes back that its data may be made anew, and the replica's pod leaves by itself a moment later."""
    seen = Seen()

    async def story(bench: Story, workload: Workload) -> None:
        async def say(policy: str) -> None:
            patch = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: policy}}}
            await bench.you.patch(NAMESPACES, "default", patch, content_type=MERGE_PATCH)

        async def block() -> None:
            await say("Block")
            workload.stop()
            await bench.you.delete(PODS, "db-0", namespace="default", grace_period_seconds=0)

        await say("Reprovision")
        for claim in await all_of(bench, CLAIMS):
            nothing = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: None}}}
            await bench.you.patch(CLAIMS, claim["metadata"]["name"], nothing, namespace="default", content_type=MERGE_PATCH)
        before = await uids(bench)
        seen.at(step, lambda: bench.spawn(block()), after=True)
        await evacuate(bench)
        await wait(bench, 300)
        assert step in seen.did
        assert "delete data-db-0" not in seen.did
        assert await uids(bench) == before

    play(story, seen)
