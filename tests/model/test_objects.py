"""Projection from plain JSON: what is kept, what is dropped, what odd objects do."""

import json

from sidecar.model import names
from sidecar.model.objects import CapacityRecord, Claim, Class, Owner, Source, Volume, notes_of
from tests.harness import samples


def test_a_claim_keeps_what_rules_read() -> None:
    claim = samples.claim(selected="foo", volumeMode="Block", accessModes=["ReadWriteOnce", "ReadOnlyMany"])
    assert (claim.uid, claim.full_name, claim.resource_version) == ("testid", "fake-ns/fake-pvc", "7")
    assert (claim.selected_node, claim.block, claim.access_modes) == ("foo", True, ("ReadWriteOnce", "ReadOnlyMany"))
    assert claim.requested == 100


def test_M5_the_newer_provisioner_annotation_wins() -> None:
    assert samples.claim(annotations={"volume.kubernetes.io/storage-provisioner": "other"}).provisioner == "other"
    assert samples.claim().provisioner == samples.DRIVER


def test_M7_N27_the_class_annotation_wins_over_the_field() -> None:
    assert samples.claim(annotations={"volume.beta.kubernetes.io/storage-class": "beta"}).class_name == "beta"
    assert samples.claim(annotations={"volume.beta.kubernetes.io/storage-class": "beta"}, storageClassName=None).class_name == "beta"
    assert samples.claim().class_name == "fake-class"


def test_the_whole_claim_is_kept_only_when_asked_for_and_without_managed_fields() -> None:
    assert Claim.of(samples.claim_json()).whole == b""
    body = json.loads(samples.claim().whole)
    assert "managedFields" not in body["metadata"]
    assert body["spec"] == samples.claim_json()["spec"]


def test_sources() -> None:
    assert samples.claim(dataSource={"kind": "PersistentVolumeClaim", "name": "a"}).source == Source(
        "PersistentVolumeClaim", "", "a", "fake-ns"
    )
    ref = {"kind": "VolumeSnapshot", "apiGroup": "snapshot.storage.k8s.io", "name": "s", "namespace": "far"}
    assert samples.claim(dataSourceRef=ref).source == Source(
        "VolumeSnapshot", "snapshot.storage.k8s.io", "s", "far", explicit="far", in_data_source=False
    )


def test_odd_claims_do_not_raise() -> None:
    bare = Claim.of({"metadata": {"name": "n", "uid": "u"}})
    assert (bare.requested, bare.class_name, bare.access_modes) == (0, "", ())
    assert samples.claim(resources={"requests": {"storage": "lots"}}).requested is None


def test_a_volume_without_affinity_is_told_from_one_that_matches_nothing() -> None:
    assert samples.volume(spec={"nodeAffinity": None}).affinity is None
    assert samples.volume(spec={"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}).affinity == ()


def test_deletion_secret_annotations() -> None:
    assert samples.volume().deletion_secret == ("", "")
    assert Volume.of({"metadata": {"name": "n"}}).deletion_secret is None


def test_a_class_reads_allowed_topologies() -> None:
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["1", "2"]}]}]
    assert samples.class_(allowedTopologies=allowed).allowed == ({"zone": ("1", "2")},)
    assert Class.of({"metadata": {"name": "n"}}).binding_mode == ""


def test_a_capacity_object_without_figures_is_read_as_such() -> None:
    record = CapacityRecord.of({"metadata": {"name": "n"}, "storageClassName": "c", "nodeTopology": {"matchLabels": {"k": "v"}}})
    assert (record.capacity, record.maximum, record.node_topology) == (None, None, {"k": "v"})
    odd = CapacityRecord.of({"metadata": {"name": "n"}, "nodeTopology": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}})
    assert odd.node_topology is None
    assert not odd.deleting
    assert CapacityRecord.of({"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}).deleting


def test_an_owner_reference_goes_back_as_it_came() -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": "u"}
    for flags in ({}, {"controller": True}, {"blockOwnerDeletion": True}, {"controller": True, "blockOwnerDeletion": True}):
        assert Owner.of(reference | flags).as_json() == reference | flags


def test_of_what_tenants_write_no_more_is_kept_than_anybody_reads() -> None:
    """A claim may have 256 KiB of annotations, and a node thousands of claims."""
    long = "x" * 200_000
    said = dict.fromkeys((names.DRAIN_POLICY, names.DRAIN_POLICY_RETIRE, names.ACKNOWLEDGED, names.HANDED_BACK), long)
    said |= {f"{names.GROUP}/{number}": "y" * 100 for number in range(100)}
    kept = notes_of(said)
    assert sum(len(key) + len(text) for key, text in kept) < 40_000
    assert notes_of({**said, names.ACKNOWLEDGED: f"{long}, again"}) != kept, "another text is another acknowledgement"
    assert notes_of({names.DRAIN_POLICY: "Ignore", "other/drain-policy": "Block"}) == ((names.DRAIN_POLICY, "Ignore"),)
