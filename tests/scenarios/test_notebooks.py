"""Each notebook is played and compared. What differs is read by a person, and then rewritten:

python -m hack.sim.notebook --rewrite tests/scenarios/*.txt
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.sim.notebook import played
from hack.sim.notebook.commands import BadCommand

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_world_does_what_the_notebook_says(notebook: Path) -> None:
    text = notebook.read_text()
    assert text.startswith("# "), "a notebook begins with what its reader should see"
    assert played(text).splitlines() == text.splitlines()


def test_a_notebook_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Neither the order of sets nor where objects lie in memory may show."""
    notebook = next(path for path in NOTEBOOKS if "outage" in path.stem)
    command = [sys.executable, "-m", "hack.sim.notebook", str(notebook)]
    environment = {**os.environ, "PYTHONHASHSEED": "1234"}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2])
    assert printed.stdout == notebook.read_text()


def test_rewriting_puts_transcripts_below_commands_and_keeps_comments(tmp_path: Path) -> None:
    file = tmp_path / "new.txt"
    file.write_text("# What to see.\n\nworld nodes=1\n# a remark\nclass late\n----\nold lines\n")
    command = [sys.executable, "-m", "hack.sim.notebook", "--rewrite", str(file)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    assert file.read_text().splitlines() == [
        "# What to see.",
        "",
        "world nodes=1",
        "# a remark",
        "class late",
        "----",
        "     0.000  n0         starts, life 1",
        "     0.001  you        class late: created (WaitForFirstConsumer)",
    ]


@pytest.mark.parametrize(
    "command", ["dance", "claim data-0", "kill n9", "delete moon data-0", "driver n0 Nonsense:times=1", "until bound", "run fast"]
)
def test_what_nobody_understands_is_refused(command: str) -> None:
    with pytest.raises(BadCommand, match=command):
        played(f"world nodes=1\n{command}\n----\n")


def test_a_paragraph_without_a_rule_is_refused() -> None:
    with pytest.raises(BadCommand):
        played("world nodes=1\n")


def test_what_must_not_be_missing_shows_as_not_reached() -> None:
    text = "world nodes=1\nclass late\nclaim data-0 class=late\nuntil bound data-0\n----\n"
    assert played(text).endswith("  | not within 300 s\n")
