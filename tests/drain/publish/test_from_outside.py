"""What a node's own sidecar has stored counts for who judges from outside as well."""

import pytest

from sidecar.drain.facts.listed_cluster import NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.judgement.acknowledged import FORGOTTEN, NOT_REMEMBERED, acknowledgement_of
from sidecar.drain.judgement.assess import assess
from sidecar.drain.publish.from_outside import snapshot_of
from sidecar.drain.vocabulary import Status
from sidecar.kube.errors import Forbidden, NotFound
from sidecar.model import names, timestamps
from sidecar.model.objects import Volume
from tests.harness.drain.listed_cluster import DRIVER, Json, Lists, look, look_at_all, meta, ready


def acknowledged() -> Lists:
    """One volume that nobody uses, and that may be lost."""
    kube = ready()
    kube.objects["persistentvolumes"] = kube.objects["persistentvolumes"][:1]
    kube.objects["persistentvolumes"][0]["metadata"]["annotations"] = {names.ACKNOWLEDGED: "anna"}
    kube.objects["persistentvolumeclaims"] = kube.objects["persistentvolumeclaims"][:1]
    kube.objects["volumesnapshotcontents"] = []
    kube.objects["namespaces"] = [{"metadata": meta("default")}]
    return kube


def remembered(kube: Lists, *, void: bool, node_uid: str = "uid-n1", at: float = 0.0) -> Lists:
    given = acknowledgement_of(Volume.of(kube.objects["persistentvolumes"][0]))
    assert given is not None
    entry: Json = {"uid": given.uid, "digest": given.digest, "claim": given.claim, "void": void}
    status = {"nodeUID": node_uid, "observedAt": timestamps.to_text(at), "acknowledgements": [entry]}
    kube.objects["nodedrainreports"] = [{"metadata": {"name": names.drain_report("n1", DRIVER)}, "status": status}]
    return kube


def both(kube: Lists) -> tuple[ListedNode, ListedNode]:
    """At the node alone, and at all nodes."""
    return look(kube), NodePicker(look_at_all(kube)).node("n1")


def statuses(kube: Lists) -> set[Status]:
    return {assess(snapshot_of(listed, DRIVER, default_policy=None)).retire.status for listed in both(kube)}


def test_what_was_acknowledged_counts_until_it_was_used_again() -> None:
    assert statuses(acknowledged()) == {Status.TRUE}
    assert statuses(remembered(acknowledged(), void=False)) == {Status.TRUE}
    assert statuses(remembered(acknowledged(), void=True)) == {Status.FALSE}


def test_what_a_sidecar_remembered_that_was_silent_for_long_counts_no_more() -> None:
    assert statuses(remembered(acknowledged(), void=False, at=-1000.0)) == {Status.FALSE}


def test_the_memory_of_a_former_node_of_that_name_is_none() -> None:
    assert statuses(remembered(acknowledged(), void=True, node_uid="former")) == {Status.TRUE}


def test_without_its_memory_no_acknowledgement_is_believed() -> None:
    kube = acknowledged()
    kube.broken["nodedrainreports"] = Forbidden("not allowed", status=403)
    assert statuses(kube) == {Status.UNKNOWN}
    for listed in both(kube):
        assert FORGOTTEN in snapshot_of(listed, DRIVER, default_policy=None).ignorance
    del kube.objects["persistentvolumes"][0]["metadata"]["annotations"]
    assert statuses(kube) == {Status.FALSE}


def test_where_reports_are_not_installed_nothing_was_remembered() -> None:
    kube = acknowledged()
    kube.broken["nodedrainreports"] = NotFound("no such resource", status=404)
    assert statuses(kube) == {Status.TRUE}


def test_a_report_of_an_earlier_release_remembers_no_acknowledgement() -> None:
    kube = remembered(acknowledged(), void=False)
    assert statuses(kube) == {Status.TRUE}
    del kube.objects["nodedrainreports"][0]["status"]["acknowledgements"]
    assert statuses(kube) == {Status.UNKNOWN}


def test_for_who_stands_in_for_a_sidecar_nothing_is_remembered_without_a_report() -> None:
    for listed in both(acknowledged()):
        found = snapshot_of(listed, DRIVER, default_policy=None, reported=True)
        assert assess(found).retire.status is Status.UNKNOWN and NOT_REMEMBERED in assess(found).retire.message


@pytest.mark.parametrize("status", [None, [], {"blockers": "many"}, {"blockers": [1, {"kind": 2}], "acknowledgements": 3}])
def test_a_report_that_somebody_spoiled_spoils_nothing(status: object) -> None:
    kube = acknowledged()
    kube.objects["nodedrainreports"] = [{"metadata": {"name": names.drain_report("n1", DRIVER)}, "status": status}]
    assert statuses(kube) == {Status.TRUE}


@pytest.mark.parametrize(
    ("policy", "reason", "anew"),
    [
        ("Reprovision", "ReprovisionPending", True),
        ("Reprovision", "LastCopy", True),
        ("Reprovision", "NotAvailableYet", False),
        ("Block", "LastCopy", False),
        ("Reprovision", 3, False),
    ],
)
def test_whether_replicas_are_made_anew_its_reasons_show(policy: str, reason: object, anew: bool) -> None:
    """Else people would read that its sidecar may not do it, and delete by hand what is about to be done safely."""
    kube = remembered(acknowledged(), void=True)
    kube.objects["nodedrainreports"][0]["status"]["blockers"] = [{"policy": policy, "reason": reason}]
    for listed in both(kube):
        assert snapshot_of(listed, DRIVER, default_policy=None).reprovisions is anew
    kube.objects["nodedrainreports"][0]["status"]["nodeUID"] = "former"
    for listed in both(kube):
        assert not snapshot_of(listed, DRIVER, default_policy=None).reprovisions


def test_since_when_it_blocks_is_what_the_sidecar_noted() -> None:
    kube = remembered(acknowledged(), void=True)
    claim = "PersistentVolumeClaim"
    blocked = {"kind": claim, "namespace": "default", "name": "a", "uid": "uid-a", "reason": "LastCopy", "since": "1970-01-01T00:00:02Z"}
    kube.objects["nodedrainreports"][0]["status"]["blockers"] = [{**blocked, "message": "long"}]
    for listed in both(kube):
        (blocker,) = assess(snapshot_of(listed, DRIVER, default_policy=None)).blockers
        assert blocker.since == 2.0
