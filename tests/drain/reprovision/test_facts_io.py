"""What is read of one replica, from the API server itself."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.kinds.table import TABLE
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Name
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from tests.harness.drain.reprovision import Seen, Workload, evacuate, play
from tests.harness.drain.simulated import Bench, wait

CONTENTS = Kind(resource=SNAPSHOT_CONTENTS, fields={"spec": dict, "status": dict}, status=True)
KINDS = (*TABLE, CONTENTS)


def snapshots(*handles: str, kinds: tuple[Kind, ...] = KINDS) -> list[str]:
    cluster = Cluster(clock=lambda: 0.0, rng=random.Random(1).random, kinds=kinds)
    if CONTENTS in kinds:
        for name, driver, handle in (("a", "d", "one"), ("b", "d", "two"), ("c", "other", "one"), ("d", "d", "")):
            source = {"volumeHandle": handle} if handle else {"snapshotHandle": "s"}
            cluster.create(SNAPSHOT_CONTENTS, {"metadata": {"name": name}, "spec": {"driver": driver, "source": source}})
    found = asyncio.run(Reading(InProcessApi(cluster), "n1", driver="d").snapshots(frozenset(handles)))
    return [content.name for content in found]


def test_snapshots_of_a_volume_are_found_whosever_node_they_are_labelled_with() -> None:
    assert snapshots("one") == ["a"]
    assert snapshots("one", "two") == ["a", "b"]
    assert snapshots("three") == []


def test_where_there_are_no_snapshots_there_is_none_of_a_volume() -> None:
    assert snapshots("one", kinds=TABLE) == []


# --- The locks, as a process looks at them: at the last moment, by what the API server says and not by what watches have shown ---


def change_claim(cluster: Cluster, change: dict[str, Any]) -> None:
    cluster.patch(CLAIMS, "data-db-0", change, namespace="default", content_type=MERGE_PATCH)


def change_set(cluster: Cluster, change: dict[str, Any], subresource: str = "") -> None:
    cluster.patch(STATEFUL_SETS, "db", change, namespace="default", subresource=subresource, content_type=MERGE_PATCH)


def roll_out(cluster: Cluster) -> None:
    """By hand: such a rollout waits for no pod."""
    change_set(cluster, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    generation = cluster.get(STATEFUL_SETS, "db", namespace="default").obj["metadata"].get("generation", 1)
    change_set(cluster, {"status": {"updateRevision": "db-2", "observedGeneration": generation}}, "status")


def volume_of(cluster: Cluster) -> str:
    return str(cluster.get(CLAIMS, "data-db-0", namespace="default").obj["spec"]["volumeName"])


def another_pod(cluster: Cluster) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "nodeName": "n0"}
    cluster.create(PODS, {"metadata": {"name": "job"}, "spec": spec}, namespace="default")


NOT_READY: Final = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
BLOCK: Final = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: "Block"}}}
SHUT_AT_LAST: Final[dict[Name, Callable[[Cluster], object]]] = {
    Name.SAME: lambda cluster: cluster.delete(CLAIMS, "data-db-0", namespace="default"),
    Name.POLICY: lambda cluster: cluster.patch(VOLUMES, volume_of(cluster), BLOCK, content_type=MERGE_PATCH),
    Name.MARKS: lambda cluster: change_claim(cluster, {"metadata": {"annotations": {names.REPROVISIONED_BY: "n9/uid-n9"}}}),
    Name.MADE_AGAIN: lambda cluster: change_set(cluster, {"spec": {"replicas": 0}}),
    Name.REPLICAS: lambda cluster: cluster.patch(
        PODS, "db-2", NOT_READY, namespace="default", subresource="status", content_type=MERGE_PATCH
    ),
    Name.NOT_ROLLING: roll_out,
    Name.KEPT_OFF: lambda cluster: change_set(cluster, {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}}),
    Name.FINALIZERS: lambda cluster: change_claim(cluster, {"metadata": {"finalizers": [names.CLAIM_PROTECTION, "example.com/backup"]}}),
    Name.NOBODY_ELSE: another_pod,
}
"""How each lock is shut while no watch shows it. The others are about the node, which is read anew, and about places."""


def test_a_lock_that_is_shut_at_the_last_moment_is_seen_whatever_the_watches_show() -> None:
    def case(lock: Name | None) -> None:
        seen = Seen()

        async def story(bench: Bench, _: Workload) -> None:
            def shut() -> None:
                bench.network.local_delay("n0", 600.0)
                if lock is not None:
                    SHUT_AT_LAST[lock](bench.cluster)

            seen.at("evict db-0", shut, after=True)
            await evacuate(bench)
            await wait(bench, 60)
            assert "evict db-0" in seen.did
            assert ("delete data-db-0" in seen.did) is (lock is None)

        play(story, seen)

    for lock in [None, *SHUT_AT_LAST]:
        case(lock)
