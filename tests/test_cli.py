"""Words in, exit codes out."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

import sidecar
from sidecar import process
from sidecar.cli import main
from sidecar.observe import logs


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NODE_NAME", "NAMESPACE", "POD_NAME", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("words", ["--help", "version", "check --help"])
def test_who_has_read_enough_may_go(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "sidecar", *words.split()], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


CUT_OFF = """
import os, signal, sys
from sidecar import cli, process
from sidecar.commands import check, explain, label, leftovers, node, release_finalizers, uninstall
def stop(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    while True: pass
for module in (check, explain, label, leftovers, node, release_finalizers, uninstall, process):
    module.run = stop
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("explain node n1 --exit-code", 143),
        ("uninstall --driver d", 143),
        ("label --driver d", 143),
        ("release-finalizers --driver d", 143),
        ("check --driver d", 143),
        ("run --node-deployment", 0),
    ],
)
def test_what_is_cut_off_has_not_answered_that_all_is_well(words: str, code: int) -> None:
    """0 of `explain node --exit-code` says that the node is ready."""
    environ, command = {**os.environ, "NODE_NAME": "n1"}, [sys.executable, "-c", CUT_OFF, *words.split()]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "sidecar", "version"], stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("csi-node-sidecar: the answer could not be written: ")


def test_a_command_is_also_meant_where_its_flags_are_those_of_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explan", "node", "n1", "--kubeconfig=/x"]) == 1
    assert "'explan'; did you mean explain?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--node-deploymnt", 2, "did you mean --node-deployment?"),
        ("run --timeout=soon", 2, "is not a duration"),
        ("--node-deployment --timeout=-1s", 1, "NODE_NAME"),
        ("chek", 2, "unknown command 'chek'"),
        ("--node-deployment --csi-address=/csi.sock --master=http://127.0.0.1:1", 1, "RuntimeError: a bug; see the log"),
        ("check --nope", 2, ""),
    ],
)
def test_every_end_that_is_none_of_its_own_will_says_why_to_the_kubelet(
    words: str, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kubectl describe pod` shows it. A command of people in the same container has another reader."""
    said: list[str] = []
    monkeypatch.setattr(logs, "write_termination_log", said.append)
    monkeypatch.setattr(process, "run", Mock(side_effect=ExceptionGroup("many", [RuntimeError("a bug")])))
    if "master" in words:
        monkeypatch.setenv("NODE_NAME", "n")
        with pytest.raises(ExceptionGroup):
            main(words.split())
    else:
        assert main(words.split()) == code
    assert told in "".join(said) and len(said) == bool(told)


@pytest.mark.parametrize("stray", [[""], ["stray"], ["stray", "another"]])
def test_words_too_many_ahead_of_flags_are_warned_about_and_the_flags_are_read(
    stray: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_NAME", "n")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main([*stray, "--csi-address=/csi/csi.sock", "--node-deployment"]) == 1
    err = capfd.readouterr().err
    assert err.count("this program takes no arguments besides flags") == len(stray) and "--kubeconfig" in err
    assert "unknown command" not in err
    assert main([*stray, "--version"]) == 0


def test_no_way_to_the_api_server_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NODE_NAME", "n")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["--node-deployment"]) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("E")]
    assert len(lines) == 1 and "--kubeconfig" in lines[0]


@pytest.mark.parametrize("words", [["version"], ["--version"], ["run", "--version"], ["--node-deployment", "--version"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"csi-node-sidecar {sidecar.__version__}\n"
