"""What is done about a volume next: one look, one decision."""

from dataclasses import replace
from itertools import product
from typing import Any

from sidecar.model import names
from sidecar.provisioning.progress import RemovalStep
from sidecar.provisioning.view import VolumeView
from sidecar.provisioning.volume_rules import (
    Empty,
    Finalize,
    Rest,
    Unfinalize,
    VolumeDecision,
    decide_volume,
    was_merely_bound,
)
from tests.harness import samples

ELSEWHERE = {"nodeAffinity": samples.placed("bar")}


def look(**changes: Any) -> VolumeDecision:
    base = VolumeView(here=samples.here(), volume=samples.volume(), class_=samples.class_())
    return decide_volume(replace(base, **changes))


def test_D2_a_released_volume_of_this_node_is_emptied() -> None:
    assert isinstance(look(), Empty)


def test_P2_P4_P5_D10_volumes_that_stay() -> None:
    for volume in [
        None,
        samples.volume(status={"phase": "Bound"}),
        samples.volume(status={"phase": "Failed"}),
        samples.volume(status={"phase": "Available"}),
        samples.volume(spec={"persistentVolumeReclaimPolicy": "Retain"}, meta={"finalizers": ["other"]}),
        samples.volume(meta={"deletionTimestamp": "now", "finalizers": ["other"]}),
        samples.volume(annotations={"pv.kubernetes.io/provisioned-by": "other"}),
        samples.volume(spec=ELSEWHERE),
        samples.volume(spec={"nodeAffinity": None}),
    ]:
        assert isinstance(look(volume=volume), Rest)


def test_P3_our_finalizer_leaves_volumes_that_are_not_ours_to_empty() -> None:
    for policy in ["Retain", "Recycle"]:
        for phase in ["Bound", "Released"]:
            volume = samples.volume(spec={"persistentVolumeReclaimPolicy": policy}, status={"phase": phase})
            assert isinstance(look(volume=volume), Unfinalize)


def test_P1_our_finalizer_is_put_on_a_bound_volume_that_lacks_it() -> None:
    for meta in [{"finalizers": ["other"]}, {"finalizers": None}]:
        assert isinstance(look(volume=samples.volume(meta=meta, status={"phase": "Bound"})), Finalize)
        static = samples.volume(meta=meta, status={"phase": "Bound"})
        assert isinstance(look(volume=replace(static, provisioned_by=None)), Finalize)
        assert isinstance(look(volume=replace(static, deleting=True)), Rest)


def test_P6_volumes_of_other_nodes_are_left_to_them() -> None:
    for spec in [{"persistentVolumeReclaimPolicy": "Retain"}, {}]:
        finalizers = {} if spec else {"finalizers": ["other"]}
        assert isinstance(look(volume=samples.volume(spec=spec | ELSEWHERE, meta=finalizers, status={"phase": "Bound"})), Rest)


def with_identity(identity: str) -> Any:
    csi = {
        "driver": samples.DRIVER,
        "volumeHandle": "h",
        "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": identity},
    }
    return samples.volume(spec={"nodeAffinity": None, "csi": csi})


def test_without_affinity_the_identity_is_the_proof() -> None:
    for identity, ours in [
        ("1700000000000-1234-test-driver-foo", True),
        ("1700000000000-1234-test-driver-bar-foo", False),
        ("1700000000000-1234-test-driver-bar", False),
        ("1700000000000-1234-test-driver", False),
        ("", False),
    ]:
        assert isinstance(look(volume=with_identity(identity)), Empty if ours else Rest)


def test_what_was_asked_for_is_not_asked_again_before_the_watch_shows_it() -> None:
    assert isinstance(look(progress=RemovalStep.REMOVED), Rest)
    assert isinstance(look(progress=RemovalStep.UNFINALIZED, volume=samples.volume(meta={"deletionTimestamp": "now"})), Rest)


def test_a_volume_that_was_merely_bound_is_not_looked_at() -> None:
    """Whatever else is known, there would be nothing to do."""
    volumes = [
        samples.volume(
            status={"phase": phase},
            spec={"persistentVolumeReclaimPolicy": policy, "claimRef": claim},
            meta={"finalizers": finalizers, **({"deletionTimestamp": "now"} if deleting else {})},
        )
        for phase, policy, claim, finalizers, deleting in product(
            ("", "Pending", "Available", "Bound", "Released", "Failed"),
            ("Delete", "Retain", "Recycle"),
            (None, {"uid": "u", "namespace": "ns", "name": "data"}),
            ([], [names.VOLUME_FINALIZER]),
            (False, True),
        )
    ]
    bound = {new for old, new in product(volumes, volumes) if was_merely_bound(old, new)}
    assert {(new.phase, new.reclaim_policy, bool(new.finalizers)) for new in bound} == {
        ("Bound", "Delete", True),
        ("Bound", "Retain", False),
        ("Bound", "Recycle", False),
    }
    for new, step, attached in product(bound, RemovalStep, ((), ("n2",))):
        assert isinstance(look(volume=new, progress=step, attached_to=attached), Rest)


def test_what_comes_back_from_a_deletion_or_is_another_volume_is_looked_at() -> None:
    bound = samples.volume(status={"phase": "Bound"}, meta={"finalizers": [names.VOLUME_FINALIZER]})
    assert was_merely_bound(replace(bound, phase="Pending"), bound)
    for old in (None, replace(bound, phase="Released"), replace(bound, phase="Pending", deleting=True), replace(bound, uid="other")):
        assert not was_merely_bound(old, bound)
    assert not was_merely_bound(bound, None)
