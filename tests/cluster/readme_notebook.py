"""What pages of deploy/ tell a new user to type, command by command, and what that user sees.

`python -m tests.cluster.readme_notebook install --rewrite` writes one anew; the difference is then read by a person.

What differs from run to run (names that Kubernetes makes up, ages, addresses, which node a pod is on) stands as a word in capitals.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.lib.control_plane import REPOSITORY


@dataclass(frozen=True, slots=True)
class Page:
    """`section`: the one whose commands are typed."""

    name: str
    readme: str
    section: str

    @property
    def notebook(self) -> Path:
        return Path(__file__).with_name(f"{self.name}.txt")

    @property
    def head(self) -> str:
        rewrite = f"python -m tests.cluster.readme_notebook {self.name} --rewrite"
        return (
            f"# The section {self.section} of {self.readme}, word by word, on two real kubelets.\n"
            f"# What differs from run to run stands in capitals. Written by {rewrite}.\n"
        )


PAGES = {
    page.name: page
    for page in (
        Page("install", "deploy/base/README.md", "Install"),
        Page("walk", "deploy/examples/csi-driver-host-path/README.md", "Try it"),
    )
}
SEPARATOR = "----"
SECONDS = 400

SAMENESS = (
    (r"\S+/kubeconfig$", "KUBECONFIG"),
    (r"\bpvc-[0-9a-f-]{36}\b", "pvc-UID"),
    (r"(csi-node-sidecar-driver|csi-hostpathplugin)-[a-z0-9]{5}\b", r"\1-SUFFIX"),
    (r"\b10\.244\.\d+\.\d+\b", "ADDRESS"),
    (r"\bhttps://[\d.]+:\d+$", "https://SERVER"),
    (r"\bnode-\d+\b", "NODE"),
    (r"^\d+ (writer-\d) NODE \d+$", r"LINE \1 NODE TIME"),
    (r"\b\d+(m\d+)?s\b", "AGE"),
    (r" {2,}", "  "),
)
PASSING = re.compile(r"^Waiting for |condition met$|^$|^removes csi-node-sidecar\.io/lies-on of PersistentVolume ")
"""How often it is said depends on how long it took. For the same reason lines that say the same stand there once."""


def commands_of(page: Page) -> list[str]:
    """The lines of its code blocks, in their order."""
    text = (REPOSITORY / page.readme).read_text()
    (section,) = re.findall(rf"^## {page.section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def play(page: Page) -> str:
    """The notebook's text; a command that fails ends it with what it said."""
    pages = [page.head]
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "CSI_NODE_SIDECAR_CLUSTER": f"{page.name}-{os.getpid()}"}
        shell = Shell(Path(folder), environ)
        try:
            for command in commands_of(page):
                done = shell.type(command)
                shown = told(done.stdout) if done.returncode == 0 else [f"exit {done.returncode}", *done.stderr.splitlines()]
                pages.append("\n".join([command, SEPARATOR, *shown, ""]))
                if done.returncode:
                    break
        finally:
            subprocess.run([REPOSITORY / "hack" / "cluster", "down"], env=environ, capture_output=True, check=False, timeout=60)
    return "\n".join(pages)


class Shell:
    """What is exported stays, and the program can be called by its name, as where it is installed."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._exported = folder / "exported"
        self._exported.touch()
        program = folder / "csi-node-sidecar"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m sidecar "$@"\n')
        program.chmod(0o755)
        self._environ = {**environ, "PATH": f"{folder}:{environ['PATH']}"}

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        script = f". {self._exported}\n{command}\ncode=$?\nexport -p >{self._exported}\nexit $code"
        return subprocess.run(
            ["bash", "-c", script], cwd=REPOSITORY, env=self._environ, capture_output=True, text=True, check=False, timeout=SECONDS
        )


def told(output: str) -> list[str]:
    lines = []
    for line in output.splitlines():
        if not PASSING.search(line):
            for pattern, word in SAMENESS:
                line = re.sub(pattern, word, line)
            if line not in lines[-1:]:
                lines.append(line.rstrip())
    return lines


if __name__ == "__main__":
    chosen = PAGES[sys.argv[1]]
    played = play(chosen)
    if sys.argv[2:] == ["--rewrite"]:
        chosen.notebook.write_text(played)
    else:
        sys.stdout.write(played)
