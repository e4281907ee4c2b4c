"""Acceptance cases R of the whole room: from a claim and its class to what the driver, the API server and the user get of it.

Which text is right and which source is fit is decided by pure rules, which are tested where they are. Here it is shown that
their word is law: nothing is asked or made after a refusal, and what they allow arrives at the driver and in the PersistentVolume.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.csi.api import CreatedVolume
from sidecar.csi.outcome import Code
from sidecar.kube.api import Resource
from sidecar.kube.errors import Conflict, Forbidden, Unavailable
from sidecar.model.names import ALLOW_MODE_CHANGE, CLONE_FINALIZER, SELECTED_NODE, SNAPSHOT_FINALIZER
from sidecar.provisioning.needs import Absent, Ref
from tests.harness import samples
from tests.harness.provisioning.bench import rpc, run
from tests.harness.provisioning.room import Json, KeepingKube, OpenDriver, Room, able, every_kind, room_for, secret, settle
from tests.harness.provisioning.secret_keys import DEFAULT_NAME, DEFAULT_NAMESPACE, KINDS, NAME, NAMESPACE, OLD_NAME, OLD_NAMESPACE, PREFIX
from tests.harness.provisioning.sources import (
    FAR,
    FROM_CLAIM,
    FROM_SNAPSHOT,
    GONE,
    THE_ATTRIBUTES,
    THE_CONTENT,
    THE_SNAPSHOT,
    THE_SOURCE,
    THE_VOLUME,
    changed,
    fill,
    size,
    world,
)

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
DELETION = "volume.kubernetes.io/provisioner-deletion-secret-"
MODIFY = "volume.kubernetes.io/controller-modify-secret-"
LIVES_IN_REFERENCE = {
    "controller-publish": "controllerPublishSecretRef",
    "node-stage": "nodeStageSecretRef",
    "node-publish": "nodePublishSecretRef",
    "controller-expand": "controllerExpandSecretRef",
    "node-expand": "nodeExpandSecretRef",
}


def refused(room: Room) -> str:
    """It is tried again with back-off, its user is told, and the driver heard nothing of it. Returns what the user is told."""
    assert settle(room) == room.now + 1.0
    assert room.untouched()
    assert room.kube.wrote("create") == []
    assert room.told.reasons() == ["ProvisioningFailed"]
    return room.said()


def provisioned(room: Room) -> Json:
    """The PersistentVolume, and the user is told so."""
    assert settle(room) is None
    assert room.told.reasons()[-1] == "ProvisioningSucceeded"
    assert room.driver.count("create") == 1
    assert not room.paper.lines and room.table.in_progress() == 0
    return room.kube.wrote_volume()


def references(volume: Json) -> dict[str, tuple[str, str]]:
    """The Secrets that a PersistentVolume names in its CSI source."""
    return {key: (ref["namespace"], ref["name"]) for key, ref in volume["spec"]["csi"].items() if key.endswith("SecretRef")}


def notes(volume: Json, prefix: str) -> tuple[str, str]:
    """(namespace, name) of a pair of annotations; a KeyError when there is none."""
    found = volume["metadata"]["annotations"]
    return found[f"{prefix}namespace"], found[f"{prefix}name"]


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_R15_without_secret_keys_no_secret_is_read_and_the_annotations_say_that_there_is_none() -> None:
    room = room_for()
    volume = provisioned(room)
    assert volume["metadata"]["annotations"] == {PROVISIONED_BY: samples.DRIVER, f"{DELETION}name": "", f"{DELETION}namespace": ""}
    assert references(volume) == {}
    assert room.driver.given == [("create", {})]
    assert [plural for _, plural, _, _ in room.kube.asked] == ["persistentvolumes"]


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param({NAME: "a"}, id="R16-name-alone"),
        pytest.param({NAMESPACE: "b"}, id="R16-namespace-alone"),
        pytest.param({OLD_NAME: "a"}, id="R16-deprecated-name-alone"),
        pytest.param({OLD_NAMESPACE: "b"}, id="R16-deprecated-namespace-alone"),
        pytest.param({NAME: "", NAMESPACE: ""}, id="R16-both-empty"),
        pytest.param({OLD_NAME: "", OLD_NAMESPACE: ""}, id="R16-both-empty-deprecated"),
        pytest.param({OLD_NAME: "a", NAME: "a", NAMESPACE: "b"}, id="R17-deprecated-and-prefixed-name"),
        pytest.param({DEFAULT_NAME: "${unknown}", DEFAULT_NAMESPACE: "b"}, id="R23-invalid-default"),
        pytest.param({NAME: "$pvc.name", NAMESPACE: "b"}, id="R25-no-braces"),
        pytest.param({NAME: "a$", NAMESPACE: "b"}, id="R25-a-dollar-at-the-end"),
        pytest.param({f"{PREFIX}node-stage-secret-name": "a"}, id="R16-of-a-kind-that-the-driver-does-not-get-now"),
    ],
)
def test_a_class_whose_secrets_make_no_sense_reaches_neither_the_driver_nor_the_api(parameters: dict[str, str]) -> None:
    room = room_for(parameters=parameters)
    assert "StorageClass 'fake-class': parameter" in refused(room)
    assert room.kube.asked == []


def test_R25_a_token_without_braces_is_named_as_it_was_read() -> None:
    assert "'pvc'" in refused(room_for(parameters={NAME: "$pvc.name", NAMESPACE: "b"}))


def test_R17_a_deprecated_name_beside_a_prefixed_namespace_is_accepted() -> None:
    room = room_for(parameters={OLD_NAME: "a", NAMESPACE: "b"}).add("secrets", secret("a", "b", key="value"))
    assert notes(provisioned(room), DELETION) == ("b", "a")
    assert room.driver.given == [("create", {"key": "value"})]


def test_R18_every_kind_has_its_place_and_only_the_provisioners_data_goes_to_the_driver() -> None:
    room = room_for(parameters=every_kind() | {"pool": "fast"})
    room.add("secrets", *(secret(f"{kind}-name", f"{kind}-namespace", whose=kind) for kind in KINDS))
    volume = provisioned(room)
    assert references(volume) == {field: (f"{kind}-namespace", f"{kind}-name") for kind, field in LIVES_IN_REFERENCE.items()}
    assert notes(volume, DELETION) == ("provisioner-namespace", "provisioner-name")
    assert notes(volume, MODIFY) == ("controller-modify-namespace", "controller-modify-name")
    assert room.driver.given == [("create", {"whose": "provisioner"})]
    ((_, request),) = room.driver.asked
    assert request.parameters == {"pool": "fast"}
    assert [name for verb, plural, name, _ in room.kube.asked if plural == "secrets"] == ["provisioner-name"], (
        "the others are not its to read"
    )


def test_R19_the_default_stands_in_for_every_kind() -> None:
    room = room_for(parameters={DEFAULT_NAME: "a", DEFAULT_NAMESPACE: "b"}).add("secrets", secret("a", "b", key="value"))
    volume = provisioned(room)
    assert references(volume) == dict.fromkeys(LIVES_IN_REFERENCE.values(), ("b", "a"))
    assert notes(volume, DELETION) == notes(volume, MODIFY) == ("b", "a")
    assert room.driver.given == [("create", {"key": "value"})]


def test_R20_templates_are_filled_from_the_claim_as_it_is() -> None:
    name = "static-${pv.name}-${pvc.namespace}-${pvc.name}-${pvc.annotations['akey']}"
    where = ("static-test-testi-fake-ns", "static-test-testi-fake-ns-fake-pvc-avalue")
    room = room_for(
        samples.claim_json(annotations={"akey": "avalue"}), parameters={NAME: name, NAMESPACE: "static-${pv.name}-${pvc.namespace}"}
    )
    room.add("secrets", secret(where[1], where[0], key="value"))
    assert notes(provisioned(room), DELETION) == where
    assert room.driver.given == [("create", {"key": "value"})]


def test_R24_a_missing_secret_is_named_and_the_driver_is_asked_once_it_is_there() -> None:
    room = room_for(parameters={NAME: "a", NAMESPACE: "b"})
    assert "Secret b/a does not exist" in refused(room)
    room.add("secrets", secret("a", "b", key="value"))
    provisioned(room)


def test_R24_a_secret_of_that_name_in_another_namespace_is_another_one() -> None:
    assert "Secret b/a does not exist" in refused(room_for(parameters={NAME: "a", NAMESPACE: "b"}).add("secrets", secret("a", "c")))


@pytest.mark.parametrize("error", [Forbidden("get secrets: no")])
def test_R24_a_secret_that_may_not_be_read_is_told_of(error: Exception) -> None:
    room = room_for(parameters={NAME: "a", NAMESPACE: "b"}, kube=KeepingKube(failures={"get": [error]}))
    assert "get secrets: no" in refused(room)


def test_R24_while_the_api_server_is_away_nobody_is_told() -> None:
    room = room_for(parameters={NAME: "a", NAMESPACE: "b"}, kube=KeepingKube(failures={"get": [Unavailable("away")]}))
    assert settle(room) == room.now + 1.0
    assert room.untouched() and room.told.events == []


# ---- sources -------------------------------------------------------------------------------------------------------


def filled_from(source: Json, *, facts: dict[Ref, Json | Absent] | None = None, claim: Json | None = None, **doors: Any) -> Room:
    """A claim with that dataSource, in a world in which every source is healthy but for what `facts` says."""
    obj = samples.claim_json(**({"dataSource": source} | (claim or {})))
    return fill(room_for(obj, **({"driver": able()} | doors)), facts or world())


def finalizers(room: Room, plural: str, name: str) -> list[str]:
    return list(room.kube.objects[plural, name]["metadata"].get("finalizers") or [])


def test_R39_a_snapshot_bears_our_finalizer_during_the_call_and_no_longer_after_success() -> None:
    room = filled_from(FROM_SNAPSHOT, facts=world(THE_SNAPSHOT, metadata__finalizers=["other"]))
    during: list[list[str]] = []
    room.driver.meanwhile = lambda: during.append(finalizers(room, "volumesnapshots", "snap"))
    provisioned(room)
    ((_, request),) = room.driver.asked
    assert (request.source_snapshot, request.source_volume) == ("snap-handle", "")
    assert during == [["other", SNAPSHOT_FINALIZER]]
    assert finalizers(room, "volumesnapshots", "snap") == ["other"]


def test_R39_it_stays_while_the_creation_may_still_run() -> None:
    room = filled_from(FROM_SNAPSHOT, driver=able(creates=[rpc(Code.DEADLINE_EXCEEDED)]))
    settle(room)
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]


def test_R39_a_volume_that_cannot_be_stored_yet_keeps_its_snapshot() -> None:
    room = filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"create": [Unavailable("away")]}))
    settle(room)
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]
    assert settle(room) is None
    assert finalizers(room, "volumesnapshots", "snap") == []


def with_another(room: Room) -> Room:
    """Another claim of this node is to be filled from the same snapshot."""
    meta = {"name": "two", "uid": "uid-two"}
    room.driver.own_handles = True
    return room.show(samples.claim_json(meta=meta, dataSource=FROM_SNAPSHOT, annotations={SELECTED_NODE: samples.NODE}))


def test_who_is_done_leaves_the_snapshot_to_a_claim_whose_creation_may_still_run() -> None:
    answers = [rpc(Code.DEADLINE_EXCEEDED), CreatedVolume("made", 100, has_source=True)]
    room = with_another(filled_from(FROM_SNAPSHOT, driver=able(creates=answers)))
    settle(room)
    room.snapshots_protected.clear()
    assert run(room.room.handle_claim("uid-two")) is None
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]
    assert room.snapshots_protected, "the sweep comes back should the other claim be given up"
    assert settle(room) is None
    assert finalizers(room, "volumesnapshots", "snap") == []


@dataclass
class InterruptedKube(KeepingKube):
    """Lets something happen after the next PUT has landed and before it is answered."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def replace(self, resource: Resource, body: Any, *, name: str, **rest: Any) -> Json:
        written = await super().replace(resource, body, name=name, **rest)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return written


