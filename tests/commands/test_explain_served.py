"""`explain` as people call it, against an API server over HTTP: output, exit codes, requests; nothing is written."""

import json

import pytest

from sidecar.cli import main
from sidecar.kube.api import DRAIN_REPORTS, MERGE_PATCH, NAMESPACES
from sidecar.model import names
from tests.harness.drain.listed_cluster import DRIVER
from tests.harness.drain.served import Scene


def explain(scene: Scene, *words: str) -> int:
    before = scene.versions()
    code = main(["explain", *words, f"--kubeconfig={scene.kubeconfig}", "--kube-api-qps=1000"])
    assert scene.versions() == before
    return code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nodes"], 0),
        (["nodes", "--exit-code"], 3),
        (["nodes", "--exit-code", "--intent=reboot"], 0),
        (["node", "n1", "--exit-code"], 3),
        (["node", "n1", "--exit-code", "--intent", "reboot"], 0),
        (["node", "n2", "--exit-code"], 0),
        (["node", "n1", "--exit-code", "--driver=nobody.example"], 4),
        (["node", "n1", "--exit-code=false"], 0),
        (["node", "n9", "--exit-code"], 1),
        (["volumes", "--exit-code"], 2),
        (["nodes", "n1"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_exit_code_tells_whether_it_is_ready(scene: Scene, words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(scene, *words) == code
    assert bool(capsys.readouterr().err) is (code in (1, 2))


def test_a_node_that_is_not_there_is_named(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(scene, "volumes", "--node=n9") == 1
    assert "there is no node n9; check the name" in capsys.readouterr().err


def test_of_a_node_that_is_gone_the_report_of_another_nodes_sidecar_is_told(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no Node to ask for, which is why somebody asks."""
    gone = {"since": "2026-01-01T00:00:00Z", "evidence": "None", "message": "m", "claims": [{"namespace": "shop", "name": "data-db-0"}]}
    meta = {"name": names.drain_report("n9", DRIVER), "labels": {names.NODE_LOSS_FOR: DRIVER}}
    report = {"metadata": meta, "spec": {"nodeName": "n9", "driver": DRIVER}, "status": {"nodeUID": "uid-9", "gone": gone}}
    scene.act(lambda: scene.cluster.create(DRAIN_REPORTS, report))
    scene.act(lambda: scene.cluster.patch(DRAIN_REPORTS, meta["name"], report, content_type=MERGE_PATCH, subresource="status"))
    assert explain(scene, "node", "n9") == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Node n9 is missed since 2026-01-01T00:00:00Z, volumes of {DRIVER}") and "shop/data-db-0" in out and err == ""
    assert explain(scene, "node", "n9", "--exit-code", "-o", "json") == 4
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["node"], said["driver"], said["gone"]["uid"]) == ("n9", DRIVER, "uid-9")
    assert explain(scene, "node", "n9", "--driver=other.example") == 1
    assert 'nodes "n9" not found; check the name' in capsys.readouterr().err


def test_the_flags_of_the_sidecars_on_which_the_judgement_depends_are_taken(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(scene, "nodes", "--exit-code", "--drain-default-policy=Ignore") == 0
    says = {"metadata": {"annotations": {names.DRAIN_POLICY: "Block"}}}
    scene.act(lambda: scene.cluster.patch(NAMESPACES, "default", says, content_type=MERGE_PATCH))
    capsys.readouterr()
    words = ("volumes", "--drain-default-policy=Ignore", f"--driver={DRIVER}")
    assert explain(scene, *words) == 0
    assert "Block (Namespace default)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("of_context", "words", "found"),
    [
        ("", ["a"], True),
        ("default", ["a"], True),
        ("team-a", ["a"], False),
        ("team-a", ["default/a"], True),
        ("team-a", ["a", "-n", "default"], True),
        ("", ["a", "-n", "team-a"], False),
    ],
    ids=str,
)
def test_a_claim_that_is_named_alone_is_in_the_namespace_of_the_context(
    scene: Scene, of_context: str, words: list[str], found: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(scene.kubeconfig.read_text())
    config["contexts"][0]["context"] |= {"namespace": of_context} if of_context else {}
    scene.kubeconfig.write_text(json.dumps(config))
    assert explain(scene, "pvc", *words) == (0 if found else 1)
    out, err = capsys.readouterr()
    assert ("default/a" in out, "check the namespace" in err) == (found, not found)
