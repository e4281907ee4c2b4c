"""One node between two tenants, in virtual time: how long a claim of the quiet one takes while the loud one has many that cannot be made.

Requests go through the real limiter with the flags' defaults, and calls of the driver take their time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hack.lib.programs import claim
from hack.sim.cluster import Call
from hack.sim.driver.calls import Fault
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES, VOLUMES
from sidecar.kube.transport import Limiter
from sidecar.model import names
from tests.harness.drain import simulated

NODE: Final = "n1"
LOUD: Final = "loud"
QUIET: Final = "quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Claims that can never be made. `parameters`: what their class says."""

    claims: int
    namespaces: int = 1
    size: str = "1Ti"
    selected: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    qps: float = 5.0
    burst: int = 10
    call_seconds: float = 0.05
    hanging: float = 0.0
    """Seconds that the driver takes for what the loud tenant asks for."""


class Stage:
    """Who makes claims there."""

    def __init__(self, bench: Story, crowd: Crowd) -> None:
        self.bench = bench
        self._crowd = crowd
        self._loud = [LOUD, *(f"{LOUD}-{number}" for number in range(1, crowd.namespaces))]
        self._quiet: list[Fault] = []

    async def furnish(self) -> None:
        you, crowd = self.bench.you, self._crowd
        for namespace in (*self._loud, QUIET):
            await you.create(NAMESPACES, {"metadata": {"name": namespace}})
        mode = "WaitForFirstConsumer" if crowd.selected else "Immediate"
        for name, parameters in ((LOUD, dict(crowd.parameters)), (QUIET, {})):
            body = {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode, "parameters": parameters}
            await you.create(CLASSES, body)
        self._slow_down()

    def _slow_down(self) -> None:
        takes = self._crowd.call_seconds
        others = [Fault(method=method, delay=takes) for method in ("DeleteVolume", "GetCapacity")]
        loud = Fault(method="CreateVolume", hang=self._crowd.hanging, delay=takes)
        self.bench.nodes[NODE].reception.faults.set([*self._quiet, loud, *others])

    async def claim(self, namespace: str, name: str, size: str) -> None:
        notes = {names.STORAGE_PROVISIONER: DRIVER, **({names.SELECTED_NODE: NODE} if self._crowd.selected else {})}
        body = claim(name, QUIET if namespace == QUIET else LOUD, size=size, annotations=notes)
        body["metadata"]["namespace"] = namespace
        made = await self.bench.you.create(CLAIMS, body, namespace=namespace)
        if namespace == QUIET:
            self._quiet.append(Fault(method="CreateVolume", names=f"pvc-{made['metadata']['uid']}", delay=self._crowd.call_seconds))
            self._slow_down()

    async def crowd(self) -> None:
        for number in range(self._crowd.claims):
            await self.claim(self._loud[number % len(self._loud)], f"never-{number}", self._crowd.size)

    async def seconds_of_one(self, name: str) -> float:
        """From a claim of the quiet tenant until its volume is stored."""
        bench = self.bench
        begun = bench.clock()
        await self.claim(QUIET, name, "1Gi")
        stored = lambda: any(each["spec"]["claimRef"]["name"] == name for each in bench.cluster.store.all_of(VOLUMES))  # noqa: E731
        assert await bench.until(stored, 1000.0), "no volume"
        return bench.clock() - begun


def play(crowd: Crowd, story: Callable[[Stage], Awaitable[None]]) -> None:
    limiter = Limiter(
        TokenBucket(crowd.qps, crowd.burst),
        clock=lambda: asyncio.get_running_loop().time(),
        sleep=asyncio.sleep,
        rng=random.Random(2).random,
        on_throttled=lambda _: None,
    )

    async def admit(_: Call) -> None:
        await limiter.admit()

    async def whole(bench: Story) -> None:
        stage = Stage(bench, crowd)
        await stage.furnish()
        await asyncio.sleep(30.0)
        await story(stage)
        assert bench.nodes[NODE].ends == [], "the program has not ended by itself"

    args = ("--enable-capacity=false", "--node-deployment-base-delay=0.1s", "--node-deployment-max-delay=0.2s")
    simulated.play(whole, args=args, nodes=(NODE,), delay=admit)


def seconds_of_the_quiet(crowd: Crowd, *, after: tuple[float, ...]) -> list[float]:
    """First alone, then at these moments after the loud tenant has made its claims."""
    found: list[float] = []

    async def story(stage: Stage) -> None:
        found.append(await stage.seconds_of_one("alone"))
        await stage.crowd()
        begun = stage.bench.clock()
        for number, at in enumerate(after):
            await asyncio.sleep(max(0.0, begun + at - stage.bench.clock()))
            found.append(await stage.seconds_of_one(f"later-{number}"))

    play(crowd, story)
    return found
