"""A line is used as it was written, or not at all; one of another version is used too."""

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.csi.api import CreateRequest
from sidecar.provisioning.creations import journal_lines
from sidecar.provisioning.creations.creation_record import CreationRecord, from_line, to_line
from sidecar.provisioning.creations.journal_lines import (
    Content,
    Damage,
    Damaged,
    Ended,
    begin_line,
    end_line,
    read_line,
    read_lines,
    settled_line,
)

RECORD = CreationRecord("uid-1", "ns", "claim-1", "fast", CreateRequest(name="pvc-1", required_bytes=2**30, capabilities=()))
LINE = begin_line(RECORD)


def content(*lines: bytes, largest: int = 10_000, most_open: int = 10_000) -> Content:
    return read_lines(io.BytesIO(b"".join(line + b"\n" for line in lines)), largest=largest, most_open=most_open)


def test_a_line_is_read_as_it_was_written() -> None:
    assert read_line(LINE + b"\n") == (RECORD, True)
    assert read_line(end_line("uid-1")) == (Ended("uid-1"), True)


def test_an_older_version_reads_lines_with_a_checksum() -> None:
    """So that it can be rolled back to: it passes over keys that it does not know."""
    assert from_line(LINE) == RECORD
    assert json.loads(end_line("uid-1"))["end"] == "uid-1"


def test_lines_of_an_older_version_are_read_and_have_no_checksum() -> None:
    for line in [to_line(RECORD), json.dumps({"end": "uid-1"}).encode()]:
        said, is_sealed = read_line(line)
        assert not isinstance(said, Damaged) and not is_sealed


@given(st.integers(0, 8 * len(LINE) - 1))
def test_no_flipped_bit_makes_another_record(bit: int) -> None:
    flipped = bytearray(LINE)
    flipped[bit // 8] ^= 1 << bit % 8
    said, _ = read_line(bytes(flipped))
    assert isinstance(said, Damaged) or said == RECORD


@given(st.integers(0, len(LINE) - 1))
def test_no_part_of_a_line_is_a_record(length: int) -> None:
    said, _ = read_line(LINE[:length])
    assert isinstance(said, Damaged)


def test_a_line_that_was_changed_is_not_used() -> None:
    for line in [LINE.replace(b"claim-1", b"claim-2"), end_line("uid-1").replace(b"uid-1", b"uid-2")]:
        said, _ = read_line(line)
        assert isinstance(said, Damaged) and said.kind is Damage.ALTERED


def test_only_what_is_open_counts_and_damage_costs_no_other_line() -> None:
    second = replace(RECORD, uid="uid-2")
    found = content(LINE, b"garbage", begin_line(second), LINE, end_line("uid-1"), LINE.replace(b"claim-1", b"claim-2"))
    assert found.begun == {"uid-2": second}
    assert found.size == len(LINE) + 1
    assert found.damage == {Damage.GARBLED: 1, Damage.ALTERED: 1} and found.is_damaged
    assert found.first.startswith("line 2: ")


def test_half_a_line_at_the_end_is_no_damage() -> None:
    found = read_lines(io.BytesIO(LINE + b"\n" + LINE[:40]), largest=10_000, most_open=10_000)
    assert found.begun == {"uid-1": RECORD} and found.damage == {}


def test_lines_without_a_checksum_are_no_damage_and_are_counted() -> None:
    found = content(to_line(RECORD), to_line(RECORD))
    assert found.damage == {Damage.UNSIGNED: 2} and not found.is_damaged


def test_a_line_that_is_too_long_is_passed_over_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_lines, "LONGEST_LINE", len(LINE) + 1)
    found = content(LINE, b"x" * (4 * len(LINE)), begin_line(replace(RECORD, uid="uid-2")))
    assert found.begun.keys() == {"uid-1", "uid-2"}
    assert found.damage.keys() <= {Damage.TOO_LARGE, Damage.GARBLED} and found.damage[Damage.TOO_LARGE]


def test_a_file_that_is_too_large_is_not_used_at_all() -> None:
    """Nor more of it read than that: somebody may write on while it is read."""
    for largest, most_open in [(2 * len(LINE) + 1, 10_000), (10_000, 2 * len(LINE) + 1)]:
        lines = [begin_line(replace(RECORD, uid=f"uid-{number}")) for number in range(9)]
        assert len(content(*lines[:2]).begun) == 2
        found = content(*lines, largest=largest, most_open=most_open)
        assert found.begun == {} and found.damage == {Damage.TOO_LARGE: 1}
        endless = io.BytesIO(b"x" * 5_000)
        read_lines(endless, largest=1_000, most_open=1_000)
        assert endless.tell() <= 1_001


SUSPECT = replace(RECORD, suspect="nobody may delete it")
ANEW = replace(RECORD, request=replace(RECORD.request, name="renamed"))


def open_names(*lines: bytes) -> list[tuple[str, bool]]:
    return [(record.request.name, bool(record.suspect)) for record in content(*lines).begun.values()]


def test_a_suspect_stays_when_the_claim_gets_a_volume_of_another_name() -> None:
    name, lines = RECORD.request.name, (LINE, begin_line(SUSPECT), begin_line(ANEW))
    assert open_names(*lines) == [(name, True), ("renamed", False)]
    assert open_names(*lines, end_line(RECORD.uid)) == [(name, True)]
    assert content(*lines).size == len(begin_line(SUSPECT)) + len(begin_line(ANEW)) + 2


def test_of_one_volume_the_latest_line_counts() -> None:
    name = RECORD.request.name
    assert open_names(LINE, begin_line(SUSPECT)) == [(name, True)]
    assert open_names(begin_line(SUSPECT), LINE) == [(name, False)]
    assert open_names(begin_line(SUSPECT), LINE, end_line(RECORD.uid)) == []


def test_an_older_version_ends_a_suspect_by_the_uid_of_its_claim() -> None:
    assert open_names(begin_line(SUSPECT), end_line(RECORD.uid)) == []
    assert open_names(begin_line(SUSPECT), settled_line(RECORD.uid)) == []


def test_what_a_person_has_seen_to_is_that_volume() -> None:
    second = replace(SUSPECT, request=replace(RECORD.request, name="second"))
    assert open_names(begin_line(SUSPECT), begin_line(second), settled_line(SUSPECT.key)) == [("second", True)]
