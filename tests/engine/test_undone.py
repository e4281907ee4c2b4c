"""A write that somebody else undoes again and again comes ever less often."""

from sidecar.engine.backoff import Backoff
from sidecar.engine.undone import UndoneWrites


def after(writes: UndoneWrites[str], seconds: float, *, key: str = "a", start: float = 0.0) -> list[float]:
    """When it is written, if it is undone at once and looked at every second."""
    found: list[float] = []
    for now in range(int(start), int(start + seconds)):
        if writes.turn(key) <= now:
            writes.wrote(key, float(now))
            found.append(float(now))
    return found


def test_twice_at_once_and_then_after_pauses_that_grow() -> None:
    writes = UndoneWrites[str](Backoff(1.0, 300.0))
    assert [writes.turn("a"), writes.count("a", 0.0)] == [0.0, 0]
    assert after(writes, 100.0) == [0, 1, 2, 4, 8, 16, 32, 64]
    assert writes.count("a", 100.0) == 8 and writes.count("b", 100.0) == 0


def test_what_was_left_alone_for_as_long_as_the_longest_pause_is_forgotten() -> None:
    writes = UndoneWrites[str](Backoff(1.0, 8.0))
    after(writes, 100.0)
    end = writes.turn("a")
    assert writes.count("a", end + 8.0) > 0 == writes.count("a", end + 8.1)
    writes.wrote("b", end + 8.1)
    assert list(writes._written) == ["b"]
