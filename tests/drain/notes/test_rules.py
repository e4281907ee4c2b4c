"""Which machine is noted on a volume, what of a note is rewritten, and what is left: a table of what is known."""

from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain.facts.driver_list import DriverList
from sidecar.drain.machine_mark import Machine, text
from sidecar.drain.notes.rules import Ask, Decision, Fine, Left, Note, NotesView, decide, patch
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.model.topology import Requirement, Term, terms_of
from tests.harness.drain.samples import DRIVER, KEY, NODE, stamp, volume

ME = Machine(NODE, "uid-new")
MINE = text(ME)
FORMER = f"{NODE}/uid-old"
OTHER = "n2/uid-n2"
NOT_ASKED = DriverList(not_asked="not yet")
CANNOT_LIST = DriverList()
PROCESS = f"1-2-{DRIVER}-{NODE}"


def lists(**handles: bool) -> DriverList:
    return DriverList(MappingProxyType(handles), answered=True)


HERE_ALONE, SOMEWHERE, NOT_HERE = lists(h=True), lists(h=False), lists()


def view(listed: DriverList = CANNOT_LIST, **changes: Any) -> NotesView:
    base = NotesView(ME, stamp(1000), DRIVER, PROCESS, leaving=False, listed=listed, names_this_node=True)
    return replace(base, **changes)


def placed(*nodes: str) -> tuple[Term, ...]:
    return tuple(Term((Requirement(KEY, "In", (node,)),)) for node in nodes)


def made_by(node: str) -> str:
    return f"7-8-{DRIVER}-{node}"


def one(**changes: Any) -> Volume:
    """Its affinity names this node, an earlier process here made it, and it is younger than the Node."""
    base = volume(affinity=placed(NODE), identity=made_by(NODE), handle="h", created=stamp(500), uid="uid-pv", resource_version="7")
    return replace(base, **changes)


def noted(decision: Decision) -> dict[str, str | None] | None:
    return dict(decision.annotations) if isinstance(decision, Note) else None


ONLY_HERE = [
    pytest.param(placed(NODE), made_by("n2"), id="the affinity names this node"),
    pytest.param(placed(NODE, NODE), "", id="each term of it does"),
    pytest.param(None, made_by(NODE), id="no affinity, and made here"),
]
NOT_ONLY_HERE = [
    pytest.param(placed("n2"), made_by(NODE), id="another node"),
    pytest.param(placed(NODE, "n2"), made_by(NODE), id="two nodes"),
    pytest.param((Term((Requirement(KEY, "In", (NODE, "n2")),)),), made_by(NODE), id="two nodes in one term"),
    pytest.param((Term((Requirement("zone", "In", ("a",)),)),), made_by(NODE), id="a zone"),
    pytest.param((Term((Requirement(KEY, "NotIn", (NODE,)),)),), made_by(NODE), id="all but this node"),
    pytest.param((Term(()),), made_by(NODE), id="a term without requirements"),
    pytest.param((), made_by(NODE), id="no term"),
    pytest.param(None, made_by("n2"), id="no affinity, and made elsewhere"),
    pytest.param(None, "", id="no affinity, and nobody says who made it"),
    pytest.param(None, made_by(f"x-{NODE}"), id="a maker whose name ends alike"),
]
BY_FIELD = terms_of({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]})


@pytest.mark.parametrize(("affinity", "identity"), [*ONLY_HERE, pytest.param(BY_FIELD, "", id="by the field of the name")])
@pytest.mark.parametrize("listed", [CANNOT_LIST, SOMEWHERE, HERE_ALONE], ids=["cannot list", "lists it", "lists it here alone"])
def test_what_can_be_nowhere_else_is_noted(affinity: Any, identity: str, listed: DriverList) -> None:
    assert noted(decide(one(affinity=affinity, identity=identity), view(listed))) == {names.LIES_ON: MINE}


