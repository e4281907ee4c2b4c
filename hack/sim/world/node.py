"""A node of a world. Its driver and its state live as long as the world; its sidecar is killed and started again."""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hack.sim.clock import EPOCH
from hack.sim.driver.calls import Reception, Record
from hack.sim.driver.local_driver import LocalDriver, Spec
from hack.sim.world.doors import Folder, Link, NodeDriver, NodeJournal, NodeKube
from hack.sim.world.network import Killed, Life
from sidecar.config.parse import Parsed, parse
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import CSI_NODES, NODES, KubeApi
from sidecar.kube.events.recorder import EventRecorder, ObjectRef
from sidecar.model import names
from sidecar.model.quantity import parse_bytes
from sidecar.observe.metrics import Metrics
from sidecar.wiring import Sidecar

if TYPE_CHECKING:
    from hack.sim.world.machines import Door
    from hack.sim.world.story import Story
    from hack.sim.world.world import World

DRIVER: Final = "world.csi-node-sidecar.io"
TOPOLOGY_KEY: Final = f"topology.{DRIVER}/node"
NAMESPACE: Final = "default"
POOL: Final = "main"

CALL_TIMEOUT: Final = 10.0
SHUTDOWN_TIMEOUT: Final = 25.0
_ARGS: Final = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1")


def node_body(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {TOPOLOGY_KEY: name, "kubernetes.io/hostname": name}}}


