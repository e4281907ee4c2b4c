"""The PersistentVolume, field by field."""

from typing import Any

from sidecar.csi.api import CreatedVolume, CreateRequest
from sidecar.local.here import Here
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment
from sidecar.provisioning.requests.request import build as build_request
from sidecar.provisioning.requests.volume import LONGEST_CONTEXT, MOST_PLACES, Unusable, build, is_ours
from tests.harness import samples

CREATED = CreatedVolume("test-volume-id", 100)


def built(
    created: CreatedVolume = CREATED, *, here: Here | None = None, claim: dict[str, Any] | None = None, class_: dict[str, Any] | None = None
) -> dict[str, Any]:
    body = outcome(created, here=here, claim=claim, class_=class_)
    assert isinstance(body, dict), body
    return body


def outcome(
    created: CreatedVolume = CREATED, *, here: Here | None = None, claim: dict[str, Any] | None = None, class_: dict[str, Any] | None = None
) -> dict[str, Any] | Unusable:
    place, wanted, kind = here or samples.here(), samples.claim(selected="foo", **(claim or {})), samples.class_(**(class_ or {}))
    request = build_request(place, wanted, kind)
    assert isinstance(request, CreateRequest)
    return build(place, wanted, kind, request, created)


def test_V1_M25_the_fixture() -> None:
    assert built(here=samples.here(samples.info(topology=False))) == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "test-testi",
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "test-driver",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "labels": {"csi-node-sidecar.io/node": "foo"},
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "100"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "fake-ns",
                "name": "fake-pvc",
                "uid": "testid",
                "resourceVersion": "7",
            },
            "csi": {
                "driver": "test-driver",
                "volumeHandle": "test-volume-id",
                "fsType": "ext4",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "test-provisioner"},
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fake-class",
        },
    }


def test_V2_the_drivers_context_is_merged_but_does_not_say_who_made_the_volume() -> None:
    context = {"a": "b", "storage.kubernetes.io/csiProvisionerIdentity": "mine"}
    merged = built(CreatedVolume("id", 100, context))["spec"]["csi"]["volumeAttributes"]
    assert merged == {"a": "b", "storage.kubernetes.io/csiProvisionerIdentity": "test-provisioner"}


def test_V3_an_answer_without_a_size_counts_as_the_size_asked_for() -> None:
    assert built(CreatedVolume("id", 0))["spec"]["capacity"] == {"storage": "100"}


def test_V4_a_volume_that_is_too_small_names_both_sizes() -> None:
    too_small = outcome(CreatedVolume("id", 99))
    assert isinstance(too_small, Unusable)
    assert "99 bytes" in too_small.why and "100 bytes" in too_small.why


def test_an_answer_larger_than_any_object_can_be_is_not_stored() -> None:
    """The API server would refuse it for ever, and its volume would wait for that in memory."""
    here = tuple(Segment.of({samples.KEY: samples.NODE, "rack": str(n)}) for n in range(MOST_PLACES + 1))
    assert built(CreatedVolume("id", 100, topologies=here[1:]))["spec"]["nodeAffinity"]
    many = outcome(CreatedVolume("id", 100, topologies=here))
    assert isinstance(many, Unusable) and "1001 topologies" in many.why
    long = outcome(CreatedVolume("id", 100, {"a": "b" * LONGEST_CONTEXT}))
    assert isinstance(long, Unusable) and "volume_context" in long.why and len(long.why) < 300
    wide = (Segment.of({samples.KEY: samples.NODE} | {f"rack{n}": "r" * 63 for n in range(10)}),) * 500
    assert built(CreatedVolume("id", 100, topologies=wide[:300]))["spec"]["nodeAffinity"]
    large = outcome(CreatedVolume("id", 100, topologies=wide))
    assert isinstance(large, Unusable) and "topologies" in large.why and len(large.why) < 300


def test_V5_a_larger_volume_is_shown_as_it_is() -> None:
    assert built(CreatedVolume("id", 2**30))["spec"]["capacity"] == {"storage": "1Gi"}


def test_V6_read_only_is_for_read_only_claims_behind_the_flag() -> None:
    flagged = samples.here(controller_publish_readonly=True)
    assert built(here=flagged, claim={"accessModes": ["ReadOnlyMany"]})["spec"]["csi"]["readOnly"] is True
    assert "readOnly" not in built(here=flagged, claim={"accessModes": ["ReadOnlyMany", "ReadWriteOnce"]})["spec"]["csi"]
    assert "readOnly" not in built(claim={"accessModes": ["ReadOnlyMany"]})["spec"]["csi"]


def test_V7_affinity_has_a_term_per_topology_and_an_expression_per_key() -> None:
    two = (Segment.of({"zone": "1", "rack": "2"}), Segment.of({"zone": "2"}))
    assert built(CreatedVolume("id", 100, topologies=two))["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["2"]}, {"key": "zone", "operator": "In", "values": ["1"]}]},
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["2"]}]},
    ]
    assert "nodeAffinity" not in built()["spec"]


def test_a_place_that_no_affinity_can_name_is_undone_wherever_it_stands() -> None:
    """The API server refuses such an object for ever."""
    for key, value, flaw in [
        ("zone", "a" * 300, "which has more than 63 characters"),
        ("zone", "ä", "which no label may have"),
        ("z" * 300, "1", "is no key of a label"),
        ("", "1", "is no key of a label"),
    ]:
        for topologies in ([{"rack": "2", key: value}], [{"rack": "2"}, {key: value}]):
            created = CreatedVolume("id", 100, topologies=tuple(map(Segment.of, topologies)))
            found = outcome(created)
            assert isinstance(found, Unusable) and flaw in found.why and not found.elsewhere
            assert len(found.why) < 500
            assert isinstance(outcome(created, here=samples.here(samples.info(topology=False))), dict), "then no place is written"


def test_V8_empty_topologies_say_nothing() -> None:
    assert "nodeAffinity" not in built(CreatedVolume("id", 100, topologies=(Segment(),)))["spec"]


def test_V11_no_volume_mode_stays_none() -> None:
    assert "volumeMode" not in built()["spec"]
    assert built(claim={"volumeMode": "Block"})["spec"]["volumeMode"] == "Block"
    assert "fsType" not in built(claim={"volumeMode": "Block"})["spec"]["csi"]


def test_S6_no_affinity_from_a_driver_without_topology_even_if_it_answers_with_one() -> None:
    created = CreatedVolume("id", 100, topologies=(Segment.of({"zone": "1"}),))
    assert "nodeAffinity" not in built(created, here=samples.here(samples.info(topology=False)))["spec"]
    assert "nodeAffinity" not in built(created, here=samples.here(topology_gate=False))["spec"]


def test_M26_reclaim_policy_and_class_options_are_the_classs() -> None:
    spec = built(class_={"reclaimPolicy": "Retain", "mountOptions": ["noatime"]})["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["mountOptions"]) == ("Retain", ["noatime"])


def test_M24_a_volume_of_that_name_is_ours_only_with_the_same_claim_and_handle() -> None:
    wanted = built()
    same = Volume.of({**wanted, "metadata": {**wanted["metadata"], "uid": "u"}})
    assert is_ours(same, wanted)
    assert not is_ours(samples.volume(spec={"csi": {"driver": samples.DRIVER, "volumeHandle": "another"}}), wanted)
    assert not is_ours(samples.volume(spec={"claimRef": {"uid": "older", "namespace": "fake-ns", "name": "fake-pvc"}}), wanted)
