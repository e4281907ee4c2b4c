"""The installation in deploy/base/README.md, command by command, and what a new user sees.

`python -m tests.cluster.install_notebook --rewrite` writes it anew; the difference is then read by a person.

What differs from run to run (names that Kubernetes makes up, ages, addresses, which node a pod is on) stands as a word in capitals.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from hack.lib.control_plane import REPOSITORY

README = REPOSITORY / "deploy" / "base" / "README.md"
NOTEBOOK = Path(__file__).with_name("install.txt")
HEAD = """\
# The section Install of deploy/base/README.md, word by word, on two real kubelets. What differs from run to run stands in capitals.
# Written by python -m tests.cluster.install_notebook --rewrite.
"""
SEPARATOR = "----"
SECONDS = 400

SAMENESS = (
    (r"\S+/kubeconfig$", "KUBECONFIG"),
    (r"\bpvc-[0-9a-f-]{36}\b", "pvc-UID"),
    (r"(csi-node-sidecar-driver)-[a-z0-9]{5}\b", r"\1-SUFFIX"),
    (r"\b10\.244\.\d+\.\d+\b", "ADDRESS"),
    (r"\bnode-\d+\b", "NODE"),
    (r"^\d+ (writer-\d) NODE \d+$", r"LINE \1 NODE TIME"),
    (r"\b\d+(m\d+)?s\b", "AGE"),
    (r" {2,}", "  "),
)
PASSING = re.compile(r"^Waiting for |condition met$|^$")
"""How often it is said depends on how long it took. For the same reason lines that say the same stand there once."""


def commands_of_readme() -> list[str]:
    """The indented lines of its code blocks, in their order."""
    text = README.read_text()
    (section,) = re.findall(r"^## Install\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def play(commands: Iterable[str], *, name: str) -> str:
    """The notebook's text; a command that fails ends it with what it said."""
    environ = {**os.environ, "CSI_NODE_SIDECAR_CLUSTER": name}
    pages = [HEAD]
    try:
        for command in commands:
            done = subprocess.run(
                ["bash", "-c", command], cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False, timeout=SECONDS
            )
            shown = told(done.stdout) if done.returncode == 0 else [f"exit {done.returncode}", *done.stderr.splitlines()]
            pages.append("\n".join([command, SEPARATOR, *shown, ""]))
            if done.returncode:
                break
    finally:
        subprocess.run([REPOSITORY / "hack" / "cluster", "down"], env=environ, capture_output=True, check=False, timeout=60)
    return "\n".join(pages)


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
    played = play(commands_of_readme(), name=f"install-{os.getpid()}")
    if sys.argv[1:] == ["--rewrite"]:
        NOTEBOOK.write_text(played)
    else:
        sys.stdout.write(played)
