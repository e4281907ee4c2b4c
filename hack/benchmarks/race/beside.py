"""Claims that can be made beside another tenant's that never can: how long they take, and what the others cost. Real programs.

Of claims that bind immediately, those of the other tenant are larger than any pool. Of those that bind late, they name a node
themselves, and their class names a Secret that nobody has made.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hack.benchmarks.capacity.ages import seconds_of
from hack.benchmarks.race import load
from hack.benchmarks.race.drivers import DRIVER, node_name
from hack.benchmarks.race.load import Phase, Played
from hack.benchmarks.race.opening import logged
from hack.benchmarks.race.stage import LATER, MAIN, Program, Setting, a_scene
from hack.lib.programs import LATE, Json, claim, storage_class
from hack.sim.driver.calls import read_calls
from sidecar.kube.api import CLAIMS as CLAIM_RESOURCE
from sidecar.kube.api import CLASSES, NAMESPACES
from sidecar.kube.client import KubeClient, open_client
from sidecar.kube.errors import AlreadyExists
from sidecar.model import names

FLAGS = ("--feature-gates=Topology=true", "-v=2")
"""With the default limits of requests to the API server: 5 a second, 10 at once."""
CLAIMS, RATE = 20, 1.0
STANDING = 60.0
PATIENCE = 300.0
OTHERS, KEYLESS = "others", "keyless"
TOO_LARGE = "200Ti"
_SECRET = "csi.storage.k8s.io/provisioner-secret-"
_MOST_LOOKS = 300


@dataclass(frozen=True)
class Row:
    """Seconds from when a claim's provisioner is named, which opens it to the programs."""

    program: str
    nodes: int
    impossible: int
    late: bool
    bound: Sequence[float]
    left_open: int
    requests: int
    """Of all instances to the API server in the minute in which those that can never be made stood alone, without watches."""
    calls: int
    """Of their drivers in that minute."""

    @property
    def median(self) -> float:
        """Infinite if that one is not bound."""
        return statistics.median([*self.bound, *[math.inf] * self.left_open])

    @property
    def longest(self) -> float:
        return math.inf if self.left_open else max(self.bound)


def measure(setting: Setting, program: Program, nodes: int, impossible: int, *, late: bool, work: Path) -> Row:
    with a_scene(setting, program, nodes, work) as scene:
        alone = asyncio.run(_stand(scene.plane.kubeconfig, impossible, hosts=_hosts(nodes) if late else ()))
        requests = sum(seconds_of(event["stageTimestamp"]) >= alone for event in logged(scene.audit, 0) if event["verb"] != "watch")
        calls = sum(call.at >= alone for call in read_calls(scene.calls))
        phase = Phase("fits", LATER if late else MAIN, CLAIMS, RATE, nodes=_hosts(nodes) if late else ())
        played = asyncio.run(load.play(scene.plane.kubeconfig, phase, patience=PATIENCE))
        scene.check()
    return row(program.name, nodes, impossible, played, late=late, requests=requests, calls=calls)


def row(program: str, nodes: int, impossible: int, played: Played, *, late: bool, requests: int, calls: int) -> Row:
    bound = sorted(item.bound - item.asked for item in played.bound)
    return Row(program, nodes, impossible, late, bound, len(played.seen) - len(bound), requests, calls)


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = [
        "| binding | nodes | never made | program | median s | longest s | left open | requests in a minute | driver calls |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for item in rows:
        cells = ("late" if item.late else "immediate", item.nodes, item.impossible, item.program, _seconds(item.median))
        lines.append(f"| {' | '.join(map(str, (*cells, _seconds(item.longest), item.left_open, item.requests, item.calls)))} |")
    return "\n".join(lines)


def line(item: Row) -> str:
    return (
        f"{item.program} on {item.nodes}, beside {item.impossible}: {len(item.bound)} bound, median {_seconds(item.median)} s, "
        f"longest {_seconds(item.longest)} s, {item.requests} requests and {item.calls} driver calls in the minute before"
    )


def _hosts(nodes: int) -> list[str]:
    return [node_name(number) for number in range(1, nodes + 1)]


async def _stand(kubeconfig: Path, impossible: int, *, hosts: Sequence[str]) -> float:
    """`hosts`: named by the claims in turn, which then bind late. Returns when the minute began in which they stood alone."""
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:
        with suppress(AlreadyExists):
            await kube.create(NAMESPACES, {"metadata": {"name": OTHERS}})
        secret = {f"{_SECRET}name": "that-nobody-has-made", f"{_SECRET}namespace": OTHERS}
        await kube.create(CLASSES, storage_class(KEYLESS, DRIVER, LATE, pool=MAIN, **secret))
        numbers = iter(range(impossible))

        async def work() -> None:
            for number in numbers:
                await kube.create(CLAIM_RESOURCE, _impossible(number, hosts), namespace=OTHERS)

        async with asyncio.TaskGroup() as group:
            for _ in range(load.WRITES_AT_ONCE):
                group.create_task(work())
        for _ in range(_MOST_LOOKS):
            if await _announced(kube) >= impossible:
                break
            await asyncio.sleep(1.0)
        alone = time.time()
        await asyncio.sleep(STANDING)
        return alone


def _impossible(number: int, hosts: Sequence[str]) -> Json:
    chosen = {names.SELECTED_NODE: hosts[number % len(hosts)]} if hosts else {}
    made = claim(f"impossible-{number}", KEYLESS if hosts else MAIN, size="1Gi" if hosts else TOO_LARGE, annotations=chosen)
    made["metadata"]["namespace"] = OTHERS
    return made


def _seconds(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "never"


async def _announced(kube: KubeClient) -> int:
    """How many of them the volume controller has opened to the programs."""
    found = (await kube.list_page(CLAIM_RESOURCE, namespace=OTHERS, limit=0)).items
    return sum(names.STORAGE_PROVISIONER in (item["metadata"].get("annotations") or {}) for item in found)
