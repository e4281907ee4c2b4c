"""What one phase of one turn came to: the observer's times, the drivers' answers and the API server's log, put together."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hack.benchmarks.capacity.ages import percentile, seconds_of
from hack.benchmarks.race.load import Phase, Played
from hack.benchmarks.race.served import Served
from hack.lib.programs import Json
from hack.sim.driver.calls import Call
from sidecar.csi.outcome import Code

LATE = 0.9
"""From this share of the claims on, volumes and failures are counted once more by themselves: only then is there any pressure."""


@dataclass(frozen=True)
class Expense:
    """What the phase has used."""

    seconds: float
    """How long it took, with what instances did after the last claim was bound."""

    cpu: Mapping[str, float]
    """Seconds, by part."""
    others: float
    """Cores that were busy with what is none of ours."""
    load: float
    """The machine's load average at the end."""
    resident: Sequence[float]
    """MiB of each instance at the end."""
    served: Served


@dataclass(frozen=True)
class Measurement:
    """Times in seconds; what has not happened is infinite, and where nodes were chosen for the programs, owners have no times."""

    program: str
    nodes: int
    phase: str
    claims: int
    bound: int
    written: int
    """Volumes."""
    owner_mean: float
    owner_p50: float
    owner_p99: float
    owner_max: float
    until_written: float
    """From the first claim to the last volume."""
    until_bound: float
    """From the first claim to the last that was bound."""
    conflicts: int
    failed: int
    """CreateVolume calls that were answered with anything but OK."""
    late: int
    late_failed: int
    requests: int
    requests_by_kind: Mapping[str, int]
    spread: float
    """The node with most, divided by the mean of all nodes."""
    instances: int
    expense: Expense

    @property
    def cpu_each(self) -> float:
        """CPU seconds of an instance for each volume of the cluster."""
        return self.expense.cpu["instances"] / self.instances / self.bound if self.bound else math.nan


def judge(
    program: str,
    phase: Phase,
    *,
    nodes: int,
    instances: int,
    played: Played,
    events: Iterable[Json],
    calls: Iterable[Call],
    expense: Expense,
) -> Measurement:
    asked = [event for event in events if event["verb"] != "watch" and "objectRef" in event]
    creations = [call for call in calls if call.method == "CreateVolume" and call.code is not None]
    written = [seconds_of(event["stageTimestamp"]) for event in asked if _kind(event) == "create persistentvolumes 201"]
    began = min(item.created for item in played.seen.values())
    owner = [] if phase.nodes else [item.owned - item.asked for item in played.seen.values() if math.isfinite(item.owned)]
    kinds = Counter(_kind(event) for event in asked)
    late, late_failed = _late(creations, phase.claims)
    return Measurement(
        program=program,
        nodes=nodes,
        phase=phase.name,
        claims=phase.claims,
        bound=len(played.bound),
        written=len(written),
        owner_mean=statistics.fmean(owner) if owner else math.nan,
        owner_p50=percentile(owner, 0.5),
        owner_p99=percentile(owner, 0.99),
        owner_max=max(owner, default=math.nan),
        until_written=max(written, default=math.inf) - began,
        until_bound=max((item.bound for item in played.bound), default=math.inf) - began,
        conflicts=kinds["update persistentvolumeclaims 409"],
        failed=sum(call.code != Code.OK for call in creations),
        late=late,
        late_failed=late_failed,
        requests=len(asked),
        requests_by_kind=dict(kinds.most_common()),
        spread=_spread(played, nodes),
        instances=instances,
        expense=expense,
    )


def _kind(event: Json) -> str:
    about = event["objectRef"]
    resource = "/".join(filter(None, (about["resource"], about.get("subresource", ""))))
    return f"{event['verb']} {resource} {event['responseStatus']['code']}"


def _late(creations: Iterable[Call], claims: int) -> tuple[int, int]:
    """Volumes and failures after that share of the volumes was there."""
    ended = sorted((call.at + (call.seconds or 0.0), call.code == Code.OK) for call in creations)
    made = late = failed = 0
    for _, well in ended:
        if made >= LATE * claims:
            late, failed = late + well, failed + (not well)
        made += well
    return late, failed


def _spread(played: Played, nodes: int) -> float:
    counts = Counter(item.node for item in played.bound if item.node)
    return max(counts.values()) / (counts.total() / nodes) if counts else math.nan