@pytest.mark.parametrize("answered", [True, False], ids=["protected", "being-protected"])
def test_who_is_done_leaves_the_snapshot_to_the_claim_that_protects_it(answered: bool) -> None:
    room = with_another(filled_from(FROM_SNAPSHOT, kube=(kube := InterruptedKube())))
    if not answered:
        kube.meanwhile = lambda: room.room.handle_claim("uid-two")
    room.claim()
    if answered:
        run(room.room.handle_claim("uid-two"))
    assert room.driver.count("create") == 1
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]
    assert room.claim() is None
    assert finalizers(room, "volumesnapshots", "snap") == []
    assert "ProvisioningFailed" not in room.told.reasons()


def test_who_is_done_leaves_the_snapshot_to_a_claim_that_reads_its_secret() -> None:
    class Slow(KeepingKube):
        async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
            if resource.plural == "secrets" and not others:
                others.append("uid-two")
                await room.room.handle_claim("uid-two")
                during.extend(finalizers(room, "volumesnapshots", "snap"))
            return await super().get(resource, name, namespace=namespace)

    others: list[str] = []
    during: list[str] = []
    room = with_another(filled_from(FROM_SNAPSHOT, facts=world(THE_SNAPSHOT, metadata__finalizers=[SNAPSHOT_FINALIZER]), kube=Slow()))
    room.see(class_=samples.class_(parameters={NAME: "a", NAMESPACE: "b"})).kube.objects["secrets", "a"] = secret("a", "b")
    assert settle(room) is None
    assert during == [SNAPSHOT_FINALIZER]
    assert finalizers(room, "volumesnapshots", "snap") == []


