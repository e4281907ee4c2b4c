"""Where a volume's data is: on this node, on another, or not known; and what the picture of a node is made of."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.snapshot import Own, Raw, Snapshot, build
from sidecar.drain.where import Locator, Where
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Requirement, Segment, Term
from tests.harness.drain.samples import DRIVER, KEY, NOW, claim, class_, content, node, pod, stamp, volume

HERE, ELSEWHERE, UNKNOWN = Where.HERE, Where.ELSEWHERE, Where.UNKNOWN


def labelled(name: str, **labels: str) -> Node:
    return node(name, labels={KEY: name, names.HOSTNAME: name, **labels})


N1, N2, N3 = labelled("n1", zone="a", gen="5"), labelled("n2", zone="a", gen="3"), labelled("n3", zone="b", gen="3", rack="3")


def asks(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, operator, values)


def labels(*requirements: Requirement) -> Term:
    return Term(requirements)


def by_name(*values: str, and_labels: tuple[Requirement, ...] = ()) -> Term:
    return Term(and_labels, fields=(Requirement("metadata.name", "In", values),), has_fields=True)


def of(*terms: Term, maker: str = "") -> Volume:
    """`maker`: the node whose sidecar made it, or nobody of us."""
    return volume(affinity=terms or None, identity=f"1700000000-1234-{DRIVER}-{maker}" if maker else "")


OWN, BOTH, GONE = labels(asks(KEY, "In", "n1")), labels(asks(KEY, "In", "n1", "n2")), labels(asks(KEY, "In", "gone"))
RACK, ROW = asks("rack", "In", "7"), asks("row", "In", "2")


@pytest.mark.parametrize(
    ("terms", "by_nobody", "by_n1", "by_n2", "by_gone"),
    [
        pytest.param([OWN], HERE, HERE, HERE, HERE, id="this node alone has the driver's label"),
        pytest.param([labels(asks(names.HOSTNAME, "In", "n1"))], HERE, HERE, HERE, HERE, id="the hostname"),
        pytest.param([by_name("n1")], HERE, HERE, HERE, HERE, id="the name as a field"),
        pytest.param([labels(asks(names.HOSTNAME, "NotIn", "n2", "n3"))], HERE, HERE, HERE, HERE, id="all others are ruled out"),
        pytest.param([labels(asks("gen", "Gt", "4"))], HERE, HERE, HERE, HERE, id="a number that only this one exceeds"),
        pytest.param([OWN, GONE], HERE, HERE, HERE, HERE, id="terms are alternatives"),
        pytest.param([by_name("n2")], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="another node"),
        pytest.param([by_name("n2", and_labels=OWN.requirements)], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="label and field differ"),
        pytest.param([BOTH], UNKNOWN, HERE, ELSEWHERE, UNKNOWN, id="two nodes"),
        pytest.param([labels(asks("zone", "In", "a"))], UNKNOWN, HERE, ELSEWHERE, UNKNOWN, id="a label that two nodes have"),
        pytest.param([], UNKNOWN, HERE, ELSEWHERE, ELSEWHERE, id="no affinity"),
        pytest.param([GONE], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="a node that is gone"),
        pytest.param([labels(RACK)], UNKNOWN, HERE, ELSEWHERE, ELSEWHERE, id="a label that this node lacks and others have"),
        pytest.param([labels(ROW)], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="a label that no node has"),
        pytest.param([labels(ROW), labels(RACK)], UNKNOWN, HERE, ELSEWHERE, ELSEWHERE, id="either of these"),
        pytest.param([labels(*OWN.requirements, ROW)], UNKNOWN, HERE, ELSEWHERE, ELSEWHERE, id="names this node, which lacks another"),
        pytest.param(
            [labels(RACK, asks(KEY, "In", "n9"))], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="lacks one, and another speaks against"
        ),
        pytest.param([labels(RACK, ROW)], ELSEWHERE, HERE, ELSEWHERE, ELSEWHERE, id="lacks two, of which no node has one"),
    ],
)
def test_where_a_volume_is_by_its_affinity_and_its_maker(
    terms: list[Term], by_nobody: Where, by_n1: Where, by_n2: Where, by_gone: Where
) -> None:
    locator = Locator(N1, (N2, N3))
    found = {maker: locator.place(of(*terms, maker=maker)) for maker in ("", "n1", "n2", "gone")}
    assert [place.where for place in found.values()] == [by_nobody, by_n1, by_n2, by_gone]
    assert all(bool(place.why) is (place.where is UNKNOWN) for place in found.values())


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        pytest.param(of(GONE, maker="gone"), UNKNOWN, id="no node is what it asks for: this one may have been"),
        pytest.param(of(GONE), UNKNOWN, id="the same, whoever made it"),
        pytest.param(of(maker="gone"), UNKNOWN, id="without affinity, and its maker is gone"),
        pytest.param(of(GONE, maker="n2"), ELSEWHERE, id="its maker is there"),
        pytest.param(of(by_name("n2")), ELSEWHERE, id="some drivers list what other nodes have"),
        pytest.param(of(OWN), HERE, id="here anyhow"),
    ],
)
def test_where_a_volume_is_that_the_driver_of_this_node_lists(wanted: Volume, where: Where) -> None:
    assert Locator(N1, (N2, N3)).place(wanted, listed=True).where is where


def test_a_label_that_people_took_off_the_node_counts_as_the_driver_reports_it() -> None:
    bare = node("n1", labels={})
    assert Locator(bare, (N2, N3), segment=Segment(((KEY, "n1"),))).place(of(OWN)).where is HERE
    assert Locator(bare, (N2, N3)).place(of(OWN)).where is UNKNOWN, "from outside nobody knows what the driver reports"


# --- the picture ------------------------------------------------------------------------------------------------------


def picture(own: Own | None = None, **changes: Any) -> Snapshot:
    raw = Raw(at=NOW, nodes=(N1, N2, N3), volumes=(), claims=(), pods=(), classes=(class_(),), namespaces={})
    return build(replace(raw, **changes), "n1", DRIVER, own)


def test_what_is_here_what_may_be_and_what_is_elsewhere() -> None:
    seen = picture(volumes=(of(OWN), replace(of(BOTH), name="pv-both"), replace(of(GONE), name="pv-gone"), volume("x", driver="other")))
    assert [item.name for item in seen.volumes] == ["pv-0"]
    assert [item.name for item in seen.unplaced] == ["pv-both"] and not seen.ignorance


@pytest.mark.parametrize(
    ("wanted", "own", "depends"),
    [
        pytest.param(of(BOTH), Own(), True, id="two nodes may match"),
        pytest.param(of(labels(asks("zone", "In", "a"))), Own(), True, id="others may have the label"),
        pytest.param(of(GONE), Own(listed=frozenset({"handle-pv-0"})), True, id="its node may be there"),
        pytest.param(of(OWN, maker="n1"), Own(), False, id="made here"),
        pytest.param(of(GONE), Own(), False, id="nothing says that it is here"),
    ],
)
def test_without_the_other_nodes_nobody_says_where_a_volume_is_that_depends_on_them(wanted: Volume, own: Own, depends: bool) -> None:
    seen = picture(own, volumes=(wanted,), nodes=(N1,), others_known=False)
    assert bool(seen.ignorance) is depends


def test_a_claim_that_is_bound_here_to_a_volume_that_is_not_seen_yet_makes_the_picture_incomplete() -> None:
    bound = claim(volume_name="pv-new")
    assert "apps/data-0" in picture(claims=(bound,)).ignorance[0]
    assert not picture(claims=(replace(bound, selected_node="n2"),)).ignorance
    assert not picture(claims=(bound,), volumes=(replace(of(OWN), name="pv-new"),)).ignorance


@pytest.mark.parametrize(
    ("changes", "here", "unplaced"),
    [
        pytest.param({"managed_by": "n1", "source_handle": "x"}, True, False, id="labelled with this node"),
        pytest.param({"managed_by": "n2"}, False, False, id="labelled with another node"),
        pytest.param({"managed_by": ""}, True, False, id="where its source is"),
        pytest.param({"managed_by": "", "source_handle": "x"}, False, True, id="its source is gone"),
        pytest.param({"managed_by": "", "driver": "other"}, False, False, id="another driver's"),
    ],
)
def test_where_a_snapshots_data_is(changes: dict[str, str], here: bool, unplaced: bool) -> None:
    seen = picture(volumes=(of(OWN),), contents=(content(**changes),))
    assert (bool(seen.contents), bool(seen.unplaced)) == (here, unplaced)


@pytest.mark.parametrize(
    ("changes", "own", "found"),
    [
        pytest.param({}, Own(), [False], id="asked for a moment ago"),
        pytest.param({}, Own(begun=frozenset({"uid-apps-data-0"})), [True], id="begun"),
        pytest.param({"has_selector": True}, Own(), [], id="it can never be made: whoever may write a claim could hold the node"),
        pytest.param({"deleting": True}, Own(), [], id="it is being deleted"),
        pytest.param({"requested": None}, Own(), [], id="nobody can read how much it wants"),
        pytest.param({"class_name": "other"}, Own(), [], id="its class is not there"),
        pytest.param({"has_selector": True}, Own(begun=frozenset({"uid-apps-data-0"})), [True], id="begun whatever it asks for"),
        pytest.param({"created": stamp(599)}, Own(), [False], id="it waits for nearly ten minutes"),
        pytest.param({"created": stamp(600)}, Own(), [], id="it waits for ten minutes"),
        pytest.param({"created": stamp(9000)}, Own(waited={"uid-apps-data-0": 5.0}), [False], id="it waits here for seconds"),
        pytest.param({"created": stamp(9000)}, Own(begun=frozenset({"uid-apps-data-0"})), [True], id="begun for as long as it takes"),
        pytest.param({"volume_name": "pv-0"}, Own(), [], id="it has its volume"),
        pytest.param({"selected_node": "n2"}, Own(), [], id="on another node"),
    ],
)
def test_what_counts_as_being_created_here(changes: dict[str, Any], own: Own, found: list[bool]) -> None:
    seen = picture(own, claims=(claim(**changes),), volumes=(of(OWN),) if "volume_name" in changes else ())
    assert [flight.begun for flight in seen.in_flight] == found


def test_pods_elsewhere_count_if_they_name_a_claim_of_a_volume_here_and_have_not_ended() -> None:
    waits = pod("db-0", "data-0", node="")
    pods = (waits, pod("far", "data-0", node="n2"), pod("ended", "data-0", node="n2", phase="Failed"), pod("web", "other", node=""))
    assert [item.name for item in picture(volumes=(of(OWN),), pods=pods).claimants] == ["db-0", "far"]
    come = picture(volumes=(of(OWN),), pods=(pod("db-0", "data-0"), waits))
    assert (len(come.pods), come.claimants) == (1, ()), "it has come here since it was listed"


def test_of_lists_that_failed_it_is_known_whose_word_is_missing() -> None:
    seen = picture(volumes=(of(OWN),), unlisted=frozenset({"claim", "namespace", names.STORAGE_CLASS}))
    assert seen.unread == {"claim apps/data-0", "namespace apps", f"{names.STORAGE_CLASS} local"}
