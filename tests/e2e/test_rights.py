"""What the token of one node's sidecar could do with its role alone, and that each of it is refused by a rule which says why.

Each line is tried before, by an account that no policy is about, and after. Of the rules each one alone stops its request. What the
program itself writes passes: `test_rights_at_work`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hack.lib.control_plane import ControlPlane, until
from hack.lib.programs import Json
from sidecar.kube.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from sidecar.model import names
from sidecar.ownership.selected_node_body import closing
from tests.deploy.manifests import DEPLOY, DRIVER, NAMESPACE
from tests.harness.left_objects import CLAIMS, VOLUMES
from tests.harness.policies import Abuse, Secured, allowed, create, delete, in_force, patch, put, secured, type_checked
from tests.harness.policy_samples import FOREIGN, OWNER, PV_PROTECTION, SOMEWHERE, affine, claim, identified, placed, volume


@pytest.fixture(scope="module")
def cluster(plane: ControlPlane) -> Iterator[Secured]:
    """With volumes of both nodes and of another driver. Their claims do not exist, so the controller calls all of them released."""
    with secured(plane, DEPLOY / "overlays" / "own-node") as made:
        for obj in (
            volume("mine"),
            volume("theirs", "n2"),
            volume("foreign", driver=FOREIGN),
            volume("unplaced", nodeAffinity=None, persistentVolumeReclaimPolicy="Retain"),
            volume("kept", persistentVolumeReclaimPolicy="Retain"),
            volume("brought", csi={"volumeAttributes": {}}),
            volume("nowhere", "n2", csi={"volumeAttributes": {}}, nodeAffinity=None),
            volume("reached", **placed("n1", "n2")),
            volume("protected", meta={"finalizers": [names.VOLUME_FINALIZER, "example.com/backup"]}),
        ):
            made.make(VOLUMES, obj)
        for name in ("mine", "theirs", "foreign", "kept"):
            until(lambda name=name: phase(made, name) == "Released", f"{name} is released")  # type: ignore[misc]
        in_force(create(VOLUMES, volume("new")), made.nobody, "bound to no pod")
        in_force(patch(f"{VOLUMES}/mine", labelled()), made.nobody, "bound to no pod")
        in_force(delete(f"{VOLUMES}/mine"), made.nobody, "bound to no pod")
        yield made


def phase(cluster: Secured, name: str) -> str:
    return str(cluster.plane.request("GET", f"{VOLUMES}/{name}").get("status", {}).get("phase"))


def labelled(**labels: str | None) -> Json:
    return {"metadata": {"labels": labels or {"example.com/x": "y"}}}


def noted(**notes: str | None) -> Json:
    return {"metadata": {"annotations": notes}}


# --- PersistentVolumes ------------------------------------------------------------------------------------------------

HOST_PATH = {"csi": None, "hostPath": {"path": "/etc"}}
SECRET = {"nodeStageSecretRef": {"name": "root", "namespace": "kube-system"}}
CREATING: dict[str, tuple[Json, str]] = {
    "a folder of the host": (volume("new", csi={}) | {"spec": {**volume("new")["spec"], **HOST_PATH}}, "has another source"),
    "another driver's": (volume("new", driver=FOREIGN), f"of driver {DRIVER} only"),
    "another node's": (volume("new", "n2"), "on that node only"),
    "another node's, by a name that ends like this one's": (volume("new", "x-n1", nodeAffinity=None), "on that node only"),
    "another maker, for pods of this node": (volume("new", csi={"volumeAttributes": identified("n2")}), "on that node only"),
    "no maker, for pods of this node": (volume("new", csi={"volumeAttributes": {}}), "on that node only"),
    # Or a pod there would mount what that node's driver has under this handle.
    "pods of another node": (volume("new", **placed("n2")), "for pods of that node only"),
    "pods of another node too": (volume("new", **placed("n1", "n2")), "for pods of that node only"),
    "pods of one of two nodes": (volume("new", **affine(SOMEWHERE | {"values": ["n1", "n2"]})), "for pods of that node only"),
    "pods of all nodes but this one": (volume("new", **affine(SOMEWHERE | {"operator": "NotIn"})), "for pods of that node only"),
    "pods of any node": (volume("new", nodeAffinity=None), "for pods of that node only"),
    "nobody's claim": (volume("new", claimRef=None), "for one claim each"),
    "a claim without uid": (volume("new", claimRef={"namespace": "default", "name": "x"}), "for one claim each"),
    "a finalizer": (volume("new", meta={"finalizers": ["example.com/x"]}), "no finalizer on a new PersistentVolume"),
    "words of people": (volume("new", meta={"annotations": {names.DRAIN_POLICY: "Ignore"}}), "for people to say"),
    "another maker": (volume("new", meta={"annotations": {names.PROVISIONED_BY: FOREIGN}}), "another driver made it"),
    "an owner": (volume("new", meta={"ownerReferences": [OWNER]}), "no owner"),
    "a Secret of anybody": (volume("new", csi=SECRET), "secretNamespaces"),
}


@pytest.mark.parametrize(("obj", "says"), CREATING.values(), ids=CREATING.keys())
def test_no_volume_is_made_with(cluster: Secured, obj: Json, says: str) -> None:
    spec = {key: value for key, value in obj["spec"].items() if value is not None}
    Abuse(create(VOLUMES, {**obj, "spec": spec}), says).check(cluster, cluster.n1)


@pytest.mark.parametrize(
    "obj",
    [
        volume("new"),
        volume("new", meta={"finalizers": [names.VOLUME_FINALIZER, PV_PROTECTION]}),
        volume("new", persistentVolumeReclaimPolicy="Retain", **placed("n1", "n1")),
        volume("new", nodeAffinity={"required": {"nodeSelectorTerms": [{"matchFields": [SOMEWHERE | {"key": "metadata.name"}]}]}}),
    ],
    ids=["as usual", "protected", "kept, in two segments", "by the node's name"],
)
def test_a_volume_of_the_own_node_is_made(cluster: Secured, obj: Json) -> None:
    allowed(create(VOLUMES, obj), cluster.n1)
    assert create(VOLUMES, obj).by(cluster.nobody)[0] == 422


def test_a_driver_with_another_topology_is_named_in_the_policy(cluster: Secured) -> None:
    """Its volumes are reached by several nodes, or by all, or its labels have other values than names of nodes."""
    policy = f"csi-node-sidecar-volume-create--{DRIVER}--{NAMESPACE}"
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{policy}"
    stored = cluster.plane.request("GET", path)["spec"]["variables"]
    (at,) = (index for index, item in enumerate(stored) if item["name"] == "placement")

    def place(value: str) -> None:
        change = [{"op": "replace", "path": f"/spec/variables/{at}/expression", "value": value}]
        cluster.plane.request("PATCH", path, change, content_type=JSON_PATCH)  # type: ignore[arg-type]

    anywhere = create(VOLUMES, volume("new", nodeAffinity=None))
    place("'any'")
    until(lambda: anywhere.by(cluster.n1)[0] == 201, "the policy has changed")
    allowed(create(VOLUMES, volume("new", **placed("n2", "n1"))), cluster.n1)
    assert create(VOLUMES, volume("new", csi={"volumeAttributes": {}})).by(cluster.n1)[0] == 422
    place(stored[at]["expression"])
    in_force(anywhere, cluster.n1, "for pods of that node only")


NOT_OURS = {"theirs": "on that node only", "foreign": f"of driver {DRIVER} only", "nowhere": "on that node only"}


@pytest.mark.parametrize(("name", "says"), NOT_OURS.items())
def test_no_volume_of_others_is_changed_or_deleted(cluster: Secured, name: str, says: str) -> None:
    stripped = {"metadata": {"finalizers": None}}
    for request in (
        patch(f"{VOLUMES}/{name}", labelled()),
        patch(f"{VOLUMES}/{name}", stripped),
        patch(f"{VOLUMES}/{name}", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
        delete(f"{VOLUMES}/{name}"),
    ):
        Abuse(request, says).check(cluster, cluster.n1)


def test_a_token_of_no_node_changes_no_volume(cluster: Secured) -> None:
    for request in (create(VOLUMES, volume("new")), patch(f"{VOLUMES}/mine", labelled()), delete(f"{VOLUMES}/mine")):
        Abuse(request, "bound to no pod of a node").check(cluster, cluster.nobody)


OTHER_CLAIM = {"kind": "PersistentVolumeClaim", "namespace": "tenant", "name": "x", "uid": "x", "apiVersion": "v1"}
CHANGING: dict[str, tuple[str, Json, str]] = {
    "reclaim policy": ("mine", {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}, "nothing in the spec"),
    "claim": ("mine", {"spec": {"claimRef": OTHER_CLAIM}}, "nothing in the spec"),
    "no claim": ("mine", {"spec": {"claimRef": None}}, "nothing in the spec"),
    "size": ("mine", {"spec": {"capacity": {"storage": "1Ti"}}}, "nothing in the spec"),
    "place": ("unplaced", {"spec": placed("n2")}, "nothing in the spec"),
    "class": ("mine", {"spec": {"storageClassName": "fast"}}, "nothing in the spec"),
    "mount options": ("mine", {"spec": {"mountOptions": ["dev", "suid"]}}, "nothing in the spec"),
    "label": ("mine", labelled(), "neither labels nor annotations"),
    "words of people": ("mine", noted(**{names.DRAIN_POLICY: "Ignore"}), "neither labels nor annotations"),
    "annotation": ("mine", noted(**{names.PROVISIONED_BY: None}), "neither labels nor annotations"),
    "owner": ("mine", {"metadata": {"ownerReferences": [OWNER]}}, "no owner"),
    "finalizer added": ("mine", {"metadata": {"finalizers": [names.VOLUME_FINALIZER, PV_PROTECTION, "a/b"]}}, "no finalizer"),
    "protection taken off": ("mine", {"metadata": {"finalizers": [names.VOLUME_FINALIZER]}}, "no finalizer"),
    "another's finalizer taken off": ("protected", {"metadata": {"finalizers": [names.VOLUME_FINALIZER, PV_PROTECTION]}}, "no finalizer"),
    "its own finalizer taken off": ("mine", {"metadata": {"finalizers": [PV_PROTECTION]}}, "only while that is being deleted"),
}


@pytest.mark.parametrize(("name", "change", "says"), CHANGING.values(), ids=CHANGING.keys())
def test_of_a_volume_of_its_own_no_sidecar_changes(cluster: Secured, name: str, change: Json, says: str) -> None:
    Abuse(patch(f"{VOLUMES}/{name}", change), says).check(cluster, cluster.n1)


# --- notes on volumes -------------------------------------------------------------------------------------------------


def test_which_machine_has_a_volume_is_written_with_it_and_not_again(cluster: Secured) -> None:
    for note_, by in (("n1/uid-1", cluster.n1), ("n1/earlier", cluster.n1)):
        allowed(create(VOLUMES, volume("new", meta={"annotations": {names.LIES_ON: note_}})), by)
    forged = create(VOLUMES, volume("new", meta={"annotations": {names.LIES_ON: "n2/uid-2"}}))
    Abuse(forged, "nor that another machine has it").check(cluster, cluster.n1)
    for key in (names.LIES_ON, f"{names.GROUP}/leaving"):
        Abuse(patch(f"{VOLUMES}/mine", noted(**{key: "n1/uid-1"})), "neither labels nor annotations").check(cluster, cluster.n1)


def test_an_acknowledgement_is_taken_off_by_the_node_that_has_the_volume_and_written_by_none(cluster: Secured) -> None:
    path, off = f"{VOLUMES}/mine", noted(**{names.ACKNOWLEDGED: None})
    Abuse(patch(path, noted(**{names.ACKNOWLEDGED: "me"})), "neither labels nor annotations").check(cluster, cluster.n1)
    cluster.plane.request("PATCH", path, noted(**{names.ACKNOWLEDGED: "ann"}), content_type=MERGE_PATCH)
    try:
        allowed(patch(path, off), cluster.n1)
        Abuse(patch(path, off), "on that node only").check(cluster, cluster.n2)
        Abuse(patch(path, noted(**{names.ACKNOWLEDGED: "bob"})), "neither labels nor annotations").check(cluster, cluster.n1)
    finally:
        cluster.plane.request("PATCH", path, off, content_type=MERGE_PATCH)


@pytest.mark.parametrize("name", ["kept", "unplaced", "brought"])
def test_the_finalizer_goes_on_and_where_data_is_kept_off(cluster: Secured, name: str) -> None:
    """By who made it, and by where it is."""
    stored = cluster.plane.request("GET", f"{VOLUMES}/{name}")
    on = {"metadata": {"uid": stored["metadata"]["uid"], "finalizers": [names.VOLUME_FINALIZER]}}
    allowed(patch(f"{VOLUMES}/{name}", on, content_type=STRATEGIC_MERGE_PATCH), cluster.n1)
    if stored["spec"]["persistentVolumeReclaimPolicy"] == "Retain":
        off = {"metadata": {"$deleteFromPrimitiveList/finalizers": [names.VOLUME_FINALIZER]}}
        allowed(patch(f"{VOLUMES}/{name}", off, content_type=STRATEGIC_MERGE_PATCH), cluster.n1)


def test_released_volumes_go_and_others_stay(cluster: Secured) -> None:
    allowed(delete(f"{VOLUMES}/mine"), cluster.n1)
    Abuse(delete(f"{VOLUMES}/kept"), "reclaim policy is Delete").check(cluster, cluster.n1)


def test_a_volume_in_use_is_not_deleted(cluster: Secured) -> None:
    cluster.make(VOLUMES, volume("bound", claimRef=None))
    until(lambda: phase(cluster, "bound") == "Available", "nobody has it")
    Abuse(delete(f"{VOLUMES}/bound"), "only when they are released").check(cluster, cluster.n1)


# --- claims -----------------------------------------------------------------------------------------------------------

NODE, ASKED, BETA = names.SELECTED_NODE, names.STORAGE_PROVISIONER, names.STORAGE_PROVISIONER_BETA
BACK, TRIED = names.HANDED_BACK, names.TRIED_BY
CLOSING = "0f9f14c5-9f5e-4f0c-8f7f-1b0a52f2f6f0/2026-11-24T06:06:55.123456Z"
"""As `drain.evacuation.closing` tells one closing of a node from the next: by the Node's uid and a time."""
OURS = {ASKED: DRIVER}