def test_a_finalizer_that_does_not_stay_is_told_of_the_second_time() -> None:
    room = filled_from(FROM_SNAPSHOT)
    for told in ([], ["ProvisioningFailed"]):
        room.claim()
        room.kube.objects["volumesnapshots", "snap"]["metadata"]["finalizers"] = []
        assert (room.claim() or 0.0) > room.now
        assert room.told.reasons() == told
    assert "our finalizer does not stay on VolumeSnapshot" in room.said() and room.untouched()


@pytest.mark.parametrize(
    ("claim", "ref", "way", "value"),
    [
        pytest.param({"resources": size("99")}, THE_CONTENT, "", None, id="R40-smaller-than-restoreSize"),
        pytest.param({"dataSource": {**FROM_SNAPSHOT, "apiGroup": "x"}}, THE_CONTENT, "", None, id="R40-wrong-group"),
        pytest.param({"dataSource": {**FROM_SNAPSHOT, "name": ""}}, THE_CONTENT, "", None, id="R40-empty-name"),
        pytest.param({}, THE_CONTENT, "spec.volumeSnapshotRef.uid", "another", id="R40-bound-to-another-uid"),
        pytest.param({}, THE_CONTENT, "spec.volumeSnapshotRef.namespace", "another", id="R40-bound-to-another-ns"),
        pytest.param({}, THE_CONTENT, "spec.volumeSnapshotRef.name", "another", id="R40-bound-to-another-name"),
        pytest.param({}, THE_CONTENT, "spec.driver", "another", id="R40-other-driver"),
        pytest.param({}, THE_SNAPSHOT, "status", GONE, id="R40-no-status"),
        pytest.param({}, THE_SNAPSHOT, "status.boundVolumeSnapshotContentName", GONE, id="R40-no-bound-content"),
        pytest.param({}, THE_SNAPSHOT, "status.readyToUse", GONE, id="R40-ReadyToUse-nil"),
        pytest.param({}, THE_CONTENT, "status", GONE, id="R40-no-content-status"),
        pytest.param({}, THE_CONTENT, "status.snapshotHandle", GONE, id="R40-no-handle"),
        pytest.param({"volumeMode": "Block"}, THE_CONTENT, "spec.sourceVolumeMode", "Filesystem", id="R41-mode-differs"),
        pytest.param({}, THE_SNAPSHOT, "metadata.deletionTimestamp", "now", id="R42-deleting-without-ours"),
    ],
)
def test_a_snapshot_that_does_not_do_is_neither_protected_nor_used(claim: Json, ref: Ref, way: str, value: Any) -> None:
    room = filled_from(FROM_SNAPSHOT, claim=claim, facts=world(ref, **{way: value}) if way else world())
    assert "source VolumeSnapshot" in refused(room)
    assert room.kube.wrote("replace") == []


