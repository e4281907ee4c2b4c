"""What is said about a race: a line for each phase, one table for all, and which promises were not kept."""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.race.stage import Setting

COLUMNS = (
    "nodes",
    "program",
    "owner mean s",
    "p50 / p99 / max s",
    "conflicts per volume, steady",
    "requests per volume, steady",
    "burst: volumes/s written",
    "bound",
    "conflicts per volume",
    "requests per volume",
    "spread",
    "CPU ms per instance and volume",
    "API server CPU ms per volume",
    "fill: failed creations per volume",
    "of the last tenth",
    "left open",
    "MiB mean / max",
    "429s",
    "others' cores",
)


def line(item: Measurement) -> str:
    """As soon as a phase has ended."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in item.requests_by_kind.items())
    cpu = ", ".join(f"{part} {seconds:.1f}" for part, seconds in item.expense.cpu.items())
    return (
        f"{item.program} on {item.nodes}, {item.phase}: {item.bound} of {item.claims} bound in {item.until_bound:.1f} s "
        f"(last volume {item.until_written:.1f}), owner {item.owner_mean:.3f} ({_quantiles(item)}), {item.conflicts} conflicts, "
        f"{item.failed} failed ({item.late_failed} late), spread {item.spread:.2f}, CPU s: {cpu}, "
        f"others {item.expense.others:.1f} cores, load {item.expense.load:.1f}; {kinds}"
    )


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each program on each number of nodes."""
    rows = [f"| {' | '.join(COLUMNS)} |", f"|--:|---|{'--:|' * (len(COLUMNS) - 2)}"]
    for (nodes, program), turn in _turns(measurements).items():
        rows.append(f"| {' | '.join((str(nodes), program, *_cells(turn)))} |")
    return "\n".join(rows)


def _cells(turn: Mapping[str, Measurement]) -> list[str]:
    steady, burst, fill = turn["steady"], turn["burst"], turn.get("fill")
    return [
        _number(steady.owner_mean, 3),
        _quantiles(steady),
        _per(steady.conflicts, steady.written, 3),
        _per(steady.requests, steady.written, 2),
        _number(burst.written / burst.until_written, 1),
        _number(burst.bound / burst.until_bound, 1),
        _per(burst.conflicts, burst.written, 3),
        _per(burst.requests, burst.written, 2),
        _number(burst.spread, 2),
        _number(1000 * burst.cpu_each, 2),
        _per(1000 * burst.expense.cpu["kube-apiserver"], burst.written, 1),
        _per(fill.failed, fill.written, 3) if fill else "-",
        _per(fill.late_failed, fill.late, 3) if fill else "-",
        str(fill.claims - fill.bound) if fill else "-",
        f"{statistics.fmean(burst.expense.resident):.0f} / {max(burst.expense.resident):.0f}",
        str(sum(item.expense.served.refused for item in turn.values())),
        " / ".join(f"{item.expense.others:.1f}" for item in turn.values()),
    ]


def footnotes(arguments: argparse.Namespace, measurements: Iterable[Measurement], setting: Setting) -> str:
    loads = [item.expense.load for item in measurements]
    return "\n".join(
        [
            f"Steady: {arguments.steady} claims at {arguments.rate:g} a second; owner is the time from the storage-provisioner annotation "
            "to the selected-node annotation, both as one observer's watch brought them. "
            f"Burst: {arguments.claims} claims, from the first one's creation to the last volume or binding. "
            f"Fill: {arguments.fill} claims for each node at once, all that fits into the pools.",
            f"All with {' '.join(setting.flags)}, no published capacity, base delay {arguments.base_delay or '20s'}, and drivers that take "
            f"{setting.latency:g} s for CreateVolume. Requests and conflicts are the programs' own, by the audit log, watches left out; "
            "failed creations by the drivers' record; 429s are everybody's.",
            f"{os.cpu_count()} CPUs are shared by all instances, etcd, kube-apiserver, kube-controller-manager, drivers and observer; "
            f"others' cores is what was busy besides (by phase), the load average went from {min(loads):.1f} to {max(loads):.1f}.",
        ]
    )


