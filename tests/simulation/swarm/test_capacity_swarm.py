"""A thousand nodes start at once, whole programs all of them: what that costs the API server in requests about capacity."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from sidecar.config.parse import Parsed, parse
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import CAPACITIES, CLASSES, PODS
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.simulation.clock import run_virtual
from sidecar.simulation.cluster import Cluster, InProcessApi
from sidecar.simulation.cluster.inprocess import Call
from sidecar.simulation.cluster.kinds.table import DAEMON_SETS
from sidecar.simulation.driver.calls import Reception, Record
from sidecar.simulation.driver.local_driver import LocalDriver
from sidecar.simulation.driver.spec import Spec
from sidecar.simulation.world.doors import NodeDriver
from sidecar.simulation.world.life import Life
from sidecar.simulation.world.network import Latency, Network, Weather
from sidecar.wiring import Sidecar

NAME, NAMESPACE, EPOCH = "swarm.csi-node-sidecar.io", "default", 1_767_225_600.0
NODES: Final = 1000
SECONDS: Final = 70.0
"""One poll and a little more."""


class Swarm:
    """One server, and what each node asked of it, by time."""

    def __init__(self, late: int) -> None:
        self.late = [f"late-{number}" for number in range(late)]
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.cluster = Cluster(clock=lambda: EPOCH + self.clock(), rng=random.Random("server").random)
        self.api = InProcessApi(self.cluster)
        self.network = Network(random.Random("network"), Weather())
        self.asked: dict[str, list[tuple[float, str]]] = {}

    async def furnish(self, nodes: int) -> None:
        for name, mode in [*((name, LATE) for name in self.late), ("immediate", IMMEDIATE)]:
            await self.api.create(CLASSES, {"metadata": {"name": name}, "provisioner": NAME, "volumeBindingMode": mode})
        pod_spec = {"containers": [{"name": "main", "image": "none"}]}
        spec = {"selector": {"matchLabels": {"app": "sidecar"}}, "template": {"metadata": {"labels": {"app": "sidecar"}}, "spec": pod_spec}}
        made = await self.api.create(DAEMON_SETS, {"metadata": {"name": "sidecar"}, "spec": spec}, namespace=NAMESPACE)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "sidecar", "uid": made["metadata"]["uid"], "controller": True}
        for number in range(nodes):
            meta = {"name": f"pod-{number}", "ownerReferences": [owner]}
            await self.api.create(PODS, {"metadata": meta, "spec": pod_spec}, namespace=NAMESPACE)

    def program(self, number: int) -> Sidecar:
        node, dice = f"node-{number}", random.Random(f"node {number}").random
        local = LocalDriver(Spec(node_id=node, name=NAME, pools={"main": (number + 1) * 2**30}))
        reception = Reception(record=Record(now=self.clock))
        driver = NodeDriver(local, reception, Life(1), network=self.network, timeout=10.0, tell=lambda _: None)
        kube = InProcessApi(self.cluster, before=self._hears(node))
        tools = Instruments(clock=self.clock, wall=lambda: EPOCH + self.clock(), rng=dice)
        recorder = EventRecorder(kube, component=node, clock=tools.clock, wall=tools.wall, rng=dice)
        flags = ["--node-deployment", "--enable-capacity", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1"]
        parsed = parse(flags, {"NODE_NAME": node, "NAMESPACE": NAMESPACE, "POD_NAME": f"pod-{number}"})
        assert isinstance(parsed, Parsed), parsed
        return Sidecar(parsed.config, Doors(kube, kube, driver), tools, recorder=recorder)

    def _hears(self, node: str) -> Callable[[Call], Any]:
        asked, latency = self.asked.setdefault(node, []), Latency(0.005, 0.050)

        async def travel(call: Call) -> None:
            asked.append((self.clock(), f"{call.verb} {call.resource}"))
            await asyncio.sleep(latency.draw(self.network.rng))

        return travel

    async def live(self, nodes: int, seconds: float) -> None:
        await self.furnish(nodes)
        programs = [asyncio.create_task(self.program(number).run()) for number in range(nodes)]
        await asyncio.sleep(seconds)
        ended = [task for task in programs if task.done()]
        for task in programs:
            task.cancel()
        await asyncio.gather(*programs, return_exceptions=True)
        assert not ended

    async def published(self) -> list[Json]:
        return (await self.api.list_page(CAPACITIES, limit=0)).items

    def counted(self, node: str) -> Counter[str]:
        """But for what is watched again whenever the server ends a watch."""
        return Counter(what for _, what in self.asked[node] if not what.startswith("watch "))


def played(nodes: int, late: int) -> tuple[Swarm, list[Json]]:
    async def story() -> tuple[Swarm, list[Json]]:
        swarm = Swarm(late)
        await swarm.live(nodes, SECONDS)
        return swarm, await swarm.published()

    return run_virtual(story(), limit=10_000.0, seed=1)


@pytest.mark.parametrize(("nodes", "late"), [(20, 3), pytest.param(NODES, 1, marks=pytest.mark.slow)])
def test_a_node_that_starts_asks_for_its_objects_once_and_writes_each_once(nodes: int, late: int) -> None:
    swarm, published = played(nodes, late)
    expected = {
        f"get {PODS}": 1,
        f"list {CAPACITIES}": 1,
        f"create {CAPACITIES}": late,
        **{f"list {kind}": 1 for kind in ("persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io")},
    }
    odd = {node: counted for node in swarm.asked if (counted := dict(swarm.counted(node))) != expected}
    assert not odd, f"{len(odd)} nodes, among them {next(iter(odd.items()))}"
    assert len(swarm.asked) == nodes
    found = Counter((item["metadata"]["labels"][names.CAPACITY_MANAGER_LABEL], item["storageClassName"]) for item in published)
    assert found == Counter((manager, name) for manager in map(names.capacity_manager, swarm.asked) for name in swarm.late)
    sizes = {item["metadata"]["labels"][names.CAPACITY_MANAGER_LABEL]: item["capacity"] for item in published}
    assert len(set(sizes.values())) == nodes, "each publishes what its own driver says"


def test_what_a_thousand_nodes_publish_wakes_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node hears of its own objects only: its watch brings as many events as it has objects."""
    told: Counter[str] = Counter()

    async def story() -> int:
        swarm = Swarm(late=2)
        real = InProcessApi.watch

        async def counting(self: InProcessApi, resource: Any, **query: Any) -> Any:
            async for event in real(self, resource, **query):
                if resource == CAPACITIES and event.type != "BOOKMARK":
                    told[query["label_selector"]] += 1
                yield event

        monkeypatch.setattr(InProcessApi, "watch", counting)
        await swarm.live(20, SECONDS)
        return len(await swarm.published())

    objects = run_virtual(story(), limit=10_000.0, seed=1)
    assert objects == 40
    assert sorted(told.values()) == [2] * 20
