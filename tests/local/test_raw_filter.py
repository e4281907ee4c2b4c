"""Nothing that this node would look at passes by: what is foreign by its bytes is foreign by its fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.local.raw_filter import is_bound_claim, is_foreign_claim, is_foreign_volume
from sidecar.local.volume_location import found_here, may_lie_here
from sidecar.model import names
from sidecar.model.objects import Volume, claim_provisioner, is_source_that_leaves, selected_node
from sidecar.provisioning.unowned_io import why_unowned
from tests.harness import samples

HERE = samples.here()
NODE = samples.NODE

# Texts that try to look like what is searched for.
tricky = st.sampled_from(
    [
        "",
        NODE,
        samples.DRIVER,
        "other",
        f'x,"{names.SELECTED_NODE}":"other",',
        f'"{names.SELECTED_NODE}":"other"',
        '"annotations":{',
        f'x,"{names.SELECTED_NODE}":"other",',
        "{",
        "}",
        '{"a":"b"}',
        '"nodeAffinity":{"required":{',
        "\\",
        '"',
        "ü",
    ]
)
quoted = f'"{names.SELECTED_NODE}'
keys = st.sampled_from(
    [names.SELECTED_NODE, names.STORAGE_PROVISIONER, "annotations", "a", quoted, f"x,{quoted}", '"operator":"In"', names.CLONE_FINALIZER]
)
notes = st.dictionaries(keys, tricky, max_size=4)


def as_line(obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": "MODIFIED", "object": obj}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@given(labels=notes, annotations=notes, finalizers=st.lists(keys, max_size=2), deleting=st.booleans())
def test_a_claim_that_is_foreign_has_another_driver_or_another_node_and_is_no_source(
    labels: dict[str, str], annotations: dict[str, str], finalizers: list[str], deleting: bool
) -> None:
    obj = samples.claim_json()
    annotations = {names.STORAGE_PROVISIONER_BETA: samples.DRIVER, **annotations}
    obj["metadata"] = {"name": "data", "uid": "u", "labels": labels, "annotations": annotations, "finalizers": finalizers}
    obj["metadata"] |= {"deletionTimestamp": "now"} if deleting else {}
    if is_foreign_claim(as_line(obj), HERE) and claim_provisioner(obj) == samples.DRIVER:
        assert selected_node(obj) not in ("", NODE)
        assert not is_source_that_leaves(obj)


as_bound = '"spec":{"accessModes":["A"],"resources":{"requests":{"storage":"1"}},"volumeName":"v"'
misleading = st.recursive(
    st.sampled_from(["", "v", as_bound, "volumeName", names.CLONE_FINALIZER]),
    lambda inner: st.dictionaries(st.sampled_from(["spec", "f:spec", "volumeName", "accessModes", as_bound]), inner, max_size=2),
)


@given(
    note=st.dictionaries(st.sampled_from(["volumeName", as_bound, "spec"]), st.sampled_from(["v", as_bound]), max_size=2),
    managed=st.dictionaries(st.sampled_from(["f:spec", "f:metadata"]), misleading, max_size=2),
    volume=st.sampled_from(["", "pvc-1"]),
    finalizers=st.lists(st.sampled_from([names.CLONE_FINALIZER, "kubernetes.io/pvc-protection"]), unique=True),
    status=st.dictionaries(st.sampled_from(["phase", "volumeName", "spec"]), st.sampled_from(["Pending", "v", as_bound]), max_size=2),
)
def test_a_claim_that_is_bound_by_its_bytes_has_a_volume_and_is_no_source(
    note: dict[str, str], managed: dict[str, Any], volume: str, finalizers: list[str], status: dict[str, str]
) -> None:
    obj = bound_claim(volume, annotations=note, finalizers=finalizers, managedFields=[{"fieldsV1": managed}])
    obj["status"] = status
    assert is_bound_claim(as_line(obj)) is (bool(volume) and names.CLONE_FINALIZER not in str(obj))


def bound_claim(volume: str, **meta: Any) -> dict[str, Any]:
    """With the fields in the order in which an API server writes them."""
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {**storage, **({"volumeName": volume} if volume else {}), "storageClassName": "a", "volumeMode": "Filesystem"}
    return {"metadata": {"name": "data", "uid": "u", **meta}, "spec": spec}


@given(
    terms=st.lists(
        st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from([samples.KEY, "another", names.HOSTNAME]),
                    "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
                    "values": st.lists(st.sampled_from([NODE, "other", "third"]), max_size=2),
                }
            ),
            max_size=2,
        ),
        max_size=2,
    ),
    placed=st.booleans(),
    annotations=notes,
    driver=st.sampled_from([samples.DRIVER, "other", f'"csi":{{"driver":"{samples.DRIVER}"']),
)
def test_a_volume_that_is_foreign_does_not_lie_here_nor_nowhere(
    terms: list[Any], placed: bool, annotations: dict[str, str], driver: str
) -> None:
    obj = samples.volume_json(status={"phase": "Released"})
    obj["metadata"]["annotations"] = {names.PROVISIONED_BY: driver, **annotations}
    obj["spec"]["csi"] = {"driver": driver, "volumeHandle": "h"}
    obj["spec"]["persistentVolumeReclaimPolicy"] = "Delete"
    obj["spec"].pop("nodeAffinity", None)
    if placed:
        obj["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}
    if is_foreign_volume(as_line(obj), HERE):
        assert found_here(HERE, obj) is None and not may_lie_here(HERE, obj, "")
        assert why_unowned(HERE, Volume.of(obj)) == ""


def test_the_usual_ones_pass_by() -> None:
    theirs = samples.claim_json(annotations={names.SELECTED_NODE: "other"})
    assert is_foreign_claim(as_line(theirs), HERE)
    assert not is_foreign_claim(as_line(samples.claim_json(annotations={names.SELECTED_NODE: NODE})), HERE)
    assert not is_foreign_claim(as_line(samples.claim_json()), HERE)
    written = {"example.com/policy": '{"annotations":{"keep":"\\\\"}}', names.SELECTED_NODE: "other"}
    assert is_foreign_claim(as_line(samples.claim_json(annotations=written)), HERE)
    assert is_foreign_claim(as_line(samples.claim_json(annotations={names.STORAGE_PROVISIONER: "other"})), HERE)
    assert not is_foreign_claim(as_line(samples.claim_json(annotations={names.STORAGE_PROVISIONER: samples.DRIVER})), HERE)
    volume = samples.volume_json()
    assert is_foreign_volume(as_line(samples.volume_json(spec={"csi": {"driver": "other", "volumeHandle": "h"}})), HERE)
    volume["spec"]["nodeAffinity"] = samples.placed("other")
    assert is_foreign_volume(as_line(volume), HERE)
    volume["spec"]["nodeAffinity"] = samples.placed("other", NODE)
    assert not is_foreign_volume(as_line(volume), HERE)


@pytest.mark.parametrize("segment", [{}, None])
def test_without_a_place_of_its_own_a_node_reads_of_every_volume(segment: dict[str, str] | None) -> None:
    here = samples.here(samples.info(topology=segment is None, segment=segment or {}))
    volume = samples.volume_json()
    volume["spec"]["nodeAffinity"] = samples.placed("other")
    assert not is_foreign_volume(as_line(volume), here)
