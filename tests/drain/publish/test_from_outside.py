"""What a node's own sidecar has stored counts for who judges from outside: for how long, and unless somebody spoiled it."""

from typing import Any

from sidecar.drain.facts.listed_cluster import NodePicker
from sidecar.drain.facts.listed_node import ListedNode
from sidecar.drain.judgement.acknowledged import FORGOTTEN, acknowledgement_of
from sidecar.drain.judgement.assess import assess
from sidecar.drain.publish.from_outside import snapshot_of
from sidecar.drain.publish.own_word import OwnWord, own_word
from sidecar.drain.vocabulary import Intent, Status
from sidecar.kube.errors import Forbidden
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


def test_without_its_memory_no_acknowledgement_is_believed() -> None:
    kube = acknowledged()
    kube.broken["nodedrainreports"] = Forbidden("not allowed", status=403)
    assert statuses(kube) == {Status.UNKNOWN}
    for listed in both(kube):
        assert FORGOTTEN in snapshot_of(listed, DRIVER, default_policy=None).ignorance
    del kube.objects["persistentvolumes"][0]["metadata"]["annotations"]
    assert statuses(kube) == {Status.FALSE}


def test_a_report_that_somebody_spoiled_spoils_nothing() -> None:
    for status in [None, [], {"blockers": "many"}, {"blockers": [1, {"kind": 2}], "acknowledgements": 3}]:
        kube = acknowledged()
        kube.objects["nodedrainreports"] = [{"metadata": {"name": names.drain_report("n1", DRIVER)}, "status": status}]
        assert statuses(kube) == {Status.TRUE}


def test_whether_replicas_are_made_anew_its_reasons_show() -> None:
    """Else people would read that its sidecar may not do it, and delete by hand what is about to be done safely."""
    for policy, reason, anew in [
        ("Reprovision", "ReprovisionPending", True),
        ("Reprovision", "LastCopy", True),
        ("Reprovision", "NotAvailableYet", False),
        ("Block", "LastCopy", False),
        ("Reprovision", 3, False),
    ]:
        kube = remembered(acknowledged(), void=True)
        kube.objects["nodedrainreports"][0]["status"]["blockers"] = [{"policy": policy, "reason": reason}]
        for listed in both(kube):
            assert snapshot_of(listed, DRIVER, default_policy=None).reprovisions is anew
        kube.objects["nodedrainreports"][0]["status"]["nodeUID"] = "former"
        for listed in both(kube):
            assert not snapshot_of(listed, DRIVER, default_policy=None).reprovisions


# --- What a node's own sidecar has written, as others may read it: for how long it counts, and what is too spoiled to be read ---


AT, END = "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z"
SECONDS = 1767225600.0


def report(**changes: Any) -> dict[str, Any]:
    verdict = {"status": "True", "reason": "NothingBlocks", "lastTransitionTime": AT}
    return {"nodeUID": "u", "observedAt": AT, "validUntil": END, "verdicts": {"drain": verdict, "retire": verdict}} | changes


def word(status: dict[str, Any], *conditions: dict[str, Any]) -> OwnWord | None:
    return own_word(status, conditions, driver=DRIVER, node_uid="u")


def test_it_counts_until_its_end_and_is_unknown_after_it() -> None:
    said = word(report())
    assert said is not None
    for now, status in ((SECONDS, Status.TRUE), (SECONDS + 899, Status.TRUE), (SECONDS + 900, Status.UNKNOWN)):
        assert (said.status(Intent.RETIRE, now), said.is_stale(now)) == (status, status is Status.UNKNOWN)


def test_what_it_says_of_replicas_no_other_node_sees() -> None:
    """The rest of its notes whoever judges from outside finds as well."""
    about = ["made anew next: ns/db-0: why", "locks of ns/db-0 that are open: budget", "lock of ns/db-0: marks: shut, MarkNotUnderstood: x"]
    said = word(report(notes=["disruption budgets were not checked", *about, 3]))
    assert said is not None and said.replicas == tuple(about)
    for spoiled in ("lock of a", {"lock of a": 1}, None):
        said = word(report(notes=spoiled))
        assert said is not None and said.replicas == ()


def test_what_cannot_be_read_is_no_word() -> None:
    for status in [
        {},
        report(nodeUID="former"),
        report(verdicts={}),
        report(verdicts={"drain": {"status": "Maybe"}}),
        report(verdicts=[1]),
    ]:
        assert word(status) is None


def test_the_conditions_of_the_driver_speak_where_there_is_no_report() -> None:
    own = [
        {"type": f"{DRIVER}/{kind}", "status": "False", "lastHeartbeatTime": AT, "lastTransitionTime": AT}
        for kind in (names.DRAIN_READY, names.RETIRE_READY)
    ]
    others = {"type": f"other.example/{names.RETIRE_READY}", "status": "True", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}
    said = word({}, *own, others)
    assert said is not None
    assert (said.retire.status, said.retire.since, said.valid_until) == (Status.FALSE, SECONDS, SECONDS + 900)
    assert word({}, *own[:1]) is None
