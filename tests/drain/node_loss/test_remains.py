"""Whether a machine is gone, what proves it, and what becomes of each thing that it has left: two tables."""

from dataclasses import replace
from typing import Any

from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.evidence import Evidence, Gone, LossView, NotGone, Unproven, Unread, judge
from sidecar.drain.node_loss.remains import Remain, RemainsView, Step, remains
from sidecar.drain.node_loss.spoken import No, Nothing, Yes
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


def test_claims() -> None:
    for seen, step in [
        (view(), Step.MARK_CLAIM),  # it is marked first
        (view(claims={"uid-claim": claim(lost_with="n1/uid-1")}), Step.DELETE_CLAIM),  # A13 and deleted then
        (view(claims={"uid-claim": claim(lost_with="n1/uid-0")}), Step.MARK_CLAIM),  # G1 marked for another machine
        (view(claims={"uid-claim": claim(lost_with="garbage")}), Step.MARK_CLAIM),  # garbage in the mark
        (view(claims={"uid-claim": claim(deleting=True)}), Step.NOTHING),  # it is being deleted
        (view(claims={"uid-claim": claim(selected_node="n2", lost_with="n1/uid-1")}), Step.NOTHING),  # made for another node
        (view(claims={"uid-claim": claim(selected_node="", lost_with="n1/uid-1")}), Step.NOTHING),  # bound by hand
        (view(claims={"uid-claim": claim(provisioner="other", lost_with="n1/uid-1")}), Step.NOTHING),  # another driver's
        (view(sets=()), Step.NOTHING),  # F2 nobody makes it again
        (view(sets=(replace(DB, replicas=0),)), Step.NOTHING),  # a condemned ordinal
        (view(sets=(replace(DB, deleting=True),)), Step.NOTHING),  # the set is being deleted
        (view(pods=(POD,)), Step.NOTHING),  # F3 a pod with a node has it
        (view(pods=(replace(POD, node=""),)), Step.MARK_CLAIM),  # a pod that waits has it
        (view(pods=(replace(POD, namespace="other"),)), Step.MARK_CLAIM),  # a pod of another namespace
        (view(pods=(replace(POD, claims=("data-db-1",)),)), Step.MARK_CLAIM),  # a pod with another claim
        (view(cleanup=False), Step.NOTHING),  # Orphan
        (view(loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING),  # A13 no evidence
        (view(loss=Unproven("", 0.0)), Step.NOTHING),  # which machine it was is not known
    ]:
        assert step_of(remains(seen), names.CLAIM) is step


def test_a_claim_that_has_not_the_volume_is_none_of_the_node() -> None:
    for claims in [
        {},  # it is gone
        {"uid-claim": claim(volume="pv-2")},  # it has another volume
        {"uid-other": claim(uid="uid-other")},  # it was made anew under its name
    ]:
        assert [item.kind for item in remains(view(claims=claims))] == [names.VOLUME]


OURS = [names.VOLUME_FINALIZER]


def test_volumes() -> None:
    for seen, step in [
        (released(), Step.DELETE_VOLUME),  # A13 released
        (released(deletionTimestamp="t", finalizers=OURS), Step.RELEASE_VOLUME),  # it is being deleted
        (released(deletionTimestamp="t", finalizers=["x/y"]), Step.NOTHING),  # only others keep it
        (released(reclaim="Retain"), Step.NOTHING),  # kept
        (released(reclaim=""), Step.NOTHING),  # no reclaim policy
        (view(), Step.NOTHING),  # bound
        (released(phase=""), Step.NOTHING),  # no phase
        (released(phase="Failed"), Step.NOTHING),  # failed
        (released(affinity=False), Step.NOTHING),  # without affinity
        (released(annotations={}), Step.NOTHING),  # it does not say where it was
        (released(annotations={names.LIES_ON: "n1/uid-0"}), Step.NOTHING),  # G1 it was on another machine
        (replace(released(), attachments=(AttachmentThere("a", "u", "pv", deleting=False),)), Step.NOTHING),  # it is attached
        (replace(released(), cleanup=False), Step.NOTHING),  # Orphan
        (replace(released(), loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING),  # A13 no evidence
        (replace(released(), loss=Unproven("", 0.0)), Step.NOTHING),  # which machine it was is not known
    ]:
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


# --- Whether a machine is gone, and what proves that its disks do not come back: a table, and what no row may say ---


LEAVING = "n1/uid-1"
GONE = LossView("n1", N1, node_uid="", has_csi_node=False, leaving=("",), spoken=Nothing(), missed_since=100.0)


def test_a_node_that_is_gone_and_who_says_that_its_disks_are_too() -> None:
    for told, evidence in [
        ({}, Evidence.NONE),  # A13 deleted before success
        ({"leaving": (LEAVING,)}, Evidence.ANNOUNCED),  # A13 deleted after it was announced
        ({"leaving": (LEAVING, LEAVING)}, Evidence.ANNOUNCED),  # announced on all volumes
        ({"leaving": (LEAVING, "")}, Evidence.NONE),  # an undo had reached one volume when it went
        ({"leaving": ()}, Evidence.NONE),  # no volume says anything
        ({"leaving": ("n1/uid-0",)}, Evidence.NONE),  # G1 announced for a former machine of that name
        ({"leaving": ("n2/uid-1",)}, Evidence.NONE),  # announced for another node
        ({"leaving": ("n1",)}, Evidence.NONE),  # announced in garbage
        ({"leaving": (f"{LEAVING}\n",)}, Evidence.NONE),  # announced with a line break
        ({"spoken": Yes()}, Evidence.ACKNOWLEDGED),  # acknowledged
        ({"spoken": Yes(), "leaving": (LEAVING,)}, Evidence.ACKNOWLEDGED),  # both
        ({"spoken": No("it says no"), "leaving": (LEAVING,)}, Evidence.NONE),  # announced, and a person says no
        ({"doubt": "2026-01-01T00:00:00Z", "leaving": (LEAVING,)}, Evidence.NONE),  # announced in a backup
        ({"doubt": "2026-01-01T00:00:00Z", "spoken": Yes()}, Evidence.ACKNOWLEDGED),  # acknowledged after a restore
    ]:
        found = judge(replace(GONE, **told))
        assert isinstance(found, Gone)
        assert (found.machine, found.evidence, found.since) == (N1, evidence, 100.0)


EVERYTHING_SPEAKS_FOR_IT = replace(GONE, leaving=(LEAVING,), spoken=Yes(), missed_since=0.0)


def test_what_is_there_or_not_known_is_not_gone_whatever_else_is_said() -> None:
    for there, why in [
        ({"node_uid": "uid-1"}, "Node n1 is there"),  # B8 the Node is there, ready or not
        ({"node_uid": "uid-2"}, "another machine"),  # G1 another machine under its name
        ({"node_uid": Unread("timeout")}, "timeout"),  # the Node could not be read
        ({"has_csi_node": True}, "CSINode"),  # its CSINode is there
        ({"has_csi_node": Unread("forbidden")}, "forbidden"),  # the CSINode could not be read
        ({"machine": None, "node_uid": "uid-1"}, "another machine"),  # no note, and a Node of its maker's name
        ({"machine": None, "has_csi_node": True}, "CSINode"),  # no note, and a CSINode of its maker's name
    ]:
        found = judge(replace(EVERYTHING_SPEAKS_FOR_IT, **there))
        assert isinstance(found, NotGone)
        assert why in found.why


def test_volumes_that_do_not_name_their_machine_prove_nothing() -> None:
    """However long it is missed, and whatever else is written."""
    found = judge(replace(EVERYTHING_SPEAKS_FOR_IT, machine=None))
    assert isinstance(found, Unproven)
    assert "another name" in found.why


def test_G8_time_proves_nothing() -> None:
    """Clocks that differ change when it is said to be gone, and nothing else."""
    verdicts = [judge(replace(GONE, missed_since=at)) for at in (-300.0, 0.0, 1e12)]
    assert [found.evidence for found in verdicts if isinstance(found, Gone)] == [Evidence.NONE] * 3