@pytest.mark.parametrize(
    ("options", "annotations"),
    [
        pytest.param({}, {ALLOW_MODE_CHANGE: "true"}, id="R41-annotated"),
        pytest.param({"keeps_volume_mode": False}, {}, id="R41-guard-off"),
    ],
)
def test_R41_another_mode_where_it_is_allowed(options: Json, annotations: Json) -> None:
    facts = world(THE_CONTENT, spec__sourceVolumeMode="Filesystem", metadata__annotations=annotations)
    assert (
        provisioned(filled_from(FROM_SNAPSHOT, claim={"volumeMode": "Block"}, facts=facts, options=options))["spec"]["volumeMode"]
        == "Block"
    )


def test_R42_a_deleting_snapshot_that_bears_our_finalizer_is_finished_with_and_let_go() -> None:
    room = filled_from(
        FROM_SNAPSHOT, facts=world(THE_SNAPSHOT, metadata__deletionTimestamp="now", metadata__finalizers=[SNAPSHOT_FINALIZER])
    )
    provisioned(room)
    assert finalizers(room, "volumesnapshots", "snap") == []


@pytest.mark.parametrize(
    ("source", "lacks"),
    [
        pytest.param(FROM_SNAPSHOT, "CREATE_DELETE_SNAPSHOT", id="R43-snapshot"),
        pytest.param(FROM_CLAIM, "CLONE_VOLUME", id="R46-clone"),
    ],
)
def test_a_driver_that_cannot_costs_no_look_up(source: Json, lacks: str) -> None:
    room = filled_from(source, driver=OpenDriver())
    assert lacks in refused(room)
    assert room.kube.asked == []


