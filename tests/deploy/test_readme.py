"""The README files are short enough to be read, and what they say of flags and of the installation is true."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY
from hack.lib.links import pages
from tests.cluster.readme_notebook import PAGES, SEPARATOR, commands_of
from tests.deploy.manifests import DEPLOY

LIMIT = 16 * 1024
"""Bytes. Where one table needs more, it gets a page of its own."""
LIMIT_OF_THE_FIRST = 12 * 1024
QUESTIONS = (
    "Which node may bid?",
    "When is a volume deleted?",
    "What blocks retiring?",
    "What do we write on a Node?",
    "Where is a flag defined?",
    "What happens when the API server is away?",
    "How do I add a metric?",
    "How do I add a drain reason?",
)
OF_OTHERS = {
    *("real", "keep", "driver", "node", "intent", "help", "yes", "exit-code", "annotate-nodes", "disable-eviction", "drain-timeout"),
    *("pod-selector", "authorization-config", "authorization-mode", "runtime-config"),
    *(
        "kubelet-registration-path",
        "health-port",
        "enable-distributed-snapshotting",
        "reset-values",
        "reset-then-reuse-values",
        "reuse-values",
    ),
    *("context", "request-timeout", "image", "force", "terminating"),
}
"""Flags of our other commands, and of programs that pages tell of."""
ACCEPTED = "Accepted because external-provisioner takes them"


@pytest.mark.parametrize("page", pages(REPOSITORY), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_is_short_enough_to_be_read(page: Path) -> None:
    assert page.stat().st_size <= (LIMIT_OF_THE_FIRST if page == REPOSITORY / "README.md" else LIMIT)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_contributor_s_question_leads_to_a_file_in_one_hop(question: str) -> None:
    (row,) = [line for line in (REPOSITORY / "sidecar" / "README.md").read_text().splitlines() if line.startswith(f"| {question} |")]
    files = re.findall(r"\]\(([\w/.]+\.py)\)", row)
    assert files and all((REPOSITORY / "sidecar" / file).is_file() for file in files)


# --- flags ------------------------------------------------------------------------------------------------------------


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


def test_every_flag_that_a_page_names_is_one_of_the_program_or_of_a_tool(told: str) -> None:
    """In backticks and with `--`; the tools are those of hack, kubectl and external-provisioner's neighbours."""
    known = set(defaults(told))
    for page in [REPOSITORY / "README.md", *DEPLOY.rglob("*.md")]:
        for name in re.findall(r"`--([\w-]+)[=`]", page.read_text()):
            assert name in known | OF_OTHERS, f"{page}: --{name}"


# --- the installation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_the_notebook_types_what_the_page_says(name: str) -> None:
    """What they answer needs real kubelets (tests/cluster)."""
    lines = PAGES[name].notebook.read_text().splitlines()
    typed = [line for line, below in pairwise(lines) if below == SEPARATOR]
    assert typed == commands_of(PAGES[name])
    assert "hack/cluster up" in typed[0] and typed[-1] == "hack/cluster down"
