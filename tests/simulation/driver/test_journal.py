"""A cut anywhere in the last line loses that line, which nobody had been told of, and nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.sim.driver.state import Corrupt, Journal, read_journal

LINES = st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2), min_size=1, max_size=5)


@settings(deadline=None)
@given(lines=LINES, cut=st.data())
def test_a_torn_tail_loses_at_most_the_unanswered_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, object]], cut: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "file"
    journal = Journal(path)
    for line in lines[:-1]:
        journal.append(line)
    told = path.stat().st_size
    journal.append(lines[-1])
    journal.close()
    os.truncate(path, cut.draw(st.integers(told, path.stat().st_size - 1)))
    assert read_journal(path) == lines[:-1]
    journal = Journal(path)
    journal.append({"after": "the crash"})
    journal.close()
    assert read_journal(path) == [*lines[:-1], {"after": "the crash"}]


def test_a_rewrite_replaces_everything_and_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "file", fsync=True)
    journal.append({"old": 1})
    journal.rewrite([{"new": 1}, {"new": 2}])
    journal.append({"new": 3})
    journal.close()
    assert read_journal(tmp_path / "file") == [{"new": 1}, {"new": 2}, {"new": 3}]


@pytest.mark.parametrize("text", ["{}\nnonsense\n{}\n", "[]\n", "\n"])
def test_what_no_crash_leaves_behind_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(Corrupt):
        read_journal(tmp_path / "file")


def test_no_file_yet_is_empty(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "file") == []


def test_a_line_that_does_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "file")
    journal.append({"kept": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
    with pytest.raises(OSError, match="only 3 of"):
        journal.append({"lost": 1})
    monkeypatch.undo()
    journal.append({"kept": 2})
    journal.close()
    assert read_journal(tmp_path / "file") == [{"kept": 1}, {"kept": 2}]
