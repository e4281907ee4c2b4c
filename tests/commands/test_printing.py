"""What commands print is text: whatever others wrote in the cluster, the terminal is told nothing but letters."""

import io
import re
import sys
from pathlib import Path

import pytest
import yaml

import sidecar
from sidecar.commands import printing
from sidecar.commands.forms import YAML, structured

HOSTILE = "a\x1b[2J\x9b31m\x07\r\x00b\u202etxt.exe\u2028c\ud800"
"""Clears the screen, colours, rings, writes over the line, turns it around, ends it, and is no text at all."""


@pytest.mark.parametrize("say", [printing.show, printing.complain, printing.say_aside])
def test_no_control_character_reaches_the_terminal(say: object, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one\n\ttwo {HOSTILE} é ✓")  # type: ignore[operator]
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert re.sub(r"[\n\t]", "", said).isprintable()
    assert r"a\x1b[2J\u009b31m\a\r\x00b\u202etxt.exe\u2028c\ud800 é ✓" in said
    assert "one\n\ttwo" in said


def test_a_terminal_without_such_letters_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    printing.show("✓ é")
    assert raw.getvalue() == rb"\u2713 \xe9" + b"\n"


def test_what_is_for_programs_stays_the_same_value(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"name": HOSTILE.replace("\ud800", "") + "\U0001f600\u00a0"}
    printing.show(structured(value, YAML))
    assert yaml.safe_load(capsys.readouterr().out) == value


def test_commands_print_by_no_other_way() -> None:
    folder = Path(sidecar.__file__).parent
    for file in {*(folder / "commands").rglob("*.py"), folder / "cli.py"} - {folder / "commands" / "printing.py"}:
        found = re.findall(r"(?<![\w.])print\(|std(?:out|err)\.write\(|file=sys\.std", file.read_text())
        assert not found, file
