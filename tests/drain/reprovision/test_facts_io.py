"""What is read of one replica, from the API server itself."""

import asyncio
import random

from sidecar.drain.reprovision.facts_io import Reading
from sidecar.kube.api import SNAPSHOT_CONTENTS
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
