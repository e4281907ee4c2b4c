"""What is read of one replica, from the API server itself."""

import asyncio
import random

from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.record import ClaimName, Target
from sidecar.kube.api import NAMESPACES, PODS, SNAPSHOT_CONTENTS, STATEFUL_SETS
from sidecar.simulation.cluster import Cluster, InProcessApi
from sidecar.simulation.cluster.kinds.kind import Kind
from sidecar.simulation.cluster.kinds.table import TABLE

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


def test_pods_of_other_namespaces_are_read_where_the_anti_affinity_of_the_set_concerns_them() -> None:
    cluster = Cluster(clock=lambda: 0.0, rng=random.Random(1).random, kinds=TABLE)
    for namespace, team in (("home", "x"), ("near", "x"), ("far", "y")):
        cluster.create(NAMESPACES, {"metadata": {"name": namespace, "labels": {"team": team}}})
        for app in ("db", "web"):
            spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": "n2"}
            cluster.create(PODS, {"metadata": {"name": app, "labels": {"app": app}}, "spec": spec}, namespace=namespace)
    selectors = ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"namespaces": ["far"]}, {"namespaceSelector": {}}, {})
    terms = [{"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}} | each for each in selectors]
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    labels = {"app": "db"}
    body = {
        "replicas": 3,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}], "affinity": rule}},
    }
    cluster.create(STATEFUL_SETS, {"metadata": {"name": "db"}, "spec": body}, namespace="home")
    target = Target("home", "db-0", "uid-0", "db", "uid-db", (ClaimName("data-db-0", "uid-1"),))
    facts = asyncio.run(Reading(InProcessApi(cluster), "n1", driver="d").facts(target, users=frozenset()))
    assert facts.labels["team"] == "x"
    assert [[pod.full_name for pod in pods] for pods in facts.beyond.values()] == [["near/db"], ["far/db"], ["far/db", "near/db"]]
