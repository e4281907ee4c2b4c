"""What a volume is filled from: snapshots, clones, grants, populators, VolumeAttributesClasses."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sidecar.csi.api import CLONE_VOLUME, CREATE_DELETE_SNAPSHOT, MODIFY_VOLUME
from sidecar.local.here import Here
from sidecar.model.names import ALLOW_MODE_CHANGE, CLONE_FINALIZER, CONTENT_MANAGED_BY, SNAPSHOT_FINALIZER, SNAPSHOT_GROUP
from sidecar.model.objects import Claim
from sidecar.provisioning import needs
from sidecar.provisioning.needs import (
    CLAIM,
    GRANTS,
    NO_FACTS,
    SNAPSHOT,
    Absent,
    Facts,
    Json,
    Ref,
)
from sidecar.provisioning.requests.attributes import attributes_of
from sidecar.provisioning.requests.cloning import clones_of, slim
from sidecar.provisioning.requests.request import Unfit
from sidecar.provisioning.requests.source_facts import Content, Elsewhere, LeftToPopulator
from sidecar.provisioning.requests.source_finalizers import finalizer_for, with_finalizer, without_finalizer
from sidecar.provisioning.requests.sources import content_of, to_release, wants_source
from tests.harness import samples
from tests.harness.provisioning.sources import (
    _CONTENT,
    _PV,
    _SNAPSHOT,
    _SOURCE,
    ABLE,
    FAR,
    FROM_CLAIM,
    FROM_SNAPSHOT,
    GONE,
    THE_ATTRIBUTES,
    THE_CONTENT,
    THE_SNAPSHOT,
    THE_SOURCE,
    THE_VOLUME,
    asks_until_answered,
    changed,
    content,
    size,
    world,
)

UNABLE = samples.here()
OTHER_KEY = "kubernetes.io/hostname"


_GRANT: Json = {
    "metadata": {"name": "grant", "namespace": FAR},
    "spec": {
        "from": [{"group": "", "kind": CLAIM, "namespace": "fake-ns"}],
        "to": [{"group": SNAPSHOT_GROUP, "kind": SNAPSHOT, "name": "snap"}],
    },
}


def unfit(claim: Claim, world: Facts, **options: Any) -> str:
    """Why it is refused; and every refusal names its source."""
    answer = content(claim, world, **options)
    assert isinstance(answer, Unfit), answer
    assert any(str(ref) in answer.why for ref in (THE_SNAPSHOT, THE_SOURCE, Ref(SNAPSHOT, "snap", FAR))), answer.why
    return answer.why


def from_snapshot(**changes: Any) -> Claim:
    spec: Json = {"dataSource": FROM_SNAPSHOT} | changes
    return samples.claim(selected="foo", **spec)


def from_claim(**changes: Any) -> Claim:
    spec: Json = {"dataSource": FROM_CLAIM} | changes
    return samples.claim(selected="foo", **spec)


def from_afar(namespace: str | None = FAR) -> Claim:
    return samples.claim(selected="foo", dataSourceRef={**FROM_SNAPSHOT, "namespace": namespace})


def test_no_source_no_question() -> None:
    assert content_of(UNABLE, samples.claim(), NO_FACTS) is None
    assert to_release(samples.claim()) is None


# ---- snapshots -----------------------------------------------------------------------------------------------------


def test_R39_a_ready_snapshot_is_restored_and_protected_meanwhile() -> None:
    answer, asked = asks_until_answered(lambda facts: content_of(ABLE, from_snapshot(), facts), world())
    assert answer == Content(snapshot="snap-handle", protect=THE_SNAPSHOT)
    assert asked == [THE_SNAPSHOT, THE_CONTENT]
    assert finalizer_for(THE_SNAPSHOT) == SNAPSHOT_FINALIZER
    assert to_release(from_snapshot()) == THE_SNAPSHOT


def test_R39_dataSourceRef_alone_means_the_same_and_is_released_too() -> None:
    claim = samples.claim(dataSourceRef=FROM_SNAPSHOT)
    assert content(claim, world()) == Content(snapshot="snap-handle", protect=THE_SNAPSHOT)
    assert to_release(claim) == THE_SNAPSHOT


def test_R40_a_request_that_holds_the_snapshot() -> None:
    for requested in ["100", "200"]:
        for restore_size in ["100", 100, None]:
            there = world(THE_SNAPSHOT, status__restoreSize=restore_size)
            assert isinstance(content(from_snapshot(resources=size(requested)), there), Content)


def test_R40_a_claim_that_does_not_fit_its_snapshot() -> None:
    for changes, says in [
        ({"resources": size("99")}, "ask for at least 100"),
        ({"resources": size("-1")}, "asks for 0 only"),
        ({"resources": size("lots")}, "asks for 0 only"),
        ({"dataSource": {**FROM_SNAPSHOT, "apiGroup": "snapshot.example.com"}}, SNAPSHOT_GROUP),
        ({"dataSource": {"kind": SNAPSHOT, "name": "snap"}}, SNAPSHOT_GROUP),
    ]:
        assert says in unfit(from_snapshot(**changes), world())


def test_R40_a_source_without_a_name() -> None:
    for field in ["dataSource", "dataSourceRef"]:
        spec: Json = {field: {**FROM_SNAPSHOT, "name": ""}}
        answer = content_of(ABLE, samples.claim(**spec), NO_FACTS)
        assert isinstance(answer, Unfit)
        assert f"spec.{field} has no name" in answer.why


def test_R40_a_snapshot_that_cannot_be_restored() -> None:
    for ref, way, value, says in [
        (THE_CONTENT, "spec.volumeSnapshotRef.uid", "another", "another snapshot"),
        (THE_CONTENT, "spec.volumeSnapshotRef.namespace", "another", "another snapshot"),
        (THE_CONTENT, "spec.volumeSnapshotRef.name", "another", "another snapshot"),
        (THE_CONTENT, "spec.volumeSnapshotRef", GONE, "another snapshot"),
        (THE_SNAPSHOT, "metadata.uid", "another", "another snapshot"),
        (THE_CONTENT, "spec.driver", "another", "'another'"),
        (THE_SNAPSHOT, "status", GONE, "not bound"),
        (THE_SNAPSHOT, "status.boundVolumeSnapshotContentName", GONE, "not bound"),
        (THE_SNAPSHOT, "status.readyToUse", GONE, "not ready"),
        (THE_SNAPSHOT, "status.readyToUse", False, "not ready"),
        (THE_SNAPSHOT, "status.readyToUse", "true", "not ready"),
        (THE_CONTENT, "status", GONE, "no handle"),
        (THE_CONTENT, "status.snapshotHandle", GONE, "no handle"),
        (THE_CONTENT, "status.snapshotHandle", "", "no handle"),
        (THE_SNAPSHOT, "status.restoreSize", "lots", "cannot be read"),
        (THE_SNAPSHOT, "status.restoreSize", "1e9999", "cannot be read"),
    ]:
        assert says in unfit(from_snapshot(), world(ref, **{way: value}))


def test_R40_what_is_not_there_and_what_may_not_be_read() -> None:
    for ref in [THE_SNAPSHOT, THE_CONTENT]:
        assert f"{ref} does not exist" in unfit(from_snapshot(), world() | {ref: Absent("404", exists=False)})
        why = unfit(from_snapshot(), world() | {ref: Absent("forbidden: no such right")})
        assert "forbidden: no such right" in why
        assert "grant this program get on volumesnapshot" in why


def test_R41_another_volume_mode_where_an_administrator_allows_it() -> None:
    for allowed in ["true", "1", "T"]:
        there = world(THE_CONTENT, spec__sourceVolumeMode="Filesystem", metadata__annotations={ALLOW_MODE_CHANGE: allowed})
        assert isinstance(content(from_snapshot(volumeMode="Block"), there), Content)


def test_R41_another_volume_mode_where_nobody_allows_it() -> None:
    for annotations in [{}, {ALLOW_MODE_CHANGE: "false"}, {ALLOW_MODE_CHANGE: "yes"}, {ALLOW_MODE_CHANGE: True}, None]:
        for was, wanted in [("Filesystem", "Block"), ("Block", "Filesystem")]:
            there = world(THE_CONTENT, spec__sourceVolumeMode=was, metadata__annotations=annotations)
            assert ALLOW_MODE_CHANGE in unfit(from_snapshot(volumeMode=wanted), there)
            assert isinstance(content(from_snapshot(volumeMode=wanted), there, keep_mode=False), Content)


def test_R42_a_snapshot_that_goes_is_not_started_with() -> None:
    for finalizers in [[], ["another"]]:
        there = world(THE_SNAPSHOT, metadata__deletionTimestamp="2024-01-01T00:00:00Z", metadata__finalizers=finalizers)
        assert "being deleted" in unfit(from_snapshot(), there)


def test_R42_a_snapshot_that_goes_but_waits_for_us_is_finished_with() -> None:
    there = world(THE_SNAPSHOT, metadata__deletionTimestamp="2024-01-01T00:00:00Z", metadata__finalizers=["another", SNAPSHOT_FINALIZER])
    assert content(from_snapshot(), there) == Content(snapshot="snap-handle")


def test_R43_R46_a_driver_that_cannot_is_known_before_any_look_up() -> None:
    for claim, lacks in [(from_snapshot(), CREATE_DELETE_SNAPSHOT), (from_claim(), CLONE_VOLUME)]:
        answer = content_of(UNABLE, claim, NO_FACTS)
        assert isinstance(answer, Unfit)
        assert lacks in answer.why


def test_R43_even_the_grants_of_another_namespace_are_not_read() -> None:
    assert isinstance(content_of(UNABLE, from_afar(), NO_FACTS, cross_namespace=True), Unfit)


def test_R44_only_a_snapshot_may_go_unprotected() -> None:
    assert content(from_snapshot(), world()).protection_optional
    assert not content(from_claim(), world()).protection_optional


# ---- where the source lies -----------------------------------------------------------------------------------------


def affinity(*terms: dict[str, list[str]]) -> Json:
    expressions = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values} for key, values in term.items()]} for term in terms
    ]
    return {"required": {"nodeSelectorTerms": expressions}}


def test_a_clone_of_a_volume_of_another_node_is_not_tried() -> None:
    for terms, place in [
        ([{samples.KEY: ["bar"]}], f"{samples.KEY}=bar"),
        ([{samples.KEY: ["bar", "baz"]}], f"{samples.KEY}=bar|baz"),
        ([{samples.KEY: ["bar"]}, {samples.KEY: ["baz"]}], f"{samples.KEY}=bar or {samples.KEY}=baz"),
        ([{OTHER_KEY: ["x"], samples.KEY: ["bar"]}], f"{OTHER_KEY}=x,{samples.KEY}=bar"),
        ([{}, {samples.KEY: ["bar"]}], f"{samples.KEY}=bar"),
    ]:
        answer = content(from_claim(), world(THE_VOLUME, spec__nodeAffinity=affinity(*terms)))
        assert isinstance(answer, Elsewhere), answer
        assert f"lies on {place}, not on this node (foo)" in answer.why
        assert "schedule the pod" in answer.why


def test_a_snapshot_taken_by_another_node_is_not_tried_even_before_it_is_ready() -> None:
    there = world(THE_CONTENT, metadata__labels={CONTENT_MANAGED_BY: "bar"}, status=GONE)
    answer = content(from_snapshot(), there)
    assert isinstance(answer, Elsewhere), answer
    assert "lies on node bar, not on this node (foo)" in answer.why


def test_a_snapshot_of_this_node_or_of_who_knows_where_is_tried() -> None:
    for labels in [{CONTENT_MANAGED_BY: "foo"}, {CONTENT_MANAGED_BY: ""}, {CONTENT_MANAGED_BY: 5}, {}, None]:
        assert isinstance(content(from_snapshot(), world(THE_CONTENT, metadata__labels=labels)), Content)


# ---- clones --------------------------------------------------------------------------------------------------------


def test_of_a_claim_in_a_list_nothing_is_kept_that_is_not_asked_for() -> None:
    clone = samples.claim_json(dataSource={"kind": CLAIM, "name": "source"})
    assert set(slim(clone)["metadata"]) == {"name", "namespace"} and set(slim(clone)["spec"]) == {"dataSource", "dataSourceRef"}
    found = {Ref(needs.CLAIMS, "", "fake-ns"): {"items": [slim(clone)]}}
    assert clones_of(samples.claim(meta={"name": "source"}), found) == ("fake-ns/fake-pvc",)


def test_R46_a_clone_of_a_bound_claim() -> None:
    answer, asked = asks_until_answered(lambda facts: content_of(ABLE, from_claim(), facts), world())
    assert answer == Content(volume="source-handle", protect=THE_SOURCE)
    assert asked == [THE_SOURCE, THE_VOLUME]
    assert finalizer_for(THE_SOURCE) == CLONE_FINALIZER
    assert to_release(from_claim()) is None


def test_R46_a_claim_that_cannot_be_cloned() -> None:
    for ref, way, value, says in [
        (THE_SOURCE, "status.phase", "Pending", "is Pending"),
        (THE_SOURCE, "status.phase", "Lost", "is Lost"),
        (THE_SOURCE, "status", GONE, "without a phase"),
        (THE_SOURCE, "metadata.deletionTimestamp", "2024-01-01T00:00:00Z", "being deleted"),
        (THE_SOURCE, "spec.storageClassName", GONE, "no StorageClass"),
        (THE_SOURCE, "spec.resources.requests.storage", "101", "ask for at least 101"),
        (THE_SOURCE, "spec.resources.requests.storage", {}, "cannot be read"),
        (THE_SOURCE, "spec.volumeName", GONE, "names no volume"),
        (THE_SOURCE, "metadata.uid", "another", "not bound to it"),
        (THE_VOLUME, "status.phase", "Released", "is Released"),
        (THE_VOLUME, "status.phase", "Failed", "is Failed"),
        (THE_VOLUME, "status.phase", "Pending", "is Pending"),
        (THE_VOLUME, "status.phase", "Available", "is Available"),
        (THE_VOLUME, "spec.claimRef", GONE, "not bound to it"),
        (THE_VOLUME, "spec.claimRef.uid", "another", "not bound to it"),
        (THE_VOLUME, "spec.claimRef.namespace", "another", "not bound to it"),
        (THE_VOLUME, "spec.claimRef.name", "another", "not bound to it"),
        (THE_VOLUME, "spec.csi.driver", "another", "'another'"),
        (THE_VOLUME, "spec.csi", GONE, "not of a CSI driver"),
        (THE_VOLUME, "spec.csi.volumeHandle", GONE, "no handle"),
        (THE_VOLUME, "spec.volumeMode", "Block", "volumeMode Block"),
    ]:
        assert says in unfit(from_claim(), world(ref, **{way: value}))


def test_R46_a_source_that_is_not_there() -> None:
    for ref in [THE_SOURCE, THE_VOLUME]:
        assert f"{ref} does not exist" in unfit(from_claim(), world() | {ref: Absent("404", exists=False)})


def test_R46_a_new_claim_without_a_class() -> None:
    assert "the new claim has no StorageClass" in unfit(from_claim(storageClassName=None), world())


def test_R47_no_mode_means_a_file_system() -> None:
    for source in [None, "Filesystem"]:
        for target in [None, "Filesystem"]:
            assert isinstance(content(from_claim(volumeMode=target), world(THE_VOLUME, spec__volumeMode=source)), Content)


def test_R47_block_of_block() -> None:
    assert isinstance(content(from_claim(volumeMode="Block"), world(THE_VOLUME, spec__volumeMode="Block")), Content)


# ---- other kinds, other namespaces ---------------------------------------------------------------------------------


def test_R48_another_kind_is_left_to_its_populator_whatever_the_driver_can() -> None:
    for field in ["dataSource", "dataSourceRef"]:
        spec: Json = {field: {"apiGroup": "hello.example.com", "kind": "MyPopulator", "name": "a"}}
        claim = samples.claim(**spec)
        answer = content_of(UNABLE, claim, NO_FACTS)
        assert isinstance(answer, LeftToPopulator)
        assert "MyPopulator fake-ns/a (API group hello.example.com)" in answer.why


def test_R49_a_namespace_needs_the_gate() -> None:
    for namespace in [FAR, "fake-ns", ""]:
        answer = content_of(ABLE, from_afar(namespace), NO_FACTS)
        assert isinstance(answer, Unfit)
        assert "CrossNamespaceVolumeDataSource" in answer.why


def afar(*grants: Json) -> dict[Ref, Json | Absent]:
    """The snapshot lies in another namespace, which has these grants."""
    return {
        Ref(GRANTS, "", FAR): {"items": list(grants)},
        Ref(SNAPSHOT, "snap", FAR): changed(_SNAPSHOT, {"metadata.namespace": FAR}),
        THE_CONTENT: changed(_CONTENT, {"spec.volumeSnapshotRef.namespace": FAR}),
    }


def test_R50_a_grant_by_no_name_or_by_this_one() -> None:
    for name in [GONE, None, "", "snap"]:
        grant = deepcopy(_GRANT)
        grant["spec"]["to"][0] = changed(grant["spec"]["to"][0], {"name": name})
        answer, asked = asks_until_answered(lambda facts: content_of(ABLE, from_afar(), facts, cross_namespace=True), afar(grant))
        assert answer == Content(snapshot="snap-handle", protect=Ref(SNAPSHOT, "snap", FAR))
        assert asked == [Ref(GRANTS, "", FAR), Ref(SNAPSHOT, "snap", FAR), THE_CONTENT], "nothing is read before it is granted"
        assert to_release(from_afar()) == Ref(SNAPSHOT, "snap", FAR)


def test_R50_a_grant_that_is_not_for_this() -> None:
    for way, value in [
        ("metadata.namespace", "another"),
        ("metadata.namespace", GONE),
        ("spec.from", []),
        ("spec.from", [{"group": "apps", "kind": CLAIM, "namespace": "fake-ns"}]),
        ("spec.from", [{"group": [], "kind": CLAIM, "namespace": "fake-ns"}]),
        ("spec.from", [{"group": "", "kind": "Pod", "namespace": "fake-ns"}]),
        ("spec.from", [{"group": "", "kind": CLAIM, "namespace": "another"}]),
        ("spec.from", [{"group": "", "kind": CLAIM}]),
        ("spec.to", []),
        ("spec.to", [{"group": "", "kind": SNAPSHOT}]),
        ("spec.to", [{"kind": SNAPSHOT}]),
        ("spec.to", [{"group": SNAPSHOT_GROUP, "kind": CLAIM}]),
        ("spec.to", [{"group": SNAPSHOT_GROUP, "kind": SNAPSHOT, "name": "another"}]),
        ("spec.to", [{"group": SNAPSHOT_GROUP, "kind": SNAPSHOT, "name": ["snap"]}]),
        ("spec", GONE),
    ]:
        assert "no ReferenceGrant" in unfit(from_afar(), afar(changed(_GRANT, {way: value})), cross_namespace=True)


def test_R50_no_grant_at_all() -> None:
    assert "no ReferenceGrant" in unfit(from_afar(), afar(), cross_namespace=True)
    assert "knows no ReferenceGrants" in unfit(from_afar(), {}, cross_namespace=True)
    unreadable = afar(_GRANT) | {Ref(GRANTS, "", FAR): Absent("forbidden")}
    assert "grant this program list on referencegrants" in unfit(from_afar(), unreadable, cross_namespace=True)


def test_R50_the_claims_own_namespace_needs_no_grant() -> None:
    for namespace in ["fake-ns", None]:
        assert isinstance(content(from_afar(namespace), world(), cross_namespace=True), Content)


def test_R50_an_empty_namespace_is_none_at_all() -> None:
    answer = content_of(ABLE, from_afar(""), NO_FACTS, cross_namespace=True)
    assert isinstance(answer, Unfit)
    assert "namespace is empty" in answer.why


def test_R50_dataSource_wins_and_never_leads_out_of_the_namespace() -> None:
    claim = from_snapshot(dataSource={**FROM_SNAPSHOT, "namespace": FAR}, dataSourceRef={**FROM_CLAIM, "namespace": FAR})
    assert content(claim, world()) == Content(snapshot="snap-handle", protect=THE_SNAPSHOT)


def test_R51_whether_the_answer_must_say_that_it_is_filled() -> None:
    for spec, with_gate, without in [
        ({}, False, False),
        ({"dataSource": FROM_CLAIM}, True, True),
        ({"dataSource": FROM_CLAIM, "dataSourceRef": FROM_CLAIM}, True, True),
        ({"dataSourceRef": {**FROM_CLAIM, "namespace": FAR}}, True, False),
        ({"dataSourceRef": {**FROM_CLAIM, "namespace": ""}}, False, False),
        ({"dataSourceRef": FROM_CLAIM}, False, False),
    ]:
        assert wants_source(samples.claim(**spec), cross_namespace=True) is with_gate
        assert wants_source(samples.claim(**spec)) is without


def test_a_claim_that_is_not_held_whole_is_read_from_its_record() -> None:
    assert content(Claim.of(samples.claim_json(dataSource=FROM_CLAIM)), world()) == Content(volume="source-handle", protect=THE_SOURCE)
    assert wants_source(Claim.of(samples.claim_json(dataSource=FROM_CLAIM)))
    far = Claim.of(samples.claim_json(dataSourceRef={**FROM_SNAPSHOT, "namespace": FAR}))
    assert isinstance(content_of(ABLE, far, NO_FACTS), Unfit)
    assert isinstance(content(far, afar(_GRANT), cross_namespace=True), Content)
    assert not wants_source(far)
    assert content_of(ABLE, Claim.of(samples.claim_json()), NO_FACTS) is None


# ---- VolumeAttributesClass -----------------------------------------------------------------------------------------


def attributes(world: Facts, *, here: Here = ABLE, **options: bool) -> Any:
    claim = samples.claim(volumeAttributesClassName="gold")
    return asks_until_answered(lambda facts: attributes_of(here, claim, facts, **options), world)[0]


def test_R52_the_parameters_of_the_attributes_class() -> None:
    assert attributes(world()) == {"iops": "100"}
    assert attributes(world(THE_ATTRIBUTES, parameters=GONE)) == {}
    assert attributes(world(THE_ATTRIBUTES, parameters=None)) == {}


def test_R54_an_attributes_class_that_cannot_be_used() -> None:
    for answer, says in [
        (attributes_of(UNABLE, samples.claim(volumeAttributesClassName="gold"), NO_FACTS), MODIFY_VOLUME),
        (attributes({}), "does not exist"),
        (attributes({THE_ATTRIBUTES: Absent("forbidden")}), "get on volumeattributesclasses"),
        (attributes(world(THE_ATTRIBUTES, driverName="another")), "'another'"),
        (attributes(world(THE_ATTRIBUTES, driverName=GONE)), "''"),
        (attributes(world(THE_ATTRIBUTES, parameters={"iops": 100})), "not text"),
        (attributes(world(THE_ATTRIBUTES, parameters=["iops"])), "not text"),
    ]:
        assert isinstance(answer, Unfit)
        assert str(THE_ATTRIBUTES) in answer.why
        assert says in answer.why


# ---- finalizers ----------------------------------------------------------------------------------------------------


def test_K2_a_finalizer_comes_last_and_goes_alone() -> None:
    obj = changed(_SOURCE, {"metadata.finalizers": ["a", "b"], "metadata.managedFields": [{"manager": "somebody"}]})
    body = with_finalizer(obj, CLONE_FINALIZER)
    assert body is not None
    assert json.loads(body) == changed(_SOURCE, {"metadata.finalizers": ["a", "b", CLONE_FINALIZER]})
    back = without_finalizer(json.loads(body), CLONE_FINALIZER)
    assert back is not None
    assert json.loads(back) == changed(_SOURCE, {"metadata.finalizers": ["a", "b"]})


# ---- whatever the server holds -------------------------------------------------------------------------------------

GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CLAIMS = (from_snapshot(volumeMode="Block"), from_claim(), from_afar(), samples.claim(dataSourceRef={**FROM_CLAIM, "namespace": FAR}))


def ways(obj: Any, so_far: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything in the object."""
    inside: Any = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list) else ()
    return [so_far, *(way for key, value in inside for way in ways(value, (*so_far, key)))]


