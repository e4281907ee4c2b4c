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
from sidecar.kube.errors import Conflict, Forbidden, Invalid, Unavailable
from sidecar.model.names import SELECTED_NODE, SNAPSHOT_FINALIZER
from sidecar.provisioning.needs import Absent, Ref
from tests.harness import samples
from tests.harness.provisioning.bench import rpc, run
from tests.harness.provisioning.room import (
    DEFAULT_NAME,
    DEFAULT_NAMESPACE,
    KINDS,
    NAME,
    NAMESPACE,
    PREFIX,
    Json,
    KeepingKube,
    Room,
    able,
    every_kind,
    room_for,
    secret,
    settle,
)
from tests.harness.provisioning.sources import (
    FAR,
    FROM_CLAIM,
    FROM_SNAPSHOT,
    GONE,
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


def test_R16_R23_R25_a_class_whose_secrets_make_no_sense_reaches_neither_the_driver_nor_the_api() -> None:
    for parameters in (
        {NAME: "a"},
        {DEFAULT_NAME: "${unknown}", DEFAULT_NAMESPACE: "b"},
        {NAME: "$pvc.name", NAMESPACE: "b"},
        {f"{PREFIX}node-stage-secret-name": "a"},  # of a kind that the driver does not get now
    ):
        room = room_for(parameters=parameters)
        assert "StorageClass 'fake-class': parameter" in refused(room)
        assert room.kube.asked == []


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


def test_R24_a_missing_secret_is_named_and_the_driver_is_asked_once_it_is_there() -> None:
    room = room_for(parameters={NAME: "a", NAMESPACE: "b"})
    assert "Secret b/a does not exist" in refused(room)
    room.add("secrets", secret("a", "b", key="value"))
    provisioned(room)


def test_R24_a_secret_that_may_not_be_read_is_told_of() -> None:
    kube = KeepingKube(failures={"get": [Forbidden("get secrets: no")]})
    assert "get secrets: no" in refused(room_for(parameters={NAME: "a", NAMESPACE: "b"}, kube=kube))


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


def test_who_is_done_leaves_the_snapshot_to_the_claim_that_is_protecting_it() -> None:
    room = with_another(filled_from(FROM_SNAPSHOT, kube=(kube := InterruptedKube())))
    kube.meanwhile = lambda: room.room.handle_claim("uid-two")
    room.claim()
    assert room.driver.count("create") == 1
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]
    assert room.claim() is None
    assert finalizers(room, "volumesnapshots", "snap") == []
    assert "ProvisioningFailed" not in room.told.reasons()


def test_a_finalizer_that_does_not_stay_is_told_of_the_second_time() -> None:
    room = filled_from(FROM_SNAPSHOT)
    for told in ([], ["ProvisioningFailed"]):
        room.claim()
        room.kube.objects["volumesnapshots", "snap"]["metadata"]["finalizers"] = []
        assert (room.claim() or 0.0) > room.now
        assert room.told.reasons() == told
    assert "our finalizer does not stay on VolumeSnapshot" in room.said() and room.untouched()


def test_R40_R41_R42_R46_R47_a_source_that_does_not_do_is_neither_protected_nor_used() -> None:
    """The table of what does is that of the rule."""
    for source, claim, facts in (
        (FROM_SNAPSHOT, {"resources": size("99")}, world()),
        (FROM_SNAPSHOT, {"dataSource": {**FROM_SNAPSHOT, "apiGroup": "x"}}, world()),
        (FROM_SNAPSHOT, {}, world(THE_CONTENT, spec__volumeSnapshotRef__uid="another")),
        (FROM_SNAPSHOT, {}, world(THE_SNAPSHOT, status=GONE)),
        (FROM_SNAPSHOT, {"volumeMode": "Block"}, world(THE_CONTENT, spec__sourceVolumeMode="Filesystem")),
        (FROM_SNAPSHOT, {}, world(THE_SNAPSHOT, metadata__deletionTimestamp="now")),
        (FROM_CLAIM, {}, world(THE_SOURCE, status__phase="Pending")),
        (FROM_CLAIM, {}, world(THE_VOLUME, spec__claimRef__uid="another")),
        (FROM_CLAIM, {"volumeMode": "Block"}, world(THE_VOLUME, spec__volumeMode=None)),
    ):
        room = filled_from(source, claim=claim, facts=facts)
        assert f"source {source['kind']}" in refused(room)
        assert room.kube.wrote("replace") == []


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
    for error in (Forbidden("update persistentvolumeclaims: no"), Invalid("update persistentvolumeclaims: no")):
        room = filled_from(FROM_CLAIM, kube=KeepingKube(failures={"replace": [error]}))
        assert "protecting PersistentVolumeClaim fake-ns/source failed: update persistentvolumeclaims: no" in refused(room)


