"""What zsh and fish make of their completion: the shells themselves are asked, zsh at a terminal as a person does with the tab key."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.lib import shells
from hack.lib.control_plane import REPOSITORY
from hack.lib.failure import Failure
from hack.lib.shells import Shell
from sidecar.commands.completion import script
from tests.harness.not_tested import not_tested

pytestmark = [pytest.mark.slow]

PROGRAM = f'#!/bin/sh\nunset LD_LIBRARY_PATH\nexec {sys.executable} -m sidecar "$@"\n'
ZSHRC = """
autoload -Uz compinit; compinit -D -u
zstyle ':completion:*' list-prompt ''
source ./script
PS1='ready>' ; unsetopt beep zle_bracketed_paste 2>/dev/null
tell() { print -r -- "$BUFFER|" >./line; }
zle -N tell; bindkey '^X^T' tell
"""
LINES = [
    ("unin", "uninstall "),
    ("explain node --inte", "explain node --intent "),
    ("explain node --intent reb", "explain node --intent reboot "),
    ("explain node --intent=reb", "explain node --intent=reboot "),
    ("uninstall --kubeconfig my-k", "uninstall --kubeconfig my-kubeconfig "),
    ("node retire --y", "node retire --yes "),
    ("help explain vol", "help explain volumes "),
]
IDS = [line for line, _ in LINES]


def provided(name: str) -> Shell:
    try:
        return shells.provide(name)
    except (Failure, OSError) as failure:
        not_tested(f"completion in {name}", str(failure))


@pytest.fixture(scope="module")
def zsh() -> Shell:
    return provided("zsh")


@pytest.fixture(scope="module")
def fish() -> Shell:
    return provided("fish")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a folder with the program, its completions and a file."""
    program = tmp_path / "csi-node-sidecar"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "my-kubeconfig").write_text("")
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path), "TERM": "xterm"}


# --- zsh --------------------------------------------------------------------------------------------------------------


class Terminal:
    """zsh, to which somebody types."""

    def __init__(self, shell: Shell, folder: Path, environ: dict[str, str]) -> None:
        (folder / "script").write_text(script(["zsh"]))
        (folder / ".zshenv").write_text("module_path=(${(s.:.)ZSH_MODULES} $module_path)\n")
        (folder / ".zshrc").write_text(ZSHRC)
        self._told = folder / "line"
        self._screen = b""
        mine, its = pty.openpty()
        self._side = mine
        environ = {**environ, "ZDOTDIR": str(folder), **shell.environ}
        self.process = subprocess.Popen(
            [shell.program, "-i"], stdin=its, stdout=its, stderr=its, env=environ, cwd=folder, start_new_session=True
        )
        os.close(its)

    def __enter__(self) -> "Terminal":
        self.until(b"ready>")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._side)

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self._screen:
            assert time.monotonic() < deadline, self._screen
            if select.select([self._side], [], [], 0.2)[0]:
                self._screen += os.read(self._side, 65536)

    def typed(self, text: str) -> None:
        os.write(self._side, text.encode())

    def line(self) -> str:
        """As it stands, once the shell has nothing to do but tell."""
        self.typed("\x18\x14")
        deadline = time.monotonic() + 60
        while not (self._told.exists() and self._told.read_text().endswith("|\n")):
            assert time.monotonic() < deadline, self._screen
            if select.select([self._side], [], [], 0.05)[0]:
                self._screen += os.read(self._side, 65536)
        return self._told.read_text().removesuffix("|\n")


@pytest.mark.parametrize(("line", "completed"), LINES, ids=IDS)
def test_zsh_completes(line: str, completed: str, zsh: Shell, environ: dict[str, str], tmp_path: Path) -> None:
    with Terminal(zsh, tmp_path, environ) as terminal:
        terminal.typed(f"csi-node-sidecar {line}\t")
        assert terminal.line() == f"csi-node-sidecar {completed}"


def test_zsh_shows_what_the_words_are(zsh: Shell, environ: dict[str, str], tmp_path: Path) -> None:
    with Terminal(zsh, tmp_path, environ) as terminal:
        terminal.typed("csi-node-sidecar ver\t\x15csi-node-sidecar completion \t\t")
        terminal.until(b"fish")
        terminal.typed("\x15csi-node-sidecar \x04")
        terminal.until(b"print name and version; as JSON also commit")


# --- fish -------------------------------------------------------------------------------------------------------------


def fish_finds(fish: Shell, environ: dict[str, str], folder: Path, line: str) -> list[str]:
    (folder / "script").write_text(script(["fish"]))
    ask = [fish.program, "--no-config", "-c", 'source ./script; complete -C "$argv"', f"csi-node-sidecar {line}"]
    done = subprocess.run(ask, env={**environ, **fish.environ}, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("line", "completed"), LINES, ids=IDS)
def test_fish_completes(line: str, completed: str, fish: Shell, environ: dict[str, str], tmp_path: Path) -> None:
    (found,) = fish_finds(fish, environ, tmp_path, line)
    assert found.partition("\t")[0] == completed.split()[-1]


def test_fish_shows_what_the_words_are(fish: Shell, environ: dict[str, str], tmp_path: Path) -> None:
    found = fish_finds(fish, environ, tmp_path, "vers")
    assert found == ["version\tprint name and version; as JSON also commit, CSI, Python and platform"]
    assert fish_finds(fish, environ, tmp_path, "explain n") == [
        line for line in fish_finds(fish, environ, tmp_path, "explain ") if line.startswith("n")
    ]
