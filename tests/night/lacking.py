"""A role is taken one right, on a real authorizer: what is off then, and that the program stays calm and says which right it is.

Rows of a table are played at once: each has a driver, a node, an account and a sidecar of its own. A story has stages; in each of them
somebody changes something, and then some words come true of every row that has its rights.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from hack.lib.patience import deadline
from hack.lib.programs import OurDriver, Sidecar
from sidecar.rights.rights import Right
from tests.harness.accounts import Role, account, naming
from tests.harness.cluster import Cluster

A_SECOND = 4
"""Requests and lines of the log that are calm, by the clock of the program."""


@dataclass(frozen=True)
class Row:
    """What is off without a right. `late`: works or not, by when the watch that is refused lists anew."""

    right: Right
    off: frozenset[str] = frozenset()
    told: bool | None = True
    """The lack shows, and is named; None: where a watch is late."""
    late: frozenset[str] = frozenset()
    also: tuple[Right, ...] = ()
    """Taken away together with it."""
    ends: bool = False
    """The program does not start without it."""


def row(right: Right, *off: str, **more: object) -> Row:
    return Row(right, frozenset(off), **more)  # type: ignore[arg-type]


S = TypeVar("S")


@dataclass
class Played(Generic[S]):
    """One row with its programs; `shown` says which words are true of what the API server has stored."""

    row: Row
    name: str
    driver: OurDriver
    sidecar: Sidecar
    shown: Callable[[S], set[str]]
    seen: set[str] = field(default_factory=set)

    @property
    def lives(self) -> bool:
        return self.sidecar.child.poll() is None

    def told(self, cluster: Cluster, *about: str) -> tuple[str, ...]:
        """In its log, in /readyz, or in events about objects of these names."""
        log = [line for line in self.sidecar.records() if '"Decided"' not in line]
        events = [f"{item['reason']} {item['message']}" for name in about for item in cluster.events(name)]
        return naming(self.row.right, (*log, *self.sidecar.page("/readyz?verbose")[1].splitlines(), *events))

    def spent(self) -> tuple[float, int, float]:
        """Requests, lines of the log, seconds of the processor."""
        requests = self.sidecar.metric("csi_node_sidecar_api_requests_total")
        return requests, len(self.sidecar.records()), self.sidecar.cost().cpu

    def wrong(self, cluster: Cluster, every: Iterable[str], about: Iterable[str]) -> list[str]:
        """What is not as the row says."""
        told, want = self.told(cluster, *about), self.row
        if want.ends:
            return [] if (self.sidecar.wait(), len(told)) == (1, 1) else [f"without {want.right} it does not end, and say so once: {told}"]
        if not self.lives or self.sidecar.page("/healthz")[0] != 200:
            return [f"without {want.right} it is not well: {self.sidecar.output()[-2000:]}"]
        off = frozenset(every) - self.seen - want.late
        found = [f"without {want.right} is off: {sorted(off)}, and should be: {sorted(want.off)}; told: {told}"] if off != want.off else []
        found += [f"without {want.right} is told: {told}"] if want.told is not None and bool(told) != want.told else []
        self.sidecar.signal(signal.SIGTERM)
        return found if self.sidecar.wait() == 0 else [*found, f"without {want.right} it ends badly: {self.sidecar.output()[-2000:]}"]


@contextmanager
def played(
    cluster: Cluster, rows: Sequence[Row], role: Role, make: Callable[[Row, str, Path], Played[S]], *, prefix: str
) -> Iterator[list[Played[S]]]:
    """Each under an account without its right; what they start, ends."""
    with ExitStack() as stack:
        these = []
        for number, each in enumerate(rows):
            name, granted = f"{prefix}{number}", role.without(each.right, *each.also)
            one = make(each, name, stack.enter_context(account(cluster, name, granted)))
            stack.enter_context(one.driver)
            stack.enter_context(one.sidecar)
            these.append(one)
        yield these


def watch(these: Sequence[Played[S]], stored: Callable[[], S], words: Iterable[str]) -> None:
    """Until all is seen that should be, three times, so that the rest might have been: the neighbours show that it comes."""
    wanted, end, all_seen = {*words}, deadline(), 0
    while all_seen < 3 and time.monotonic() < end:
        now = stored()
        for one in these:
            one.seen |= one.shown(now) & wanted
        all_seen += all(wanted - one.row.off - one.row.late <= one.seen for one in these if not one.row.ends)
        time.sleep(0.7)


def stay_calm(these: Sequence[Played[S]], *, speed: float = 1.0) -> None:
    """While nothing happens: neither a loop nor a flood of requests or lines."""
    living = [one for one in these if one.lives]
    before, began = [one.spent() for one in living], time.monotonic()
    time.sleep(5.0)
    for one, (requests, lines, cpu) in zip(living, before, strict=True):
        now, passed = one.spent(), time.monotonic() - began
        spent, told = max(now[0] - requests, now[1] - lines), (one.row.right, now, passed)
        assert spent <= A_SECOND * passed * speed and now[2] - cpu < passed / 5, told


def check(these: Sequence[Played[S]], cluster: Cluster, every: Iterable[str], *about: str) -> None:
    """All rows, and not only the first that is wrong. `about`: prefixes of names of objects whose events tell of a lack too."""
    wrong = [each for one in these for each in one.wrong(cluster, every, [f"{prefix}{one.name}" for prefix in about or ("",)])]
    assert not wrong, "\n".join(wrong)
