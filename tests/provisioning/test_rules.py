"""One look, one decision; and what is concluded from the driver's answer."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.csi.api import CapacityAnswer, CreatedVolume
from sidecar.csi.outcome import Code, Done, DriverError, MaybeRunning, NoSpaceHere, Refused, of_failure
from sidecar.ownership.rules import Race
from sidecar.provisioning.rules import (
    Bid,
    ClaimDecision,
    Create,
    Ignore,
    Measure,
    Refuse,
    Remember,
    Reschedule,
    Retry,
    Store,
    Undo,
    Wait,
    conclude,
    decide,
)
from sidecar.provisioning.secrets import SecretRef
from sidecar.provisioning.view import ClaimView, Leaving, VolumeView
from sidecar.provisioning.volume_rules import Empty, Finalize, Hold, Remove, Rest, Unfinalize, VolumeDecision, decide_volume
from tests import samples


def view(**changes: Any) -> ClaimView:
    base = ClaimView(now=100.0, here=samples.here(), chance=0.5, claim=samples.claim(selected="foo"), class_=samples.class_())
    return replace(base, **changes)


def create(**changes: Any) -> Create:
    decision = decide(view(**changes))
    assert isinstance(decision, Create), decision
    return decision


IMMEDIATE = samples.class_(volumeBindingMode="Immediate")


def test_N1_selected_here_is_created_here() -> None:
    assert create().request.name == "test-testi"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"claim": None}, id="M13-gone"),
        pytest.param({"claim": samples.claim(selected="foo", volumeName="pv")}, id="M2-bound"),
        pytest.param({"claim": samples.claim()}, id="M6-late-binding-without-a-node"),
        pytest.param({"claim": samples.claim(selected="bar")}, id="N3-another-node"),
        pytest.param({"volume": samples.volume()}, id="M8-its-volume-exists"),
        pytest.param({"stored": True}, id="X2-stored-by-this-process-and-not-yet-seen"),
        pytest.param({"claim": samples.claim(), "class_": IMMEDIATE, "here": samples.here(bids=False)}, id="no-bidding"),
    ],
)
def test_nothing_to_do(changes: dict[str, Any]) -> None:
    assert isinstance(decide(view(**changes)), Ignore)


def test_a_name_that_is_taken_by_another_claims_volume_is_not_asked_for() -> None:
    decision = decide(view(volume=samples.volume(spec={"claimRef": {"uid": "another", "namespace": "n", "name": "a"}})))
    assert isinstance(decision, Refuse) and "another claim's" in decision.why


def test_M27_a_claim_being_deleted_is_still_provisioned() -> None:
    assert isinstance(decide(view(claim=samples.claim(selected="foo", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}))), Create)


def test_M3_a_missing_class_is_a_failure() -> None:
    decision = decide(view(class_=None))
    assert isinstance(decision, Refuse) and "fake-class" in decision.why


def test_an_unfit_claim_is_refused_with_the_reason() -> None:
    decision = decide(view(claim=samples.claim(selected="foo", selector={})))
    assert isinstance(decision, Refuse) and "selector" in decision.why


def test_the_race_from_first_look_to_bid() -> None:
    open_claim = view(claim=samples.claim(), class_=IMMEDIATE)
    first = decide(open_claim)
    assert isinstance(first, Wait)
    due = replace(open_claim, now=first.until, race=first.race)
    assert isinstance(decide(due), Measure)
    bid = decide(replace(due, free=CapacityAnswer(100)))
    assert isinstance(bid, Bid) and b'"volume.kubernetes.io/selected-node":"foo"' in bid.body


def test_N12_a_claim_that_cannot_be_asked_about_is_taken_all_the_same() -> None:
    decision = decide(view(claim=samples.claim(selector={}), class_=IMMEDIATE, race=Race(0, 0.0)))
    assert isinstance(decision, Bid) and "selector" in decision.why


def test_M23_an_unsaved_volume_is_stored_before_anything_else() -> None:
    decision = decide(view(unsaved={"metadata": {"name": "pv"}}, claim=samples.claim(selected="bar")))
    assert isinstance(decision, Store)


def test_M12_a_remembered_creation_goes_on_after_the_claim_was_deleted() -> None:
    assert isinstance(decide(view(remembered=True)), Create)


def test_a_remembered_claim_that_went_to_another_node_is_let_go() -> None:
    assert isinstance(decide(view(remembered=True, claim=samples.claim(selected="bar"))), Ignore)


def test_done_is_stored() -> None:
    conclusion = conclude(view(), create(), Done(CreatedVolume("id", 100)))
    assert isinstance(conclusion, Store) and conclusion.body["spec"]["csi"]["volumeHandle"] == "id"


def test_V4_too_small_is_undone() -> None:
    conclusion = conclude(view(), create(), Done(CreatedVolume("id", 99)))
    assert isinstance(conclusion, Undo) and conclusion.volume_id == "id"


def test_N23_no_space_gives_the_claim_back() -> None:
    conclusion = conclude(view(), create(), NoSpaceHere("full"))
    assert isinstance(conclusion, Reschedule) and b"selected-node" not in conclusion.body


def test_M10_may_be_running_is_remembered() -> None:
    assert conclude(view(), create(), MaybeRunning("timeout")) == Remember(samples.claim(selected="foo"), "timeout")


def test_M9_refused_is_tried_again() -> None:
    assert conclude(view(), create(), Refused("no")) == Retry(samples.claim(selected="foo"), "no")
    assert conclude(view(), create(), Refused("no", infeasible=True)) == Retry(samples.claim(selected="foo"), "no", infeasible=True)


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("may_reschedule", [True, False])
def test_V9_every_code(code: Code, may_reschedule: bool) -> None:
    outcome = of_failure(DriverError(code, "text"), may_reschedule=may_reschedule)
    assert outcome.why == f"rpc error: code = {code.value} desc = text"
    if code in (Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED):
        assert isinstance(outcome, MaybeRunning)
    elif code is Code.RESOURCE_EXHAUSTED and may_reschedule:
        assert isinstance(outcome, NoSpaceHere)
    else:
        doubtful = code in (Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS)
        infeasible, occupied = code is Code.INVALID_ARGUMENT, code is Code.ALREADY_EXISTS
        assert outcome == Refused(outcome.why, infeasible=infeasible, doubtful=doubtful, occupied=occupied)


def look(**changes: Any) -> VolumeDecision:
    base = VolumeView(here=samples.here(), volume=samples.volume(), class_=samples.class_())
    return decide_volume(replace(base, **changes))


def test_D2_a_released_volume_of_this_node_is_emptied() -> None:
    assert isinstance(look(), Empty)


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param(None, id="gone"),
        pytest.param(samples.volume(status={"phase": "Bound"}), id="P5-bound"),
        pytest.param(samples.volume(status={"phase": "Failed"}), id="P5-failed"),
        pytest.param(samples.volume(status={"phase": "Available"}), id="P5-available"),
        pytest.param(samples.volume(spec={"persistentVolumeReclaimPolicy": "Retain"}, meta={"finalizers": ["other"]}), id="P5-retain"),
        pytest.param(samples.volume(meta={"deletionTimestamp": "now", "finalizers": ["other"]}), id="P2-our-finalizer-is-gone"),
        pytest.param(samples.volume(annotations={"pv.kubernetes.io/provisioned-by": "other"}), id="P4-another-provisioner"),
        pytest.param(
            samples.volume(
                spec={
                    "nodeAffinity": {
                        "required": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": ["bar"]}]}]
                        }
                    }
                }
            ),
            id="D10-another-node",
        ),
        pytest.param(samples.volume(spec={"nodeAffinity": None}), id="no-affinity-and-no-proof"),
    ],
)
def test_volumes_that_stay(volume: Any) -> None:
    assert isinstance(look(volume=volume), Rest)


ELSEWHERE = {
    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": samples.KEY, "operator": "In", "values": ["bar"]}]}]}}
}


@pytest.mark.parametrize("policy", ["Retain", "Recycle"])
@pytest.mark.parametrize("phase", ["Bound", "Released"])
def test_P3_our_finalizer_leaves_volumes_that_are_not_ours_to_empty(policy: str, phase: str) -> None:
    volume = samples.volume(spec={"persistentVolumeReclaimPolicy": policy}, status={"phase": phase})
    assert isinstance(look(volume=volume), Unfinalize)


@pytest.mark.parametrize("meta", [{"finalizers": ["other"]}, {"finalizers": None}])
def test_P1_our_finalizer_is_put_on_a_bound_volume_that_lacks_it(meta: dict[str, Any]) -> None:
    assert isinstance(look(volume=samples.volume(meta=meta, status={"phase": "Bound"})), Finalize)
    static = samples.volume(meta=meta, status={"phase": "Bound"})
    assert isinstance(look(volume=replace(static, provisioned_by=None)), Finalize)
    assert isinstance(look(volume=replace(static, deleting=True)), Rest)


@pytest.mark.parametrize("spec", [{"persistentVolumeReclaimPolicy": "Retain"}, {}])
def test_P6_volumes_of_other_nodes_are_left_to_them(spec: dict[str, Any]) -> None:
    finalizers = {} if spec else {"finalizers": ["other"]}
    assert isinstance(look(volume=samples.volume(spec=spec | ELSEWHERE, meta=finalizers, status={"phase": "Bound"})), Rest)


def with_identity(identity: str) -> Any:
    csi = {
        "driver": samples.DRIVER,
        "volumeHandle": "h",
        "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": identity},
    }
    return samples.volume(spec={"nodeAffinity": None, "csi": csi})


@pytest.mark.parametrize(
    ("identity", "ours"),
    [
        ("1700000000000-1234-test-driver-foo", True),
        ("1700000000000-1234-test-driver-bar-foo", False),
        ("1700000000000-1234-test-driver-bar", False),
        ("1700000000000-1234-test-driver", False),
        ("", False),
    ],
)
def test_without_affinity_the_identity_is_the_proof(identity: str, ours: bool) -> None:
    assert isinstance(look(volume=with_identity(identity)), Empty if ours else Rest)


def test_D8_an_attached_volume_waits() -> None:
    decision = look(attached_to=("foo",))
    assert isinstance(decision, Hold) and "foo" in decision.why


def test_D4_the_secret_that_was_noted_is_used() -> None:
    noted = samples.volume(
        annotations={
            "volume.kubernetes.io/provisioner-deletion-secret-name": "s",
            "volume.kubernetes.io/provisioner-deletion-secret-namespace": "n",
        }
    )
    decision = look(volume=noted, class_=None)
    assert isinstance(decision, Empty) and decision.secret == SecretRef("n", "s")


def test_D3_empty_annotations_mean_no_secret_even_if_the_class_has_some() -> None:
    assert isinstance(look(class_=samples.class_(parameters={"csi.storage.k8s.io/secret-name": "s"})), Empty)


def test_after_the_driver_deleted_it_the_object_goes_and_then_the_finalizer() -> None:
    deleting = samples.volume(meta={"deletionTimestamp": "now"})
    assert isinstance(look(progress=Leaving.EMPTIED), Remove)
    assert isinstance(look(progress=Leaving.EMPTIED, volume=deleting), Unfinalize)
    assert isinstance(look(progress=Leaving.REMOVED, volume=deleting), Unfinalize)


def test_what_was_asked_for_is_not_asked_again_before_the_watch_shows_it() -> None:
    assert isinstance(look(progress=Leaving.REMOVED), Rest)
    assert isinstance(look(progress=Leaving.UNFINALIZED, volume=samples.volume(meta={"deletionTimestamp": "now"})), Rest)


def test_D17_a_terminating_volume_with_our_finalizer_is_emptied_first() -> None:
    assert isinstance(look(volume=samples.volume(meta={"deletionTimestamp": "now"})), Empty)


def test_every_decision_says_why() -> None:
    decisions: list[ClaimDecision | VolumeDecision] = [decide(view()), decide(view(class_=None)), look(), look(progress=Leaving.EMPTIED)]
    assert all(decision.why for decision in decisions)
