"""What is said about a large cluster: a table of all phases, one beside the published figures, and what stands below them."""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hack.benchmarks.race.judge import Measurement
from hack.benchmarks.race.stage import FLAGS
from hack.benchmarks.scale import costs
from hack.benchmarks.scale.names import CENTRAL, NAMES
from hack.benchmarks.scale.upkeep import Upkeep

COLUMNS = (
    "nodes",
    "program",
    "phase",
    "claims",
    "volumes/s written",
    "bound",
    "owner p50 / p99 / max s",
    "conflicts per volume",
    "requests per volume",
    "CPU per sidecar, m",
    "CPU ms per sidecar and volume",
    "MiB per sidecar, mean / max",
    "API server: cores",
    "requests/s",
    "watch events/s",
    "429s",
    "left open",
    "others' cores",
)
BESIDE = (
    "",
    "nodes",
    "volumes/s bound, distributed",
    "central",
    "distributed / central",
    "CPU per sidecar, m",
    "CPU ms per sidecar and volume",
    "MiB per sidecar",
)


@dataclass(frozen=True)
class Published:
    """kubernetes/perf-tests, adhoc/log/distributed-provisioning.md: 3,000 claims that bind immediately, without pods, in 2020."""

    nodes: int = 1000
    distributed: float = 22.0
    central: float = 25.0
    """Volumes a second, until the last is bound."""
    millicores: float = 296.0
    mebibytes: float = 93_633_096 / 2**20
    """What the vertical autoscaler recommended for each, with an initial delay of 20 s: a high percentile, not a mean."""

    @property
    def cpu_each(self) -> float:
        """CPU ms of a sidecar for each volume of the cluster."""
        return self.millicores / self.distributed


PUBLISHED = Published()


def everything(arguments: argparse.Namespace, measurements: Collection[Measurement], upkeep: Collection[Upkeep]) -> str:
    played = (table(measurements), beside_published(measurements)) if measurements else ()
    return "\n\n".join((*played, costs.tables(measurements, upkeep), footnotes(arguments, [*measurements, *upkeep])))


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each phase of each program."""
    rows = [_row(COLUMNS), f"|--:|---|---|{'--:|' * (len(COLUMNS) - 3)}"]
    rows += [_row((str(item.nodes), NAMES[item.program], item.phase, str(item.claims), *_cells(item))) for item in measurements]
    return "\n".join(rows)


def beside_published(measurements: Iterable[Measurement]) -> str:
    """Markdown: bursts of claims that bind immediately, as was published."""
    bursts = {(item.nodes, item.program): item for item in measurements if item.phase == "burst"}
    first = PUBLISHED
    ratio = first.distributed / first.central
    figures = (first.distributed, first.central, ratio, first.millicores, first.cpu_each, first.mebibytes)
    rows = [_row(BESIDE), f"|---|{'--:|' * (len(BESIDE) - 1)}", _row(("upstream's report", f"{first.nodes:,}", *_figures(figures)))]
    for (nodes, program), item in bursts.items():
        if program != CENTRAL:
            rate, central = bound_rate(item), central_rate(bursts, nodes)
            mebibytes = statistics.fmean(item.expense.resident)
            figures = (rate, central, rate / central, millicores(item), 1000 * item.cpu_each, mebibytes)
            rows.append(_row((f"{NAMES[program]}, here", str(nodes), *_figures(figures))))
    return "\n".join(rows)


def footnotes(arguments: argparse.Namespace, measurements: Collection[Measurement | Upkeep]) -> str:
    loads = [item.expense.load for item in measurements]
    return "\n".join(
        [
            f"Steady: claims at {arguments.rate:g} a second. Burst and late: claims as fast as they can be written; volumes/s from the "
            "first one's creation to the last volume or binding. Owner: from the storage-provisioner annotation to the selected-node "
            "annotation, as one observer's watch brought them. Late claims are written with their nodes, which take turns; for the one "
            "provisioner of the cluster all are on the node that its driver is on.",
            f"Every instance is a process of its own, all with {' '.join(FLAGS)}, base delay {arguments.base_delay or '20s'}, no published "
            f"capacity, and drivers (one process for all nodes) that take {arguments.latency:g} s for CreateVolume. CPU per sidecar: "
            "thousandths of a core, the mean over instances and phase; memory at the end of the phase. Conflicts and requests per volume "
            "are the programs' own, by the audit log, watches left out; requests/s (watches left out), watch events/s (each watcher "
            "counts) and 429s are everybody's, by the API server's metrics.",
            f"{os.cpu_count()} CPUs are shared by all instances, etcd, kube-apiserver, kube-controller-manager, kwok, drivers and "
            "observer: all sidecars together have here what the one provisioner has for itself, where a cluster gives each those of its "
            f"node. Others' cores is what was busy besides; the load average went from {min(loads):.1f} to {max(loads):.1f}.",
            f"Upstream's report ({PUBLISHED.nodes:,} nodes, 3,000 claims, Immediate, no pods) is of 2020 and of other hardware: only "
            "ratios can be compared. Its CPU and memory are the vertical autoscaler's recommendation, which lies above the mean.",
        ]
    )


def bound_rate(item: Measurement) -> float:
    """Volumes a second."""
    return item.bound / item.until_bound if item.bound else math.nan


def central_rate(bursts: Mapping[tuple[int, str], Measurement], nodes: int) -> float:
    central = bursts.get((nodes, CENTRAL))
    return bound_rate(central) if central else math.nan


def millicores(item: Measurement) -> float:
    """Of an instance, the mean over the phase."""
    return 1000 * item.expense.cpu["instances"] / item.instances / item.expense.seconds


def _cells(item: Measurement) -> list[str]:
    spent, seconds = item.expense, item.expense.seconds
    return [
        _number(item.written / item.until_written if item.written else math.nan, 1),
        _number(bound_rate(item), 1),
        " / ".join(_number(value, 2) for value in (item.owner_p50, item.owner_p99, item.owner_max)),
        _number(item.conflicts / item.written if item.written else math.nan, 3),
        _number(item.requests / item.written if item.written else math.nan, 2),
        _number(millicores(item), 0),
        _number(1000 * item.cpu_each, 2),
        f"{statistics.fmean(spent.resident):.0f} / {max(spent.resident):.0f}",
        _number(spent.cpu["kube-apiserver"] / seconds, 2),
        _number(spent.served.requests / seconds, 0),
        _number(spent.served.watch_events / seconds, 0),
        str(spent.served.refused),
        str(item.claims - item.bound),
        _number(spent.others, 1),
    ]


def _figures(values: Iterable[float]) -> list[str]:
    return [_number(value, digits) for value, digits in zip(values, (1, 1, 2, 0, 1, 0), strict=True)]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
