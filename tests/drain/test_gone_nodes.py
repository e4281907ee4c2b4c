"""Whether a machine is gone, what proves it, what becomes of each thing that it has left, and what its report says: tables."""

from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain import report as drain_report
from sidecar.drain.statefulset import StatefulSet
from sidecar.drain.watch import loss_report
from sidecar.drain.watch.loss import (
    Clearing,
    Evidence,
    LeftReport,
    Loss,
    Machine,
    Remain,
    Surroundings,
    judge,
    living,
    machine_of,
    remains,
    unreached,
    who_had,
)
from sidecar.drain.watch.loss_report import Found
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Attachment, Claim, Volume
from tests.harness.drain import samples

DRIVER = "local.example"
N1 = Machine("n1", "uid-1")
ANNOUNCED = Loss(N1, Evidence.ANNOUNCED, "")
UNPROVEN = Loss(Machine("n1", ""), Evidence.UNPROVEN, "it may have been renamed")
NOBODY = Loss(N1, Evidence.NONE, "nobody has said so")
OURS = [names.VOLUME_FINALIZER]


def volume(*, phase: str = "Bound", reclaim: str = "Delete", affinity: bool = True, **meta: Any) -> Volume:
    terms = [{"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}]}]
    spec: dict[str, Any] = {"csi": {"driver": DRIVER, "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": reclaim}
    spec |= {"claimRef": {"uid": "uid-claim", "namespace": "shop", "name": "data-db-0"}}
    spec |= {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if affinity else {}
    head = {"name": "pv", "uid": "uid-pv", "resourceVersion": "7", "annotations": {names.LIES_ON: "n1/uid-1"}} | meta
    return Volume.of({"metadata": head, "spec": spec, "status": {"phase": phase}})


def claim(*, node: str = "n1", driver: str = DRIVER, mark: str = "", volume: str = "pv", **meta: Any) -> Claim:
    notes = {names.SELECTED_NODE: node, names.STORAGE_PROVISIONER: driver} | ({names.LOST_WITH: mark} if mark else {})
    head = {"namespace": "shop", "name": "data-db-0", "uid": "uid-claim", "resourceVersion": "8", "annotations": notes} | meta
    return Claim.of({"metadata": head, "spec": {"volumeName": volume}})


def db(**changes: Any) -> StatefulSet:
    spec = {"replicas": 1, "volumeClaimTemplates": [{"metadata": {"name": "data"}}, {"metadata": {"name": "a-b"}}]}
    made = StatefulSet.of({"metadata": {"namespace": "shop", "name": "db", "uid": "uid-db"}, "spec": spec})
    return replace(made, **changes)


def user(**changes: Any) -> Pod:
    return samples.pod("db-0", "data-db-0", **{"namespace": "shop", "node": "n1"} | changes)


def around(**changes: Any) -> Surroundings:
    """`claim`: of the volume; None: it is gone."""
    there = changes.pop("claim", claim())
    return replace(Surroundings({"uid-claim": there} if there else {}, (db(),)), **changes)


def told(of: Volume | None = None, seen: Surroundings | None = None, **changes: Any) -> list[Remain]:
    return remains(of or volume(), seen or around(), **{"loss": ANNOUNCED, "clears": True} | changes)


def step_of(found: list[Remain], kind: str) -> Clearing:
    (one,) = [item for item in found if item.kind == kind]
    assert one.why
    assert one.step is Clearing.NOTHING or (one.uid and one.resource_version)
    return one.step


# --- what becomes of each thing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param({}, Clearing.MARK_CLAIM, id="it is marked first"),
        pytest.param({"claim": claim(mark="n1/uid-1")}, Clearing.DELETE_CLAIM, id="A13 and deleted then"),
        pytest.param({"claim": claim(mark="n1/uid-0")}, Clearing.MARK_CLAIM, id="G1 marked for another machine"),
        pytest.param({"claim": claim(mark="garbage")}, Clearing.MARK_CLAIM, id="garbage in the mark"),
        pytest.param({"claim": claim(deletionTimestamp="t")}, Clearing.NOTHING, id="it is being deleted"),
        pytest.param({"claim": claim(node="n2", mark="n1/uid-1")}, Clearing.NOTHING, id="made for another node"),
        pytest.param({"claim": claim(node="", mark="n1/uid-1")}, Clearing.NOTHING, id="bound by hand"),
        pytest.param({"claim": claim(driver="other", mark="n1/uid-1")}, Clearing.NOTHING, id="another driver's"),
        pytest.param({"sets": ()}, Clearing.NOTHING, id="F2 nobody makes it again"),
        pytest.param({"sets": (db(replicas=0),)}, Clearing.NOTHING, id="a replica that is not wanted"),
        pytest.param({"sets": (db(start=1),)}, Clearing.NOTHING, id="below the first ordinal"),
        pytest.param({"sets": (db(deleting=True),)}, Clearing.NOTHING, id="the set is being deleted"),
        pytest.param({"sets": (db(namespace="other"),)}, Clearing.NOTHING, id="a set of another namespace"),
        pytest.param({"pods": (user(),)}, Clearing.NOTHING, id="F3 a pod with a node has it"),
        pytest.param({"pods": (user(node="n2"),)}, Clearing.NOTHING, id="a pod with another node has it"),
        pytest.param({"pods": (user(node=""),)}, Clearing.MARK_CLAIM, id="a pod that waits has it"),
        pytest.param({"pods": (user(namespace="other"),)}, Clearing.MARK_CLAIM, id="a pod of another namespace"),
        pytest.param({"pods": (user(claims=("data-db-1",)),)}, Clearing.MARK_CLAIM, id="a pod with another claim"),
    ],
)
def test_what_becomes_of_a_claim(seen: Any, step: Clearing) -> None:
    assert step_of(told(seen=around(**seen)), names.CLAIM) is step


UNTOUCHED = {
    "Orphan, or not gone for long enough": {"clears": False},
    "A13 no evidence": {"loss": NOBODY},
    "which machine it was is not known": {"loss": UNPROVEN},
}


@pytest.mark.parametrize("changes", UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_otherwise_nothing_is_touched(changes: Any) -> None:
    marked = around(claim=claim(mark="n1/uid-1"))
    released = around(claim=None)
    assert step_of(told(seen=marked, **changes), names.CLAIM) is Clearing.NOTHING
    assert step_of(told(volume(phase="Released"), released, **changes), names.VOLUME) is Clearing.NOTHING
    ending = volume(phase="Released", deletionTimestamp="t", finalizers=OURS)
    assert step_of(told(ending, released, **changes), names.VOLUME) is Clearing.NOTHING


@pytest.mark.parametrize("there", [None, claim(volume="pv-2")], ids=["it is gone", "it has another volume"])
def test_a_claim_that_has_not_the_volume_is_none_of_the_node(there: Any) -> None:
    assert [item.kind for item in told(seen=around(claim=there))] == [names.VOLUME]


@pytest.mark.parametrize(
    ("of", "step"),
    [
        pytest.param({}, Clearing.DELETE_VOLUME, id="A13 released"),
        pytest.param({"deletionTimestamp": "t", "finalizers": OURS}, Clearing.RELEASE_VOLUME, id="it is being deleted"),
        pytest.param({"deletionTimestamp": "t", "finalizers": ["x/y"]}, Clearing.NOTHING, id="only others keep it"),
        pytest.param({"reclaim": "Retain"}, Clearing.NOTHING, id="kept"),
        pytest.param({"reclaim": ""}, Clearing.NOTHING, id="no reclaim policy"),
        pytest.param({"phase": "Bound"}, Clearing.NOTHING, id="bound"),
        pytest.param({"phase": ""}, Clearing.NOTHING, id="no phase"),
        pytest.param({"phase": "Failed"}, Clearing.NOTHING, id="failed"),
        pytest.param({"affinity": False}, Clearing.NOTHING, id="without affinity"),
    ],
)
def test_what_becomes_of_a_volume(of: Any, step: Clearing) -> None:
    assert step_of(told(volume(**{"phase": "Released"} | of), around(claim=None)), names.VOLUME) is step


def test_a_volume_that_is_attached_or_bound_again_stays() -> None:
    released = volume(phase="Released")
    attached = around(claim=None, attachments=(Attachment("a", "pv", "n1"),))
    assert step_of(told(released, attached), names.VOLUME) is Clearing.NOTHING
    assert step_of(told(released, around(claim=None, attachments=(Attachment("a", "pv-2", "n1"),))), names.VOLUME) is Clearing.DELETE_VOLUME
    assert step_of(told(released, around()), names.VOLUME) is Clearing.NOTHING, "as after a backup was restored"


@pytest.mark.parametrize("name", ["data-db-0", "a-b-db-0"])
def test_a_set_makes_the_claims_of_its_replicas_again(name: str) -> None:
    assert step_of(told(seen=around(claim=claim(name=name))), names.CLAIM) is Clearing.MARK_CLAIM


OF_POD = [{"kind": "Pod", "apiVersion": "v1", "name": "db-0", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("name", "said", "owners"),
    [
        pytest.param("data-db-1", None, (), id="scaled down"),
        pytest.param("logs-db-0", None, (), id="not templated"),
        pytest.param("data-db", None, (), id="no ordinal"),
        pytest.param("data-db-00", None, (), id="an ordinal that no set writes"),
        pytest.param("data-db-²", None, (), id="a digit of another kind"),
        pytest.param(f"data-db-{'9' * 5000}", None, (), id="a number without end"),
        pytest.param("data-0", None, (), id="not the set's name"),
        pytest.param("data-db-0", None, OF_POD, id="a generic ephemeral volume's"),
        pytest.param("x", "true", OF_POD, id="a generic ephemeral volume's with a word"),
        pytest.param("x", "True", (), id="another word"),
        pytest.param("x", "", (), id="an empty word"),
    ],
)
def test_a_claim_that_nobody_makes_again_stays(name: str, said: str | None, owners: Any) -> None:
    notes = {names.SELECTED_NODE: "n1", names.STORAGE_PROVISIONER: DRIVER}
    notes |= {} if said is None else {names.ALLOW_CLAIM_DELETION: said}
    lost = claim(name=name, annotations=notes, ownerReferences=list(owners))
    assert step_of(told(seen=around(claim=lost)), names.CLAIM) is Clearing.NOTHING


def test_a_person_may_vouch_for_it() -> None:
    notes = {names.SELECTED_NODE: "n1", names.STORAGE_PROVISIONER: DRIVER, names.ALLOW_CLAIM_DELETION: "true"}
    assert step_of(told(seen=around(claim=claim(name="x", annotations=notes), sets=())), names.CLAIM) is Clearing.MARK_CLAIM


# --- which machine it was, and whether it is gone ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "n1", "/", "n1/", "/uid", "n1/uid/more", "N1/uid", "n 1/uid", "n1/uid\n", f"{'x' * 300}/uid"])
def test_what_names_no_machine(text: str) -> None:
    assert machine_of(text) is None


LEFT = LeftReport(N1, "", frozenset({"uid-pv"}), is_of_gone_node=False)


def test_the_volume_says_which_machine_had_it_and_else_the_one_report_that_names_it() -> None:
    unnoted = volume(annotations={names.SELECTED_NODE: "n1"})
    assert who_had(volume(), [replace(LEFT, machine=Machine("n1", "uid-2"))]) == N1
    assert who_had(unnoted, [LEFT]) == N1
    for reports in (
        [],
        [LEFT, replace(LEFT, machine=Machine("n2", "uid-1"))],
        [replace(LEFT, leaving=None)],
        [replace(LEFT, leaving=frozenset({"uid-other"}))],
    ):
        assert who_had(unnoted, reports).uid == ""
    assert who_had(volume(annotations={names.LIES_ON: "garbage"}), [LEFT]) == N1


def report(**changes: Any) -> Any:
    whole: Any = {"metadata": {"name": "r"}, "spec": {"nodeName": "n1", "driver": DRIVER}}
    whole["status"] = {"nodeUID": "uid-1", "leaving": {"nodeUID": "uid-1", "volumes": ["uid-pv"]}}
    for key, value in changes.items():
        whole[key] = whole[key] | value
    return whole


@pytest.mark.parametrize(
    ("changes", "leaving"),
    [
        pytest.param({}, frozenset({"uid-pv"}), id="announced"),
        pytest.param({"status": {"leaving": {"nodeUID": "uid-1", "volumes": []}}}, frozenset(), id="announced with nothing on it"),
        pytest.param({"status": {"leaving": {"nodeUID": "uid-0", "volumes": ["uid-pv"]}}}, None, id="a former machine's"),
        pytest.param({"status": {"nodeUID": "uid-2"}}, None, id="another machine's report"),
        pytest.param({"status": {"leaving": {"nodeUID": "uid-1", "volumes": "uid-pv"}}}, None, id="garbage for a list"),
        pytest.param({"status": {"leaving": True}}, None, id="garbage"),
        pytest.param({"status": {"leaving": None}}, None, id="not announced"),
    ],
)
def test_what_a_report_says_of_leaving(changes: Any, leaving: Any) -> None:
    found = LeftReport.of(report(**changes), DRIVER)
    assert found is not None
    assert found.leaving == leaving


def test_a_report_that_a_node_owns_or_another_drivers_is_none() -> None:
    assert LeftReport.of(report(metadata={"ownerReferences": [{"kind": "Node"}]}), DRIVER) is None
    assert LeftReport.of(report(), "other.example") is None


@pytest.mark.parametrize(
    ("said", "evidence"),
    [
        pytest.param(None, Evidence.NONE, id="A13 no report"),
        pytest.param(LEFT, Evidence.ANNOUNCED, id="A13 announced"),
        pytest.param(replace(LEFT, leaving=None), Evidence.NONE, id="not announced"),
        pytest.param(replace(LEFT, machine=Machine("n1", "uid-0")), Evidence.NONE, id="G1 the report of a former machine"),
        pytest.param(replace(LEFT, machine=Machine("n2", "uid-1")), Evidence.NONE, id="the report of another node"),
        pytest.param(replace(LEFT, leaving=None, acknowledged="uid-1"), Evidence.ACKNOWLEDGED, id="acknowledged"),
        pytest.param(replace(LEFT, acknowledged="uid-1"), Evidence.ACKNOWLEDGED, id="both"),
        pytest.param(replace(LEFT, acknowledged="no, wait"), Evidence.NONE, id="announced, and a person says something else"),
        pytest.param(
            replace(LEFT, machine=Machine("n1", "uid-0"), acknowledged="uid-1"),
            Evidence.NONE,
            id="acknowledged on another machine's report",
        ),
    ],
)
def test_a_node_that_is_gone_and_who_says_that_its_disks_are_too(said: LeftReport | None, evidence: Evidence) -> None:
    found = judge(N1, is_there=False, report=said)
    assert found is not None
    assert (found.machine, found.evidence) == (N1, evidence)
    assert found.is_proven is (evidence in (Evidence.ANNOUNCED, Evidence.ACKNOWLEDGED))
    assert judge(N1, is_there=True, report=said) is None, "B8 G1 it is there, or another one is"


def test_volumes_that_do_not_name_their_machine_prove_nothing() -> None:
    found = judge(Machine("n1", ""), is_there=False, report=replace(LEFT, machine=Machine("n1", ""), acknowledged=""))
    assert found is not None
    assert (found.evidence, found.is_proven) == (Evidence.UNPROVEN, False)


def test_which_machines_may_be_gone_by_the_list_of_csi_nodes() -> None:
    owner = [{"kind": "Node", "name": "n1", "uid": "uid-1"}]
    there = dict([living({"metadata": {"name": "n1", "ownerReferences": owner}}), living({"metadata": {"name": "n2"}})])
    assert there == {"n1": "uid-1", "n2": ""}
    assert not N1.may_be_gone(there)
    assert not Machine("n1", "").may_be_gone(there)
    assert not Machine("n2", "uid-2").may_be_gone(there), "its CSINode does not say"
    assert not Machine("", "").may_be_gone(there)
    assert Machine("n1", "uid-0").may_be_gone(there)
    assert Machine("n3", "").may_be_gone(there)


def test_a_volume_that_some_node_reaches_by_its_labels_is_not_lost() -> None:
    assert unreached([volume()], [samples.node("n9", labels={"host": "n1"})]) == []
    assert len(unreached([volume(), volume(affinity=False)], [samples.node("n9", labels={"host": "n9"})])) == 2


# --- the report -------------------------------------------------------------------------------------------------------


def found(count: int = 1, **changes: Any) -> Found:
    lost = tuple(Remain(names.CLAIM, "shop", f"data-{number}", f"uid-{number}", "1", Clearing.NOTHING, "kept") for number in range(count))
    return replace(Found(NOBODY, 1000.0, (volume(),), lost), **changes)


def stored(of: Found | None = None) -> dict[str, Any]:
    head = drain_report.head("n1", DRIVER, labels={names.NODE_LOSS_FOR: DRIVER})
    return head | {"status": loss_report.status(of or found(), None, [], agent="v0", now=2000.0)}


@pytest.mark.parametrize("since", ["", "yesterday", "2999-01-01T00:00:00Z", 5, None])
def test_a_time_that_cannot_be_is_not_believed(since: Any) -> None:
    wrong = stored()
    wrong["status"]["gone"]["since"] = since
    assert loss_report.since_of(wrong, N1, now=3000.0) == 3000.0
    assert loss_report.since_of(stored(), N1, now=3000.0) == 1000.0
    assert loss_report.since_of(stored(), Machine("n1", "uid-2"), now=3000.0) == 3000.0


def test_lists_are_bounded_and_only_what_changed_is_written() -> None:
    assert len(stored(found(700))["status"]["gone"]["claims"]) == loss_report.MOST
    later = loss_report.status(found(), None, [], agent="v0", now=9000.0)
    assert not drain_report.differs(stored(), later)
    without = stored()
    without["status"]["gone"] = {key: value for key, value in without["status"]["gone"].items() if value != []}
    assert not drain_report.differs(without, later), "an empty list need not be stored"
    assert drain_report.differs(stored(), loss_report.status(found(loss=ANNOUNCED), None, [], agent="v0", now=9000.0))
    assert drain_report.differs({"status": {"gone": 5}}, later)


def test_what_the_node_itself_said_of_its_leaving_stays_as_long_as_it_is_the_same_machine() -> None:
    before = report()
    assert loss_report.status(found(), before, [], agent="v0", now=1.0)["leaving"] == before["status"]["leaving"]
    assert "leaving" not in loss_report.status(found(), report(status={"nodeUID": "uid-0"}), [], agent="v0", now=1.0)


@pytest.mark.parametrize("loss", [NOBODY, UNPROVEN, ANNOUNCED], ids=lambda loss: str(loss.evidence))
def test_each_event_says_the_ways_out(loss: Loss) -> None:
    said = loss_report.event(loss, "pv-1")
    assert "pv-1" in said and "delete this claim" in said and "ack with its disks" in said


def test_people_read_of_it_with_the_next_step() -> None:
    said = loss_report.as_text(stored(found(30, pods=("shop/db-0",))))
    assert "Node n1 is missed since" in said
    assert f"kubectl annotate drainreport n1.{DRIVER} {names.ACKNOWLEDGED}=uid-1" in said
    assert "shop/data-0: kept" in said and "and 10 more" in said and "shop/db-0" in said
    garbage = stored() | {"status": {"gone": {"claims": "none", "pods": 5, "done": {}, "evidence": []}}}
    assert "Node n1" in loss_report.as_text(garbage)
    assert loss_report.as_text({"spec": {"nodeName": "n1"}, "status": {"verdicts": {}}}) == ""
