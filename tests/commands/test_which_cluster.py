"""Every command goes to the cluster that its line names, whatever the environment says."""

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar import cli, doors
from sidecar.errors import Fatal
from tests.harness import samples
from tests.harness.leftovers import SUSPECT, written

LINES = {
    "run": ("run", "--node-deployment"),
    "run without a verb": ("--node-deployment",),
    "check": ("check", "--driver=d"),
    "explain pvc": ("explain", "pvc", "ns/data"),
    "explain node": ("explain", "node", "n1"),
    "explain nodes": ("explain", "nodes"),
    "explain volumes": ("explain", "volumes"),
    "node": ("node", "retire", "n1", "--yes"),
    "leftovers": ("leftovers", f"--driver={samples.DRIVER}", f"--delete={SUSPECT.request.name}", "--yes"),
    "label": ("label", "--driver=d"),
    "uninstall": ("uninstall", "--driver=d"),
    "release-finalizers": ("release-finalizers", "--driver=d"),
}
NO_CLUSTER = {"read-drbd", "version", "help", "completion"}
"""Commands that reach none."""


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How the API server was to be reached, from a shell in which another cluster is in use. Nothing is sent to it."""
    written(tmp_path, SUSPECT)
    found: list[dict[str, Any]] = []

    async def open_client(**options: Any) -> Any:
        found.append(options)
        raise Fatal("it is enough to know where this would go")

    monkeypatch.setattr(doors, "open_client", open_client)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NODE_NAME", samples.NODE)
    monkeypatch.setenv("KUBECONFIG", "of-the-environment")
    return found


def call(name: str, folder: Path, *words: str) -> int:
    more = (f"--journal-dir={folder}",) if name == "leftovers" else ()
    return cli.main([*LINES[name], *more, *words])


def test_every_command_is_asked() -> None:
    assert {line[0] for line in LINES.values()} - {"--node-deployment"} == set(cli.COMMANDS) - NO_CLUSTER


@pytest.mark.parametrize("name", LINES)
def test_the_flag_wins_over_the_variable(name: str, reached: list[dict[str, Any]], tmp_path: Path) -> None:
    for words in (["--kubeconfig=of-the-flag"], [], ["--kubeconfig="]):
        assert call(name, tmp_path, *words) == 1
    assert [one["kubeconfig"] for one in reached] == ["of-the-flag", "of-the-environment", "of-the-environment"]


# --- kubectl's habits -------------------------------------------------------------------------------------------------

OF_THE_PROGRAM = ("run", "run without a verb")
FOR_PEOPLE = [name for name in LINES if name not in OF_THE_PROGRAM]


def at_home(folder: Path) -> str:
    file = folder / ".kube" / "config"
    file.parent.mkdir()
    file.write_text("{}")
    return str(file)


@pytest.mark.parametrize("name", LINES)
def test_where_nothing_is_named_people_mean_their_own_file_and_the_program_its_pod(
    name: str, reached: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    file = at_home(tmp_path)
    assert call(name, tmp_path) == 1
    assert [one["kubeconfig"] for one in reached] == ["" if name in OF_THE_PROGRAM else file]


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_context_and_limit_are_as_the_flags_say(name: str, reached: list[dict[str, Any]], tmp_path: Path) -> None:
    assert call(name, tmp_path, "--context", "staging", "--request-timeout=5") == 1
    assert [(one["kubeconfig"], one["context"], one["request_timeout"]) for one in reached] == [("of-the-environment", "staging", 5.0)]


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_a_context_of_no_file_is_refused(
    name: str,
    reached: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    assert call(name, tmp_path, "--context=staging") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert not reached and "--context=staging: there is no kubeconfig" in line


@pytest.mark.parametrize("flag", ["--context=staging", "--request-timeout=5s", "-n=ns"])
def test_the_program_has_no_such_flags(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--node-deployment", flag]) == 2
    assert "unknown" in capsys.readouterr().err


@pytest.mark.parametrize("name", FOR_PEOPLE)
def test_a_file_or_context_that_is_not_there_is_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, SUSPECT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    entries = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": []}
    context = {"name": "here", "context": {"cluster": "c", "user": ""}}
    Path(at_home(tmp_path)).write_text(json.dumps(entries | {"contexts": [context], "current-context": "here"}))
    for words, said in (
        ("--kubeconfig=/nowhere/config", "kubeconfig /nowhere/config: no such file"),
        ("--context=nosuch", 'has no context "nosuch"; its contexts are here'),
    ):
        assert call(name, tmp_path, words) == 1
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and said in err
