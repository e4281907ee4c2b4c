"""What people see of a long command: a line that is renewed on a terminal, a line every 15 s elsewhere, and whole lines of all else."""

from __future__ import annotations

import io
import re
import threading

import pytest

from sidecar.commands import progress
from sidecar.commands.progress import Far, Line, in_words
from tests.harness.clock import Clock


class Terminal(io.StringIO):
    """What would be on it: a carriage return goes back to the beginning of the line, and the sequence that follows it here erases that."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        return [line.rpartition("\r\x1b[K")[2] for line in self.getvalue().split("\n")]


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


def a_line(stream: io.StringIO, clock: Clock, far: Far) -> Line:
    return Line(lambda: far, name="image", stream=stream, clock=clock)


def looked(line: Line, clock: Clock, *, seconds: int) -> None:
    """Ten looks a second."""
    for _ in range(10 * seconds):
        clock.now += 0.1
        line.look()


@pytest.mark.parametrize(
    ("far", "text"),
    [
        (Far("x", share=0.25), "image: 25 %, 10 s so far, about 30 s left: x"),
        (Far("x", share=0.0), "image: 0 %, 10 s so far: x"),
        (Far("x", share=1.0), "image: 100 %, 10 s so far, about 0 s left: x"),
        (Far("x", seconds=40.0), "image: 10 s so far, about 30 s left: x"),
        (Far("x", seconds=8.0), "image: 10 s so far, longer than the 8 s it should take: x"),
        (Far("x"), "image: 10 s so far: x"),
    ],
)
def test_what_is_said_of_the_time_that_is_left(far: Far, text: str, clock: Clock) -> None:
    line = a_line(io.StringIO(), clock, far)
    clock.now += 10.0
    assert line.text() == text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (7380, "2 h 3 min")],
)
def test_times_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_a_log_gets_a_line_every_15_seconds_and_none_of_a_command_that_is_quick(clock: Clock) -> None:
    log = io.StringIO()
    line = a_line(log, clock, Far("x"))
    looked(line, clock, seconds=14)
    line.clear()
    assert log.getvalue() == ""
    looked(line, clock, seconds=32)
    assert log.getvalue() == "image: 15 s so far: x\nimage: 30 s so far: x\nimage: 45 s so far: x\n"


def test_a_terminal_has_one_line_that_goes_when_all_is_done(clock: Clock) -> None:
    terminal = Terminal()
    line = a_line(terminal, clock, Far("x", seconds=60.0))
    looked(line, clock, seconds=20)
    assert terminal.screen == ["image: 20 s so far, about 40 s left: x"]
    assert 30 <= terminal.getvalue().count("\r") <= 40  # twice a second
    line.clear()
    assert terminal.screen == [""]


def test_a_line_never_goes_beyond_the_terminal(clock: Clock) -> None:
    """It would take two lines, of which only one could be renewed."""
    terminal = Terminal()
    line = a_line(terminal, clock, Far("many words " * 20))
    looked(line, clock, seconds=1)
    assert len(terminal.screen[0]) == 79


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_else_is_said_stands_in_lines_of_its_own(stream: type[io.StringIO], clock: Clock) -> None:
    shared = stream()
    with progress.shown(lambda: Far("x"), name="image", stream=shared, clock=clock) as line:
        looked(line, clock, seconds=16)
        progress.write("something\n", stream=shared)
        looked(line, clock, seconds=16)
    found = shared.screen if isinstance(shared, Terminal) else shared.getvalue().split("\n")
    assert [text for text in found if text and not text.endswith(" so far: x")] == ["something"]
    assert found[-1] == ""


def test_a_failure_leaves_no_line_behind(clock: Clock) -> None:
    terminal = Terminal()
    with pytest.raises(ZeroDivisionError), progress.shown(lambda: Far("x"), name="image", stream=terminal, clock=clock) as line:
        looked(line, clock, seconds=1)
        raise ZeroDivisionError
    assert terminal.screen == [""]


def test_another_program_has_the_terminal_for_itself(clock: Clock) -> None:
    terminal = Terminal()
    with progress.shown(lambda: Far("x"), name="image", stream=terminal, clock=clock) as line:
        looked(line, clock, seconds=1)
        with progress.silent():
            assert terminal.screen == [""]
    assert terminal.screen == [""]


def test_the_inner_command_is_shown_and_then_the_outer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the threads that look, as fast as they can."""
    monkeypatch.setattr(progress, "RENEWED", 0.001)
    terminal = Terminal()
    told = {"outer": threading.Event(), "inner": threading.Event()}

    def far(name: str) -> Far:
        told[name].set()
        return Far(name)

    with progress.shown(lambda: far("outer"), name="a", stream=terminal):
        assert told["outer"].wait(10)
        with progress.shown(lambda: far("inner"), name="b", stream=terminal):
            assert told["inner"].wait(10)
            told["outer"].clear()
            told["inner"].clear()
            assert told["inner"].wait(10) and not told["outer"].is_set()
        assert told["outer"].wait(10)
    assert terminal.screen == [""] and re.search("a: .*outer.*b: .*inner.*a: .*outer", terminal.getvalue(), re.DOTALL)
