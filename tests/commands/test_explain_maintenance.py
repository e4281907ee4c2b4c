"""`explain maintenance` as people call it, of an object that was created and of a file, against an API server over HTTP."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli import main
from sidecar.drain.maintenance.objects import CAPI_LABEL
from sidecar.kube.api import BUDGETS, DRAIN_REPORTS, DRAIN_RULES, MAINTENANCES, MERGE_PATCH, PODS
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER
from tests.harness.drain.served import Fault, Scene

SPEC = {"nodes": ["n1"], "stage": "Cordon", "intent": "retire", "deadline": "10m", "onDeadline": "Override", "reason": "new disks"}


def explain(scene: Scene, *words: str) -> int:
    before = scene.versions()
    code = main(["explain", "maintenance", *words, f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000"])
    assert scene.versions() == before, "it writes nothing"
    return code


@pytest.fixture
def declared(scene: Scene) -> Scene:
    spec = {"containers": [{"name": "m", "image": "n"}], "nodeName": "n1"}
    meta = {"name": "agent", "labels": {"app": "agent"}}
    rule = {"metadata": {"name": "agents"}, "spec": {"podSelector": {"matchLabels": {"app": "agent"}}, "behavior": "Skip"}}
    report = {"metadata": {"name": names.drain_report("n1", DRIVER)}, "spec": {"nodeName": "n1", "driver": DRIVER}}
    scene.act(lambda: scene.cluster.create(DRAIN_REPORTS, report))
    scene.act(lambda: scene.cluster.create(PODS, {"metadata": meta, "spec": spec}, namespace="default"))
    scene.act(lambda: scene.cluster.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, namespace="default"))
    scene.act(lambda: scene.cluster.create(DRAIN_RULES, rule, namespace="default"))
    scene.act(lambda: scene.cluster.create(MAINTENANCES, {"metadata": {"name": "disks"}, "spec": SPEC}))
    return scene


def test_it_says_which_pods_go_in_which_order_who_says_so_and_what_comes_next(declared: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(declared, "disks") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("PlannedMaintenance disks: retire ('new disks')") and "what blocks is overridden" in lines[0]
    assert lines[1] == "1 nodes: n1" and lines[3] == "  1  Default pods up to priority 1000000000"
    (agent,) = [line for line in lines if "default/agent" in line]
    (web,) = [line for line in lines if "default/web" in line and line.startswith("n1")]
    assert "stays" in agent and "DrainRule default/agents" in agent and "is evicted" in web and "the plan, entry 1" in web
    assert any(line.startswith("blocks on n1") for line in lines)
    assert "nobody makes these anew, for they have no owner: default/web" in lines
    assert lines[-1] == """next: kubectl patch pm disks --type=merge -p '{"spec":{"stage":"Drain"}}'"""
    assert err == ""
    declared.act(lambda: declared.cluster.patch(MAINTENANCES, "disks", {"spec": {"stage": "Drain"}}, content_type=MERGE_PATCH))
    assert explain(declared, "disks") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("when they are drained, and back: kubectl patch pm disks")
    assert explain(declared, "disks", "--exit-code", "-o", "json") == 3
    said = json.loads(capsys.readouterr().out)
    assert [pod["what"] for pod in said["pods"] if pod["pod"] == "default/agent"] == ["stays"] and said["nodes"] == ["n1"]


def test_a_file_is_explained_before_it_is_created(declared: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes that are not there, or whose pods nobody would drain, are named. A deadline need not be given."""
    pod = {"containers": [{"name": "m", "image": "n"}], "nodeName": "n2"}
    declared.act(
        lambda: declared.cluster.create(
            PODS, {"metadata": {"name": "far", "labels": {CAPI_LABEL: "skipp"}}, "spec": pod}, namespace="default"
        )
    )
    file = tmp_path / "disks.yaml"
    spec = {"nodes": ["n2", "n9"], "intent": "reboot"}
    head = {"apiVersion": "csi-node-sidecar.io/v1alpha1", "kind": "PlannedMaintenance", "metadata": {"name": "later"}}
    file.write_text(json.dumps({**head, "spec": spec}))
    assert explain(declared, "-f", str(file)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["PlannedMaintenance later: reboot; stage Idle", "1 nodes: n2", "there is no Node n9"]
    assert lines[3].startswith("n2 has no sidecar that reports") and "next:" not in "".join(lines)
    (far,) = [line for line in lines if "default/far" in line]
    assert "stays" in far and f"no sidecar; its label {CAPI_LABEL}=skipp counts for nothing" in far
    file.write_text(json.dumps({**head, "spec": {"nodeSelector": {"matchLabels": {"a": "b"}}, "intent": "reboot"}}))
    assert explain(declared, "-f", str(file)) == 0
    assert "0 nodes: none; check nodeSelector or nodes" in capsys.readouterr().out
    # Who may not declare it, or has declared it already, is told by the file alone.
    declared.faults.set(Fault(verb="create", resource="plannedmaintenances", status=403))
    assert explain(declared, "-f", str(file)) == 0 and declared.faults.met == 1
    file.write_text(json.dumps({**head, "metadata": {"name": "disks"}, "spec": spec}))
    declared.faults.set()
    assert explain(declared, "-f", str(file)) == 0
    assert "PlannedMaintenance disks: reboot; stage Idle" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[", "kind: Pod", "kind: PlannedMaintenance\nspec: {stage: Later}"])
def test_a_file_that_declares_nothing_is_named(declared: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    file = tmp_path / "disks.yaml"
    file.write_text(text)
    assert explain(declared, "-f", str(file)) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize("words", [("disks", "-f", "x"), (), ("a/b",), ("disks", "more")])
def test_a_line_that_makes_no_sense_is_refused(declared: Scene, words: tuple[str, ...]) -> None:
    assert explain(declared, *words) == 2


def test_a_budget_that_lets_nobody_go_is_shown_before_anybody_is_evicted(declared: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    for name, app, allowed in (("none", "web", 0), ("some", "web", 1), ("skipped", "agent", 0)):
        spec = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": allowed}
        body, status = {"metadata": {"name": name}, "spec": spec}, {"status": {"observedGeneration": 1, "disruptionsAllowed": allowed}}
        declared.act(partial(declared.cluster.create, BUDGETS, body, namespace="default"))
        how: dict[str, Any] = {"namespace": "default", "content_type": MERGE_PATCH, "subresource": "status"}
        declared.act(partial(declared.cluster.patch, BUDGETS, name, status, **how))
    labels = {"metadata": {"labels": {"app": "web"}}}
    declared.act(lambda: declared.cluster.patch(PODS, "web", labels, namespace="default", content_type=MERGE_PATCH))
    assert explain(declared, "disks") == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "budget" in line]
    assert [line for line in shown if line.startswith("budget")] == ["budget default/none lets none go now: default/web"]
    declared.faults.set(Fault(verb="list", resource="poddisruptionbudgets", status=403))
    assert explain(declared, "disks", "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["budgets"] == [] and "poddisruptionbudgets" in said["budgetsUnknown"]
    assert explain(declared, "disks") == 0
    assert "whether budgets hold pods is not known" in capsys.readouterr().out


def test_one_that_is_not_there_is_named(declared: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(declared, "nobody") == 1
    assert "check the name" in capsys.readouterr().err
