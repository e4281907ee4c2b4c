"""Tables of what it costs the API server: for each volume, while nothing happens, and when all instances are replaced."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.scale.names import NAMES
from hack.benchmarks.scale.upkeep import Upkeep

VOLUME = (
    "API server: CPU ms",
    "own requests",
    "everybody's requests",
    "watch events",
    "events offered and filtered",
    "watches, kB",
    "answers, kB",
)
REST = (
    "s",
    "own requests/s",
    "everybody's requests/s",
    "watch events/s",
    "watches, kB/s",
    "answers, kB/s",
    "API server: CPU, m",
    "CPU per sidecar, m",
)
ROLL = (
    "at once",
    "s",
    "synced p50 / max s",
    "CPU s until synced",
    "own requests",
    "watches ended",
    "answers, kB",
    "watches, kB",
    "API server: CPU ms",
)
FOOTNOTE = (
    "Watch events are those of all watchers, bookmarks too. Offered and filtered: every watch of a kind is offered every change of it, and "
    "its selector drops most; reckoned from changes and watches of each kind. Watches: bytes of events, before TLS. Answers: bytes of what "
    "was answered to GET and to lists, as compressed as it was sent. Own requests are the programs', watches left out; all else is "
    "everybody's, so the row of the one program for the cluster says what controllers, kwok and observer take in any case."
)


def tables(measurements: Iterable[Measurement], upkeep: Iterable[Upkeep]) -> str:
    """Markdown. What was not measured has no table."""
    upkeep = list(upkeep)
    found = [
        ("For each volume:", ("claims", *VOLUME), [_volume(item) for item in measurements]),
        ("At rest:", ("volumes", *REST), [_rest(item) for item in upkeep if item.phase == "rest"]),
        (
            "Per roll; from *own requests* on, for each instance that is replaced:",
            ("volumes", *ROLL),
            [_roll(item) for item in upkeep if item.phase == "roll"],
        ),
    ]
    shown = [f"{title}\n\n{_table(columns, rows)}" for title, columns, rows in found if rows]
    return "\n\n".join((*shown, FOOTNOTE)) if shown else ""


def line(item: Upkeep) -> str:
    """As soon as it is over."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in item.requests_by_kind.items())
    cpu = ", ".join(f"{part} {seconds:.1f}" for part, seconds in item.expense.cpu.items())
    return (
        f"{item.program} on {item.nodes}, {item.phase} beside {item.volumes} volumes: {item.expense.seconds:.0f} s, {item.watches} watches "
        f"ended, CPU s: {cpu}, others {item.expense.others:.1f} cores; {kinds or 'no requests'}"
    )


def _volume(item: Measurement) -> list[str]:
    served, volumes = item.expense.served, item.written or math.nan
    figures = (
        (1000 * item.expense.cpu["kube-apiserver"], 1),
        (item.requests, 2),
        (served.requests, 1),
        (served.watch_events, 0),
        (served.filtered, 0),
        (served.watch_bytes / 1000, 1),
        (served.answer_bytes / 1000, 1),
    )
    return [*_who(item), str(item.claims), *(_number(value / volumes, digits) for value, digits in figures)]


def _rest(item: Upkeep) -> list[str]:
    spent, served = item.expense, item.expense.served
    figures = (
        (item.requests, 2),
        (served.requests, 1),
        (served.watch_events, 1),
        (served.watch_bytes / 1000, 1),
        (served.answer_bytes / 1000, 1),
        (1000 * spent.cpu["kube-apiserver"], 0),
        (1000 * spent.cpu["instances"] / item.instances, 1),
    )
    return [
        *_who(item),
        str(item.volumes),
        _number(spent.seconds, 0),
        *(_number(value / spent.seconds, digits) for value, digits in figures),
    ]


def _roll(item: Upkeep) -> list[str]:
    served, times = item.expense.served, [start.synced for start in item.starts]
    figures = (
        (item.requests, 1),
        (item.watches, 1),
        (served.answer_bytes / 1000, 1),
        (served.watch_bytes / 1000, 1),
        (1000 * item.expense.cpu["kube-apiserver"], 0),
    )
    return [
        *_who(item),
        str(item.volumes),
        str(item.at_once),
        _number(item.expense.seconds, 0),
        f"{statistics.median(times):.2f} / {max(times):.2f}",
        _number(statistics.fmean(start.cpu for start in item.starts), 2),
        *(_number(value / len(item.starts), digits) for value, digits in figures),
    ]


def _who(item: Measurement | Upkeep) -> tuple[str, ...]:
    return str(item.nodes), NAMES[item.program], item.phase


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = ("nodes", "program", "phase", *columns)
    rules = ("--:", "---", "---", *("--:" for _ in columns))
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rules, *rows))


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}" if math.isfinite(value) else "-"
