"""What a shell is told about an unfinished line; bash, if it is there, is asked itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY
from sidecar import cli
from sidecar.commands.completion import FILES, candidates, script
from sidecar.commands.table import SHELLS


def words(line: str) -> list[str]:
    return [word for word, _ in candidates(line.split(" "))]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("expl", ["explain"]),
        ("explain n", ["node", "nodes"]),
        ("explain node ", []),
        ("explain node --intent ", ["reboot", "retire"]),
        ("label --kubeconfig ", [FILES]),
        ("run --node-deployment-pl", ["--node-deployment-placement"]),
        ("nope ", []),
    ],
)
def test_what_may_stand_there(line: str, found: list[str]) -> None:
    assert words(line) == found


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
