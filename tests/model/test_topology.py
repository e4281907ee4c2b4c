"""Segments, selector terms and allowedTopologies."""

from sidecar.model.topology import Segment, accessible, allows, terms_of

HERE = Segment.of({"topology.example/node": "foo", "topology.example/zone": "1"})


def term(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_order_of_the_pairs_does_not_matter() -> None:
    assert Segment.of({"b": "2", "a": "1"}) == Segment.of({"a": "1", "b": "2"})
    assert str(Segment.of({"b": "2", "a": "1"})) == "a=1,b=2"


def test_an_empty_segment_is_false_and_says_so() -> None:
    assert not Segment()
    assert str(Segment()) == "(none)"


def test_node_affinity_terms() -> None:
    assert terms_of(None) == ()
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["foo"]}]}
    for terms, matches in [
        ([term("topology.example/node", "In", "foo")], True),
        ([term("topology.example/node", "In", "bar")], False),
        ([term("topology.example/node", "In", "bar"), term("topology.example/zone", "In", "1", "2")], True),
        ([], False),
        ([{}], False),
        ([by_name], False),
        ([term("topology.example/node", "In", "foo") | by_name], False),
        ([term("topology.example/node", "NotIn", "bar")], True),
        ([term("topology.example/other", "NotIn", "bar")], True),
        ([term("topology.example/node", "Exists")], True),
        ([term("topology.example/other", "DoesNotExist")], True),
        ([term("topology.example/zone", "Gt", "0")], True),
        ([term("topology.example/zone", "Lt", "0")], False),
        ([term("topology.example/node", "Gt", "0")], False),
        ([term("topology.example/zone", "Gt", "0", "1")], False),
        ([term("topology.example/node", "Like", "foo")], False),
    ]:
        assert accessible(terms_of({"nodeSelectorTerms": terms}), HERE) is matches


def test_allowed_topologies() -> None:
    for allowed, matches in [
        ([{"topology.example/node": ("foo", "bar")}], True),
        ([{"topology.example/node": ("bar",)}], False),
        ([{"topology.example/node": ("bar",)}, {"topology.example/zone": ("1",)}], True),
        ([{"topology.example/node": ("foo",), "topology.example/rack": ("r",)}], False),
        ([{}], False),
    ]:
        assert allows(allowed, HERE) is matches


def test_within() -> None:
    assert Segment.of({"topology.example/zone": "1"}).within(HERE)
    assert not Segment.of({"topology.example/zone": "2"}).within(HERE)
