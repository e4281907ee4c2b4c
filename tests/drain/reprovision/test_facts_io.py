"""What is read of one replica, from the API server itself."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.kinds.table import TABLE
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.record import ClaimName, Target
from sidecar.kube.api import NAMESPACES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS, Page, Resource
from sidecar.model.objects import Json

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


def test_pods_that_two_terms_select_alike_are_listed_once_and_only_what_they_may_select() -> None:
    """Nor is any namespace asked for its labels where all of them count."""
    facts, asked = facts_beside({"namespaceSelector": {}}, {"namespaceSelector": {}, "topologyKey": "zone"})
    assert beyond(facts) == [["far/db", "near/db"]] * 2
    assert [of for resource, of in asked if resource == "pods" and "app" in of] == ["?app in (db)"]
    assert [of for resource, of in asked if resource == "namespaces"] == ["/home"]


def test_a_namespace_is_asked_for_its_labels_once() -> None:
    """And only one with a pod in the way that is not counted already, as its name is said."""
    selector = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    facts, asked = facts_beside({**selector, "namespaces": ["far"]}, {**selector, "topologyKey": "zone"})
    assert beyond(facts) == [["far/db", "near/db"], ["near/db"]]
    assert sorted(of for resource, of in asked if resource == "namespaces") == ["/far", "/home", "/near"]


def test_the_labels_of_a_namespace_serve_several_looks() -> None:
    selector = {"namespaceSelector": {"matchLabels": {"team": "x"}}}
    _, asked = facts_beside(selector, looks=(0.0, 200.0, 299.0))
    assert [of for resource, of in asked if resource == "namespaces" and of != "/home"] == ["/far", "/near"]
    _, asked = facts_beside(selector, looks=(0.0, 300.0))
    assert [of for resource, of in asked if resource == "namespaces" and of != "/home"] == ["/far", "/near"] * 2
