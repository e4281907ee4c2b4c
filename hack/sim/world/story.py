"""A world that is led step by step: real nodes on the simulated API server, with stand-ins for the rest, on an even network.

Every delay is always the same, so that a story changes only where the program does. What sidecars, stand-ins and `you` write is in the
log, for who looks at a test that failed:

    python -m pytest tests/drain/test_controller.py -k gate --log-cli-level=INFO
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from hack.sim.clock import EPOCH
from hack.sim.cluster import Call, Cluster, InProcessApi
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase
from hack.sim.world.actions import claim_of, pod_spec
from hack.sim.world.network import Latency, Network, Weather
from hack.sim.world.node import DRIVER, NAMESPACE, TOPOLOGY_KEY, Node, csi_node
from hack.sim.world.plan import Plan
from hack.sim.world.requests import RequestLog
from hack.sim.world.transcript import Transcript
from sidecar.kube.api import CLAIMS, CLASSES, CSI_DRIVERS, CSI_NODES, NODES, PODS, Resource
from sidecar.model.objects import IMMEDIATE, LATE
from sidecar.wiring import Sidecar

_EVEN: Final = Weather(read=Latency(0.002, 0.002), write=Latency(0.005, 0.005), watch=Latency(0.010, 0.010), driver=Latency(0.010, 0.010))
_READING: Final = ("get", "list", "watch", "discover")
_MOMENT: Final = 0.001
# Everything else takes whole milliseconds. This does not, so that nothing happens at the very moment of a look.
_LOOK: Final = 0.0093713
_PATIENCE: Final = 300.0


class Log(Transcript):
    """A transcript that pytest shows where a test fails."""

    def tell(self, where: str, what: str) -> None:
        super().tell(where, what)
        logging.getLogger("story").info("%s", self.lines[-1])


class Story:
    """`begin` makes the world; until then there is only the clock."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.plan = Plan(1, ())
        self.cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.log = Log(self.clock)
        self.transcript: Transcript = self.log
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

    # --- for the nodes ------------------------------------------------------------------------------------------------

    def found(self, kind: str, what: str) -> None:
        self.log.tell("ODD", f"{kind}: {what}")

    def acted(self, node: str, method: str, name: str) -> None:
        """Nobody counts calls here; the node itself writes them into the log."""

    # --- for whoever tells it -----------------------------------------------------------------------------------------

    def sidecar(self, node: str) -> Sidecar | None:
        """The program that runs there now, if one does."""
        return self.nodes[node].sidecar

    async def storage_class(self, name: str, mode: str) -> None:
        await self.you.create(CLASSES, {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": mode})

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


async def do(story: Story, line: str) -> None:
    """One thing that somebody does, in a line.

    class late|immediate           claim NAME class=CLASS [size=1Gi]    pod NAME claim=NAME
    kill NODE                      until running POD                    until bound CLAIM
    """
    verb, *rest = line.split()
    given = [word for word in rest if "=" not in word]
    options = dict(word.split("=") for word in rest if "=" in word)
    match verb, given:
        case "class", [mode]:
            await story.storage_class(mode, {"late": LATE, "immediate": IMMEDIATE}[mode])
        case "claim", [name]:
            await story.you.create(CLAIMS, claim_of(name, options["class"], size=options.get("size", "1Gi")), namespace=NAMESPACE)
        case "pod", [name]:
            await story.you.create(PODS, {"metadata": {"name": name}, "spec": pod_spec(options["claim"])}, namespace=NAMESPACE)
        case "kill", [node]:
            story.nodes[node].kill()
        case "until", ["running", name]:
            await _until_phase(story, PODS, name, "Running")
        case "until", ["bound", name]:
            await _until_phase(story, CLAIMS, name, "Bound")
        case _:
            raise ValueError(f"nobody can do this: {line}")


async def _until_phase(story: Story, resource: Resource, name: str, wanted: str) -> None:
    def reached() -> bool:
        found: Mapping[str, Any] = story.cluster.store.find(resource, name, NAMESPACE) or {}
        return bool((found.get("status") or {}).get("phase") == wanted)

    if not await story.until(reached, _PATIENCE):
        story.log.tell("ODD", f"{resource} {name} is not {wanted} within {_PATIENCE:g} s")
