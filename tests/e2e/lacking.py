"""A sidecar that lacks one right of its role, and what it says of that."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hack.lib.patience import deadline
from hack.lib.programs import OurDriver, Process, Sidecar
from sidecar.rights.rights import Right
from tests.e2e.accounts import Rules
from tests.e2e.conftest import Cluster
from tests.e2e.rights_stories import UNUSED, Lack

WATCHED = 5.0
"""Seconds in which it has to be calm."""
A_SECOND = 4
"""Requests and lines of the log that are calm."""


@dataclass(frozen=True)
class Spent:
    requests: float
    lines: float
    cpu: float

    def since(self, earlier: Spent) -> Spent:
        return Spent(self.requests - earlier.requests, self.lines - earlier.lines, self.cpu - earlier.cpu)

    @property
    def is_calm(self) -> bool:
        return max(self.requests, self.lines) <= A_SECOND * WATCHED and self.cpu < WATCHED / 5


@dataclass(frozen=True)
class Outcome:
    """What became of a sidecar without a right."""

    off: frozenset[str]
    healthy: bool
    spent: Spent
    told: tuple[str, ...]
    code: int
    log: str = field(repr=False)

    def check(self, lack: Lack) -> None:
        """Neither a hang nor a loop, a line that names the right, and nothing else off than is said of it."""
        assert self.healthy and self.code == 0, self
        assert self.spent.is_calm, self
        assert self.off - lack.either == lack.off, (self, self.log)
        assert lack.told is None or bool(self.told) == lack.told, (self, self.log)


def without(right: Right, rules: Rules) -> Rules:
    """These rules, but for one verb on one kind."""
    plural = right.resource.plural + (f"/{right.subresource}" if right.subresource else "")
    found: Rules = []
    for rule in rules:
        for resource in rule["resources"]:
            is_meant = resource == plural and right.resource.group in rule["apiGroups"]
            verbs = [verb for verb in rule["verbs"] if not (is_meant and verb == right.verb)]
            found.append({**rule, "resources": [resource], "verbs": verbs})
    return [rule for rule in found if rule["verbs"]]


def naming(right: Right, lines: Iterable[str]) -> tuple[str, ...]:
    """Those of these lines that name the right."""
    plural, sub = right.resource.plural, f"/{right.subresource}" if right.subresource else ""
    named = (f"{right.verb} on {plural}{sub}", f'cannot {right.verb} resource "{plural}{sub}"', str(right))
    escaped = named[1].replace('"', '\\"')
    return tuple(line for line in lines if any(text in line for text in (*named, escaped)))


class Lacking:
    """One sidecar with driver and node of its own, which lacks one right."""

    def __init__(self, cluster: Cluster, right: Right, name: str, driver: OurDriver, sidecar: Sidecar, *, lack: Lack = UNUSED) -> None:
        self.cluster, self.right, self.name, self.driver, self.sidecar = cluster, right, name, driver, sidecar
        self.lack = lack
        self.seen: set[str] = set()
        """What has worked so far."""

    @property
    def lives(self) -> bool:
        return self.sidecar.child.poll() is None

    def start(self) -> None:
        Process.start(self.driver)  # nobody waits for it here: the sidecar does
        self.sidecar.start()

    def answers(self) -> bool:
        return not self.lives or self.sidecar.page("/healthz")[0] == 200

    def spent(self) -> Spent:
        if not self.lives:
            return Spent(0.0, 0.0, 0.0)
        requests = self.sidecar.metric("csi_node_sidecar_api_requests_total")
        return Spent(requests, float(len(self.sidecar.records())), self.sidecar.cpu_seconds())

    def told(self, *about: str) -> tuple[str, ...]:
        """In its log, in /readyz, or in events about objects of these names."""
        log = [line for line in self.sidecar.records() if '"Decided"' not in line]
        events = [f"{item['reason']} {item['message']}" for name in about for item in self.cluster.events(name)]
        return naming(self.right, (*log, *self.sidecar.page("/readyz?verbose")[1].splitlines(), *events))

    def shown(self, stored: Any, stage: Sequence[str]) -> set[str]:
        """What works, by what is stored; only what the stage is about needs to be looked at."""
        raise NotImplementedError

    def outcome(self, every: Iterable[str], about: Sequence[str], spent: Spent) -> Outcome:
        """And it is asked to end. `about`: the objects whose events count."""
        healthy, told = self.lives and self.sidecar.page("/healthz")[0] == 200, self.told(*about)
        if self.lives:
            self.sidecar.signal(signal.SIGTERM)
        code = self.sidecar.wait()
        log = "\n".join(line for line in self.sidecar.records() if '"Decided"' not in line)
        return Outcome(frozenset(every) - self.seen, healthy, spent, told, code, log)


def watch(these: Sequence[Lacking], stored: Callable[[], object], stage: Sequence[str]) -> None:
    """Until all is seen that should be, and the rest might have been."""
    wanted, end, all_seen = {*stage}, deadline(60), 0
    while all_seen < 3 and time.monotonic() < end:
        now = stored()
        for one in these:
            one.seen |= one.shown(now, stage) & wanted
        all_seen += all(wanted - one.lack.off - one.lack.either <= one.seen for one in these)
        time.sleep(0.7)


def calm(these: Sequence[Lacking]) -> list[Spent]:
    """What each spends while nothing happens."""
    before = [one.spent() for one in these]
    time.sleep(WATCHED)
    return [one.spent().since(early) for one, early in zip(these, before, strict=True)]