@pytest.fixture(scope="module")
def claims(cluster: Secured) -> Secured:
    for obj in (
        claim("free", {**OURS, BACK: "n2@1,n1@1"}, labels={"team": "a"}),
        claim("beta", {BETA: DRIVER}),
        claim("mine", {**OURS, NODE: "n1", BACK: "n2@1", TRIED: "1 n2"}, finalizers=[names.CLONE_FINALIZER, "example.com/backup"]),
        claim("theirs", {**OURS, NODE: "n2"}),
        claim("foreign", {ASKED: FOREIGN}),
        claim("unasked", {}),
    ):
        cluster.make(CLAIMS, obj)
    in_force(put(f"{CLAIMS}/free", note(NODE, "n1")), cluster.nobody, "bound to no pod")
    return cluster


def note(key: str, value: str | None, *more: Callable[[Json], None]) -> Callable[[Json], None]:
    def change(obj: Json) -> None:
        notes = obj["metadata"].setdefault("annotations", {})
        notes.pop(key, None) if value is None else notes.update({key: value})
        for further in more:
            further(obj)

    return change


def field(part: str, name: str, value: Any, *more: Callable[[Json], None]) -> Callable[[Json], None]:
    def change(obj: Json) -> None:
        obj[part][name] = value
        for further in more:
            further(obj)

    return change


