"""One look, one decision; and what is concluded from the driver's answer."""

from sidecar.csi.outcome import Code, DriverError, MaybeRunning, NeverSent, NoSpaceHere, Refused, of_failure
from sidecar.ownership.rules import Race
from sidecar.provisioning.conclusions import conclude
from sidecar.provisioning.decisions import (
    Bid,
    Create,
    Ignore,
    Refuse,
    Remember,
    Reschedule,
    Retry,
    Store,
)
from sidecar.provisioning.progress import BELIEVED, NOT_BEGUN, Creating, HandedBack, Racing, Stored, Unsaved
from sidecar.provisioning.rules import decide
from tests.harness import samples
from tests.harness.provisioning.bench import create, view

CREATING = Creating(samples.claim(selected="foo"))
IMMEDIATE = samples.class_(volumeBindingMode="Immediate")
STORED = Stored.at(100.0, "handle")


def test_M2_M6_M8_M13_N3_X2_nothing_to_do() -> None:
    for changes in [
        {"claim": None},
        {"claim": samples.claim(selected="foo", volumeName="pv")},
        {"claim": samples.claim()},
        {"claim": samples.claim(selected="bar")},
        {"volume": samples.volume()},
        {"progress": STORED, "now": 100.0 + BELIEVED - 1},
        {"claim": samples.claim(), "class_": IMMEDIATE, "here": samples.here(bids=False)},
    ]:
        assert isinstance(decide(view(**changes)), Ignore)


def test_a_name_that_is_taken_by_another_claims_volume_is_not_asked_for() -> None:
    decision = decide(view(volume=samples.volume(spec={"claimRef": {"uid": "another", "namespace": "n", "name": "a"}})))
    assert isinstance(decision, Refuse) and "another claim's" in decision.why


def test_M27_a_claim_being_deleted_is_still_provisioned() -> None:
    assert isinstance(decide(view(claim=samples.claim(selected="foo", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}))), Create)


def test_N12_a_claim_that_cannot_be_asked_about_is_taken_all_the_same() -> None:
    decision = decide(view(claim=samples.claim(selector={}), class_=IMMEDIATE, progress=Racing(Race(0, 0.0))))
    assert isinstance(decision, Bid) and "selector" in decision.why


def test_M23_an_unsaved_volume_is_stored_before_anything_else() -> None:
    claim = samples.claim(selected="bar")
    decision = decide(view(progress=Unsaved.of(claim, samples.PACKED), claim=claim))
    assert isinstance(decision, Store)


def test_what_was_never_sent_has_begun_nothing() -> None:
    for before in [NOT_BEGUN, Racing(Race(0, 0.0)), HandedBack("6", NOT_BEGUN)]:
        conclusion = conclude(view(progress=before), create(), NeverSent("away"))
        assert conclusion == (NOT_BEGUN, Retry(samples.claim(selected="foo"), "away"))


def test_what_was_never_sent_does_not_end_an_earlier_attempt() -> None:
    claim = samples.claim(selected="foo")
    for before in (CREATING, HandedBack("6", CREATING)):
        assert conclude(view(progress=before), create(), NeverSent("away")) == (Creating(claim), Remember(claim, "away"))


def test_a_claim_that_may_have_been_handed_back_is_handed_back_again_until_it_changes() -> None:
    claim = samples.claim(selected="foo")
    assert isinstance(decide(view(progress=HandedBack(claim.resource_version, NOT_BEGUN))), Reschedule)
    assert isinstance(decide(view(progress=HandedBack("another", NOT_BEGUN))), Create)
    assert isinstance(decide(view(progress=HandedBack("another", CREATING))), Create)


def test_M9_refused_is_tried_again() -> None:
    claim = samples.claim(selected="foo")
    for before in (NOT_BEGUN, CREATING):
        assert conclude(view(progress=before), create(), Refused("no")) == (NOT_BEGUN, Retry(claim, "no"))
    assert conclude(view(), create(), Refused("no", infeasible=True)) == (NOT_BEGUN, Retry(claim, "no", infeasible=True))


def test_V9_every_code() -> None:
    for code in Code:
        for may_reschedule in [True, False]:
            outcome = of_failure(DriverError(code, "text"), may_reschedule=may_reschedule)
            assert outcome.why == f"rpc error: code = {code.value} desc = text"
            if code in (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED):
                assert isinstance(outcome, MaybeRunning)
            elif code is Code.RESOURCE_EXHAUSTED and may_reschedule:
                assert isinstance(outcome, NoSpaceHere)
            else:
                doubtful = code in (Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS)
                infeasible, occupied, not_found = (code is each for each in (Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS, Code.NOT_FOUND))
                assert outcome == Refused(outcome.why, infeasible=infeasible, doubtful=doubtful, occupied=occupied, not_found=not_found)