def test_R44_a_snapshot_whose_finalizer_may_not_be_written_is_used_all_the_same() -> None:
    room = filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"replace": [Forbidden("update volumesnapshots: no")]}))
    provisioned(room)
    assert "ProvisioningFailed" not in room.told.reasons()
    assert len(room.kube.wrote("replace")) == 1, "what is forbidden is not asked for again"


def test_that_snapshots_may_not_be_protected_is_told_once_however_many_are_restored(caplog: pytest.LogCaptureFixture) -> None:
    refusal = Forbidden("cannot update volumesnapshots", status=403)
    room = with_another(filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"replace": [refusal, refusal]})))
    for uid in (samples.claim_json()["metadata"]["uid"], "uid-two"):
        for _ in range(4):
            run(room.room.handle_claim(uid))
    assert len(room.kube.wrote("replace")) == len(room.driver.asked) == 2
    (line,) = [record for record in caplog.records if "without protection" in record.getMessage()]
    assert "cannot update volumesnapshots" in line.fields["err"] and "update" in line.fields["remedy"]  # type: ignore[attr-defined]


def test_R44_a_clone_is_not_made_of_a_source_that_may_go_meanwhile() -> None:
    room = filled_from(FROM_CLAIM, kube=KeepingKube(failures={"replace": [Forbidden("update persistentvolumeclaims: no")]}))
    assert "protecting PersistentVolumeClaim fake-ns/source failed: update persistentvolumeclaims: no" in refused(room)


