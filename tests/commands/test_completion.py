"""What a shell is told about an unfinished line; bash, if it is there, is asked itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.lib.control_plane import REPOSITORY
from sidecar import cli
from sidecar.commands.completion import FILES, answer, candidates, script
from sidecar.commands.table import SHELLS, TABLE
from sidecar.config.errors import UsageError


def words(line: str) -> list[str]:
    return [word for word, _ in candidates(line.split(" "))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("expl", ["explain"]),
        ("explain ", ["pvc", "node", "nodes", "volumes"]),
        ("explain n", ["node", "nodes"]),
        ("explain -o json no", ["node", "nodes"]),
        ("explain node ", []),
        ("explain node --int", ["--intent"]),
        ("explain node --intent ", ["reboot", "retire"]),
        ("explain node --intent=re", ["--intent=reboot", "--intent=retire"]),
        ("explain node -o ", ["table", "json", "yaml"]),
        ("explain nodes -o w", ["wide"]),
        ("explain nodes --exit-code --dri", ["--driver"]),
        ("explain pvc --dr", ["--driver"]),
        ("node r", ["reboot", "retire", "release"]),
        ("node retire n1 ", []),
        ("node retire --y", ["--yes"]),
        ("leftovers --del", ["--delete"]),
        ("label --kubeconfig ", [FILES]),
        ("uninstall --kube", ["--kubeconfig"]),
        ("release-finalizers --ter", ["--terminating"]),
        ("check --dri", ["--driver"]),
        ("check -o ", ["table", "json", "yaml"]),
        ("completion z", ["zsh"]),
        ("help expl", ["explain"]),
        ("help explain no", ["node", "nodes"]),
        ("--strict", ["--strict-topology"]),
        ("run --node-deployment-pl", ["--node-deployment-placement"]),
        ("nope ", []),
        ("version --", []),
    ],
)
def test_what_may_stand_there(line: str, found: list[str]) -> None:
    assert words(line) == found


@pytest.mark.parametrize("command", [command for command in TABLE if command.flags], ids=lambda command: command.name)
def test_all_flags_of_a_command_are_offered(command: object) -> None:
    name, flags = command.name, command.flags  # type: ignore[attr-defined]
    assert {f"--{flag.name}" for flag in flags} <= set(words(f"{name} --"))


@given(
    st.lists(st.sampled_from(["explain", "node", "-o", "--intent", "=", "--intent=", "--", "-", "", "n1", "help", "--driver"]) | st.text())
)
def test_whatever_stands_there_something_is_said(line: list[str]) -> None:
    for shell in SHELLS:
        answer([shell, *line])


def test_bash_gets_what_is_behind_the_equals_sign_as_it_is_a_word_of_its_own_there() -> None:
    line = ["explain", "node", "--intent", "=", "re"]
    assert answer(["bash", *line]) == "reboot\nretire\n"
    assert answer(["bash", *line[:-1]]) == "reboot\nretire\n"
    assert answer(["fish", "explain", "node", "--intent=reb"]) == "--intent=reboot\n"


def test_other_shells_hear_what_a_word_is() -> None:
    assert answer(["zsh", "vers"]) == "version\tprint name and version; as JSON also commit, CSI, Python and platform\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"__complete {shell}" in out and "PROGRAM" not in out


ASK = """
csi-node-sidecar() { "$PYTHON" -m sidecar "$@"; }
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_csi_node_sidecar
printf '%s\\n' "${COMPREPLY[@]}"
complete -p csi-node-sidecar
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        (["unin"], ["uninstall"]),
        (["explain", "node", "--inte"], ["--intent"]),
        (["explain", "node", "--intent", "=", "reb"], ["reboot"]),
        (["uninstall", "--kubeconfig", "my-k"], ["my-kubeconfig"]),
    ],
    ids=["command", "flag", "value", "file"],
)
def test_bash_completes(line: list[str], found: list[str], tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script(["bash"]))
    (tmp_path / "my-kubeconfig").write_text("")
    environ = {"PATH": os.environ["PATH"], "PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
    ask = ["bash", "-c", ASK, "ask", "./script", "csi-node-sidecar", *line]
    done = subprocess.run(ask, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == ([*found, "complete -F _csi_node_sidecar csi-node-sidecar"], "")


@pytest.mark.parametrize("line", [[], ["tcsh"], ["bash", "zsh"]], ids=str)
def test_another_shell_is_refused(line: list[str]) -> None:
    with pytest.raises(UsageError, match="known are bash, zsh, fish"):
        script(line)
