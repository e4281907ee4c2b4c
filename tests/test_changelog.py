"""The changelog is in the form that it says it is, ends with this program's version, and stays short."""

import re
from pathlib import Path

import pytest

import sidecar

TEXT = (Path(__file__).resolve().parents[1] / "CHANGELOG.md").read_text()
MOST_LINES = 150
NOT_YET = "not released yet"
OF_A_VERSION = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (.+)$", re.MULTILINE)
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
OURS = ("If you come from external-provisioner", "Not there yet", "Licence")
"""Of the first version alone, which has no earlier one to be compared with."""


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_newest_version_in_it_is_the_program_s() -> None:
    assert OF_A_VERSION.findall(TEXT)[0][0] == sidecar.__version__


def test_versions_are_listed_from_the_newest_down_each_once() -> None:
    versions = [version for version, _ in OF_A_VERSION.findall(TEXT)]
    assert versions == sorted(set(versions), key=number, reverse=True)


def test_each_has_a_date_and_only_the_newest_may_still_lack_it() -> None:
    newest, *others = [date for _, date in OF_A_VERSION.findall(TEXT)]
    assert newest == NOT_YET or re.fullmatch(r"\d{4}-\d\d-\d\d", newest)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in others)


def test_no_heading_is_of_another_form() -> None:
    headings = re.findall(r"^## .*$", TEXT, re.MULTILINE)
    assert all(heading == "## [Unreleased]" or OF_A_VERSION.match(heading) for heading in headings)


@pytest.mark.parametrize("kind", re.findall(r"^### (.*)$", TEXT, re.MULTILINE))
def test_changes_are_told_by_kind(kind: str) -> None:
    first = TEXT.rpartition("\n## [")[2]
    assert kind in KINDS or (kind in OURS and f"### {kind}\n" in first)


def test_it_is_short_enough_to_be_read() -> None:
    assert TEXT.count("\n") <= MOST_LINES
