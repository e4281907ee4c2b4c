"""What becomes of each thing that a node has left: a table, and without evidence or under Orphan nothing."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.remains import Remain, RemainsView, Step, remains
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, PodThere, volume_of
from sidecar.drain.remade import LostClaim, ReplicatedSet
from sidecar.model import names

DRIVER = "local.example"
N1 = Machine("n1", "uid-1")
ANNOUNCED = Gone(N1, Evidence.ANNOUNCED, 0.0, "")
DB = ReplicatedSet("shop", "db", "uid-db", frozenset({"data"}), first=0, replicas=1, deleting=False)


def volume(name: str = "pv", *, phase: str = "Bound", reclaim: str = "Delete", affinity: bool = True, **meta: Any) -> LostVolume:
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}]}]
    spec: dict[str, Any] = {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": reclaim}
    spec |= {"claimRef": {"uid": "uid-claim", "namespace": "shop", "name": "data-db-0"}}
    spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if affinity else {}
    head = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "annotations": {names.LIES_ON: "n1/uid-1"}} | meta
    found = volume_of({"metadata": head, "spec": spec, "status": {"phase": phase}}, DRIVER)
    assert found is not None
    return found


def claim(**more: Any) -> ClaimThere:
    there = ClaimThere(LostClaim("shop", "data-db-0", None), "uid-claim", "8", "pv", deleting=False, lost_with="")
    return replace(there, **{"selected_node": "n1", "provisioner": DRIVER, **more})


def view(**more: Any) -> RemainsView:
    return replace(RemainsView(ANNOUNCED, cleanup=True, volumes=(volume(),), claims={"uid-claim": claim()}, sets=(DB,)), **more)


def released(**more: Any) -> RemainsView:
    return view(volumes=(volume(**({"phase": "Released"} | more)),), claims={})


def step_of(found: tuple[Remain, ...], kind: str) -> Step:
    (one,) = [item for item in found if item.kind == kind]
    return one.step


POD = PodThere("shop", "db-0", "uid-pod", "n1", ("data-db-0",))


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(view(), Step.MARK_CLAIM, id="it is marked first"),
        pytest.param(view(claims={"uid-claim": claim(lost_with="n1/uid-1")}), Step.DELETE_CLAIM, id="A13 and deleted then"),
        pytest.param(view(claims={"uid-claim": claim(lost_with="n1/uid-0")}), Step.MARK_CLAIM, id="G1 marked for another machine"),
        pytest.param(view(claims={"uid-claim": claim(lost_with="garbage")}), Step.MARK_CLAIM, id="garbage in the mark"),
        pytest.param(view(claims={"uid-claim": claim(deleting=True)}), Step.NOTHING, id="it is being deleted"),
        pytest.param(view(claims={"uid-claim": claim(selected_node="n2", lost_with="n1/uid-1")}), Step.NOTHING, id="made for another node"),
        pytest.param(view(claims={"uid-claim": claim(selected_node="", lost_with="n1/uid-1")}), Step.NOTHING, id="bound by hand"),
        pytest.param(view(claims={"uid-claim": claim(provisioner="other", lost_with="n1/uid-1")}), Step.NOTHING, id="another driver's"),
        pytest.param(view(sets=()), Step.NOTHING, id="F2 nobody makes it again"),
        pytest.param(view(sets=(replace(DB, replicas=0),)), Step.NOTHING, id="a condemned ordinal"),
        pytest.param(view(sets=(replace(DB, deleting=True),)), Step.NOTHING, id="the set is being deleted"),
        pytest.param(view(pods=(POD,)), Step.NOTHING, id="F3 a pod with a node has it"),
        pytest.param(view(pods=(replace(POD, node=""),)), Step.MARK_CLAIM, id="a pod that waits has it"),
        pytest.param(view(pods=(replace(POD, namespace="other"),)), Step.MARK_CLAIM, id="a pod of another namespace"),
        pytest.param(view(pods=(replace(POD, claims=("data-db-1",)),)), Step.MARK_CLAIM, id="a pod with another claim"),
        pytest.param(view(cleanup=False), Step.NOTHING, id="Orphan"),
        pytest.param(view(loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING, id="A13 no evidence"),
        pytest.param(view(loss=Unproven("", 0.0)), Step.NOTHING, id="which machine it was is not known"),
    ],
)
def test_claims(seen: RemainsView, step: Step) -> None:
    assert step_of(remains(seen), names.CLAIM) is step


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({}, id="it is gone"),
        pytest.param({"uid-claim": claim(volume="pv-2")}, id="it has another volume"),
        pytest.param({"uid-other": claim(uid="uid-other")}, id="it was made anew under its name"),
    ],
)
def test_a_claim_that_has_not_the_volume_is_none_of_the_node(claims: dict[str, ClaimThere]) -> None:
    assert [item.kind for item in remains(view(claims=claims))] == [names.VOLUME]


OURS = [names.VOLUME_FINALIZER]


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(released(), Step.DELETE_VOLUME, id="A13 released"),
        pytest.param(released(deletionTimestamp="t", finalizers=OURS), Step.RELEASE_VOLUME, id="it is being deleted"),
        pytest.param(released(deletionTimestamp="t", finalizers=["x/y"]), Step.NOTHING, id="only others keep it"),
        pytest.param(released(reclaim="Retain"), Step.NOTHING, id="kept"),
        pytest.param(released(reclaim=""), Step.NOTHING, id="no reclaim policy"),
        pytest.param(view(), Step.NOTHING, id="bound"),
        pytest.param(released(phase=""), Step.NOTHING, id="no phase"),
        pytest.param(released(phase="Failed"), Step.NOTHING, id="failed"),
        pytest.param(released(affinity=False), Step.NOTHING, id="without affinity"),
        pytest.param(released(annotations={}), Step.NOTHING, id="it does not say where it was"),
        pytest.param(released(annotations={names.LIES_ON: "n1/uid-0"}), Step.NOTHING, id="G1 it was on another machine"),
        pytest.param(
            replace(released(), attachments=(AttachmentThere("a", "u", "pv", deleting=False),)), Step.NOTHING, id="it is attached"
        ),
        pytest.param(replace(released(), cleanup=False), Step.NOTHING, id="Orphan"),
        pytest.param(replace(released(), loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING, id="A13 no evidence"),
        pytest.param(replace(released(), loss=Unproven("", 0.0)), Step.NOTHING, id="which machine it was is not known"),
    ],
)
def test_volumes(seen: RemainsView, step: Step) -> None:
    assert step_of(remains(seen), names.VOLUME) is step


def test_all_else_is_only_told() -> None:
    """Pods and attachments."""
    seen = view(
        pods=(POD,),
        attachments=(AttachmentThere("a", "u", "pv", deleting=True), AttachmentThere("b", "u", "pv", deleting=False)),
    )
    told = [item for item in remains(seen) if item.kind not in (names.CLAIM, names.VOLUME)]
    assert sorted(item.name for item in told) == ["a", "b", "db-0"]
    assert {item.step for item in told} == {Step.NOTHING}


def test_each_step_names_the_object_as_it_was_judged_and_each_thing_says_why() -> None:
    for seen in (view(), released()):
        for item in remains(seen):
            assert item.why
            assert item.step is Step.NOTHING or (item.uid and item.resource_version)


def test_another_drivers_volume_is_none_of_ours() -> None:
    assert volume_of({"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "other"}}}, DRIVER) is None
    assert volume_of({"metadata": {"name": "pv"}, "spec": {"nfs": {}}}, DRIVER) is None


def test_what_waits_for_a_person_names_what_it_waits_for() -> None:
    held = {"deletionTimestamp": "t", "finalizers": [names.VOLUME_FINALIZER]}
    (kept,) = (item for item in remains(released(reclaim="Retain", **held)) if item.kind == names.VOLUME)
    assert (kept.step, names.VOLUME_FINALIZER in kept.why) == (Step.NOTHING, True)
    leaves = claim(deleting=True, finalizers=(names.CLAIM_PROTECTION, "backup.example/hold"))
    (kept,) = (item for item in remains(view(claims={"uid-claim": leaves})) if item.kind == names.CLAIM)
    assert (kept.step, kept.why) == (Step.NOTHING, "it is being deleted, and finalizers of others keep it: backup.example/hold")