@pytest.mark.parametrize(("affinity", "identity"), NOT_ONLY_HERE)
@pytest.mark.parametrize("listed", [CANNOT_LIST, SOMEWHERE, HERE_ALONE, NOT_ASKED], ids=["cannot", "lists", "here alone", "not asked"])
@pytest.mark.parametrize("lies_on", ["", FORMER, "n3/uid-n3"])
def test_what_may_be_elsewhere_is_not(affinity: Any, identity: str, listed: DriverList, lies_on: str) -> None:
    """What several nodes reach least of all, whatever the driver says, whoever made it, and whatever somebody has noted."""
    seen = one(affinity=affinity, identity=identity, lies_on=lies_on)
    for leaving in (False, True):
        decision = decide(seen, view(listed, leaving=leaving, known={"n2": True, f"x-{NODE}": True, "n3": False}))
        assert not isinstance(decision, Note), decision


@pytest.mark.parametrize(
    ("listed", "created", "since", "proven"),
    [
        pytest.param(CANNOT_LIST, stamp(500), stamp(1000), True, id="younger than the Node"),
        pytest.param(CANNOT_LIST, stamp(1000), stamp(1000), True, id="as old"),
        pytest.param(CANNOT_LIST, stamp(1001), stamp(1000), False, id="older: an earlier machine may have had it"),
        pytest.param(SOMEWHERE, stamp(1001), stamp(1000), False, id="older, and the list says no place"),
        pytest.param(HERE_ALONE, stamp(1001), stamp(1000), True, id="older, and the driver has it here"),
        pytest.param(CANNOT_LIST, stamp(500), "", False, id="the age of the Node is not known"),
        pytest.param(CANNOT_LIST, "", stamp(1000), False, id="its own age is not known"),
        pytest.param(NOT_ASKED, stamp(500), stamp(1000), False, id="the driver has not been asked yet"),
        pytest.param(NOT_HERE, stamp(500), stamp(1000), False, id="the driver does not have it"),
    ],
)
def test_the_machine_has_to_be_proven(listed: DriverList, created: str, since: str, proven: bool) -> None:
    assert isinstance(decide(one(created=created), view(listed, since=since)), Note) is proven


@pytest.mark.parametrize("listed", [CANNOT_LIST, NOT_ASKED, NOT_HERE], ids=["cannot list", "not asked", "listed before it was made"])
def test_what_this_process_has_made_is_on_its_machine(listed: DriverList) -> None:
    assert noted(decide(one(identity=PROCESS, created=stamp(1001)), view(listed))) == {names.LIES_ON: MINE}


def test_a_driver_that_calls_its_place_by_no_node_proves_nothing() -> None:
    """On each node of a zone it says that the volume is in the zone."""
    old = one(created=stamp(1001))
    assert isinstance(decide(old, view(HERE_ALONE, names_this_node=False)), Fine)
    assert isinstance(decide(replace(old, lies_on=FORMER), view(HERE_ALONE, names_this_node=False)), Left)


@pytest.mark.parametrize(
    ("lies_on", "listed", "known", "expected"),
    [
        pytest.param(FORMER, HERE_ALONE, {}, Note, id="an earlier machine of this name, and the driver has it"),
        pytest.param(FORMER, CANNOT_LIST, {}, Left, id="an earlier machine, and the driver cannot say"),
        pytest.param(FORMER, SOMEWHERE, {}, Left, id="an earlier machine, and the driver names no place"),
        pytest.param(FORMER, NOT_HERE, {}, Left, id="an earlier machine, and the driver does not have it"),
        pytest.param(FORMER, NOT_ASKED, {}, Left, id="an earlier machine, and the driver was not asked"),
        pytest.param(OTHER, HERE_ALONE, {}, Ask, id="another node, of which nothing is known"),
        pytest.param(OTHER, HERE_ALONE, {"n2": True}, Left, id="another node that exists"),
        pytest.param(OTHER, HERE_ALONE, {"n2": False}, Note, id="another node that is gone"),
        pytest.param(OTHER, CANNOT_LIST, {"n2": False}, Left, id="gone, and the driver does not say that it came here"),
        pytest.param("hands off", HERE_ALONE, {}, Left, id="no machine"),
        pytest.param(f"{NODE}/", HERE_ALONE, {}, Left, id="no uid"),
        pytest.param("x" * 262_144, HERE_ALONE, {}, Left, id="a long text"),
    ],
)
def test_what_is_noted_of_another_machine_is_rewritten_on_the_drivers_word_alone(
    lies_on: str, listed: DriverList, known: dict[str, bool], expected: type[Decision]
) -> None:
    decision = decide(one(lies_on=lies_on, created=stamp(500)), view(listed, known=known))
    assert isinstance(decision, expected), decision
    if isinstance(decision, Note):
        assert decision.annotations[names.LIES_ON] == MINE


