"""Quantities in both directions; rounding is up to whole bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.model.quantity import BadQuantity, format_bytes, parse_bytes


def test_parse() -> None:
    for text, count in [
        ("1Gi", 2**30),
        ("1500m", 2),
        ("0.5Gi", 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E", 12 * 10**18),
        ("100m", 1),
        ("0", 0),
        ("1k", 1000),
        ("123n", 1),
        (".5Ki", 512),
        ("5.", 5),
        ("+1Mi", 2**20),
        ("-1", -1),
        (1073741824, 2**30),
        ("3Ei", 3 * 2**60),
        ("1e-3", 1),
    ]:
        assert parse_bytes(text) == count


def test_what_is_no_quantity_is_refused_by_name() -> None:
    for text in ["", "Gi", "1 Gi", " 1", "1gi", "1KiB", "one", "0x10", "1Gi\n", "1e", "١"]:
        with pytest.raises(BadQuantity, match="is not a quantity"):
            parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_bytes_survive_the_way_out_and_back(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


def test_format_takes_the_largest_suffix_that_divides() -> None:
    assert [format_bytes(count) for count in (0, 100, 1024, 1536, 2**20, 10 * 2**30, 3 * 2**60)] == [
        "0", "100", "1Ki", "1536", "1Mi", "10Gi", "3Ei",
    ]  # fmt: skip
