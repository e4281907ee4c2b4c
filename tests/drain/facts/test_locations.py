"""Which volumes lie on a node and nowhere else, whoever made them and whatever labels people took away."""

from dataclasses import replace
from typing import Any

from sidecar.drain.facts.locations import VolumeLocator
from sidecar.model import names
from sidecar.model.nodes import Node, Taint
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment
from tests.harness.drain.listed_cluster import DRIVER, meta

KEY = "example.com/node"

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def node(name: str, **labels: str) -> Node:
    return Node.of({"metadata": meta(name, labels={names.HOSTNAME: name, KEY: name, **labels}), "spec": {}, "status": READY})


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


def test_a_volume_that_only_this_node_reaches_is_here() -> None:
    for terms, held in [
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
    ]:
        assert VolumeLocator(N1, (N2, N3)).holds(volume(*terms)) is held


def test_a_volume_that_labels_do_not_place_is_where_it_was_made() -> None:
    for terms in [[], [labels(asks("zone", "In", "a"))], [labels(asks(KEY, "In", "gone"))]]:
        for maker, held in [("n1", True), ("n2", False), ("", False)]:
            assert VolumeLocator(N1, (N2, N3)).holds(volume(*terms, maker=maker)) is held


RACKED = node("n4", rack="3")


def test_a_volume_is_doubtful_if_the_node_lacks_a_label_that_others_have() -> None:
    """A volume of a node that is gone is in doubt nowhere: the labels that nodes have speak against them, and one that none has
    says nothing of them. One that names this node is not lost with a label that was taken off it."""
    for terms, maker, doubtful in [
        ([labels(asks("rack", "In", "7"))], "", True),
        ([labels(asks("rack", "In", "7"), asks("row", "In", "2"))], "", False),
        ([labels(asks("row", "In", "2"))], "", False),
        ([labels(asks("row", "In", "2")), labels(asks("rack", "In", "7"))], "", True),
        ([labels(asks("rack", "In", "7"))], "n2", False),
        ([labels(asks("rack", "In", "7"), asks(KEY, "In", "n9"))], "", False),
        ([labels(asks(KEY, "In", "gone"))], "", False),
        ([{**labels(asks("rack", "In", "7")), **by_name("n2")}], "", False),
        ([labels(asks("zone", "In", "a"))], "", False),
        ([labels(asks(KEY, "In", "n1"), asks("row", "In", "2"))], "", True),
        ([labels(asks(KEY, "In", "n1", "gone"), asks("row", "Exists"))], "", True),
        ([labels(asks(KEY, "In", "n1"), asks("row", "In", "2"))], "gone", True),
        ([labels(asks(KEY, "In", "n1"), asks("row", "In", "2"))], "n2", False),
        ([labels(asks(KEY, "In", "n2"), asks("row", "In", "2"))], "", False),
        ([{**labels(asks("row", "In", "2")), **by_name("n1")}], "gone", True),
        ([labels(asks("zone", "In", "a"), asks("row", "In", "2"))], "", False),
        ([labels(asks("zone", "NotIn", "b"), asks("row", "In", "2"))], "", False),
        ([labels(asks("rack", "In", "7"))], "gone", False),
        ([], "", False),
    ]:
        assert VolumeLocator(N1, (N2, N3, RACKED)).is_doubtful(volume(*terms, maker=maker)) is doubtful


BOTH = labels(asks(KEY, "In", "n1", "n2"))


def leaving(**change: Any) -> Node:
    return replace(N2, **change)


def test_the_last_node_that_reaches_a_volume_and_stays_has_it() -> None:
    """Of two nodes that somebody empties at the same time, neither is without it."""
    for other, last in [
        (N2, False),
        (leaving(unschedulable=True), True),
        (leaving(ready="Unknown"), True),
        (leaving(ready="False"), True),
        (leaving(deleting=True), True),
        (leaving(taints=(Taint(names.EVACUATE_TAINT, "reboot", "NoSchedule"),)), True),
        (leaving(taints=(Taint(names.RETIRING_TAINTS[0], "", "NoSchedule"),)), True),
        (leaving(annotations={names.DRAIN_INTENT: "retire"}), True),
        (leaving(taints=(Taint("other", "", "NoSchedule"),)), False),
    ]:
        locator = VolumeLocator(N1, (other, N3))
        assert locator.holds(volume(BOTH)) is last
        assert locator.others_that_stay(volume(BOTH)) == (() if last else ("n2",))


def test_where_a_driver_has_a_volume_on_one_node_one_that_several_reach_and_nobody_made_is_nowhere() -> None:
    zone, either = labels(asks("zone", "In", "a")), [HERE, labels(asks("zone", "In", "a"))]
    for terms, maker, place, unplaced in [
        (either, "", {KEY: "n1"}, True),
        ([zone], "", {KEY: "n1"}, True),
        ([zone], "n2", {KEY: "n1"}, False),
        ([HERE], "", {KEY: "n1"}, False),
        (either, "", {"zone": "a"}, False),  # the driver's volumes are on several nodes on purpose
        (either, "", {}, False),
        ([], "", {}, True),
        ([], "n2", {KEY: "n1"}, False),
    ]:
        locator = VolumeLocator(N1, (N2, N3), place=Segment.of(place))
        assert locator.is_unplaced(volume(*terms, maker=maker)) is unplaced


def test_a_volume_that_no_living_node_reaches_or_made_is_an_orphan() -> None:
    for terms, maker, orphan in [
        ([labels(asks("row", "In", "2"))], "", True),
        ([labels(asks("row", "In", "2"))], "n2", False),
        ([labels(asks("row", "In", "2"))], "gone", True),
        ([labels(asks("rack", "In", "7"))], "", False),
        ([labels(asks(KEY, "In", "n1"), asks("row", "In", "2"))], "gone", False),
        ([labels(asks(KEY, "In", "gone"))], "", True),
        ([HERE], "gone", False),
        ([], "gone", False),
    ]:
        assert VolumeLocator(N1, (N2, N3, RACKED)).is_orphan(volume(*terms, maker=maker)) is orphan
