"""One node between two tenants, in virtual time: how long a claim of the quiet one takes while the loud one has many that cannot be made.

Requests go through the real limiter with the flags' defaults, and calls of the driver take their time.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hack.sim.clock import EPOCH, run_virtual
from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.cluster.inprocess import Call
from hack.sim.driver.calls import Reception
from hack.sim.world.network import Latency, Network, Weather
from hack.sim.world.node import DRIVER, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan
from hack.sim.world.records import RequestLog, Transcript
from sidecar.engine.limiter import TokenBucket
from sidecar.kube.api import CLAIMS, CLASSES, CSI_DRIVERS, CSI_NODES, NAMESPACES, NODES, VOLUMES, KubeApi
from sidecar.kube.transport import Limiter
from sidecar.model import names

T = TypeVar("T")
NODE: Final = "n1"
LOUD: Final = "loud"
QUIET: Final = "quiet"
_NO_TIME: Final = Latency(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Claims that can never be made. `class_`: what the class of all claims says; `claim`: what theirs say beside it."""

    claims: int
    namespaces: int = 1
    size: str = "1Gi"
    selected: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    qps: float = 5.0
    burst: int = 10
    call_seconds: float = 0.05
    hanging: float = 0.0
    """Seconds that the driver takes for what the loud tenant asks for."""


class SlowDriver(Reception):
    """Each call takes its time."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self._crowd = crowd
        self.quiet: set[str] = set()
        """The volumes that are not the loud tenant's."""

    async def attend(self, method: str, name: str, *, request: Mapping[str, Any], act: Callable[[], T]) -> T:
        loud = method == "CreateVolume" and name not in self.quiet
        await asyncio.sleep(self._crowd.hanging if loud and self._crowd.hanging else self._crowd.call_seconds)
        return await super().attend(method, name, request=request, act=act)


class Surroundings:
    """The world around the one node."""

    def __init__(self, plan: Plan, *, api: KubeApi, network: Network, strays: list[str]) -> None:
        self.plan = plan
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.api = api
        self.network = network
        self.request_log = RequestLog(self.clock)
        self.transcript = Transcript(self.clock)
        self._strays = strays

    def found(self, kind: str, what: str) -> None:
        self._strays.append(f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        pass


class Stage:
    """To be made inside the virtual event loop."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._loud = [LOUD, *(f"{LOUD}-{number}" for number in range(1, crowd.namespaces))]
        self.clock = asyncio.get_running_loop().time
        cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random(1).random)
        self.api: KubeApi = InProcessApi(cluster)
        limiter = Limiter(
            TokenBucket(crowd.qps, crowd.burst),
            clock=self.clock,
            sleep=asyncio.sleep,
            rng=random.Random(2).random,
            on_throttled=lambda _: None,
        )

        async def admit(call: Call) -> None:
            if call.resource != "events":
                await limiter.admit()

        self.strays: list[str] = []
        network = Network(random.Random(3), Weather(read=_NO_TIME, write=_NO_TIME, driver=_NO_TIME, watch=_NO_TIME))
        around = Surroundings(
            Plan(
                1,
                (NODE,),
                pool="10Gi",
                args=("--enable-capacity=false", "--node-deployment-base-delay=0.1s", "--node-deployment-max-delay=0.2s"),
            ),
            api=InProcessApi(cluster, before=admit),
            network=network,
            strays=self.strays,
        )
        self.node = Node(around, NODE)
        self.node.reception = self._driver = SlowDriver(crowd)

    async def furnish(self) -> None:
        for namespace in (*self._loud, QUIET):
            await self.api.create(NAMESPACES, {"metadata": {"name": namespace}})
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        mode = "WaitForFirstConsumer" if self._crowd.selected else "Immediate"
        common = {"provisioner": DRIVER, "volumeBindingMode": mode, "reclaimPolicy": "Delete"}
        await self.api.create(CLASSES, {**common, "metadata": {"name": LOUD}, "parameters": dict(self._crowd.parameters)})
        await self.api.create(CLASSES, {**common, "metadata": {"name": QUIET}})
        await self.api.create(NODES, {"metadata": {"name": NODE, "labels": {TOPOLOGY_KEY: NODE}}})
        await self.api.create(CSI_NODES, csi_node(NODE))

    async def claim(self, namespace: str, name: str, size: str) -> None:
        notes = {names.STORAGE_PROVISIONER: DRIVER, **({names.SELECTED_NODE: NODE} if self._crowd.selected else {})}
        body = {
            "metadata": {"name": name, "namespace": namespace, "annotations": notes},
            "spec": {
                "storageClassName": QUIET if namespace == QUIET else LOUD,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            },
        }
        claim = await self.api.create(CLAIMS, body, namespace=namespace)
        if namespace == QUIET:
            self._driver.quiet.add(f"pvc-{claim['metadata']['uid']}")

    async def crowd(self) -> None:
        for number in range(self._crowd.claims):
            await self.claim(self._loud[number % len(self._loud)], f"never-{number}", self._crowd.size)

    async def seconds_of_one(self, name: str) -> float:
        """From a claim of the quiet tenant until its volume is stored."""
        version = (await self.api.list_page(VOLUMES)).resource_version
        begun = self.clock()
        await self.claim(QUIET, name, "1Gi")
        async with aclosing(self.api.watch(VOLUMES, resource_version=version)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "ADDED" and event.object["spec"]["claimRef"]["name"] == name:
                    return self.clock() - begun
        raise AssertionError("no volume")


def seconds_of_the_quiet(crowd: Crowd, *, after: tuple[float, ...] = (0.5, 60.0, 600.0)) -> list[float]:
    """First alone, then at these moments after the loud tenant has made its claims."""

    async def story() -> list[float]:
        stage = Stage(crowd)
        await stage.furnish()
        tasks = [asyncio.create_task(stage.node.run())]
        await asyncio.sleep(30.0)
        found = [await stage.seconds_of_one("alone")]
        await stage.crowd()
        begun = stage.clock()
        for number, at in enumerate(after):
            await asyncio.sleep(max(0.0, begun + at - stage.clock()))
            found.append(await stage.seconds_of_one(f"later-{number}"))
        for task in tasks:
            task.cancel()
        assert not stage.strays, stage.strays
        return found

    return run_virtual(story(), limit=20_000.0, seed=1)