@pytest.mark.parametrize("error", [Conflict("changed"), Unavailable("away")])
def test_R39_a_source_that_somebody_else_writes_at_the_same_time_is_read_again(error: Exception) -> None:
    room = filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"replace": [error]}))
    assert settle(room) == room.now + 1.0
    assert room.untouched() and room.told.events == []
    provisioned(room)


def test_R46_a_clone_bears_our_finalizer_during_the_call_and_after() -> None:
    """It is taken off by the clean-up of clones, when no other claim is still being made of it."""
    room = filled_from(FROM_CLAIM)
    during: list[list[str]] = []
    room.driver.meanwhile = lambda: during.append(finalizers(room, "persistentvolumeclaims", "source"))
    provisioned(room)
    ((_, request),) = room.driver.asked
    assert (request.source_snapshot, request.source_volume) == ("", "source-handle")
    assert during == [[CLONE_FINALIZER]] and finalizers(room, "persistentvolumeclaims", "source") == [CLONE_FINALIZER]


@pytest.mark.parametrize(
    ("claim", "ref", "way", "value"),
    [
        pytest.param({}, THE_SOURCE, "status.phase", "Pending", id="R46-source-pending"),
        pytest.param({}, THE_SOURCE, "status.phase", "Lost", id="R46-source-lost"),
        pytest.param({}, THE_SOURCE, "metadata.deletionTimestamp", "now", id="R46-source-deleting"),
        pytest.param({}, THE_SOURCE, "spec.storageClassName", GONE, id="R46-source-without-class"),
        pytest.param({"resources": size("99")}, THE_SOURCE, "", None, id="R46-smaller-than-its-source"),
        pytest.param({}, THE_VOLUME, "status.phase", "Released", id="R46-volume-released"),
        pytest.param({}, THE_VOLUME, "status.phase", "Failed", id="R46-volume-failed"),
        pytest.param({}, THE_VOLUME, "status.phase", "Pending", id="R46-volume-pending"),
        pytest.param({}, THE_VOLUME, "status.phase", "Available", id="R46-volume-available"),
        pytest.param({}, THE_VOLUME, "spec.claimRef", GONE, id="R46-volume-unbound"),
        pytest.param({}, THE_VOLUME, "spec.claimRef.uid", "another", id="R46-bound-to-another-uid"),
        pytest.param({}, THE_VOLUME, "spec.claimRef.namespace", "another", id="R46-bound-to-another-ns"),
        pytest.param({}, THE_VOLUME, "spec.claimRef.name", "another", id="R46-bound-to-another-name"),
        pytest.param({}, THE_VOLUME, "spec.csi.driver", "another", id="R46-other-driver"),
        pytest.param({"volumeMode": "Block"}, THE_VOLUME, "spec.volumeMode", "Filesystem", id="R46-block-of-files"),
        pytest.param({"volumeMode": "Filesystem"}, THE_VOLUME, "spec.volumeMode", "Block", id="R46-files-of-block"),
        pytest.param({"volumeMode": "Block"}, THE_VOLUME, "spec.volumeMode", None, id="R47-nil-is-Filesystem"),
    ],
)
def test_a_claim_that_cannot_be_cloned_is_neither_protected_nor_used(claim: Json, ref: Ref, way: str, value: Any) -> None:
    room = filled_from(FROM_CLAIM, claim=claim, facts=world(ref, **{way: value}) if way else world())
    assert "source PersistentVolumeClaim fake-ns/source" in refused(room)
    assert room.kube.wrote("replace") == []


@pytest.mark.parametrize("missing", [pytest.param(THE_SOURCE, id="R46-source-missing"), pytest.param(THE_VOLUME, id="R46-volume-missing")])
def test_what_a_clone_is_missing_is_named(missing: Ref) -> None:
    facts = {ref: obj for ref, obj in world().items() if ref != missing}
    assert f"{missing} does not exist" in refused(filled_from(FROM_CLAIM, facts=facts))


