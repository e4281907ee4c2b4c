"""`hack/bench capacity`: how old the published free capacity is on a node whose volumes come and go, and what it costs to keep it young.

The age of a change is the time from the moment the driver has finished a CreateVolume or DeleteVolume until a watcher receives a
CSIStorageCapacity whose GetCapacity began after that moment (or until such a GetCapacity ended with the figure that is published already).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.capacity import load as capacity_load
from hack.benchmarks.capacity.ages import Driven, Json, Write, ages, driven, most_within, percentile, seconds_of, writes
from hack.benchmarks.capacity.load import Load, Played
from hack.benchmarks.stage import (
    CLASS,
    NODE,
    OURS,
    PEER,
    SERVICE_ACCOUNT,
    Ground,
    a_ground,
    is_synced,
    new_class,
    new_file,
    positive,
    wait,
)
from hack.benchmarks.stalls import RULE, Lives
from hack.lib.programs import OurDriver
from hack.lib.progress import each, say
from hack.sim.driver.journal import read_journal
from sidecar.model.quantity import parse_bytes

DRIVER, POOL = "bench.csi-node-sidecar.io", "4Ti"
FLAGS = ("--kube-api-capacity-qps=10", "--kube-api-qps=500", "--kube-api-burst=1000")
USER = f"system:serviceaccount:default:{SERVICE_ACCOUNT}"
# Who wrote what and when, by the API server's own clock; what others do is none of our business.
AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "RequestResponse",
            "users": [USER],
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "storage.k8s.io", "resources": ["csistoragecapacities"]}],
        },
        {"level": "Metadata", "users": [USER]},
        {"level": "None"},
    ],
}

AGE_LIMIT = 1.5
# Requests are timed when the API server has them, and one may take longer on its way than the next.
JITTER = 0.2
LEAST_LOAD = 0.9


@dataclass(frozen=True)
class Measurement:
    """One turn of one program. Times in seconds; what is per volume is of the part that counts."""

    program: str
    age_p50: float
    age_p99: float
    age_max: float
    changes: int
    volumes: int
    writes: int
    writes_within_a_second: int
    """The most of one object, in the whole turn."""
    writes_too_close: int
    """The same within a second less the jitter: more than 1 breaks the limit."""
    writes_as_answered: int
    measurements: int
    requests: int
    """Of any kind, watches excepted."""
    changes_per_second: float


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "capacity",
        help="age of the published capacity, and what it costs, beside csi-provisioner",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rate", type=positive, default=50.0, metavar="N", help="changes a second, half of them creations (default: %(default)g)")
    add("--seconds", type=positive, default=40.0, metavar="S", help="how long that is measured (default: %(default)g)")
    add("--warm-up", type=positive, default=8.0, metavar="S", help="how long it goes on before (default: %(default)g)")
    add("--latency", type=positive, default=0.05, metavar="S", help="what the driver takes for each call (default: %(default)g)")
    add("--also", action="append", default=[], metavar="FLAG", help="one more turn of ours, e.g. --also=--capacity-reserve-pending=false")
    add("--json", type=new_file, metavar="FILE", help="write every measurement here")
    add("--gate", action="store_true", help=f"fail unless ours keeps to {_limits()}, and stalls to {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    load = Load(rate=arguments.rate, warm_up=arguments.warm_up, seconds=arguments.seconds)
    lives = Lives()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        audit = Path(folder) / "audit.log"
        say("starting etcd and kube-apiserver")
        with a_ground(Path(folder), extra_args=_extra_args(audit)) as ground:
            new_class(ground.plane, DRIVER)
            turns = [(OURS, ""), *((OURS, flag) for flag in arguments.also), (PEER, "")]
            measurements = [
                measure(ground, program, flag, load=load, latency=arguments.latency, audit=audit, work=_folder(folder, number), lives=lives)
                for number, (program, flag) in each(list(enumerate(turns)), "programs measured")
            ]
            versions = ground.versions()
    print(table(measurements))
    print()
    print(footnotes(load, arguments.latency, measurements, versions))
    print(lives.told())
    if arguments.json:
        arguments.json.write_text(as_json(measurements, load, arguments.latency, versions))
    broken = broken_limits(measurements, rate=load.rate) + lives.broken()
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(ground: Ground, program: str, flag: str, *, load: Load, latency: float, audit: Path, work: Path, lives: Lives) -> Measurement:
    """With a driver of its own, whose pool is empty, and no capacity object from before."""
    flags = (*FLAGS, flag) if flag else FLAGS
    called = f"{program} {flag}".strip()
    slow = [f"--fault={method}:hang={latency}" for method in ("CreateVolume", "DeleteVolume", "GetCapacity")]
    with OurDriver(work, node=NODE, name=DRIVER, pools={"main": POOL}, args=slow) as driver:
        stage = ground.stage(driver, work)
        stage.forget_capacity()
        already = audit.stat().st_size if audit.exists() else 0
        with stage.ours(*flags) if program == OURS else stage.peer(*flags) as process:
            wait(lambda: is_synced(process), process, "has not listed everything")
            wait(stage.has_capacity, process, "has not published its capacity")
            say(f"{called}: {load.rate:g} creations and deletions a second for {load.warm_up + load.seconds:g} s")
            played = asyncio.run(capacity_load.play(ground.plane.kubeconfig, class_=CLASS, driver=DRIVER, node=NODE, load=load))
            lives.note(process)
        seen = driven(read_journal(driver.calls), read_journal(driver.state), pool=parse_bytes(POOL))
    return judge(called, played, seen, _logged(audit, already))


def judge(program: str, played: Played, seen: Driven, logged: Iterable[Json]) -> Measurement:
    """Changes and costs count in the measured part; the limit on writes holds in the whole turn."""
    events = list(logged)
    written = writes(_figures(events), played.figures, seen.measurements)
    changes = _during(played, seen.changes)
    found = ages(changes, written, seen.measurements)
    counted = [write for write in written if played.begins <= write.received < played.ends]
    return Measurement(
        program=program,
        age_p50=percentile(found, 0.5),
        age_p99=percentile(found, 0.99),
        age_max=max(found, default=math.nan),
        changes=len(changes),
        volumes=len(_during(played, seen.created)),
        writes=len(counted),
        writes_within_a_second=_most_of_one_object(written, 1.0),
        writes_too_close=_most_of_one_object(written, 1.0 - JITTER),
        writes_as_answered=sum(write.tells_the_answer for write in counted),
        measurements=len(_during(played, (item.began for item in seen.measurements))),
        requests=len(_during(played, (seconds_of(event["requestReceivedTimestamp"]) for event in events if event["verb"] != "watch"))),
        changes_per_second=len(changes) / (played.ends - played.begins),
    )


def _during(played: Played, times: Iterable[float]) -> list[float]:
    return [time for time in times if played.begins <= time < played.ends]


def _figures(events: Iterable[Json]) -> list[Json]:
    """Requests that created or changed a capacity object."""
    return [
        event
        for event in events
        if event["objectRef"]["resource"] == "csistoragecapacities"
        and event["verb"] in ("create", "update", "patch")
        and event["responseStatus"]["code"] < 300
    ]


def _most_of_one_object(written: Iterable[Write], seconds: float) -> int:
    of: dict[str, list[float]] = {}
    for write in written:
        of.setdefault(write.name, []).append(write.received)
    return max((most_within(times, seconds) for times in of.values()), default=0)


def _logged(audit: Path, already: int) -> Iterable[Json]:
    """What the program of this turn asked of the API server."""
    with audit.open("rb") as file:
        file.seek(already)
        for line in file:
            event: Json = json.loads(line)
            if "objectRef" in event:  # not discovery
                yield event


def _extra_args(audit: Path) -> dict[str, list[str]]:
    policy = audit.with_suffix(".policy")
    policy.write_text(json.dumps(AUDIT_POLICY))
    return {
        "apiserver": [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit}",
            "--audit-log-maxsize=10000",
            # Nobody is here to take the protecting finalizers away again.
            "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
        ],
    }


def _folder(folder: str, number: int) -> Path:
    path = Path(folder) / f"turn-{number}"
    path.mkdir()
    return path


# --- what is said about it --------------------------------------------------------------------------------------------


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each turn."""
    rows = [
        "| program | age p50 s | p99 s | max s | writes per volume | most writes in 1 s | GetCapacity per volume | requests per volume |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for item in measurements:
        cells = [
            *(_age(age) for age in (item.age_p50, item.age_p99, item.age_max)),
            _per_volume(item.writes, item),
            str(item.writes_within_a_second),
            _per_volume(item.measurements, item),
            _per_volume(item.requests, item),
        ]
        rows.append(f"| {item.program} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def footnotes(load: Load, latency: float, measurements: Iterable[Measurement], versions: dict[str, str]) -> str:
    reached = ", ".join(f"{item.changes_per_second:.1f}" for item in measurements)
    agreed = ", ".join(f"{item.writes_as_answered} of {item.writes}" for item in measurements)
    return "\n".join(
        [
            f"One node, one class, one pool: {load.rate / 2:g} creations and as many deletions a second were asked for, measured for "
            f"{load.seconds:g} s after {load.warm_up:g} s of the same; the driver finished (by row) {reached} a second.",
            f"The driver is the served one of the simulation, with {latency:g} s for each call; both run with {' '.join(FLAGS)}. "
            f"{os.cpu_count()} CPUs are shared with etcd, kube-apiserver and what plays the volume controller.",
            "Age: from the end of a CreateVolume or DeleteVolume until a watcher had a figure whose GetCapacity began later. "
            "Requests: all but watches, by the audit log.",
            f"Writes that said what GetCapacity had answered (the others subtract what is promised to claims): {agreed}.",
            "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        ]
    )


def as_json(measurements: Iterable[Measurement], load: Load, latency: float, versions: dict[str, str]) -> str:
    """An age that is infinite, as the figure never got fresh, is null."""
    turns = [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in asdict(item).items()}
        for item in measurements
    ]
    return json.dumps({"load": asdict(load), "latency_seconds": latency, "versions": versions, "measurements": turns}, indent=1) + "\n"


def broken_limits(measurements: Iterable[Measurement], *, rate: float) -> list[str]:
    """A figure that was young because little happened keeps no promise."""
    broken = []
    for item in measurements:
        if item.program == PEER:
            continue
        if item.changes_per_second < LEAST_LOAD * rate:
            broken.append(f"{item.program}: {item.changes_per_second:.1f} of {rate:g} changes a second were reached")
        if not item.age_p99 <= AGE_LIMIT:  # true also without a single change
            broken.append(f"{item.program}: the age is {_age(item.age_p99)} s at the 99th percentile, the limit is {AGE_LIMIT:g}")
        if item.writes_too_close > 1:
            broken.append(f"{item.program}: {item.writes_too_close} writes of one object within {1.0 - JITTER:g} s, the limit is 1")
    return broken


def _limits() -> str:
    return f"{AGE_LIMIT:g} s at the 99th percentile and one write per object and second ({JITTER:g} s of that allowed for jitter)"


def _age(seconds: float) -> str:
    return f"{seconds:.2f}" if math.isfinite(seconds) else "never"


def _per_volume(count: int, item: Measurement) -> str:
    return f"{count / item.volumes:.2f}" if item.volumes else "-"
