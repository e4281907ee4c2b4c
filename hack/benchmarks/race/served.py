"""What the API server has counted for everybody, as its page of metrics has it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_SERIES: Final = re.compile(r"^(apiserver_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_OFFERED: Final = ("cluster", "namespace")
"""Scopes of watches. One of a single object is found by that object's name, and is offered no other."""


@dataclass(frozen=True)
class Served:
    """Since the server started, or since an earlier look at it."""

    requests: int
    """Without watches, which it counts when they end."""
    refused: int
    """Answers of 429."""
    watch_events: int
    """Sent, one for each watcher; bookmarks too."""
    watch_bytes: int = 0
    """Of these events, before TLS."""
    answer_bytes: int = 0
    """Of what was answered to GET and to lists, as compressed as it was sent."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """By kind: changes of objects, each offered to every watch of the kind."""
    watches: Mapping[str, int] = field(default_factory=dict)
    """By kind: those that are open now."""

    @property
    def offered(self) -> int:
        """Changes that a watch was offered, whether its selector then let them through or not; one for each watch."""
        return sum(number * self.watches.get(kind, 0) for kind, number in self.changes.items())

    @property
    def filtered(self) -> int:
        """Offered, and not sent. Bookmarks are sent and not offered, so of a cluster at rest this says nothing."""
        return max(0, self.offered - self.watch_events)

    def since(self, earlier: Served) -> Served:
        return Served(
            self.requests - earlier.requests,
            self.refused - earlier.refused,
            self.watch_events - earlier.watch_events,
            self.watch_bytes - earlier.watch_bytes,
            self.answer_bytes - earlier.answer_bytes,
            {kind: number - earlier.changes.get(kind, 0) for kind, number in self.changes.items()},
            self.watches,
        )


def served(metrics: str) -> Served:
    """From the API server's page of metrics."""
    sums: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    watches: Counter[str] = Counter()
    for name, labels, number in _series(metrics):
        match name:
            case "apiserver_request_total":
                sums["requests"] += number if labels.get("verb") != "WATCH" else 0
                sums["refused"] += number if labels.get("code") == "429" else 0
            # A watch is counted there once more, when it ends.
            case "apiserver_response_sizes_sum" if labels.get("resource") and labels.get("verb") != "WATCH":
                sums[name] += number
            case "apiserver_watch_cache_events_received_total":
                changes[_kind(labels)] += number
            case "apiserver_longrunning_requests" if labels.get("verb") == "WATCH" and labels.get("scope") in _OFFERED:
                watches[_kind(labels)] += number
            case "apiserver_watch_events_total" | "apiserver_watch_events_sizes_sum":
                sums[name] += number
            case _:
                pass
    return Served(
        sums["requests"],
        sums["refused"],
        sums["apiserver_watch_events_total"],
        sums["apiserver_watch_events_sizes_sum"],
        sums["apiserver_response_sizes_sum"],
        dict(changes),
        dict(watches),
    )


def _series(metrics: str) -> Iterator[tuple[str, Mapping[str, str], int]]:
    for name, labels, number in _SERIES.findall(metrics):
        yield name, dict(_LABEL.findall(labels)), int(float(number))


def _kind(labels: Mapping[str, str]) -> str:
    return ".".join(filter(None, (labels["resource"], labels["group"])))