@pytest.mark.parametrize(("source", "wanted"), [(None, "Filesystem"), ("Filesystem", None), (None, None)])
def test_R47_no_mode_is_the_file_system(source: Any, wanted: Any) -> None:
    provisioned(filled_from(FROM_CLAIM, claim={"volumeMode": wanted}, facts=world(THE_VOLUME, spec__volumeMode=source)))


def test_a_source_on_another_node_is_told_of_and_looked_at_seldom() -> None:
    place = {"key": samples.KEY, "operator": "In", "values": ["bar"]}
    elsewhere = {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}}
    room = filled_from(FROM_CLAIM, facts=world(THE_VOLUME, spec__nodeAffinity=elsewhere))
    assert settle(room) == room.now + 300.0
    assert room.untouched() and "schedule the pod that uses the claim there" in room.said()


@pytest.mark.parametrize("field", ["dataSource", "dataSourceRef"])
def test_R48_a_populators_claim_gets_one_normal_event_and_nothing_else(field: str) -> None:
    spec: Json = {field: {"apiGroup": "x.example.com", "kind": "MyPopulator", "name": "data"}}
    room = room_for(samples.claim_json(**spec), driver=able())
    assert room.claim() is None
    assert [event[1:3] for event in room.told.events] == [("Normal", "Provisioning")]
    assert "MyPopulator" in room.said() and "populator" in room.said()
    assert room.untouched() and room.kube.asked == []
    assert room.value("controller_persistentvolumeclaim_provision") == 0
    assert room.promises() == {}, "it takes no room"


def from_afar(*grants: Json, enabled: bool = True, namespace: str | None = FAR) -> Room:
    ref = {**FROM_SNAPSHOT} if namespace is None else {**FROM_SNAPSHOT, "namespace": namespace}
    room = room_for(samples.claim_json(dataSourceRef=ref), driver=able(), options={"cross_namespace_sources": enabled})
    there = namespace or "fake-ns"
    snapshot, content = world()[THE_SNAPSHOT], world()[THE_CONTENT]
    assert isinstance(snapshot, dict) and isinstance(content, dict)
    room.add("volumesnapshots", changed(snapshot, {"metadata.namespace": there}))
    room.add("volumesnapshotcontents", changed(content, {"spec.volumeSnapshotRef.namespace": there}))
    return room.add("referencegrants", *grants)


def grant(namespace: str = FAR, *, from_: Json | None = None, to: Json | None = None) -> Json:
    sender = {"group": "", "kind": "PersistentVolumeClaim", "namespace": "fake-ns"} | (from_ or {})
    target = {"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"} | (to or {})
    return {"metadata": {"name": "grant", "namespace": namespace}, "spec": {"from": [sender], "to": [target]}}


def test_R49_a_source_in_another_namespace_needs_the_gate() -> None:
    room = from_afar(grant(), enabled=False)
    assert "CrossNamespaceVolumeDataSource" in refused(room)
    assert room.kube.asked == []


@pytest.mark.parametrize(
    "to",
    [pytest.param({}, id="R50-no-name"), pytest.param({"name": ""}, id="R50-empty-name"), pytest.param({"name": "snap"}, id="R50-exact")],
)
def test_R50_with_a_grant_it_is_used(to: Json) -> None:
    room = from_afar(grant(to=to))
    provisioned(room)
    assert room.driver.asked[0][1].source_snapshot == "snap-handle"


