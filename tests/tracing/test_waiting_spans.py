"""What waits to be sent is bounded, whatever happens, and nothing is lost without being counted."""

from hypothesis import given
from hypothesis import strategies as st

from sidecar.tracing.waiting_spans import Bounds, WaitingSpans

STEPS = st.lists(st.one_of(st.integers(1, 40), st.sampled_from(["take", "settled"])), max_size=60)


@given(STEPS)
def test_it_is_bounded_and_counts(steps: list[int | str]) -> None:
    bounds = Bounds(spans=8, size=100, batch=3, batch_size=50)
    waiting, put, sent = WaitingSpans(bounds), 0, 0
    in_hand: list[bytes] = []
    for step in steps:
        if isinstance(step, int):
            waiting.put(bytes(step))
            put += 1
        elif step == "take" and not in_hand:
            in_hand = waiting.take()
            assert len(in_hand) <= 3
            assert len(in_hand) <= 1 or sum(map(len, in_hand)) <= 50
        elif step == "settled":
            sent += len(in_hand)
            in_hand = []
            waiting.settled()
        assert waiting.size <= 100
        assert len(waiting) + len(in_hand) <= 8
        assert put == len(waiting) + len(in_hand) + sent + waiting.dropped
    assert bool(waiting.take()) == (put > sent + waiting.dropped + len(in_hand))


def test_a_batch_is_full_by_number_or_by_bytes() -> None:
    by_number, by_bytes = WaitingSpans(Bounds(batch=2)), WaitingSpans(Bounds(batch_size=10))
    by_number.put(b"")
    by_bytes.put(bytes(9))
    assert not by_number.has_batch and not by_bytes.has_batch
    by_number.put(b"")
    by_bytes.put(b"1")
    assert by_number.has_batch and by_bytes.has_batch