def test_a_snapshot_that_cannot_be_let_go_is_left_to_the_sweep() -> None:
    room = filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"replace": [None, Conflict("changed")]}))
    provisioned(room)
    assert finalizers(room, "volumesnapshots", "snap") == [SNAPSHOT_FINALIZER]


def test_R39_a_source_that_somebody_else_writes_at_the_same_time_is_read_again() -> None:
    for error in [Conflict("changed"), Unavailable("away")]:
        room = filled_from(FROM_SNAPSHOT, kube=KeepingKube(failures={"replace": [error]}))
        assert settle(room) == room.now + 1.0
        assert room.untouched() and room.told.events == []
        provisioned(room)


def test_a_source_on_another_node_is_told_of_and_looked_at_seldom() -> None:
    room = filled_from(FROM_CLAIM, facts=world(THE_VOLUME, spec__nodeAffinity=samples.placed("bar")))
    assert settle(room) == room.now + 300.0
    assert room.untouched() and "schedule the pod that uses the claim there" in room.said()


def test_R48_a_populators_claim_gets_one_normal_event_and_nothing_else() -> None:
    for field in ["dataSource", "dataSourceRef"]:
        spec: Json = {field: {"apiGroup": "x.example.com", "kind": "MyPopulator", "name": "data"}}
        room = room_for(samples.claim_json(**spec), driver=able())
        assert room.claim() is None
        assert [event[1:3] for event in room.told.events] == [("Normal", "Provisioning")]
        assert "MyPopulator" in room.said() and "populator" in room.said()
        assert room.untouched() and room.kube.asked == []
        assert room.value("controller_persistentvolumeclaim_provision") == 0
        assert room.promises() == {}, "it takes no room"


def from_afar(*grants: Json) -> Room:
    claim = samples.claim_json(dataSourceRef={**FROM_SNAPSHOT, "namespace": FAR})
    room = room_for(claim, driver=able(), options={"cross_namespace_sources": True})
    snapshot, content = world()[THE_SNAPSHOT], world()[THE_CONTENT]
    assert isinstance(snapshot, dict) and isinstance(content, dict)
    room.add("volumesnapshots", changed(snapshot, {"metadata.namespace": FAR}))
    room.add("volumesnapshotcontents", changed(content, {"spec.volumeSnapshotRef.namespace": FAR}))
    return room.add("referencegrants", *grants)


def grant(namespace: str) -> Json:
    sender = {"group": "", "kind": "PersistentVolumeClaim", "namespace": "fake-ns"}
    target = {"group": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"}
    return {"metadata": {"name": "grant", "namespace": namespace}, "spec": {"from": [sender], "to": [target]}}


def test_R50_with_a_grant_it_is_used_and_without_one_nothing_in_that_namespace_is_read() -> None:
    """The table of what is granted is that of the rule."""
    room = from_afar(grant(FAR))
    provisioned(room)
    assert room.driver.asked[0][1].source_snapshot == "snap-handle"
    room = from_afar(grant("elsewhere"))
    assert "no ReferenceGrant" in refused(room)
    assert [(verb, plural) for verb, plural, _, _ in room.kube.asked] == [("list", "referencegrants")]


def test_R51_a_volume_of_which_the_driver_does_not_say_that_it_was_filled_is_deleted_again() -> None:
    for source in [FROM_SNAPSHOT, FROM_CLAIM]:
        room = filled_from(source, driver=able(creates=[CreatedVolume("empty", 100)]))
        assert settle(room) == room.now + 1.0
        assert ("delete", "empty") in room.driver.asked
        assert room.kube.wrote("create") == [] and not room.paper.lines
        assert "may be empty" in room.said() and "deleted again" in room.said()


# ---- VolumeAttributesClass -----------------------------------------------------------------------------------------


def of_gold(facts: dict[Ref, Json | Absent] | None = None, **doors: Any) -> Room:
    room = room_for(samples.claim_json(volumeAttributesClassName="gold"), parameters={"pool": "fast"}, **({"driver": able()} | doors))
    return fill(room, world() if facts is None else facts)


def test_R52_R54_the_parameters_of_the_attributes_class_are_the_mutable_ones() -> None:
    assert "VolumeAttributesClass gold does not exist" in refused(of_gold({}))
    room = of_gold()
    assert provisioned(room)["spec"]["volumeAttributesClassName"] == "gold"
    ((_, request),) = room.driver.asked
    assert (request.mutable_parameters, request.parameters) == ({"iops": "100"}, {"pool": "fast"})
