"""Points in time there and back, and what is none."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.model import timestamps

SENSIBLE = st.floats(0, 4e9, allow_nan=False)


@given(SENSIBLE)
def test_what_is_written_is_read_again_to_the_second_and_never_later(at: float) -> None:
    read = timestamps.to_seconds(timestamps.to_text(at))
    assert read is not None and 0 <= at - read < 1


@given(SENSIBLE)
def test_a_lease_takes_six_digits(at: float) -> None:
    text = timestamps.to_micro_text(at)
    assert re.fullmatch(r".*\.[0-9]{6}Z", text)
    assert timestamps.to_seconds(text) == pytest.approx(at, abs=1e-5)


def test_points_in_time() -> None:
    for text, at in [
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T00:00:00.5Z", 1_767_225_600.5),
        ("2026-01-01T01:30:00+01:30", 1_767_225_600.0),
    ]:
        assert timestamps.to_seconds(text) == at


def test_no_point_in_time() -> None:
    for text in [
        "",
        "now",
        "2026-01-01",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:60Z",
        "0000-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z\n",
        "２０２６-01-01T00:00:00Z",
        "2026-01-01T00:00:00+99:00",
    ]:
        assert timestamps.to_seconds(text) is None


@given(st.text(max_size=40))
def test_whatever_is_written_there_is_read_without_a_crash(text: str) -> None:
    timestamps.to_seconds(text)
