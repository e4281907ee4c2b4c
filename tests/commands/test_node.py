"""The verbs of `node` as people call them, against an API server over HTTP: what is shown, what is asked, and what is written."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sidecar.cli import main
from sidecar.commands.node import run
from sidecar.config.errors import UsageError
from sidecar.drain import marks
from sidecar.kube.api import MERGE_PATCH, NODES
from sidecar.model import names
from sidecar.model.nodes import Node
from tests.harness.drain.listed_cluster import DRIVER, OTHER, node
from tests.harness.drain.served import Fault, Scene, bare

Json = dict[str, Any]
NOTED, OTHERS = (names.of_driver(driver, names.DRAIN_RECORD) for driver in (DRIVER, OTHER))


@pytest.mark.parametrize("verb", ["reboot", "retire"])
def test_it_shows_what_would_happen_asks_and_announces(scene: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.node("n1")["spec"]
    assert scene.run(verb, "n1") == 0
    out, err = capsys.readouterr()
    assert (scene.notes("n1"), err) == ({names.DRAIN_INTENT: verb}, "")
    assert scene.asked == [f"\n{verb} n1? [y/N] "]
    for driver in (DRIVER, OTHER):
        assert f"Node n1, volumes of {driver}" in out
    assert out.count("May it be drained?  True") >= 2 and out.count("May it be retired?  False") >= 2
    assert ("LastCopy: the volume's only copy" in out) is (verb == "retire"), "only what blocks this"
    assert f"n1: sets the annotation {names.DRAIN_INTENT}: {verb}" in out
    first = "drain n1 --ignore-daemonsets\n" if verb == "reboot" else "cordon n1   # and no drain yet"
    assert f"next:\n  kubectl {first}" in out
    assert f"n1: no sidecar reports on it for {DRIVER}, {OTHER} (--drain-report): nothing there reads the annotation" in out
    assert scene.node("n1")["spec"] == before, "it does not cordon"


def test_before_a_drain_that_would_strand_data_it_says_to_cordon_and_wait(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The sidecar of one of two drivers judges the node; of the other nothing is heard."""
    own = [{"type": names.condition(DRIVER, kind), "status": "False"} for kind in (names.DRAIN_READY, names.RETIRE_READY)]
    scene.act(lambda: scene.cluster.patch(NODES, "n1", {"status": {"conditions": own}}, subresource="status", content_type=MERGE_PATCH))
    assert scene.run("retire", "n1", "n2", "--yes", "-o", "json") == 0
    commands = [row["command"] for row in json.loads(capsys.readouterr().out)["next"]]
    assert commands[6:] == [line.replace("n1", "n2") for line in commands[3:6]]
    assert commands[:6] == [
        "kubectl cordon n1",
        f"kubectl wait node/n1 --for=condition={DRIVER}/RetireReady --timeout=24h",
        f"csi-node-sidecar explain node n1 --driver {OTHER} --intent retire --exit-code",
        "kubectl drain n1 --ignore-daemonsets",
        "csi-node-sidecar explain node n1 --intent retire --exit-code",
        "kubectl delete node n1",
    ]
    assert scene.run("reboot", "n1", "--yes", "-o", "json") == 0
    assert [row["command"] for row in json.loads(capsys.readouterr().out)["next"]] == [
        "kubectl cordon n1",
        f"kubectl wait node/n1 --for=condition={DRIVER}/DrainReady --timeout=24h",
        f"csi-node-sidecar explain node n1 --driver {OTHER} --intent reboot --exit-code",
        "kubectl drain n1 --ignore-daemonsets",
        "csi-node-sidecar node release n1 --yes && kubectl uncordon n1",
    ]


