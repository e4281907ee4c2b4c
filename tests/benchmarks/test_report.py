"""The page of the last results: all figures, bars of the right length, well-formed, and nothing that is fetched."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from hack.benchmarks import results
from hack.benchmarks.report import bars, command
from hack.benchmarks.report.page import page
from hack.benchmarks.report.tables import Table, number_in, parts
from tests.harness.report import MEMORY, SCALE

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CSI_NODE_SIDECAR_CACHE", str(tmp_path / "cache"))
    return tmp_path


def body(*found: results.Kept) -> ElementTree.Element:
    """By a parser of XML, which forgives nothing."""
    text = page(found)
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text)


# --- what measurements print ------------------------------------------------------------------------------------------


def test_tables_and_paragraphs_are_told_apart() -> None:
    text = "before\n| a | b |\n|---|--:|\n| x \\| y | 1 |\n| z |\nbehind\n\nat the end"
    assert list(parts(text)) == ["before", Table(("a", "b"), (("x | y", "1"), ("z", ""))), "behind", "at the end"]
    assert list(parts("| no | table |")) == ["| no | table |"] and list(parts("\n\n")) == []


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1", 1.0),
        ("1,234.5", 1234.5),
        ("16*", 16.0),
        ("0.6 s", 0.6),
        ("-3", -3.0),
        ("12 (13)", None),
        ("1, 2", None),
        ("", None),
        ("–", None),
    ],
)
def test_a_figure_is_one_number(cell: str, number: float | None) -> None:
    assert number_in(cell) == number


@pytest.mark.parametrize(
    ("cells", "drawn"),
    [
        (["1", "2"], True),
        (["1", "–"], True),
        (["0", "2"], True),
        (["0", "0"], False),
        (["–", ""], False),
        (["1", "yes"], False),
        (["-1", "2"], False),
        (["1"], False),
    ],
)
def test_columns_of_figures_are_drawn_where_there_is_something_to_compare(cells: list[str], drawn: bool) -> None:
    found = Table(("what", "figure"), tuple(("x", cell) for cell in cells))
    assert found.drawn == ([1] if drawn else [])


# --- the page ---------------------------------------------------------------------------------------------------------


def test_all_that_was_printed_stands_on_the_page() -> None:
    shown = " ".join(body(MEMORY, SCALE).itertext())
    for result in (MEMORY, SCALE):
        for word in re.findall(r"[\w.,:]+", re.sub(r"[`*]|\n\|[-:| ]+\|", " ", result.text)):
            assert word in shown
        assert all(value in shown for value in (*result.machine.values(), *result.versions.values()))
    assert "hack/bench memory --runs 3 '--also=a b'" in shown and "2026-11-24 08:00 UTC, took 2 min 5 s" in shown
    assert "the latest of 2026-11-25 09:30 UTC" in shown


def test_each_column_of_figures_has_bars_as_long_as_they_are_large() -> None:
    drawings = list(body(MEMORY).iter(f"{SVG}svg"))
    assert [drawing.get("aria-label") for drawing in drawings] == ["resident MiB", "synced after s"]
    lengths = [float(bar.get("width", "")) for bar in drawings[0].iter(f"{SVG}rect")]
    whole = bars.WIDTH - bars.LABELS - bars.FIGURES
    assert lengths == pytest.approx([whole * value / 200.9 for value in (51.2, 55.2, 51.7, 200.9)], abs=0.1)
    kinds = [bar.get("class") for bar in drawings[0].iter(f"{SVG}rect")]
    assert kinds == ["ours", "peer", "ours", "peer"]
    assert drawings[0].find(f".//{SVG}title") is not None


def test_what_is_printed_cannot_become_a_part_of_the_page() -> None:
    evil = replace(MEMORY, text="| a | b |\n|---|---|\n| <script>x</script> | 1 |\n| y | 2 |\n\n<img src=x>", words=["memory", '"><b>'])
    found = body(evil)
    assert not list(found.iter("script")) and not list(found.iter("img"))


def test_nothing_is_fetched() -> None:
    found = body(MEMORY, SCALE)
    policy = found.find(".//meta[@http-equiv='Content-Security-Policy']")
    assert policy is not None and policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"
    assert {value[:1] for element in found.iter() for name, value in element.items() if name in ("href", "src")} == {"#"}
    assert not [element.tag for element in found.iter() if element.tag in ("script", "link", "img", "iframe", "object")]
    style = found.findtext(".//style") or ""
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme: dark" in style


def test_every_colour_has_a_dark_one() -> None:
    style = body(MEMORY).findtext(".//style") or ""
    light, dark = style.split("@media", 1)
    named = set(re.findall(r"(--\w+):", light))
    assert named and named == set(re.findall(r"(--\w+):", dark.split("body {")[0]))
    assert set(re.findall(r"var\((--\w+)\)", style)) == named and not re.findall(r"#\w{3,6}", style.split("body {", 1)[1])


# --- from a measurement to the page -----------------------------------------------------------------------------------


def test_what_a_measurement_prints_is_kept_and_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with results.kept("memory", ["memory", "--runs", "1"]):
        print("| a | b |\n|---|---|\n| x | 1 |")
    (found,) = results.last()
    assert found.text == capsys.readouterr().out == "| a | b |\n|---|---|\n| x | 1 |\n"
    assert (found.command, found.words) == ("memory", ["memory", "--runs", "1"])
    assert found.machine.keys() == {"processors", "memory", "system", "kernel"} and "commit" in found.versions
    with results.kept("memory", ["memory"]):
        print("later")
    assert [one.text for one in results.last()] == ["later\n"]


def test_a_measurement_that_fails_or_says_nothing_leaves_the_result_before() -> None:
    results.keep(MEMORY)
    with pytest.raises(ZeroDivisionError), results.kept("memory", ["memory"]):
        print("half a table")
        raise ZeroDivisionError
    with results.kept("memory", ["memory"]):
        pass
    assert results.last() == [MEMORY]


def test_a_file_of_another_version_is_no_result() -> None:
    results.keep(MEMORY)
    for name, content in {"old": '{"command": "old"}', "broken": "{", "list": "[1]"}.items():
        (results.folder() / f"{name}.json").write_text(content)
    assert results.last() == [MEMORY]


def test_the_command_writes_the_page_and_says_where(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = cache / "page.html"
    assert command.run(argparse.Namespace(out=out)) == 1
    assert "nothing has been measured on this machine" in capsys.readouterr().err and not out.exists()
    results.keep(MEMORY)
    assert command.run(argparse.Namespace(out=out)) == 0
    assert capsys.readouterr().out == f"{out}\n" and out.read_text() == page([MEMORY])
    assert command.run(argparse.Namespace(out=cache)) == 1


def test_hack_bench_keeps_results_and_makes_the_page(cache: Path) -> None:
    """As a process: the command line knows it, and a report is no result."""
    results.keep(MEMORY)
    words = [sys.executable, str(ROOT / "hack/bench"), "report", "--out", str(cache / "page.html")]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout == f"{cache / 'page.html'}\n"
    assert sorted(file.name for file in results.folder().iterdir()) == ["memory.json"]
    assert json.loads((results.folder() / "memory.json").read_text())["command"] == "memory"