def csi_node(name: str) -> dict[str, Any]:
    """The CSINode that a kubelet would write for the driver on its node."""
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [TOPOLOGY_KEY]}]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def volume_body(name: str, claim: dict[str, str], nodes: Sequence[str], *, driver: str, handle: str, policy: str) -> dict[str, Any]:
    """A PersistentVolume for the claim of this reference, on these nodes."""
    term = {"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [*nodes]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "csi": {"driver": driver, "volumeHandle": handle},
        "claimRef": {"namespace": NAMESPACE, **claim},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


async def create_node(api: KubeApi, name: str) -> None:
    await api.create(NODES, node_body(name))
    await api.create(CSI_NODES, csi_node(name))


class Node:
    """Runs one life of the sidecar after the other, with a pause in between, as a kubelet would."""

    def __init__(self, world: "World | Story", name: str, *, driver: LocalDriver | None = None) -> None:
        """`driver`: with the disks that were there before."""
        self.name = name
        self.ends: list[str] = []
        """How each life of the sidecar ended."""
        self._world = world
        self._dice = random.Random(f"node {world.plan.seed} {name}")
        spec = Spec(node_id=name, name=DRIVER, pools={POOL: parse_bytes(world.plan.pool)}, topology={TOPOLOGY_KEY: name})
        self.driver = driver or LocalDriver(spec)
        self.link: Link = Link(forsakes=lambda: self._dice.random() < 0.5)
        self.folder: Folder = Folder()
        self.reception = Reception(record=Record(now=world.clock))
        self.reception.faults.set([fault for node, fault in world.plan.faults if node == name])
        self.leaks_told: list[str] = []
        """What people were told of volumes that may be left behind, by all lives."""
        self.new_door: Callable[[], Door | None] = lambda: None
        """Of its next sidecar, to replicated storage."""
        self.on_send: Callable[[], None] = lambda: None
        """It is called when a request that changes something leaves."""
        self.skew = 0.0
        """Seconds that its wall clock is wrong."""
        self.flags: tuple[str, ...] = ()
        """Further flags of its next sidecar."""
        self.sidecar: Sidecar | None = None
        """The sidecar that runs now."""
        self.tools: Instruments | None = None
        """What it reports to."""
        self._life = Life(0)
        self._life.end()
        self._over: asyncio.Future[str] | None = None
        self._doom = 0
        self.lives = 0
        """How often the sidecar has been started."""
        self._may_live = asyncio.Event()
        self._may_live.set()

    @property
    def alive(self) -> bool:
        """A process of the sidecar runs, be it only one that waits for its driver."""
        return self._life.alive

    def kill(self) -> None:
        self._life.kill("kill -9")

    def doom(self, crossings: int) -> None:
        """The sidecar dies at that crossing from now; if none runs, the next sidecar does."""
        if self.alive:
            self._life.doom(crossings)
        else:
            self._doom = crossings

    def stop(self) -> None:
        """SIGTERM."""
        if self._over is not None and not self._over.done() and self.alive:
            self._over.set_result("stopped")

    def lay_down(self) -> None:
        """The sidecar dies, and is not started again until `get_up`."""
        self._may_live.clear()
        self.kill()

    def get_up(self) -> None:
        self._may_live.set()

    def driver_back(self) -> None:
        """The driver is reachable again; the process is told as its real link would tell it."""
        if not self.link.up:
            self.link.come_back()
            if self.sidecar is not None:
                self.sidecar.wake_all()

    def spare(self) -> None:
        """From now on nothing goes wrong on this node any more."""
        self._doom = 0
        self._life.pardon()
        self.reception.faults.set([])
        self.folder.full = False
        self.driver_back()

    async def run(self) -> None:
        while True:
            await self._may_live.wait()
            self.lives += 1
            self._world.transcript.tell(self.name, f"starts, life {self.lives}")
            how = await self._live()
            self.ends.append(how)
            self._world.transcript.tell(self.name, how)
            await asyncio.sleep(self._dice.uniform(0.5, 10.0))

    async def _live(self) -> str:
        self._over = over = asyncio.get_running_loop().create_future()
        life = self._life = Life(self.lives, on_death=self._died)
        if self._doom:
            life.doom(self._doom)
            self._doom = 0
        program = asyncio.create_task(self._program(life), name=f"{self.name} life {self.lives}")
        try:
            await asyncio.wait({program, over}, return_when=asyncio.FIRST_COMPLETED)
            if over.done() and over.result() == "stopped":
                await self._drain(life)
                program.cancel()
                await asyncio.wait({program})
        finally:
            self.sidecar = None
            life.end()
            program.cancel()
            await asyncio.gather(program, return_exceptions=True)
        return self._how_it_ended(program, over)

    def _how_it_ended(self, program: "asyncio.Task[None]", over: "asyncio.Future[str]") -> str:
        error = None if program.cancelled() else program.exception()
        strays = _others_than_killed(error)
        if strays or not over.done():
            self._world.found("crashed", f"the sidecar of {self.name} ended by itself: {strays or 'no error'}")
            return "crashed"
        return over.result()

    async def _program(self, life: Life) -> None:
        world, tell = self._world, partial(self._world.transcript.tell, self.name)
        parsed = parse(
            [*_ARGS, *world.plan.args, *self.flags], {"NODE_NAME": self.name, "NAMESPACE": NAMESPACE, "POD_NAME": f"sidecar-{self.name}"}
        )
        assert isinstance(parsed, Parsed), parsed

        def wall() -> float:
            return EPOCH + world.clock() + self.skew

        rng = random.Random(f"sidecar {world.plan.seed} {self.name} {life.number}").random
        tools = Instruments(metrics=Metrics("simulated", wall=wall), clock=world.clock, wall=wall, rng=rng)
        kube = NodeKube(world.api, world.network, life, node=self.name, tell=tell, request_log=world.request_log, on_send=self.on_send)
        driver = NodeDriver(
            self.driver,
            self.reception,
            life,
            network=world.network,
            timeout=CALL_TIMEOUT,
            tell=tell,
            link=self.link,
            on_call=lambda method, name: world.request_log.called(self.name, life.number, method, name),
            on_done=lambda method, name: world.acted(self.name, method, name),
        )
        recorder = _Overheard(kube, component=f"{DRIVER}_{self.name}", host=self.name, clock=world.clock, wall=wall, rng=rng)
        recorder.leaks = self.leaks_told
        await self.link.ready()
        doors = Doors(kube, kube, driver, NodeJournal(self.folder, life), drbd=self.new_door())
        self.tools, self.sidecar = tools, Sidecar(parsed.config, doors, tools, recorder=recorder)
        await self.sidecar.run()

    async def _drain(self, life: Life) -> None:
        """Stops as on SIGTERM: calls in flight may end. The process may be killed meanwhile."""
        if self.sidecar is None or not life.alive:
            return
        self._world.transcript.tell(self.name, "SIGTERM")
        draining = asyncio.create_task(self.sidecar.drain(SHUTDOWN_TIMEOUT))
        while not draining.done() and life.alive:
            await asyncio.wait({draining}, timeout=0.1)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)

    def _died(self, why: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(f"killed: {why}")


class _Overheard(EventRecorder):
    leaks: list[str]

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        if reason == names.LEAK_SUSPECTED:
            self.leaks.append(message)
        super().record(ref, type_, reason, message, once=once)


def _others_than_killed(error: BaseException | None) -> list[Any]:
    """The exceptions among these that are not `Killed`."""
    if isinstance(error, BaseExceptionGroup):
        return [found for inner in error.exceptions for found in _others_than_killed(inner)]
    return [] if error is None or isinstance(error, Killed) else [repr(error)]
