"""The table of flags is that of the program."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hack.lib.control_plane import REPOSITORY
from tests.deploy.manifests import DEPLOY

ACCEPTED = "Accepted because external-provisioner takes them"


@pytest.fixture(scope="module")
def told() -> str:
    """What --help prints."""
    command = [sys.executable, "-m", "sidecar", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=REPOSITORY).stdout


def defaults(text: str) -> dict[str, str]:
    """Each flag of a part of --help, and the default that is printed for it."""
    entries = re.split(r"\n(?=  (?:    |-\w, )--)", text)[1:]
    found = {}
    for entry in entries:
        lines = " ".join(entry.split())
        name = re.match(r"(?:-\w, )?--([\w-]+)", lines)
        assert name, entry
        default = re.search(r"\(default ([^()]+)\)", lines)
        found[name[1]] = default[1].strip('"') if default else ""
    return found


def rows(text: str) -> dict[str, str]:
    """Each flag of the table, and its default."""
    found = {}
    for line in re.findall(r"^\| `-.*$", text, re.MULTILINE):
        first, second, *_ = line.split(" |")
        names = re.findall(r"`--([\w-]+)`", first)
        values = re.findall(r"`([^`]+)`", second)
        found |= dict(zip(names, values or [""] * len(names), strict=True))
    return found


def test_the_table_has_every_flag_with_its_default(told: str) -> None:
    section = (DEPLOY / "README.md").read_text().partition("\n## All flags\n")[2].partition("\n## ")[0]
    table, _, without_effect = section.partition("\nAccepted without effect")
    working, _, accepted = told.partition(ACCEPTED)
    assert rows(table) == defaults(working.partition("\nEnvironment:")[0])
    assert set(re.findall(r"`--([\w-]+)`", without_effect)) == defaults(accepted.partition("\nCommands:")[0]).keys()
