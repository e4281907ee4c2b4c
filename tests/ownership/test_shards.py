"""Who hears of which open claims: enough nodes for each shard, few shards for each node, and few changes when nodes come and go."""

from collections import Counter

from sidecar.model.names import SHARDS
from sidecar.ownership.shards import LISTENERS, any_binds_immediately, heard_shards, listeners_of
from tests.harness import samples


def a_cluster(size: int) -> list[str]:
    return [f"node-{number}" for number in range(size)]


def test_each_shard_is_heard_by_as_many_nodes_as_it_should_be():
    for size in [1, 2, LISTENERS, LISTENERS + 1, 20, 60]:
        nodes = a_cluster(size)
        heard = Counter(shard for node in nodes for shard in heard_shards(node, nodes))
        assert set(heard) == set(SHARDS)
        assert min(heard.values()) >= min(LISTENERS, size)


def test_a_node_that_is_not_listed_yet_hears_as_if_it_were():
    nodes = a_cluster(40)
    assert heard_shards("node-3", [node for node in nodes if node != "node-3"]) == heard_shards("node-3", nodes)


def test_with_no_list_a_node_hears_all():
    assert heard_shards("n", ()) == SHARDS


def test_who_hears_of_a_shard_is_who_says_that_it_does():
    for size in [1, LISTENERS, 20, 60]:
        nodes = a_cluster(size)
        heard = {node: heard_shards(node, nodes) for node in nodes}
        for shard in SHARDS[::16]:
            assert set(listeners_of(shard, nodes)) == {node for node in nodes if shard in heard[node]}


def test_an_open_claim_can_be_taken_only_if_a_class_binds_immediately():
    for modes, expected in [((), False), (("WaitForFirstConsumer",), False), (("WaitForFirstConsumer", "Immediate"), True)]:
        assert any_binds_immediately(samples.class_(volumeBindingMode=mode) for mode in modes) is expected
