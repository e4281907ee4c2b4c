import random

import pytest

from sidecar.kube.line_reader import LineReader, TooLong


@pytest.mark.parametrize("cut", [1, 2, 7, 1000])
def test_lines_are_the_same_however_the_stream_is_cut(cut: int) -> None:
    raw = b'{"a":1}\n\n{"b":2}\n' + b"x" * 50 + b"\nrest"
    reader, found = LineReader(), []
    for at in range(0, len(raw), cut):
        found += reader.feed(raw[at : at + cut])
    assert found == [b'{"a":1}', b"", b'{"b":2}', b"x" * 50]
    assert reader.within
    assert reader.feed(b"\n") == [b"rest"]
    assert not reader.within


@pytest.mark.parametrize("seed", range(5))
def test_of_a_line_that_is_too_long_only_the_beginning_is_kept(seed: int) -> None:
    rng, reader = random.Random(seed), LineReader(10_000)
    raw, found, most = b"s" * 10_000 + b"\n" + b"beginning " + b"l" * 1_000_000 + b"\nnext\n", [], 0
    while raw:
        cut = rng.randint(1, 20_000)
        found += reader.feed(raw[:cut])
        most = max(most, len(reader._kept))
        raw = raw[cut:]
    assert most <= 10_000
    short, long, after = found
    assert (short, after) == (b"s" * 10_000, b"next")
    assert isinstance(long, TooLong) and long.size == 1_000_010
    assert long.beginning.startswith(b"beginning l") and len(long.beginning) <= 4096