def test_a_reboot_done_as_it_is_printed_leaves_no_wrong_mark(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.run("reboot", "n1", "--yes", "-o", "json")
    before = None
    for step in " && ".join(row["command"] for row in json.loads(capsys.readouterr().out)["next"]).split(" && "):
        words = step.split()
        if words[0] == "kubectl":
            scene.patch("n1", {"spec": {"unschedulable": words[1] == "drain"}})
        else:
            assert scene.run(*words[2:]) == 0
        before = marks.read(Node.of(scene.node("n1")), DRIVER, now=0.0, before=before)
        assert before.problems == () and before.cordoned is (words[-1] != "n1" or words[1] != "uncordon")
    assert not before.cordoned and scene.notes("n1") == {}


def test_a_reboot_of_a_node_that_is_not_cordoned_says_when_it_counts(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.run("reboot", "n1")
    assert "it counts only while the node is cordoned" in capsys.readouterr().out


def test_several_nodes_are_shown_then_asked_for_once_and_written_each(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.run("retire", "n1", "n2", "n1") == 0
    assert scene.asked == ["\nretire n1, n2? [y/N] "]
    assert [scene.notes(name) for name in ("n1", "n2", "n3")] == [{names.DRAIN_INTENT: "retire"}] * 2 + [{}]
    out = capsys.readouterr().out
    assert out.count("Node n1, volumes of") == 2 and "node n2: no CSI driver has" in out
    assert out.count("kubectl drain n") == 2


def test_who_does_not_agree_changes_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.answer, before = False, scene.versions()
    assert scene.run("retire", "n1") == 1
    assert scene.versions() == before and "nothing was changed" in capsys.readouterr().err


def test_without_a_terminal_and_without_yes_nothing_is_changed(
    scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    before = scene.versions()
    assert scene.run("retire", "n1", terminal=False) == 1
    out, err = capsys.readouterr()
    assert scene.versions() == before
    assert "there is no terminal to ask on; nothing was changed: add --yes" in err and "May it be retired?" in out


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("YES", 0), ("", 1), ("n", 1), ("retire", 1), (EOFError, 1)])
def test_at_a_terminal_only_yes_is_yes(scene: Scene, typed: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", Mock(side_effect=[typed]))
    assert scene.run("retire", "n1", terminal=False) == code
    assert scene.notes("n1") == ({} if code else {names.DRAIN_INTENT: "retire"})


def test_with_yes_nobody_is_asked(scene: Scene) -> None:
    assert scene.run("retire", "n1", "--yes", terminal=False) == 0
    assert scene.notes("n1") == {names.DRAIN_INTENT: "retire"}
    assert scene.run("release", "--yes=true", "n1", terminal=False) == 0
    assert scene.notes("n1") == {}


def test_a_dry_run_shows_all_and_changes_nothing(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.versions()
    assert scene.run("retire", "n1", "--dry-run") == 0
    out = capsys.readouterr().out
    assert scene.versions() == before and scene.asked == []
    assert "May it be retired?" in out and "nothing was changed, because of --dry-run" in out


def test_release_takes_back_what_was_announced_and_leaves_what_others_wrote(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    taints = [{"key": names.EVACUATE_TAINT, "value": "retire", "effect": "NoSchedule"}]
    scene.patch("n1", {"spec": {"unschedulable": True, "taints": taints}, "metadata": {"annotations": {"mine": "1"}}})
    scene.annotate("n1", {names.DRAIN_INTENT: "retire", names.FORCE_DRAIN: "no power"})
    assert scene.run("release", "n1") == 0
    out = capsys.readouterr().out
    assert scene.notes("n1") == {"mine": "1", names.FORCE_DRAIN: "no power"} and scene.node("n1")["spec"]["taints"] == taints
    assert f"takes away the annotation {names.DRAIN_INTENT} (it says 'retire' now)" in out
    assert "kubectl uncordon n1" in out and f"kubectl taint node n1 {names.EVACUATE_TAINT}-" in out
    assert f"kubectl annotate node n1 {names.FORCE_DRAIN}-" in out, "it lets the next drain go"


@pytest.mark.parametrize(("verb", "notes"), [("release", {}), ("retire", {names.DRAIN_INTENT: "retire"})])
def test_what_is_so_already_is_said_and_not_asked(
    scene: Scene, verb: str, notes: dict[str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    """With what comes next all the same: whoever asks again may not have it before them any more."""
    scene.annotate("n1", {**notes, names.FORCE_DRAIN: "no power"})
    before = scene.versions()
    assert scene.run(verb, "n1") == 0
    assert scene.versions() == before and scene.asked == []
    out = capsys.readouterr().out
    step = f"annotate node n1 {names.FORCE_DRAIN}-" if verb == "release" else "drain n1 --ignore-daemonsets"
    assert "nothing is to be changed" in out and f"kubectl {step}" in out.partition("next:")[2]


def noted(scene: Scene, *, cordoned: bool) -> marks.Marks:
    """A reboot was announced and is over, and nobody has taken the word off: each driver's sidecar has noted that, ours as spent."""
    scene.annotate("n1", {names.DRAIN_INTENT: "reboot"})
    shut, before = {"unschedulable": True}, None
    for spec in (shut, {"unschedulable": None}):
        scene.patch("n1", {"spec": spec})
        before = marks.read(Node.of(scene.node("n1")), DRIVER, now=0.0, before=before)
        text = before.record.as_text(before.uid)
        scene.annotate("n1", {NOTED: text} | ({OTHERS: text} if spec == shut else {}))
    scene.patch("n1", {"spec": shut if cordoned else {}})
    return marks.read(Node.of(scene.node("n1")), DRIVER, now=0.0, before=before)


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_reboot_that_was_spent_counts_again_for_each_of_two_drivers(
    scene: Scene, cordoned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = noted(scene, cordoned=cordoned)
    assert before.announced is None and before.problems
    assert scene.run("reboot", "n1") == 0
    for driver, known in ((DRIVER, before), (OTHER, None)):
        after = marks.read(Node.of(scene.node("n1")), driver, now=0.0, before=known)
        assert after.announced == "reboot" and after.problems == (), f"the sidecar of {driver}, which runs on or begins"
    out = capsys.readouterr().out
    assert "which was for a cordon that is over and counts again" in out
    assert "counts for nothing until" not in out, "what is shown is as it will be"


def test_a_node_that_does_not_exist_keeps_all_from_being_changed(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    before = scene.versions()
    assert scene.run("retire", "n1", "n9") == 1
    out, err = capsys.readouterr()
    assert scene.versions() == before and scene.asked == [] and out == ""
    assert "n9" in err and "check the name; nothing was changed" in err


def test_a_node_that_changes_while_somebody_thinks_is_written_as_it_is_then(scene: Scene) -> None:
    scene.annotate("n3", {"mine": "1"})
    scene.meanwhile = lambda: scene.annotate("n3", {"beat": "1"})
    assert scene.run("reboot", "n3") == 0
    assert scene.notes("n3") == {"beat": "1", "mine": "1", names.DRAIN_INTENT: "reboot"}


def test_another_machine_under_the_name_is_not_touched(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    def replaced() -> None:
        scene.act(lambda: scene.cluster.delete(NODES, "n2"))
        scene.act(lambda: scene.cluster.create(NODES, bare(node("n2"), "v1", "Node")))

    scene.meanwhile = replaced
    assert scene.run("retire", "n2", "n3") == 1
    assert scene.notes("n2") == {} and scene.notes("n3") == {names.DRAIN_INTENT: "retire"}
    assert "node n2 was not changed: another machine" in capsys.readouterr().err


@pytest.mark.parametrize("fault", [{"status": 409}, {"lose": True}, {"status": 503}])
def test_a_write_that_fails_for_a_moment_is_tried_again(scene: Scene, fault: Json) -> None:
    scene.faults.set(Fault(verb="patch", resource="nodes", once=True, **fault))
    assert scene.run("retire", "n1") == 0
    assert scene.notes("n1") == {names.DRAIN_INTENT: "retire"}


def test_a_write_that_is_refused_is_told_and_the_others_are_done(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.faults.set(Fault(verb="patch", resource="nodes", name="n1", status=403))
    assert scene.run("retire", "n1", "n2") == 1
    out, err = capsys.readouterr()
    assert (scene.notes("n1"), scene.notes("n2")) == ({}, {names.DRAIN_INTENT: "retire"})
    assert "node n1 was not changed" in err and "patch nodes" in err
    assert "n2: done" in out and "kubectl drain n2" in out and "kubectl cordon n1" not in out


def test_what_cannot_be_read_makes_the_verdict_unknown_and_the_answer_is_still_people_s(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.faults.set(Fault(verb="list", resource="persistentvolumes", status=403))
    assert scene.run("retire", "n1", f"--driver={DRIVER}") == 0
    assert "May it be retired?  Unknown" in capsys.readouterr().out


def test_where_nothing_can_be_shown_nothing_is_asked(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.faults.set(Fault(verb="list", status=403), Fault(verb="get", resource="csinodes", status=403))
    assert scene.run("retire", "n1") == 1
    assert scene.asked == [] and scene.notes("n1") == {}
    assert "could not be listed" in capsys.readouterr().err


def test_an_api_server_that_does_not_answer_is_told_once(tmp_path: Path, scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nowhere"
    file.write_text(scene.kubeconfig.read_text().replace("127.0.0.1:", "127.0.0.1:9#"))
    assert run(["retire", "n1", f"--kubeconfig={file}"], {}, ask=lambda _: True) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "check --kubeconfig; nothing was changed" in line


@pytest.mark.parametrize(
    "words", [[], ["reboot"], ["restart", "n1"], ["n1", "reboot"], ["reboot", "a/b"], ["reboot", ""], ["--yes", "reboot"]], ids=str
)
def test_a_line_that_cannot_be_read_says_how_it_is_used(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="usage: csi-node-sidecar node reboot"):
        run(words, {})
    assert main(["node", *words]) == 2


def test_programs_read_one_document(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.faults.set(Fault(verb="patch", resource="nodes", name="n2", status=403))
    scene.annotate("n3", {names.DRAIN_INTENT: "retire"})
    assert scene.run("retire", "n1", "n2", "n3", "--yes", "-o", "json") == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert [(row["name"], row["result"]) for row in document["nodes"]] == [
        ("n3", "is as it should be"),
        ("n1", "changed"),
        ("n2", "failed"),
    ]
    assert [(one["node"], one["driver"]) for one in document["judgements"]] == [("n1", DRIVER), ("n1", OTHER)]
    assert document["next"][0] == {"command": "kubectl cordon n1"}
    assert "node n2 was not changed" in err and "patch nodes" in document["nodes"][2]["error"]


def test_a_program_is_not_asked(scene: Scene) -> None:
    with pytest.raises(UsageError, match="with -o json nobody is asked: add --yes"):
        scene.run("retire", "n1", "-o=json")
    assert scene.asked == []
