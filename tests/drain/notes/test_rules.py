"""Which machine is noted on a volume, and what of a note is rewritten: a table of what is known."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sidecar.drain.facts.driver_list import DriverList
from sidecar.drain.machine_mark import Machine, text
from sidecar.drain.notes.rules import Ask, Decision, Left, Note, NotesView, decide
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
    (placed(NODE), made_by("n2")),  # the affinity names this node
    (placed(NODE, NODE), ""),  # each term of it does
    (None, made_by(NODE)),  # no affinity, and made here
]
NOT_ONLY_HERE = [
    (placed("n2"), made_by(NODE)),  # another node
    (placed(NODE, "n2"), made_by(NODE)),  # two nodes
    ((Term((Requirement(KEY, "In", (NODE, "n2")),)),), made_by(NODE)),  # two nodes in one term
    ((Term((Requirement("zone", "In", ("a",)),)),), made_by(NODE)),  # a zone
    ((Term((Requirement(KEY, "NotIn", (NODE,)),)),), made_by(NODE)),  # all but this node
    ((Term(()),), made_by(NODE)),  # a term without requirements
    ((), made_by(NODE)),  # no term
    (None, made_by("n2")),  # no affinity, and made elsewhere
    (None, ""),  # no affinity, and nobody says who made it
    (None, made_by(f"x-{NODE}")),  # a maker whose name ends alike
]
BY_FIELD = terms_of({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]})


def test_what_can_be_nowhere_else_is_noted() -> None:
    for listed in [
        CANNOT_LIST,  # cannot list
        SOMEWHERE,  # lists it
        HERE_ALONE,  # lists it here alone
    ]:
        for affinity, identity in [*ONLY_HERE, (BY_FIELD, "")]:
            assert noted(decide(one(affinity=affinity, identity=identity), view(listed))) == {names.LIES_ON: MINE}


def test_what_may_be_elsewhere_is_not() -> None:
    """What several nodes reach least of all, whatever the driver says, whoever made it, and whatever somebody has noted."""
    for lies_on in ["", FORMER, "n3/uid-n3"]:
        for listed in [
            CANNOT_LIST,  # cannot
            SOMEWHERE,  # lists
            HERE_ALONE,  # here alone
            NOT_ASKED,  # not asked
        ]:
            for affinity, identity in NOT_ONLY_HERE:
                seen = one(affinity=affinity, identity=identity, lies_on=lies_on)
                for leaving in (False, True):
                    decision = decide(seen, view(listed, leaving=leaving, known={"n2": True, f"x-{NODE}": True, "n3": False}))
                    assert not isinstance(decision, Note), decision


def test_the_machine_has_to_be_proven() -> None:
    for listed, created, since, proven in [
        (CANNOT_LIST, stamp(500), stamp(1000), True),  # younger than the Node
        (CANNOT_LIST, stamp(1000), stamp(1000), True),  # as old
        (CANNOT_LIST, stamp(1001), stamp(1000), False),  # older: an earlier machine may have had it
        (SOMEWHERE, stamp(1001), stamp(1000), False),  # older, and the list says no place
        (HERE_ALONE, stamp(1001), stamp(1000), True),  # older, and the driver has it here
        (CANNOT_LIST, stamp(500), "", False),  # the age of the Node is not known
        (CANNOT_LIST, "", stamp(1000), False),  # its own age is not known
        (NOT_ASKED, stamp(500), stamp(1000), False),  # the driver has not been asked yet
        (NOT_HERE, stamp(500), stamp(1000), False),  # the driver does not have it
    ]:
        assert isinstance(decide(one(created=created), view(listed, since=since)), Note) is proven


def test_what_is_noted_of_another_machine_is_rewritten_on_the_drivers_word_alone() -> None:
    for lies_on, listed, known, expected in [
        (FORMER, HERE_ALONE, {}, Note),  # an earlier machine of this name, and the driver has it
        (FORMER, CANNOT_LIST, {}, Left),  # an earlier machine, and the driver cannot say
        (FORMER, SOMEWHERE, {}, Left),  # an earlier machine, and the driver names no place
        (FORMER, NOT_HERE, {}, Left),  # an earlier machine, and the driver does not have it
        (FORMER, NOT_ASKED, {}, Left),  # an earlier machine, and the driver was not asked
        (OTHER, HERE_ALONE, {}, Ask),  # another node, of which nothing is known
        (OTHER, HERE_ALONE, {"n2": True}, Left),  # another node that exists
        (OTHER, HERE_ALONE, {"n2": False}, Note),  # another node that is gone
        (OTHER, CANNOT_LIST, {"n2": False}, Left),  # gone, and the driver does not say that it came here
        ("hands off", HERE_ALONE, {}, Left),  # no machine
        (f"{NODE}/", HERE_ALONE, {}, Left),  # no uid
        ("x" * 262_144, HERE_ALONE, {}, Left),  # a long text
    ]:
        decision = decide(one(lies_on=lies_on, created=stamp(500)), view(listed, known=known))
        assert isinstance(decision, expected), decision
        if isinstance(decision, Note):
            assert decision.annotations[names.LIES_ON] == MINE
