"""For how long the event loops of our programs stood still, as each says itself on its page of metrics, and how long is too long.

A stall is judged without the time that its thread waited for a processor: what else runs on the machine is no fault of the program.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hack.lib.programs import Process, Sidecar

MOST: Final = 0.25
"""Seconds, for each stall."""
USUAL_MOST: Final = 0.05
USUAL: Final = 0.999
"""The share of all moments at which whoever comes waits no longer than that."""
RULE: Final = f"{1000 * USUAL_MOST:g} ms at p{100 * USUAL:g} and {1000 * MOST:g} ms at most"

_OWN: Final = re.compile(r'^csi_node_sidecar_loop_stall_own_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
_LONGEST: Final = re.compile(r'^csi_node_sidecar_loop_longest_stall_seconds\{part="(\w+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Stalls:
    """Of one life or of several."""

    up_to: Mapping[float, float] = field(default_factory=dict)
    """For each bound, at how many moments whoever came waited no longer."""
    longest: float = 0.0
    wall: float = 0.0
    """The longest, with the time that it waited for a processor."""

    def __add__(self, other: Stalls) -> Stalls:
        bounds = self.up_to or other.up_to
        counts = {bound: self.up_to.get(bound, 0.0) + other.up_to.get(bound, 0.0) for bound in bounds}
        return Stalls(counts, max(self.longest, other.longest), max(self.wall, other.wall))

    @property
    def moments(self) -> float:
        return self.up_to.get(math.inf, 0.0)

    @property
    def usual(self) -> float:
        """The least bound that is not exceeded at p99.9; infinite if none is, or nothing was measured."""
        return next((bound for bound, count in sorted(self.up_to.items()) if self.moments and count >= USUAL * self.moments), math.inf)


def read(page: str) -> Stalls:
    """From a page of metrics."""
    longest = {part: float(seconds) for part, seconds in _LONGEST.findall(page)}
    bounds = {math.inf if bound == "+Inf" else float(bound): float(count) for bound, count in _OWN.findall(page)}
    return Stalls(bounds, longest.get("own", math.inf), longest.get("wall", math.inf))


def stalls_of(process: Sidecar) -> Stalls:
    """So far."""
    return read(process.page("/metrics")[1])


@dataclass(frozen=True)
class Lives:
    """All lives of our program in one bench. The peer's are left out: it tells nothing of the kind."""

    stalls: list[Stalls] = field(default_factory=list)

    def note(self, *processes: Process) -> None:
        """At the end of their lives."""
        self.stalls.extend(stalls_of(each) for each in processes if isinstance(each, Sidecar))

    def told(self) -> str:
        return told(total(self.stalls)) if self.stalls else ""

    def broken(self) -> list[str]:
        return list(broken_stalls(total(self.stalls))) if self.stalls else []


def total(lives: Iterable[Stalls]) -> Stalls:
    return sum(lives, Stalls())


def told(stalls: Stalls) -> str:
    return (
        f"Stalls of the event loop: at most {_bound(stalls)} at p{100 * USUAL:g} of {stalls.moments:.0f} moments, the longest "
        f"{1000 * stalls.longest:.0f} ms ({1000 * stalls.wall:.0f} ms with what it waited for a processor)."
    )


def broken_stalls(stalls: Stalls) -> Iterator[str]:
    if not stalls.moments:
        yield "the program has told no stalls"
        return
    if stalls.usual > USUAL_MOST:
        yield f"at p{100 * USUAL:g} the event loop stands still for up to {_bound(stalls)}, allowed are {1000 * USUAL_MOST:g} ms"
    if stalls.longest > MOST:
        yield f"the event loop stood still for {1000 * stalls.longest:.0f} ms, allowed are {1000 * MOST:g}"


def _bound(stalls: Stalls) -> str:
    return f"{1000 * stalls.usual:g} ms" if math.isfinite(stalls.usual) else "any time"
