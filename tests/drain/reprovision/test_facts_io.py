"""What is read of one replica, from the API server itself."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.kinds.table import TABLE
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Name
from sidecar.drain.reprovision.record import ClaimName, Target
from sidecar.kube.api import CLAIMS, MERGE_PATCH, NAMESPACES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, VOLUMES, Page, Resource
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.drain.reprovision import Seen, Workload, evacuate, play
from tests.harness.drain.simulated import wait

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


class Counting(InProcessApi):
    """Keeps what it was asked for, and with which label selector."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self.asked.append((resource.plural, f"{namespace}/{name}"))
        return await super().get(resource, name, namespace=namespace)

    async def list_page(self, resource: Resource, *, namespace: str = "", label_selector: str = "", **more: Any) -> Page:
        self.asked.append((resource.plural, f"{namespace}?{label_selector}"))
        return await super().list_page(resource, namespace=namespace, label_selector=label_selector, **more)


def facts_beside(*selectors: Any, looks: Sequence[float] = (0.0,)) -> tuple[Facts, list[tuple[str, str]]]:
    """What is read of a set in the namespace `home` with a term of anti-affinity for each of these, at the last look, and what was asked at
    all of them."""
    cluster = Cluster(clock=lambda: 0.0, rng=random.Random(1).random, kinds=TABLE)
    for namespace, team in (("home", "x"), ("near", "x"), ("far", "y")):
        cluster.create(NAMESPACES, {"metadata": {"name": namespace, "labels": {"team": team}}})
        for app, node in (("db", "n2"), ("web", "n2"), ("waiting", "")):
            spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": node}
            labels = {"app": "db" if app == "waiting" else app}
            cluster.create(PODS, {"metadata": {"name": app, "labels": labels}, "spec": spec}, namespace=namespace)
    terms = [{"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}} | each for each in selectors]
    labels = {"app": "db"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    body = {
        "replicas": 3,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "none"}], "affinity": affinity},
        },
    }
    cluster.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": body}, namespace="home")
    target, api = Target("home", "db-0", "uid-0", "db", "uid-db", (ClaimName("data-db-0", "uid-1"),)), Counting(cluster)
    now = [0.0]
    reading = Reading(api, "n1", driver="d", clock=lambda: now[0])

    async def look(at: float) -> Facts:
        now[0] = at
        return await reading.facts(target, users=frozenset())

    return [asyncio.run(look(at)) for at in looks][-1], api.asked


def beyond(facts: Facts) -> list[list[str]]:
    return [[pod.full_name for pod in pods] for pods in facts.beyond.values()]


def test_pods_of_other_namespaces_are_read_where_the_anti_affinity_of_the_set_concerns_them() -> None:
    facts, _ = facts_beside({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"namespaces": ["far"]}, {"namespaceSelector": {}}, {})
    assert facts.labels["team"] == "x"
    assert beyond(facts) == [["near/db"], ["far/db"], ["far/db", "near/db"]]


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

        async def story(bench: NotebookWorld, _: Workload) -> None:
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
