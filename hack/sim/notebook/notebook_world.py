"""The world of a notebook: real nodes on the embedded API server, with stand-ins for the rest, on an even network.

Every delay is always the same, so that a transcript changes only where the program does.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from hack.sim.cluster import Call, Cluster, InProcessApi
from hack.sim.notebook.log import NotebookLog
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase
from hack.sim.world.network import Latency, Network, Weather
from hack.sim.world.node import DRIVER, EPOCH, POOL, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan
from hack.sim.world.request_log import RequestLog
from hack.sim.world.transcript import Transcript
from sidecar.csi.api import Capability, CreateRequest
from sidecar.kube.api import CLASSES, CSI_DRIVERS, CSI_NODES, NODES, KubeApi
from sidecar.model.quantity import parse_bytes
from sidecar.observe.decisions import Decisions
from sidecar.wiring import Sidecar

_EVEN: Final = Weather(read=Latency(0.002, 0.002), write=Latency(0.005, 0.005), watch=Latency(0.010, 0.010), driver=Latency(0.010, 0.010))
_READING: Final = ("get", "list", "watch", "discover")
_MOMENT: Final = 0.001
# Everything else takes whole milliseconds. This does not, so that nothing happens at the very moment of a look.
_LOOK: Final = 0.0093713
_FILLER: Final = "filler"


class NotebookWorld:
    """Everything that commands act on. `begin` makes the world; until then there is only the clock."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.plan = Plan(1, ())
        self.cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.log = NotebookLog(self.clock, self.cluster)
        self.transcript: Transcript = self.log
        self.api: KubeApi = InProcessApi(self.cluster)
        self.you = self._api_of("you")
        self.network = Network(random.Random("network"), _EVEN)
        self.request_log = RequestLog(self.clock)
        self.nodes: dict[str, Node] = {}
        self._group = group
        self._tasks: list[asyncio.Task[Any]] = []
        self._fillers: dict[str, str] = {}

    async def begin(self, plan: Plan) -> None:
        self.plan = plan
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True, "attachRequired": False}})
        for name in plan.nodes:
            labels = {TOPOLOGY_KEY: name, "kubernetes.io/hostname": name}
            await self.api.create(NODES, {"metadata": {"name": name, "labels": labels}})
            await self.api.create(CSI_NODES, csi_node(name))
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

    # --- for the nodes ------------------------------------------------------------------------------

    def found(self, kind: str, what: str) -> None:
        self.log.tell("ODD", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        """Nobody counts calls here; the node itself writes them into the log."""

    # --- for the commands ---------------------------------------------------------------------------------------------

    async def storage_class(self, name: str, mode: str) -> None:
        await self.you.create(CLASSES, {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode})

    def sidecar(self, node: str) -> Sidecar | None:
        """The program that runs there now, if one does."""
        return self.nodes[node].sidecar

    def decisions(self, node: str) -> Decisions | None:
        tools = self.nodes[node].tools
        return None if tools is None or self.sidecar(node) is None else tools.decisions

    def fill(self, node: str, size: str) -> None:
        """Somebody else uses up space, and the sidecar is not told."""
        request = CreateRequest(
            name=_FILLER,
            required_bytes=parse_bytes(size),
            parameters={},
            capabilities=(Capability(access_mode="SINGLE_NODE_WRITER"),),
        )
        self._fillers[node] = self.nodes[node].driver.create(request).volume_id

    def empty(self, node: str) -> None:
        self.nodes[node].driver.delete(self._fillers.pop(node))

    def grow(self, node: str, size: str) -> None:
        driver = self.nodes[node].driver
        driver.spec = replace(driver.spec, pools={POOL: parse_bytes(size)})

    async def outage(self, seconds: float) -> None:
        for name in self.nodes:
            self.network.take_down(name)
        await asyncio.sleep(seconds)
        for name in self.nodes:
            self.network.bring_up(name)
        self.log.tell("world", "the API server is back")

    async def until(self, condition: Callable[[], bool], limit: float) -> bool:
        end = self.clock() + limit
        while not condition():
            if self.clock() >= end:
                return False
            await asyncio.sleep(_LOOK)
        return True

    def _api_of(self, actor: str) -> InProcessApi:
        """The API server for one actor, whose name stands in the log beside each of its writes. A write takes a moment."""

        async def before(call: Call) -> None:
            if call.verb not in _READING:
                await asyncio.sleep(_MOMENT)

        async def after(call: Call) -> None:
            if call.verb not in _READING:
                self.log.tell(actor, f"{call.verb} {call.resource} {call.name}")

        return InProcessApi(self.cluster, before=before, after=after)