def test_the_notes_of_other_nodes_volumes_are_not_told() -> None:
    """A node may hear of them, and its driver may list them."""
    theirs = one(affinity=placed("n2"), identity=made_by("n2"), lies_on=OTHER)
    for listed, known in product((CANNOT_LIST, SOMEWHERE, NOT_HERE), ({}, {"n2": True})):
        assert isinstance(decide(theirs, view(listed, known=known)), Fine)
    assert isinstance(decide(theirs, view(HERE_ALONE, known={"n2": True})), Fine)


@pytest.mark.parametrize("affinity", [placed("old"), None], ids=["named by its affinity", "by its maker"])
@pytest.mark.parametrize("lies_on", ["", "old/uid-0"])
def test_a_renamed_node_notes_what_its_driver_has(affinity: Any, lies_on: str) -> None:
    theirs = one(affinity=affinity, identity=made_by("old"), lies_on=lies_on)
    assert isinstance(decide(theirs, view(HERE_ALONE)), Ask)
    assert not isinstance(decide(theirs, view(HERE_ALONE, known={"old": True})), Note)
    assert noted(decide(theirs, view(HERE_ALONE, known={"old": False}))) == {names.LIES_ON: MINE}
    assert not isinstance(decide(theirs, view(SOMEWHERE, known={"old": False})), Note)


def test_two_living_nodes_never_write_over_each_other() -> None:
    """Whatever their drivers say: each leaves the note of the other."""
    shared = one(affinity=None, identity=made_by("n2"), lies_on=OTHER)
    assert not isinstance(decide(shared, view(HERE_ALONE, known={"n2": True})), Note)


def test_another_drivers_volume_is_never_written() -> None:
    for lies_on, leaving in product(("", MINE, FORMER), ("", MINE)):
        theirs = one(driver="other.example.com", lies_on=lies_on, leaving=leaving)
        assert isinstance(decide(theirs, view(HERE_ALONE, leaving=True)), Fine)


@pytest.mark.parametrize(
    ("lies_on", "leaving", "leaves", "expected"),
    [
        pytest.param("", "", True, {names.LIES_ON: MINE, names.LEAVING: MINE}, id="both at once"),
        pytest.param(MINE, "", True, {names.LEAVING: MINE}, id="announced"),
        pytest.param(MINE, MINE, True, None, id="at rest while it leaves"),
        pytest.param(MINE, MINE, False, {names.LEAVING: None}, id="undone"),
        pytest.param(MINE, FORMER, True, {names.LEAVING: MINE}, id="another one's leaving"),
        pytest.param(MINE, FORMER, False, {names.LEAVING: None}, id="another one's leaving, which is no more"),
        pytest.param(MINE, "garbage", False, {names.LEAVING: None}, id="garbage"),
        pytest.param(MINE, "", False, None, id="at rest"),
        pytest.param("", FORMER, False, {names.LIES_ON: MINE, names.LEAVING: None}, id="the note was taken off"),
        pytest.param("", MINE, False, {names.LIES_ON: MINE, names.LEAVING: None}, id="the note was taken off, and ours left"),
    ],
)
def test_leaving_goes_with_the_announcement(lies_on: str, leaving: str, leaves: bool, expected: dict[str, str | None] | None) -> None:
    assert noted(decide(one(lies_on=lies_on, leaving=leaving), view(leaving=leaves))) == expected