def spoilt(data: st.DataObject, obj: Json) -> Any:
    """The object with garbage, or nothing, in up to three places."""
    holder: Any = {"obj": deepcopy(obj)}
    for _ in range(data.draw(st.integers(0, 3))):
        way = data.draw(st.sampled_from(ways(holder)[1:] or [("obj",)]))
        at = holder
        for step in way[:-1]:
            at = at[step]
        if len(way) > 1 and data.draw(st.booleans()):
            del at[way[-1]]
        else:
            at[way[-1]] = data.draw(GARBAGE)
    return holder["obj"]


@given(st.data())
def test_whatever_the_facts_hold_the_answer_is_a_value(data: st.DataObject) -> None:
    pv = changed(_PV, {"spec.nodeAffinity": affinity({samples.KEY: ["foo"]}, {samples.KEY: ["bar"]})})
    kept_content = changed(_CONTENT, {"spec.sourceVolumeMode": "Filesystem", "metadata.labels": {CONTENT_MANAGED_BY: "foo"}})
    healthy = world() | afar(_GRANT) | {THE_VOLUME: pv, THE_CONTENT: kept_content, Ref(CLAIM, "source", FAR): _SOURCE}
    there = {ref: spoilt(data, obj) for ref, obj in healthy.items() if not isinstance(obj, Absent)}
    claim = data.draw(st.sampled_from(CLAIMS))
    answer = content(claim, there, cross_namespace=True)
    assert isinstance(answer, Content | Unfit | Elsewhere)
    if isinstance(answer, Content):
        assert bool(answer.snapshot) != bool(answer.volume)
    assert isinstance(attributes(there), Mapping | Unfit)


def test_R53_without_the_gate_or_the_name_there_is_none() -> None:
    assert attributes({}, enabled=False) is None
    assert attributes({}, here=UNABLE, enabled=False) is None
    assert attributes_of(UNABLE, samples.claim(), NO_FACTS) is None
    assert attributes_of(UNABLE, samples.claim(volumeAttributesClassName=""), NO_FACTS) is None
