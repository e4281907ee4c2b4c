"""Who looks after the gate of a node that gives no sign of life, and when it may be opened. Ignorance never opens it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.drain import takeover
from sidecar.drain.assessment import Verdict
from sidecar.drain.leases import Lease, identity
from sidecar.drain.takeover import GateFacts, Keep, LeaseView, Leave, LetGo, Mind, Nothing, TakeOver, judge, whose
from sidecar.drain.words import Reason, Status
from sidecar.model import names
from tests.drain.samples import DRIVER, NOW, node

ME = identity("uid-n2", DRIVER)
THEIRS = Lease(names.guard("uid-n1", DRIVER), "u", "7", identity("uid-n1", DRIVER), "n1", "uid-n1", NOW, 900.0)
GATE = ({"kind": "PodDisruptionBudget", "spec": {"minAvailable": 1}}, {"kind": "Deployment", "spec": {}})
PROVEN = Verdict(Status.TRUE, Reason.NOTHING_HERE, "no volume is on this node")


def lease_view(**changes: Any) -> LeaseView:
    base = LeaseView(now=10_000.0, me=ME, driver=DRIVER, lease=THEIRS, unchanged_since=9_990.0, chance=0.5)
    return replace(base, **changes)


def facts(**changes: Any) -> GateFacts:
    base = GateFacts(lease=THEIRS, node=node(), gate=GATE, override="", retire=PROVEN, strays=())
    return replace(base, **changes)


# --- who looks after it -----------------------------------------------------------------------------------------------


def test_as_long_as_it_is_renewed_it_is_left_alone() -> None:
    assert whose(lease_view()) == Leave(f"{THEIRS.holder} looks after the gate")


@pytest.mark.parametrize(("age", "taken"), [(900.0, False), (1019.9, False), (1020.0, True), (1e9, True)])
def test_it_is_taken_after_its_time_and_some_patience(age: float, taken: bool) -> None:
    assert isinstance(whose(lease_view(unchanged_since=10_000.0 - age)), TakeOver) is taken


def test_neighbours_do_not_all_come_at_once() -> None:
    taken = [isinstance(whose(lease_view(unchanged_since=10_000.0 - 1020, chance=chance)), TakeOver) for chance in (0.0, 0.4, 0.6, 0.9)]
    assert taken == [True, True, False, False]


def test_what_its_renewal_says_counts_for_nothing_for_clocks_differ() -> None:
    for renewed in (0.0, NOW * 2):
        assert isinstance(whose(lease_view(lease=replace(THEIRS, renewed=renewed))), Leave)


@pytest.mark.parametrize("duration", [-5.0, 0.0])
def test_a_duration_that_is_none_shortens_nothing_but_the_duration(duration: float) -> None:
    assert isinstance(whose(lease_view(lease=replace(THEIRS, duration=duration))), Leave)


def test_whoever_has_it_minds_the_gate() -> None:
    assert whose(lease_view(lease=replace(THEIRS, holder=ME))) == Mind()


def test_another_lease_is_not_touched() -> None:
    for stranger in (replace(THEIRS, name="mine"), replace(THEIRS, node_uid="uid-n9"), replace(THEIRS, node_uid="")):
        assert isinstance(whose(lease_view(lease=stranger, unchanged_since=0.0)), Leave)
    assert isinstance(whose(lease_view(driver="other.example.com", unchanged_since=0.0)), Leave)


def test_what_is_taken_stays_the_lease_of_its_node() -> None:
    body = takeover.body(lease_view(), node(), namespace="storage", wall=NOW)
    assert body["spec"]["holderIdentity"] == ME
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
    assert (body["metadata"]["name"], body["metadata"]["resourceVersion"]) == (THEIRS.name, "7")


# --- what becomes of the gate -----------------------------------------------------------------------------------------


def test_it_is_opened_on_proof() -> None:
    assert judge(facts()) == LetGo(GATE, "NoVolumes: no volume is on this node")


def test_it_is_opened_where_people_have_said_so_whatever_lies_there() -> None:
    blocked = Verdict(Status.FALSE, Reason.LAST_COPY, "claim apps/data-0: LastCopy")
    assert judge(facts(override="ticket 7", retire=blocked, strays=("pv-0",))) == LetGo(GATE, f"{names.FORCE_DRAIN}: ticket 7")


def test_the_gate_of_a_node_that_is_gone_goes_by_itself() -> None:
    for gone in (None, node(uid="uid-of-another-machine")):
        assert judge(facts(node=gone, override="ticket 7")) == Nothing("its node is gone, and what was made for it goes with it", True)


def test_without_a_gate_nobody_needs_the_lease() -> None:
    assert judge(facts(gate=())) == Nothing("the gate is gone", by_itself=False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"retire": None}, "NotKnown: what lies on the node has not been looked at yet"),
        ({"retire": Verdict(Status.UNKNOWN, Reason.SOURCE_OFFLINE, "silent")}, "SourceOffline: silent"),
        ({"retire": Verdict(Status.FALSE, Reason.LAST_COPY, "claim a")}, "LastCopy: claim a"),
        ({"strays": ("pv-0", "pv-1")}, "NotKnown: these volumes may lie on the node, for labels of nodes do not tell: pv-0"),
    ],
)
def test_otherwise_it_stays_and_says_why(changes: dict[str, Any], why: str) -> None:
    kept = judge(facts(**changes))
    assert isinstance(kept, Keep) and kept.why.startswith(why)


@given(status=st.sampled_from(list(Status)), strays=st.sampled_from([(), ("pv-0",)]), judged=st.booleans())
def test_ignorance_opens_no_gate(status: Status, strays: tuple[str, ...], judged: bool) -> None:
    verdict = Verdict(status, Reason.NOT_KNOWN, "") if judged else None
    opened = isinstance(judge(facts(retire=verdict, strays=strays)), LetGo)
    assert opened == (judged and status is Status.TRUE and not strays)
