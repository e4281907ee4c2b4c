"""`hack/bench late`: a thousand late-binding claims for one node at the same moment, and a driver that answers at once.

What is measured is how fast the program itself is, and what each volume costs in requests and CPU time. To create a thousand claims
takes longer than to serve them, so the program is halted meanwhile and finds them all when it goes on. Nobody binds the volumes: the
volume controller takes claims one by one, and with the servers on the same few CPUs it would be what is measured.

With `--live` it is as in a cluster: the claims come one after another while the program works, and the volume controller binds them.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.benchmarks.capacity.ages import seconds_of
from hack.benchmarks.capacity.load import NAMESPACE
from hack.benchmarks.pod import compile_bytecode, put_into_a_pod
from hack.benchmarks.process_cost import cost_of
from hack.benchmarks.stage import (
    CLASS,
    FLAGS,
    NODE,
    OURS,
    PEER,
    SERVICE_ACCOUNT,
    Stage,
    a_ground,
    count,
    is_synced,
    new_class,
    new_file,
    wait,
)
from hack.benchmarks.stalls import RULE, Lives
from hack.lib.control_plane import ControlPlane
from hack.lib.programs import GoDriver, Json, claim
from hack.lib.progress import each, say
from sidecar.kube.api import CLAIMS
from sidecar.kube.client import open_client
from sidecar.model import names

LIMITERS = ("--kube-api-qps=500", "--kube-api-burst=1000")
USER = f"system:serviceaccount:default:{SERVICE_ACCOUNT}"
# What the program asks for, and when each volume is stored by the API server's own clock; what others do is none of our business.
AUDIT_POLICY: Json = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
STORED = "create persistentvolumes 201"
VOLUMES = "/api/v1/persistentvolumes"
# Events come after the volumes they tell of; whoever has asked for nothing so long has no more to say.
QUIET, QUIET_LIMIT = 3.0, 60.0
# The servers have caught their breath.
REST = 1.0

# Of the peer's.
LEAST_SPEED, LEAST_SPEED_LIVE = 0.9, 1.0
MOST_CPU, MOST_CPU_LIVE = 2.0, 1.2
MOST_REQUESTS = 3.1
"""Per volume, should the peer happen to need less."""
BINDER = "persistentvolume-binder-controller"
# With the default of a cluster. The tests' second would have it look at every claim each second.
BINDER_FLAGS = (f"--controllers={BINDER},serviceaccount-controller", "--pvclaimbinder-sync-period=15s")


@dataclass(frozen=True)
class Measurement:
    """One turn of one program."""

    program: str
    claims: int
    seconds: float
    """From the moment it may go on, or else the first claim comes, until the last PersistentVolume is stored."""
    requests: Mapping[str, int]
    """By kind; watches are left out."""
    cpu: float
    """Seconds, until all is quiet."""
    peak: float
    """MiB."""
    load: float
    """The machine's load average at the end."""

    @property
    def speed(self) -> float:
        return self.claims / self.seconds

    @property
    def requests_per_volume(self) -> float:
        return sum(self.requests.values()) / self.claims

    @property
    def cpu_per_volume(self) -> float:
        return self.cpu / self.claims