def test_what_an_earlier_machine_said_of_its_leaving_goes_with_its_note() -> None:
    seen = one(lies_on=FORMER, leaving=FORMER)
    assert noted(decide(seen, view(HERE_ALONE))) == {names.LIES_ON: MINE, names.LEAVING: None}


def test_an_earlier_machine_that_may_have_come_back_as_this_one_leaves_no_more() -> None:
    """Else its old word would be taken for this machine's, whose node goes one day without an announcement."""
    seen = one(lies_on=FORMER, leaving=FORMER)
    for listed, leaves in product((CANNOT_LIST, NOT_HERE, SOMEWHERE, NOT_ASKED), (False, True)):
        assert noted(decide(seen, view(listed, leaving=leaves))) == {names.LEAVING: None}
    assert isinstance(decide(replace(seen, leaving=""), view(CANNOT_LIST)), Left)
    assert isinstance(decide(replace(seen, leaving=OTHER), view(CANNOT_LIST)), Left)


def test_our_word_of_leaving_does_not_stay_beside_another_machine() -> None:
    assert noted(decide(one(lies_on=OTHER, leaving=MINE), view(leaving=True))) == {names.LEAVING: None}
    assert noted(decide(one(affinity=placed("n2"), identity="", leaving=MINE), view())) == {names.LEAVING: None}


def test_a_note_is_guarded_by_the_object_that_was_seen() -> None:
    note = decide(one(), view(leaving=True))
    assert isinstance(note, Note)
    meta = {"uid": "uid-pv", "resourceVersion": "7", "annotations": {names.LIES_ON: MINE, names.LEAVING: MINE}}
    assert patch(note) == {"metadata": meta}


def test_what_says_something_of_leaving_comes_first_and_bound_volumes_before_others() -> None:
    here = view(leaving=False)
    calm, undone, released = (
        one(name="a"),
        one(name="z", lies_on=MINE, leaving=MINE),
        one(name="b", lies_on=MINE, leaving=MINE, phase="Released"),
    )
    notes = [note for each in (calm, released, undone) if isinstance(note := decide(each, here), Note)]
    assert [note.volume.name for note in sorted(notes, key=lambda note: note.turn)] == ["z", "b", "a"]


NOTES = st.sampled_from(["", MINE, FORMER, OTHER, "garbage", "n3/uid-n3"])
LISTS = st.sampled_from([CANNOT_LIST, NOT_ASKED, NOT_HERE, SOMEWHERE, HERE_ALONE])
AFFINITIES = st.sampled_from(
    [None, placed(NODE), placed("n2"), placed("old"), placed(NODE, "n2"), (), (Term((Requirement("zone", "In", ("a",)),)),)]
)


@given(
    lies_on=NOTES,
    leaving=NOTES,
    listed=LISTS,
    affinity=AFFINITIES,
    maker=st.sampled_from([NODE, "n2", "old"]),
    leaves=st.booleans(),
    known=st.dictionaries(st.sampled_from(["n2", "n3", "old"]), st.booleans()),
)
def test_whatever_is_noted_one_write_is_enough(
    lies_on: str, leaving: str, listed: DriverList, affinity: Any, maker: str, leaves: bool, known: dict[str, bool]
) -> None:
    """Nothing is written twice, so a look at rest writes nothing; and `leaving` never stands where another machine is noted."""
    seen, now = one(affinity=affinity, identity=made_by(maker), lies_on=lies_on, leaving=leaving), view(listed, leaving=leaves, known=known)
    decision = decide(seen, now)
    if not isinstance(decision, Note):
        return
    wanted = {names.LIES_ON: lies_on, names.LEAVING: leaving} | {key: value or "" for key, value in decision.annotations.items()}
    after = replace(seen, lies_on=wanted[names.LIES_ON], leaving=wanted[names.LEAVING])
    assert not isinstance(decide(after, now), Note)
    assert after.leaving != MINE or (after.lies_on == MINE and leaves)
