"""500 nodes, 2,100 volumes, 5,000 pods: what it costs to explain all of them, in requests, time and memory."""

import time
import tracemalloc

import pytest

from sidecar.commands.explain.nodes import judge_all
from sidecar.commands.explain.question import read_question
from sidecar.commands.explain.volumes import rows
from tests.harness.drain.large_cluster import large_cluster
from tests.harness.drain.listed_cluster import Lists, look, look_at_all


@pytest.fixture(scope="module")
def large() -> Lists:
    return large_cluster()


def test_the_number_of_requests_is_that_of_the_pages(large: Lists) -> None:
    large.asked.clear()
    look_at_all(large)
    full_pages = 1 + 1 + 5 + 4 + 10  # nodes, CSINodes, volumes, claims, pods
    assert len(large.asked) == full_pages + len(("namespaces", "classes", "contents", "reports", "capacities", "budgets", "attachments"))


def test_one_node_of_it_costs_its_own_pods_and_the_lists_that_cannot_be_narrowed(large: Lists) -> None:
    large.asked.clear()
    look(large, "node-001")
    of_pods = [selector for plural, _, selector in large.asked if plural == "pods"]
    assert of_pods[0] == "spec.nodeName=node-001"
    # One volume here has no user on this node, so its namespace's pods are asked for, and no other's.
    assert of_pods[1:] == [""] * 10


def test_all_nodes_are_judged_within_seconds(large: Lists) -> None:
    """1.3 s on one idle core; the limit is for a busy machine, and far below the minutes that a look for each node would take."""
    cluster = look_at_all(large)
    began = time.process_time()
    judged = judge_all(cluster, "", default_policy=None)
    assert len(judged) == 500
    volumes = rows(cluster, read_question(["volumes"], {}), default_policy=None)  # type: ignore[arg-type]
    assert (len(volumes), sum(row.orphan for row in volumes)) == (2100, 100)
    assert time.process_time() - began < 15


def test_what_is_kept_of_it_is_small(large: Lists) -> None:
    tracemalloc.start()
    try:
        cluster = look_at_all(large)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert cluster.pods and kept < 30 * 2**20, kept