# --- promises ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """A figure of one phase, and the most it may be: a number, or a multiple of what another program has in the same phase."""

    program: str
    phase: str
    name: str
    of: Callable[[Measurement], float]
    most: float
    beside: str = ""
    """The other program, if it is a multiple."""
    nodes: int | None = None
    """Only there."""
    claims: int = 0
    """With fewer than these the dice alone may break it."""

    def allowed(self, item: Measurement, others: Mapping[tuple[str, int, str], Measurement]) -> float:
        other = others.get((self.beside, item.nodes, item.phase))
        if self.beside:
            return self.most * self.of(other) if other else math.inf
        return self.most


def _owner(item: Measurement) -> float:
    return item.owner_mean


def _conflicts(item: Measurement) -> float:
    return item.conflicts / item.claims


def _failed(item: Measurement) -> float:
    return item.failed / item.claims


def _seconds(item: Measurement) -> float:
    """Until the volumes are written: to bind them is the volume controller's work, which takes its time for all programs alike."""
    return item.until_written / item.written if item.written else math.inf


def _cpu(item: Measurement) -> float:
    return item.cpu_each


def _spread(item: Measurement) -> float:
    return item.spread


def _open(item: Measurement) -> float:
    return item.claims - item.bound


LIMITS = (
    Limit("ours-ranked", "steady", "seconds to an owner", _owner, 0.15),
    Limit("ours-ranked", "steady", "conflicts per volume", _conflicts, 0.01),
    Limit("ours-ranked", "burst", "conflicts per volume", _conflicts, 0.05),
    Limit("ours-ranked", "burst", "seconds per volume", _seconds, 1 / 3, beside="peer", nodes=30),
    Limit("ours-ranked", "burst", "seconds per volume", _seconds, 1.0, beside="peer-central"),
    Limit("ours-ranked", "burst", "CPU seconds per instance and volume", _cpu, 1.0, beside="peer"),
    Limit("ours-ranked", "burst", "spread", _spread, 1.3, nodes=10, claims=1000),
    Limit("ours-ranked", "fill", "failed creations per volume", _failed, 0.02),
    Limit("ours-ranked", "fill", "claims left open", _open, 0),
    Limit("ours-random", "fill", "claims left open", _open, 0),
    Limit("ours-random", "steady", "seconds to an owner", _owner, 1.1, beside="peer", claims=400),
    Limit("ours-random", "burst", "conflicts per volume", _conflicts, 1.1, beside="peer"),
    Limit("ours-random", "fill", "failed creations per volume", _failed, 1.0, beside="peer"),
)


def broken_limits(measurements: Iterable[Measurement]) -> list[str]:
    of = {(item.program, item.nodes, item.phase): item for item in measurements}
    broken = []
    for limit in LIMITS:
        for (program, nodes, phase), item in of.items():
            if (program, phase) != (limit.program, limit.phase) or limit.nodes not in (None, nodes) or item.claims < limit.claims:
                continue
            figure, most = limit.of(item), limit.allowed(item, of)
            if not figure <= most:
                whose = f", {limit.most:.2g} of what {limit.beside} has" if limit.beside else ""
                broken.append(f"{program} on {nodes} nodes, {phase}: {limit.name} {figure:.4f}, the limit is {most:.4f}{whose}")
    return broken


def _turns(measurements: Iterable[Measurement]) -> dict[tuple[int, str], dict[str, Measurement]]:
    turns: dict[tuple[int, str], dict[str, Measurement]] = {}
    for item in measurements:
        turns.setdefault((item.nodes, item.program), {})[item.phase] = item
    return turns


def _quantiles(item: Measurement) -> str:
    return " / ".join(_number(value, 2) for value in (item.owner_p50, item.owner_p99, item.owner_max))


def _per(count: float, volumes: int, digits: int) -> str:
    return _number(count / volumes if volumes else math.nan, digits)


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
