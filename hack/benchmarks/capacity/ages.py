"""How old a published figure was: what the driver recorded, what the API server logged and what a watcher saw, put on one time line.

A change is fresh again with the first write whose GetCapacity began after it. Everything here is a time in seconds of one wall clock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """One GetCapacity that the driver answered."""

    began: float
    ended: float
    available: int


@dataclass(frozen=True)
class Driven:
    """One turn as the driver saw it."""

    created: tuple[float, ...]
    deleted: tuple[float, ...]
    measurements: tuple[Measurement, ...]
    """In the order in which they ended."""

    @property
    def changes(self) -> list[float]:
        return sorted((*self.created, *self.deleted))


@dataclass(frozen=True)
class Sighting:
    """One version of a capacity object, as a watcher got it."""

    arrived: float
    resource_version: str
    available: int


@dataclass(frozen=True)
class Write:
    """One version of a capacity object, with what it came from."""

    name: str
    received: float
    """When the API server had the request."""
    arrived: float
    """When a watcher had the object."""
    available: int
    source: Measurement | None
    """The last one that had ended when the request came: each object has one worker, which measures and then writes."""

    @property
    def tells_the_answer(self) -> bool:
        """False when the program published another figure than the driver's, because it knows of space that is promised."""
        return self.source is not None and self.source.available == self.available


def driven(calls: Iterable[Json], states: Iterable[Json], *, pool: int) -> Driven:
    """From the served driver's two journals: its calls, and its volumes.

    The driver does one thing at a time and writes the end of a call together with its effect, so the order of ends is the order of effects.
    """
    volumes = {line["volume"]["name"]: line["volume"] for line in states if line["op"] == "create"}
    name_of = {volume["id"]: name for name, volume in volumes.items()}
    created: list[float] = []
    deleted: list[float] = []
    measurements: list[Measurement] = []
    alive: set[str] = set()
    free = pool
    for began, ended, method, name in _answered(calls):
        if method == "GetCapacity":
            measurements.append(Measurement(began, ended, free))
        elif method == "CreateVolume" and name not in alive:
            alive.add(name)
            free -= int(volumes[name]["bytes"])
            created.append(ended)
        elif method == "DeleteVolume" and (gone := name_of.get(name)) in alive:
            alive.discard(gone)
            free += int(volumes[gone]["bytes"])
            deleted.append(ended)
    return Driven(tuple(created), tuple(deleted), tuple(measurements))


def _answered(calls: Iterable[Json]) -> Iterator[tuple[float, float, str, str]]:
    """Calls that succeeded, in the order of their ends: each has a line at its beginning and one at its end."""
    begun: dict[str, Json] = {}
    for line in calls:
        if "code" not in line:
            begun[line["id"]] = line
        elif line["code"] == "OK":
            call = begun[line["id"]]
            yield call["at"], call["at"] + line["seconds"], call["method"], call["name"]


def writes(requests: Iterable[Json], sightings: Iterable[Sighting], measurements: Sequence[Measurement]) -> list[Write]:
    """`requests` are events of the audit log in which the program created or changed a capacity object, with the answer."""
    seen = {sighting.resource_version: sighting for sighting in sightings}
    found = []
    for event in requests:
        meta = event["responseObject"]["metadata"]
        sighting = seen.get(meta["resourceVersion"])
        if sighting is None:  # after the watcher had left
            continue
        received = seconds_of(event["requestReceivedTimestamp"])
        before = bisect_right(measurements, received, key=attrgetter("ended"))
        source = measurements[before - 1] if before else None
        # A request that changes nothing is answered with the version that was there, and seen, before.
        found.append(Write(meta["name"], received, max(received, sighting.arrived), sighting.available, source))
    return sorted(found, key=attrgetter("arrived"))


def ages(changes: Iterable[float], written: Sequence[Write], measurements: Sequence[Measurement]) -> list[float]:
    """For each change, how long the figure did not take it into account; infinite if it never did."""
    proofs = sorted((*_by_writes(written), *_by_silence(written, measurements)))
    begins = [began for began, _ in proofs]
    # The earliest proof among this one and all that began later.
    earliest = list(accumulate(reversed([at for _, at in proofs]), min))[::-1]
    found = []
    for change in changes:
        first = bisect_left(begins, change)
        found.append(earliest[first] - change if first < len(proofs) else math.inf)
    return found


def _by_writes(written: Iterable[Write]) -> Iterator[tuple[float, float]]:
    for write in written:
        if write.source is not None:
            yield write.source.began, write.arrived


def _by_silence(written: Sequence[Write], measurements: Iterable[Measurement]) -> Iterator[tuple[float, float]]:
    """What is published is what the driver says: nothing has to be written."""
    for measurement in measurements:
        before = bisect_right(written, measurement.ended, key=attrgetter("arrived"))
        if before and written[before - 1].available == measurement.available:
            yield measurement.began, measurement.ended


def most_within(times: Iterable[float], seconds: float) -> int:
    """The most of these that any stretch of that length holds, its end not included."""
    ordered = sorted(times)
    return max((bisect_left(ordered, first + seconds) - number for number, first in enumerate(ordered)), default=0)


def percentile(values: Iterable[float], share: float) -> float:
    """By nearest rank: a value that really occurred."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def seconds_of(timestamp: str) -> float:
    """An API server's time with microseconds, as `time.time` counts."""
    return datetime.fromisoformat(timestamp).timestamp()
