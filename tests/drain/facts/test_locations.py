"""Which volumes lie on a node and nowhere else, whoever made them and whatever labels people took away."""

from typing import Any

import pytest

from sidecar.drain.facts.locations import VolumeLocator
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment
from tests.harness.drain.listed_cluster import DRIVER, meta

KEY = "example.com/node"
HOME = Segment.of({KEY: "n1"})


def node(name: str, **labels: str) -> Node:
    return Node.of({"metadata": meta(name, labels={names.HOSTNAME: name, KEY: name, **labels}), "spec": {}, "status": {}})


N1, N2, N3 = node("n1", zone="a", gen="5"), node("n2", zone="a", gen="3"), node("n3", zone="b", gen="3")


def asks(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def labels(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def by_name(*values: str) -> dict[str, Any]:
    return {"matchFields": [asks("metadata.name", "In", *values)]}


def volume(*terms: dict[str, Any], maker: str = "") -> Volume:
    attributes = {names.PROVISIONER_IDENTITY: f"1700000000-1234-{DRIVER}-{maker}"} if maker else {}
    spec: dict[str, Any] = {"csi": {"driver": DRIVER, "volumeHandle": "h", "volumeAttributes": attributes}}
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    return Volume.of({"metadata": meta("pv"), "spec": spec})


HERE = labels(asks(KEY, "In", "n1"))
HOST = labels(asks(names.HOSTNAME, "In", "n1"))


@pytest.mark.parametrize(
    ("terms", "held"),
    [
        ([HERE], True),
        ([HOST], True),
        ([by_name("n1")], True),
        ([by_name("n2")], False),
        ([by_name("n1", "n2")], False),
        ([{**HERE, **by_name("n2")}], False),
        ([labels(asks(names.HOSTNAME, "NotIn", "n2", "n3"))], True),
        ([labels(asks("gen", "Gt", "4"))], True),
        ([labels(asks("zone", "In", "a"))], False),
        ([labels(asks("zone", "In", "a"), asks("gen", "In", "5"))], True),
        ([HERE, labels(asks(KEY, "In", "n2"))], False),
        ([HERE, labels(asks(KEY, "In", "gone"))], True),
        ([], False),
    ],
    ids=str,
)
def test_a_volume_that_only_this_node_reaches_is_here(terms: list[dict[str, Any]], held: bool) -> None:
    assert VolumeLocator(N1, (N2, N3)).holds(volume(*terms)) is held


@pytest.mark.parametrize(("maker", "held"), [("n1", True), ("n2", False), ("", False)])
@pytest.mark.parametrize("terms", [[], [labels(asks("zone", "In", "a"))], [labels(asks(KEY, "In", "gone"))]], ids=str)
def test_a_volume_that_labels_do_not_place_is_where_it_was_made(terms: list[dict[str, Any]], maker: str, held: bool) -> None:
    assert VolumeLocator(N1, (N2, N3)).holds(volume(*terms, maker=maker)) is held


@pytest.mark.parametrize(
    ("terms", "maker", "doubtful"),
    [
        ([labels(asks("rack", "In", "7"))], "", True),
        ([labels(asks("rack", "In", "7"))], "n2", False),
        ([labels(asks("rack", "In", "7"), asks(KEY, "In", "n9"))], "", False),
        ([labels(asks(KEY, "In", "gone"))], "", False),
        ([{**labels(asks("rack", "In", "7")), **by_name("n2")}], "", False),
        ([labels(asks("zone", "In", "a"))], "", False),
        ([], "", False),
    ],
    ids=str,
)
def test_a_volume_is_doubtful_if_the_node_lacks_a_label_it_asks_for(terms: list[dict[str, Any]], maker: str, doubtful: bool) -> None:
    """A volume of a node that is gone is in doubt nowhere: the labels that others have speak against them."""
    assert VolumeLocator(N1, (N2, N3)).is_doubtful(volume(*terms, maker=maker)) is doubtful


@pytest.mark.parametrize(
    ("terms", "only"),
    [
        ([HERE], True),
        ([HOST], True),
        ([by_name("n1")], True),
        ([labels(asks(KEY, "In", "n1"), asks("zone", "In", "a"))], True),
        ([HERE, HOST], True),
        ([labels(asks(KEY, "In", "n1", "n2"))], False),
        ([HERE, labels(asks("zone", "In", "a"))], False),
        ([labels(asks(names.HOSTNAME, "NotIn", "n2"))], False),
    ],
    ids=str,
)
def test_a_volume_that_names_one_node_needs_no_list_of_the_others(terms: list[dict[str, Any]], only: bool) -> None:
    assert VolumeLocator(N1, ()).names_only(volume(*terms), (HOME, Segment.of({names.HOSTNAME: "n1"}))) is only


def test_an_empty_segment_names_no_node() -> None:
    assert not VolumeLocator(N1, ()).names_only(volume(labels(asks("zone", "In", "a"))), (Segment(),))
