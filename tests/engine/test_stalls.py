import asyncio
import time

import pytest

from sidecar.engine import stalls
from sidecar.engine.stalls import PERIOD, Stalls


class Seen:
    def __init__(self) -> None:
        self.moments: list[tuple[float, float]] = []
        self.stalls: list[tuple[float, float]] = []

    def stalled(self, whole: float, own: float, moments: int = 1) -> None:
        self.moments += [(whole, own)] * moments

    def stood_still(self, whole: float, own: float) -> None:
        self.stalls.append((whole, own))


class Machine:
    """A clock, and for how long the thread has waited for a processor."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.now = 100.0
        self.waited = 7.0
        self.watched = Stalls(self.seen, clock=lambda: self.now, waited=lambda: self.waited)

    def works(self, seconds: float, *, waits: float = 0.0) -> None:
        """Of which it waits for a processor for so long."""
        self.now += seconds
        self.waited += waits
        self.watched.ends()
        self.watched.begins()

    def sleeps(self, seconds: float, *, waits: float = 0.0) -> None:
        """Until something happens, and then waits for a processor."""
        self.watched.ends()
        self.now += seconds + waits
        self.waited += waits
        self.watched.begins()


def test_whoever_comes_within_a_stall_waits_for_its_end() -> None:
    machine = Machine()
    machine.sleeps(1.0)
    machine.works(0.3)
    machine.sleeps(1.0)
    machine.works(0.001)
    late = [whole for whole, _ in machine.seen.moments if whole > 0.001]
    assert machine.seen.stalls == [(pytest.approx(0.3), pytest.approx(0.3))]
    assert len(late) == pytest.approx(30, abs=1)
    assert max(late) == pytest.approx(0.295, abs=0.006)
    assert sum(late) / len(late) == pytest.approx(0.15, abs=0.01), "as many moments early in it as late"
    assert len(machine.seen.moments) == pytest.approx(2.3 / PERIOD, abs=2), "each moment counts once, and those of idle times too"


def test_a_stall_without_a_processor_is_not_the_programs_own() -> None:
    machine = Machine()
    machine.works(0.4, waits=0.3)
    assert machine.seen.stalls == [(pytest.approx(0.4), pytest.approx(0.1))]
    assert max(own for _, own in machine.seen.moments) == pytest.approx(0.1)
    assert max(whole for whole, _ in machine.seen.moments) == pytest.approx(0.39)


def test_a_real_loop_that_stands_still_is_measured() -> None:
    """What sleeps had the processor if it wanted, so it is the program's own."""

    async def main() -> None:
        await asyncio.sleep(0.02)
        time.sleep(0.15)  # noqa: ASYNC251 - which is what must not happen
        await asyncio.sleep(0.02)

    seen = Seen()
    with asyncio.Runner(loop_factory=lambda: stalls.new_loop(seen)) as runner:
        runner.run(main())
    whole, own = max(seen.stalls)
    assert 0.15 <= own + 0.02 <= whole + 0.02
    assert max(late for late, _ in seen.moments) > 0.13


def test_what_the_kernel_does_not_tell_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(stalls.os, "open", missing)
    assert stalls._processor_waits()() == 0.0
