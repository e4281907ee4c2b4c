"""A world that is led step by step: real nodes on the simulated API server, with stand-ins for the rest, on an even network.

Every delay is always the same, so that a story changes only where the program does. What sidecars, stand-ins and `you` write is in the
transcript, for who looks at a test that failed:

    python -m pytest tests/drain/test_controller.py -k gate --log-cli-level=INFO
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from hack.sim.clock import EPOCH
from hack.sim.cluster import ApiServer, Call, InProcessApi
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase
from hack.sim.world.network import Latency, Network, Weather
from hack.sim.world.node import DRIVER, NAMESPACE, Node, create_node
from hack.sim.world.people import claim_of
from hack.sim.world.plan import Plan
from hack.sim.world.records import RequestLog, Transcript
from sidecar.kube.api import CLAIMS, CLASSES, CSI_DRIVERS, Resource
from sidecar.wiring import Sidecar

_EVEN: Final = Weather(read=Latency(0.002, 0.002), write=Latency(0.005, 0.005), watch=Latency(0.010, 0.010), driver=Latency(0.010, 0.010))
_READING: Final = ("get", "list", "watch", "discover")
_MOMENT: Final = 0.001
# Everything else takes whole milliseconds. This does not, so that nothing happens at the very moment of a look.
_LOOK: Final = 0.0093713
_PATIENCE: Final = 300.0


class Story:
    """`begin` makes the world; until then there is only the clock."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.plan = Plan(1, ())
        self.cluster = ApiServer(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.transcript = Transcript(self.clock)
        self.api: InProcessApi = InProcessApi(self.cluster)
        """Of the sidecars. A test may put its own in its place before `begin`."""
        self.you = self._api_of("you")
        self.network = Network(random.Random("network"), _EVEN)
        self.request_log = RequestLog(self.clock)
        self.nodes: dict[str, Node] = {}
        self._group = group
        self._tasks: list[asyncio.Task[Any]] = []

    async def begin(self, plan: Plan) -> None:
        self.plan = plan
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        for name in plan.nodes:
            await create_node(self.api, name)
        for name, stand_in in (("binder", Binder), ("scheduler", Scheduler), ("kubelet", Kubelet)):
            base = StandInBase(self._api_of(name), clock=self.clock, rng=random.Random(f"{name} {plan.seed}"))
            stand_in(base)
            self.spawn(base.run())
        self.nodes = {name: Node(self, name) for name in plan.nodes}
        for node in self.nodes.values():
            self.spawn(node.run())

    def spawn(self, doing: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._group.create_task(doing))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def found(self, kind: str, what: str) -> None:
        self.transcript.tell("ODD", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        """Nobody counts calls here; the node itself writes them into the transcript."""

    def sidecar(self, node: str) -> Sidecar | None:
        """The program that runs there now, if one does."""
        return self.nodes[node].sidecar

    async def storage_class(self, name: str, mode: str) -> None:
        await self.you.create(CLASSES, {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode})

    async def claim(self, name: str, class_: str) -> None:
        await self.you.create(CLAIMS, claim_of(name, class_), namespace=NAMESPACE)

    async def until_phase(self, resource: Resource, name: str, wanted: str) -> None:
        def reached() -> bool:
            found = self.cluster.store.find(resource, name, NAMESPACE) or {}
            return bool((found.get("status") or {}).get("phase") == wanted)

        if not await self.until(reached, _PATIENCE):
            self.found("never", f"{resource} {name} is not {wanted} within {_PATIENCE:g} s")

    async def until(self, condition: Callable[[], bool], limit: float) -> bool:
        end = self.clock() + limit
        while not condition():
            if self.clock() >= end:
                return False
            await asyncio.sleep(_LOOK)
        return True

    def _api_of(self, actor: str) -> InProcessApi:
        """The API server for one actor, whose name stands in the transcript beside each of its writes. A write takes a moment."""

        async def before(call: Call) -> None:
            if call.verb not in _READING:
                await asyncio.sleep(_MOMENT)

        async def after(call: Call) -> None:
            if call.verb not in _READING:
                self.transcript.tell(actor, f"{call.verb} {call.resource} {call.name}")

        return InProcessApi(self.cluster, before=before, after=after)