def add_to(commands: Any) -> None:
    parser = commands.add_parser("late", help="speed and price of late binding, beside csi-provisioner", description=__doc__)
    parser.add_argument("--claims", type=count, default=1000, metavar="N", help="all at once (default: %(default)s)")
    parser.add_argument("--runs", type=count, default=1, metavar="N", help="measure N times, print the medians (default: %(default)s)")
    parser.add_argument(
        "--also", action="append", default=[], metavar="FLAG", help="one more flag for both, e.g. --also=--worker-threads=10"
    )
    parser.add_argument(
        "--live", action="store_true", help="let the program work while the claims come, and the volume controller bind them"
    )
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every single measurement here")
    parser.add_argument("--gate", action="store_true", help=f"fail unless ours keeps to {_limits()}, and stalls to {RULE}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """The two take turns, so that a machine that gets slower does so for both."""
    compile_bytecode()
    measurements: list[Measurement] = []
    lives = Lives()
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        for number, program in each(list(itertools.product(range(1, arguments.runs + 1), (OURS, PEER))), "runs"):
            say(f"{program}, run {number} of {arguments.runs}")
            work = Path(folder) / f"{program}-{number}"
            measured, versions = measure(program, arguments.claims, flags=arguments.also, work=work, lives=lives, live=arguments.live)
            say(_line(measured))
            measurements.append(measured)
    print(table(measurements))
    print()
    print(footnotes(arguments, measurements, versions))
    print(lives.told())
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"versions": versions, "measurements": [asdict(item) for item in measurements]}, indent=1) + "\n"
        )
    broken = broken_limits(measurements, live=arguments.live) + lives.broken()
    for line in broken:
        say(f"{'error' if arguments.gate else 'warning'}: {line}")
    return 1 if arguments.gate and broken else 0


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(program: str, claims: int, *, flags: Iterable[str], work: Path, lives: Lives, live: bool) -> tuple[Measurement, dict[str, str]]:
    """With servers and a driver of its own: neither meets what the other has left."""
    work.mkdir()
    audit = work / "audit.log"
    components = ("controller-manager",) if live else ()
    with (
        a_ground(work, "mock-driver", components=components, extra_args=_extra_args(audit)) as ground,
        GoDriver(work, node=NODE, binary=ground.bin_dir / "mock-driver") as driver,
    ):
        new_class(ground.plane, driver.driver)
        played = _play(ground.stage(driver, work), program, claims, flags=(*LIMITERS, *flags), audit=audit, lives=lives, live=live)
        return played, ground.versions()


def _play(stage: Stage, program: str, claims: int, *, flags: Iterable[str], audit: Path, lives: Lives, live: bool) -> Measurement:
    process = stage.ours(*flags) if program == OURS else stage.peer(*flags)
    put_into_a_pod(process, stage.role)
    with process:
        pid = process.child.pid
        wait(lambda: is_synced(process), process, "has not listed everything")
        wait(stage.has_capacity, process, "has not published its capacity")
        _wait_for_quiet(audit)
        already, before = audit.stat().st_size, cost_of(pid)
        began = time.time()
        if not live:
            process.signal(signal.SIGSTOP)
        asyncio.run(_ask(stage.plane.kubeconfig, driver=stage.driver.driver, count=claims))
        if not live:
            time.sleep(REST)
            began = time.time()
            process.signal(signal.SIGCONT)
        wait(lambda: _stored(stage.plane) >= claims, process, f"has not stored {claims} volumes")
        if live:
            wait(lambda: _all_bound(stage.plane), process, f"is still alone with its {claims} volumes: {BINDER} has not bound them")
        _wait_for_quiet(audit)
        after = cost_of(pid)
        lives.note(process)
    events = _requests(audit, already)
    return Measurement(
        program=program,
        claims=claims,
        seconds=max(seconds_of(event["stageTimestamp"]) for event in events if _kind(event) == STORED) - began,
        requests=dict(Counter(_kind(event) for event in events).most_common()),
        cpu=after.cpu - before.cpu,
        peak=after.peak,
        load=os.getloadavg()[0],
    )


async def _ask(kubeconfig: Path, *, driver: str, count: int) -> None:
    """Claims as the scheduler and the volume controller leave them."""
    marks = {names.STORAGE_PROVISIONER: driver, names.STORAGE_PROVISIONER_BETA: driver, names.SELECTED_NODE: NODE}
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube, asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(kube.create(CLAIMS, claim(f"bench-{number}", CLASS, annotations=marks), namespace=NAMESPACE))


def _stored(plane: ControlPlane) -> int:
    """Without reading them all: whoever counts uses the same CPUs."""
    page = plane.request("GET", f"{VOLUMES}?limit=1")
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


def _all_bound(plane: ControlPlane) -> bool:
    time.sleep(REST)  # the answer is large, and whoever asks uses the same CPUs
    return all(volume["status"].get("phase") == "Bound" for volume in plane.request("GET", VOLUMES)["items"])


def _wait_for_quiet(audit: Path) -> None:
    """Until nothing has been asked for a while."""
    deadline = time.monotonic() + QUIET_LIMIT
    size, since = -1, time.monotonic()
    while time.monotonic() < min(since + QUIET, deadline):
        if (now := audit.stat().st_size if audit.exists() else 0) != size:
            size, since = now, time.monotonic()
        time.sleep(0.1)


def _requests(audit: Path, already: int) -> list[Json]:
    with audit.open("rb") as file:
        file.seek(already)
        events: list[Json] = [json.loads(line) for line in file]
    return [event for event in events if event["verb"] != "watch" and "objectRef" in event]


def _kind(event: Json) -> str:
    return f"{event['verb']} {event['objectRef']['resource']} {event['responseStatus']['code']}"


def _extra_args(audit: Path) -> dict[str, list[str]]:
    policy = audit.with_suffix(".policy")
    policy.write_text(json.dumps(AUDIT_POLICY))
    return {
        "apiserver": [f"--audit-policy-file={policy}", f"--audit-log-path={audit}", "--audit-log-maxsize=10000"],
        "controller-manager": list(BINDER_FLAGS),
    }


# --- what is said about it --------------------------------------------------------------------------------------------


def table(measurements: Iterable[Measurement]) -> str:
    """Markdown, one row for each program."""
    rows = [
        "| program | volumes/s | last volume after s | API requests per volume | CPU ms per volume | peak MiB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for program, group in _grouped(measurements).items():
        cells = [
            f"{_median(group, lambda item: item.speed):.0f}",
            f"{_median(group, lambda item: item.seconds):.2f}",
            f"{_median(group, lambda item: item.requests_per_volume):.2f}",
            f"{1000 * _median(group, lambda item: item.cpu_per_volume):.2f}",
            f"{_median(group, lambda item: item.peak):.1f}",
        ]
        rows.append(f"| {program} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def footnotes(arguments: argparse.Namespace, measurements: Iterable[Measurement], versions: Mapping[str, str]) -> str:
    items = list(measurements)
    loads = [item.load for item in items]
    flags = " ".join((*FLAGS, *LIMITERS, *arguments.also))
    halted = "created while the program was halted; time runs from its going on"
    how = f"created one after another while the program works and {BINDER} binds; time runs from the first" if arguments.live else halted
    return "\n".join(
        [
            f"{arguments.claims} claims with their node chosen, {how} to the "
            "last PersistentVolume, by the API server's clock. Requests: all but watches, by the audit log; CPU until all is quiet.",
            f"{'One run' if arguments.runs == 1 else f'Medians of {arguments.runs} runs'}, both with {flags}, beside the mock driver of "
            f"Kubernetes' own tests. {os.cpu_count()} CPUs are shared with etcd, kube-apiserver and the driver; "
            f"the load average was {min(loads):.1f} to {max(loads):.1f}.",
            "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        ]
    )


def broken_limits(measurements: Iterable[Measurement], *, live: bool) -> list[str]:
    """By the medians: one turn says more about the machine."""
    groups = _grouped(measurements)
    ours, peer = groups[OURS], groups[PEER]
    broken = []
    speed = _median(ours, lambda item: item.speed)
    least = (LEAST_SPEED_LIVE if live else LEAST_SPEED) * _median(peer, lambda item: item.speed)
    if speed < least:
        broken.append(f"{speed:.0f} volumes a second, at least {least:.0f} are due")
    requests, most = (_median(group, lambda item: item.requests_per_volume) for group in (ours, peer))
    if requests > max(most, MOST_REQUESTS):
        broken.append(f"{requests:.2f} requests per volume, the limit is {max(most, MOST_REQUESTS):.2f}")
    cpu = _median(ours, lambda item: item.cpu_per_volume)
    dear = (MOST_CPU_LIVE if live else MOST_CPU) * _median(peer, lambda item: item.cpu_per_volume)
    if cpu > dear:
        broken.append(f"{1000 * cpu:.2f} ms of CPU per volume, the limit is {1000 * dear:.2f}")
    return broken


def _limits() -> str:
    return (
        f"{LEAST_SPEED:g} of the peer's volumes a second, {MOST_CPU:g} times its CPU time (with --live {LEAST_SPEED_LIVE:g} and "
        f"{MOST_CPU_LIVE:g}), and the larger of its requests per volume and {MOST_REQUESTS:g}"
    )


def _line(item: Measurement) -> str:
    """As soon as a turn has ended."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in item.requests.items())
    return (
        f"{item.program}: {item.speed:.0f} volumes/s (all in {item.seconds:.2f} s), "
        f"{1000 * item.cpu_per_volume:.2f} ms of CPU per volume, {item.peak:.1f} MiB, load {item.load:.1f}; {kinds}"
    )


def _grouped(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    groups: dict[str, list[Measurement]] = {}
    for item in measurements:
        groups.setdefault(item.program, []).append(item)
    return groups


def _median(items: Iterable[Measurement], value: Callable[[Measurement], float]) -> float:
    return statistics.median(value(item) for item in items)
