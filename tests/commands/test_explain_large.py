"""500 nodes, 2,100 volumes, 5,000 pods: what it costs to explain all of them, in requests, time and memory."""

import pytest

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
