"""What the README files point at exists, and the check that says so sees each kind of broken pointer."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.lib.control_plane import REPOSITORY
from hack.lib.links import anchor, broken, pages


def test_nothing_points_nowhere() -> None:
    assert broken(REPOSITORY) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](other.md)", ""),
        ("[a](folder/)", ""),
        ("[a](other.md#what-it-costs)", ""),
        ("[a](other.md#what-it-costs-1)", ""),
        ("[a](#top)", ""),
        ("[a](https://example.org/gone#x)", ""),
        ("![a](folder/picture.svg)", ""),
        ("`folder/picture.svg` and `/var/lib/a.json` and `a/<b>/c.py` and `*/c.py`", ""),
        ("```\n[a](gone.md)\n```", ""),
        ("`[a](gone.md)`", ""),
        ("<!-- [a](gone.md) -->", ""),
        ("[a](gone.md)", "(gone.md): no such file"),
        ("![a](gone.svg)", "(gone.svg): no such file"),
        ("[a](../outside.md)", "(../outside.md): no such file"),
        ("[a](other.md#what-it-cost)", "(other.md#what-it-cost): no such heading"),
        ("[a](#in-a-block)", "(#in-a-block): no such heading"),
        ("[a](folder/picture.svg#x)", "(folder/picture.svg#x): no such heading"),
        ("`hack/gone`", "`hack/gone`: no such file"),
        ("`gone.py`", "`gone.py`: no such file"),
        ("`folder/gone.py`", "`folder/gone.py`: no such file"),
    ],
)
def test_a_pointer_that_leads_nowhere_is_seen(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "picture.svg").touch()
    (tmp_path / "other.md").write_text("# What it costs\n\n## What it `costs`?\n")
    (tmp_path / "page.md").write_text(f"# Top\n\n```\n# In a block\n```\n\n{text}\n")
    assert broken(tmp_path) == ([f"page.md:7: {fault}"] if fault else [])


@pytest.mark.parametrize("page", [".github/SECURITY.md", ".github/CONTRIBUTING.md", "CHANGELOG.md", "csi_proto/README.md"])
def test_what_a_forge_shows_is_looked_at_too(page: str) -> None:
    assert REPOSITORY / page in pages(REPOSITORY)


def test_a_pointer_of_a_page_for_the_forge_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github" / "page.md").write_text("[a](../gone.md) `.github/gone`\n")
    assert broken(tmp_path) == [".github/page.md:1: (../gone.md): no such file", ".github/page.md:1: `.github/gone`: no such file"]


def test_hidden_folders_are_not_ours(tmp_path: Path) -> None:
    for folder in (".venv", "site-packages"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text("[a](gone.md)\n")
    assert broken(tmp_path) == []


@pytest.mark.parametrize(
    ("heading", "name"),
    [("No leak", "no-leak"), ("`explain node`: what blocks?", "explain-node-what-blocks"), ("May I, [here](x.md)", "may-i-here")],
)
def test_headings_are_named_as_github_does(heading: str, name: str) -> None:
    assert anchor(heading) == name