def labelled_as(value: str) -> Callable[[Json], None]:
    return lambda obj: obj["metadata"].setdefault("labels", {}).update({names.CLAIM_LABEL: value})


APPLIED = {
    "manager": "gitops",
    "operation": "Apply",
    "apiVersion": "v1",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{ASKED}": {}}}},
}
TAKING: dict[str, tuple[str, Callable[[Json], None], str]] = {
    "for another node": ("free", note(NODE, "n2"), "free goes from no node to n2"),
    "from another node": ("theirs", note(NODE, "n1"), "theirs goes from n2 to n1"),
    "away from another node": ("theirs", note(NODE, None), "theirs goes from n2 to none"),
    "to hand it to another": ("mine", note(NODE, "n2"), "mine goes from n1 to n2"),
    "that nobody has asked for": ("unasked", note(NODE, "n1"), "takes claims that its driver is asked for"),
    "of another driver": ("foreign", note(NODE, "n1"), f"foreign is for {FOREIGN}"),
    "of another driver, for its finalizer": ("foreign", field("metadata", "finalizers", []), f"foreign is for {FOREIGN}"),
    "with an annotation of its owner": ("free", note(names.DRAIN_POLICY, "Ignore"), "and no other"),
    "with the driver that is asked": ("mine", note(ASKED, FOREIGN), "and no other"),
    "without the driver that is asked": ("mine", note(ASKED, None), "and no other"),
    "with a label": ("free", field("metadata", "labels", {"team": "b"}), "neither labels nor owners"),
    "without labels": ("free", field("metadata", "labels", {}), "neither labels nor owners"),
    "with an owner": ("free", field("metadata", "ownerReferences", [OWNER]), "neither labels nor owners"),
    "with a finalizer": ("free", field("metadata", "finalizers", ["a/b", "kubernetes.io/pvc-protection"]), "no finalizer"),
    "without protection": ("free", field("metadata", "finalizers", []), "no finalizer"),
    "with a volume": ("free", field("spec", "volumeName", "theirs"), "nothing in the spec"),
    "with another node's return": ("free", note(BACK, "n2@2,n1@1"), "leaves what others have noted"),
    "with another node's try": ("mine", note(NODE, None, note(TRIED, "1 n2 n3 n1")), "names no node that was not named before"),
    "with a try and without giving it back": ("mine", note(TRIED, "1 n2 n1"), "in a claim that it gives back"),
    "without the tries": ("mine", note(NODE, None, note(TRIED, None)), "notes the try of its own node"),
    "without the returns": ("mine", note(BACK, None), "leaves what others have noted"),
    "with a return that fills it": ("free", note(BACK, "n2@1,n1@" + "x" * 1000), "one short entry"),
    "with two returns": ("free", note(BACK, "n2@1,n1@1,n1@2"), "one short entry"),
    # Whose applier then takes the annotation away.
    "with fields that somebody applies": ("free", field("metadata", "managedFields", [APPLIED]), "those who apply it own"),
}


