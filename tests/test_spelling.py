"""The check for misspellings sees them where people read, and this repository has none of those that it knows."""

import re
from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY
from hack.lib.spelling import WORDS, faults, misspellings

WRONG = "persis" + "tant"
FAULT = f"{WRONG}: persistent"


def said_of(root: Path, name: str, text: str) -> list[str]:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return faults(root)


def test_nothing_here_is_misspelt() -> None:
    assert faults(REPOSITORY) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("page.md", f"one\n\nA {WRONG.title()} volume\n", [f"page.md:3: {FAULT}"]),
        (".github/page.md", WRONG, [f".github/page.md:1: {FAULT}"]),
        ("page.md", f"`{WRONG}`\n```\n{WRONG}\n```\n", []),
        ("deploy/a.yaml", f"a: b\n# {WRONG}\n", [f"deploy/a.yaml:2: {FAULT}"]),
        ("hack/tool", f"#!/bin/sh\necho {WRONG}\n", [f"hack/tool:2: {FAULT}"]),
        ("hack/binary", f"\x7f {WRONG}", []),
        ("sidecar/a.py", f'X = "{WRONG}"\n', [f"sidecar/a.py:1: {FAULT}"]),
        ("sidecar/a.py", f"{WRONG}_volume = 1\n", [f"sidecar/a.py:1: {FAULT}"]),
        ("tests/a.py", f'"""One.\n\n{WRONG}\n"""\n', [f"tests/a.py:3: {FAULT}"]),
        ("tests/a.py", f"x = 1  # {WRONG}\n", [f"tests/a.py:1: {FAULT}"]),
        ("tests/a.py", f'X = ["{WRONG}"]\n', []),
        ("tests/a.py", f'"""A\\n\\n\\n{WRONG}"""\n', []),
        ("csi_proto/a.py", f'"""{WRONG}"""\n', []),
        (".git/page.md", WRONG, []),
        ("site-packages/page.md", WRONG, []),
        ("page.md", f"a{WRONG}b\n", []),
        ("page.md", "of the\nthe node\n", ["page.md:1: 'the the'"]),
        ("page.md", "The the\n", ["page.md:1: 'The the'"]),
        ("page.md", "where it is is known, and `a a`, had had, then thence\n", []),
    ],
)
def test_a_fault_is_seen_where_people_read(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    assert said_of(tmp_path, name, text) == found


def test_the_list_can_be_read_and_means_other_words_than_it_lists() -> None:
    lines = WORDS.read_text().splitlines()
    assert lines == sorted(set(lines)) and all(re.fullmatch(r"[a-z]+: [A-Za-z' ]+", line) for line in lines)
    assert len(lines) == len(misspellings())
    assert misspellings().keys().isdisjoint(word.lower() for meant in misspellings().values() for word in meant.split())