@pytest.mark.parametrize(
    "grants",
    [
        pytest.param([], id="R50-none"),
        pytest.param([grant("elsewhere")], id="R50-in-another-namespace"),
        pytest.param([grant(from_={"group": "x"})], id="R50-from-group"),
        pytest.param([grant(from_={"kind": "Pod"})], id="R50-from-kind"),
        pytest.param([grant(from_={"namespace": "x"})], id="R50-from-namespace"),
        pytest.param([grant(to={"group": "x"})], id="R50-to-group"),
        pytest.param([grant(to={"kind": "Secret"})], id="R50-to-kind"),
        pytest.param([grant(to={"name": "x"})], id="R50-to-name"),
        pytest.param([grant() | {"spec": {"from": [], "to": []}}], id="R50-empty"),
    ],
)
def test_R50_without_one_nothing_in_that_namespace_is_read_or_written(grants: list[Json]) -> None:
    room = from_afar(*grants)
    assert "no ReferenceGrant" in refused(room)
    assert [(verb, plural) for verb, plural, _, _ in room.kube.asked] == [("list", "referencegrants")]


@pytest.mark.parametrize("namespace", [None, "fake-ns"])
def test_R50_in_the_claims_own_namespace_no_grant_is_looked_for(namespace: str | None) -> None:
    room = from_afar(namespace=namespace)
    provisioned(room)
    assert "referencegrants" not in [plural for _, plural, _, _ in room.kube.asked]


@pytest.mark.parametrize("source", [pytest.param(FROM_SNAPSHOT, id="R51-snapshot"), pytest.param(FROM_CLAIM, id="R51-clone")])
def test_R51_a_volume_of_which_the_driver_does_not_say_that_it_was_filled_is_deleted_again(source: Json) -> None:
    room = filled_from(source, driver=able(creates=[CreatedVolume("empty", 100)]))
    assert settle(room) == room.now + 1.0
    assert ("delete", "empty") in room.driver.asked
    assert room.kube.wrote("create") == [] and not room.paper.lines
    assert "may be empty" in room.said() and "deleted again" in room.said()


def test_R51_one_that_cannot_be_deleted_is_in_progress_until_it_is() -> None:
    room = filled_from(FROM_SNAPSHOT, driver=able(creates=[CreatedVolume("empty", 100)], deletes=[rpc(Code.INTERNAL), None]))
    settle(room)
    assert room.table.in_progress() == 1 and room.paper.lines
    settle(room)
    assert room.table.in_progress() == 0 and not room.paper.lines
    assert room.kube.wrote("create") == []


# ---- VolumeAttributesClass -----------------------------------------------------------------------------------------


def of_gold(facts: dict[Ref, Json | Absent] | None = None, **doors: Any) -> Room:
    room = room_for(samples.claim_json(volumeAttributesClassName="gold"), parameters={"pool": "fast"}, **({"driver": able()} | doors))
    return fill(room, world() if facts is None else facts)


def test_R52_the_parameters_of_the_attributes_class_are_the_mutable_ones() -> None:
    room = of_gold()
    assert provisioned(room)["spec"]["volumeAttributesClassName"] == "gold"
    ((_, request),) = room.driver.asked
    assert (request.mutable_parameters, request.parameters) == ({"iops": "100"}, {"pool": "fast"})


def test_R53_with_the_gate_off_there_is_no_attributes_class() -> None:
    room = of_gold({}, options={"attributes_classes": False}, driver=OpenDriver())
    assert "volumeAttributesClassName" not in provisioned(room)["spec"]
    assert room.driver.asked[0][1].mutable_parameters == {}
    assert "volumeattributesclasses" not in [plural for _, plural, _, _ in room.kube.asked]


@pytest.mark.parametrize(
    ("facts", "driver", "says"),
    [
        pytest.param(world(), OpenDriver(), "MODIFY_VOLUME", id="R54-driver-cannot"),
        pytest.param({}, able(), "VolumeAttributesClass gold does not exist", id="R54-missing"),
        pytest.param(world(THE_ATTRIBUTES, driverName="another"), able(), "'another'", id="R54-other-driver"),
    ],
)
def test_R54_an_attributes_class_that_does_not_do(facts: dict[Ref, Json | Absent], driver: OpenDriver, says: str) -> None:
    assert says in refused(of_gold(facts, driver=driver))