@pytest.mark.parametrize(("name", "change", "says"), TAKING.values(), ids=TAKING.keys())
def test_no_claim_is_taken(claims: Secured, name: str, change: Callable[[Json], None], says: str) -> None:
    Abuse(put(f"{CLAIMS}/{name}", change), says).check(claims, claims.n1)


def test_no_claim_is_made_or_deleted(claims: Secured) -> None:
    for request in (create(CLAIMS, claim("new", OURS)), delete(f"{CLAIMS}/mine")):
        Abuse(request, "makes no claims, and deletes none but").check(claims, claims.n1)


PROTECTED = ["kubernetes.io/pvc-protection", names.CLONE_FINALIZER]
NEEDED: dict[str, tuple[str, Callable[[Json], None]]] = {
    "take": ("free", note(NODE, "n1")),
    "take one that is asked for by the old name": ("beta", note(NODE, "n1")),
    "take one whose label follows": ("free", note(NODE, "n1", labelled_as("node.n1"))),
    # By an older policy, a newer one, or one that somebody has edited. It is not for the sidecar to answer for.
    "take one whose label follows by another rule": ("free", note(NODE, "n1", labelled_as("shard.7"))),
    "give back": ("mine", note(NODE, None)),
    "give back one whose label follows": ("mine", note(NODE, None, labelled_as("open.00"))),
    "give back when closed": ("mine", note(NODE, None, note(BACK, f"n2@1,{closing('n1', CLOSING)}"))),
    "give back as a closed node": ("mine", note(NODE, None, note(BACK, "n2@1,n1@2026"))),
    "give back after a try": ("mine", note(NODE, None, note(TRIED, "1 n2 n1"))),
    "give back after the first try of a round": ("mine", note(NODE, None, note(TRIED, "2 n1"))),
    "give back once more": ("free", note(BACK, "n2@1,n1@2")),
    "protect": ("unasked", field("metadata", "finalizers", PROTECTED)),
    "protect one whose label follows": ("unasked", field("metadata", "finalizers", PROTECTED, labelled_as(names.WAITING_CLAIM))),
    "release": ("mine", field("metadata", "finalizers", ["example.com/backup", "kubernetes.io/pvc-protection"])),
}


@pytest.mark.parametrize(("name", "change"), NEEDED.values(), ids=NEEDED.keys())
def test_what_provisioning_needs_of_claims_passes(claims: Secured, name: str, change: Callable[[Json], None]) -> None:
    allowed(put(f"{CLAIMS}/{name}", change), claims.n1)
    Abuse(put(f"{CLAIMS}/{name}", change), "bound to no pod of a node").check(claims, claims.nobody)


# --- all of them ------------------------------------------------------------------------------------------------------


def test_other_accounts_are_not_looked_at(cluster: Secured) -> None:
    for request in (create(VOLUMES, volume("new", driver=FOREIGN)), delete(f"{VOLUMES}/theirs")):
        allowed(request, cluster.unrestricted)


def test_the_policies_are_understood_to_the_letter(cluster: Secured) -> None:
    assert not any(type_checked(cluster.plane).values())
