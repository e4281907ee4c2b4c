"""`explain node` on what was gathered: one answer for each driver. Against a live cluster it runs in the end-to-end tests."""

import pytest

from sidecar.commands.explain import judged as judging
from sidecar.commands.explain.node import told
from sidecar.commands.explain.question import NODE, Question, exit_code, read_question
from sidecar.config.errors import UsageError
from sidecar.drain.assess import Assessment
from sidecar.drain.snapshot import Own
from sidecar.drain.words import Reason, Status
from sidecar.kube.errors import Forbidden
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER, OTHER, Lists, cluster, look, node


def judge(kube: Lists, driver: str) -> tuple[Assessment, ...]:
    return tuple(one.assessment for one in judging.judge(look(kube), "n1", driver, Own()))


def asked(*words: str) -> Question:
    question = read_question(["node", "n1", *words])
    assert question
    return question


def ready() -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "status": "True"}]}


def test_without_a_name_every_driver_is_judged() -> None:
    kube = cluster()
    kube.objects["nodes"][0]["status"] = ready()
    kube.objects["namespaces"][0]["metadata"]["annotations"] = {}
    ours, other = judge(kube, "")
    assert (ours.driver, ours.retire.status) == (DRIVER, Status.FALSE)
    assert {blocker.reason for blocker in ours.blockers} >= {Reason.LAST_COPY, Reason.SNAPSHOT_ON_NODE, Reason.PROVISIONING_IN_FLIGHT}
    assert (other.driver, other.retire.status) == (OTHER, Status.FALSE)
    assert "not visible from outside the node: creations" in ours.notes[-1]


def test_what_could_not_be_read_is_never_a_yes() -> None:
    kube = cluster()
    kube.objects["nodes"][0]["status"] = ready()
    kube.objects["persistentvolumes"] = []
    kube.objects["volumesnapshotcontents"] = []
    kube.objects["persistentvolumeclaims"] = []
    (before,) = judge(kube, DRIVER)
    assert before.retire.status is Status.TRUE
    kube.broken["persistentvolumes"] = Forbidden("not allowed", status=403)
    (after,) = judge(kube, DRIVER)
    assert (after.drain.status, after.retire.status) == (Status.UNKNOWN, Status.UNKNOWN)


def test_a_driver_that_nobody_has_heard_of_is_not_said_to_be_ready() -> None:
    kube = cluster()
    kube.objects["nodes"][0]["status"] = ready()
    (judged,) = judge(kube, "local.exampel")
    assert (judged.drain.status, judged.retire.status) == (Status.UNKNOWN, Status.UNKNOWN)
    assert "local.exampel" in judged.retire.message and DRIVER in judged.retire.message


def test_a_node_without_drivers_says_so_and_is_ready() -> None:
    kube = cluster()
    kube.objects = {"nodes": [node("n1")]}
    said = told(judging.judge(look(kube), "n1", "", Own()), asked())
    assert "no CSI driver" in said.text and exit_code(said.statuses) == 0


def test_the_line_is_read() -> None:
    question = read_question(["node", "n1", "--intent", "reboot", "--driver=d", "-o", "json", "--kubeconfig=k"])
    assert question
    assert (question.kind, question.name, question.intent, question.driver, question.form) == (NODE, "n1", "reboot", "d", "json")
    assert question.flags == ("--kubeconfig=k",)


@pytest.mark.parametrize(
    ("words", "namespace"),
    [(["a/b"], "a"), (["b", "-n", "a"], "a"), (["b", "--namespace=a"], "a"), (["a/b", "-na"], "a"), (["b"], "")],
    ids=str,
)
def test_the_namespace_of_a_claim_stands_before_its_name_or_in_the_flag(words: list[str], namespace: str) -> None:
    question = read_question(["pvc", *words])
    assert question and (question.namespace, question.name) == (namespace, "b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["node"], "explain node takes one name, and not 0"),
        (["pvc", "a/b", "--intent=retire"], "explain pvc takes no --intent"),
        (["pvc", "a/b", "--driver=d"], "explain pvc takes no --driver"),
        (["pvc", "a/b", "--node=n1"], "explain pvc takes no --node"),
        (["pvc", "a/b", "-n", "c"], '"a/b" is in another namespace than --namespace=c says'),
    ],
)
def test_what_is_wrong_with_a_line_is_said(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as wrong:
        read_question(words)
    assert wrong.value.messages[0].startswith(said)


def test_what_is_wrong_with_a_nodes_marks_is_told() -> None:
    kube = cluster()
    kube.objects["nodes"][0]["metadata"]["annotations"] = {names.DRAIN_INTENT: "retier"}
    (judged,) = judge(kube, DRIVER)
    assert any("'retier'" in note for note in judged.notes)
