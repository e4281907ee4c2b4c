"""Which sidecar looks after the gate of a node whose own one has stopped, and when it opens the gate. Ignorance never opens it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain import leases
from sidecar.drain.gate import takeover
from sidecar.drain.gate.takeover import GateFacts, Keep, LeaveAlone, LetGo, LookAfter, NeighbourView, Nothing, TakeOver, judge, responsible
from sidecar.drain.judgement.assessment import Verdict
from sidecar.drain.leases import Lease, Take, decide, identity
from sidecar.drain.vocabulary import Reason, Status
from sidecar.model import names
from tests.harness.drain.samples import DRIVER, NOW, node

ME = identity("uid-n2", DRIVER)
THEIRS = Lease(names.guard("uid-n1", DRIVER), "u", "7", identity("uid-n1", DRIVER), "n1", "uid-n1", NOW, 900.0)
GATE = ({"kind": "PodDisruptionBudget", "spec": {"minAvailable": 1}}, {"kind": "Deployment", "spec": {}})
PROVEN = Verdict(Status.TRUE, Reason.NOTHING_HERE, "no volume is on this node")


def view(**changes: Any) -> NeighbourView:
    base = NeighbourView(now=10_000.0, me=ME, driver=DRIVER, lease=THEIRS, unchanged_since=9_990.0, chance=0.5)
    return replace(base, **changes)


def facts(**changes: Any) -> GateFacts:
    base = GateFacts(lease=THEIRS, node=node(), gate=GATE, override="", retire=PROVEN, strays=())
    return replace(base, **changes)


# --- who looks after it -----------------------------------------------------------------------------------------------


def test_a_lease_that_is_renewed_is_left_alone() -> None:
    assert responsible(view()) == LeaveAlone(f"{THEIRS.holder} looks after the gate")


@pytest.mark.parametrize(("age", "taken"), [(900.0, False), (1019.9, False), (1020.0, True), (1e9, True)])
def test_a_lease_is_taken_after_its_time_and_some_patience(age: float, taken: bool) -> None:
    assert isinstance(responsible(view(unchanged_since=10_000.0 - age)), TakeOver) is taken


def test_neighbours_do_not_all_come_at_once() -> None:
    taken = [isinstance(responsible(view(unchanged_since=10_000.0 - 1020, chance=chance)), TakeOver) for chance in (0.0, 0.4, 0.6, 0.9)]
    assert taken == [True, True, False, False]


def test_the_time_of_the_renewal_does_not_count_because_clocks_differ() -> None:
    for renewed in (0.0, NOW * 2):
        assert isinstance(responsible(view(lease=replace(THEIRS, renewed=renewed))), LeaveAlone)


@pytest.mark.parametrize("duration", [-5.0, 0.0])
def test_a_duration_of_nothing_leaves_the_patience_as_it_is(duration: float) -> None:
    assert isinstance(responsible(view(lease=replace(THEIRS, duration=duration))), LeaveAlone)


def test_the_holder_of_the_lease_looks_after_the_gate() -> None:
    assert responsible(view(lease=replace(THEIRS, holder=ME))) == LookAfter()


def test_another_lease_is_not_touched() -> None:
    for stranger in (replace(THEIRS, name="mine"), replace(THEIRS, node_uid="uid-n9"), replace(THEIRS, node_uid="")):
        assert isinstance(responsible(view(lease=stranger, unchanged_since=0.0)), LeaveAlone)
    assert isinstance(responsible(view(driver="other.example.com", unchanged_since=0.0)), LeaveAlone)


def test_what_is_taken_stays_the_lease_of_its_node() -> None:
    terms = takeover.terms(view(), namespace="storage")
    taken = decide(leases.LeaseView(NOW, terms, wanted=True, stored=THEIRS, takeable="it has run out"))
    assert isinstance(taken, Take)
    body = taken.body
    assert body["spec"]["holderIdentity"] == ME
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
    assert (body["metadata"]["name"], body["metadata"]["resourceVersion"]) == (THEIRS.name, "7")


# --- what becomes of the gate -----------------------------------------------------------------------------------------


def test_a_gate_is_opened_on_proof() -> None:
    assert judge(facts()) == LetGo(GATE, "NoVolumes: no volume is on this node")


def test_a_gate_is_opened_where_people_have_said_so_whatever_lies_there() -> None:
    blocked = Verdict(Status.FALSE, Reason.LAST_COPY, "claim apps/data-0: LastCopy")
    assert judge(facts(override="ticket 7", retire=blocked, strays=("pv-0",))) == LetGo(GATE, f"{names.FORCE_DRAIN}: ticket 7")


def test_the_gate_of_a_node_that_is_gone_goes_by_itself() -> None:
    for gone in (None, node(uid="uid-of-another-machine")):
        judged = judge(facts(node=gone, override="ticket 7"))
        assert judged == Nothing("its node is gone, and what was made for it is deleted with it", by_itself=True)


def test_without_a_gate_nobody_needs_the_lease() -> None:
    assert judge(facts(gate=())) == Nothing("the gate is gone", by_itself=False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"retire": None}, "NotKnown: the node has not been judged from here yet"),
        ({"retire": Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, "silent")}, "SourceOffline: silent"),
        ({"retire": Verdict(Status.FALSE, Reason.LAST_COPY, "claim a")}, "LastCopy: claim a"),
        ({"strays": ("pv-0", "pv-1")}, "NotKnown: these volumes may lie on the node, and node labels do not say where: pv-0"),
    ],
)
def test_without_proof_the_gate_stays_and_says_why(changes: dict[str, Any], why: str) -> None:
    kept = judge(facts(**changes))
    assert isinstance(kept, Keep) and kept.why.startswith(why)


@given(status=st.sampled_from(list(Status)), strays=st.sampled_from([(), ("pv-0",)]), judged=st.booleans())
def test_ignorance_opens_no_gate(status: Status, strays: tuple[str, ...], judged: bool) -> None:
    verdict = Verdict(status, Reason.NOT_KNOWN, "") if judged else None
    opened = isinstance(judge(facts(retire=verdict, strays=strays)), LetGo)
    assert opened == (judged and status is Status.TRUE and not strays)
