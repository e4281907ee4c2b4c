"""A node of a world: its driver and its state live as long as the world, its sidecar as long as it is let."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sidecar.config import Parsed, parse
from sidecar.kube.api import KubeApi
from sidecar.kube.recorder import EventRecorder
from sidecar.model.quantity import parse_bytes
from sidecar.observe.metrics import Metrics
from sidecar.simulation.calls import Call, Reception, Record
from sidecar.simulation.doors import Folder, Link, NodeDriver, NodeJournal, NodeKube
from sidecar.simulation.driver import LocalDriver
from sidecar.simulation.faults import Fault, Faults
from sidecar.simulation.ledger import Ledger
from sidecar.simulation.life import Killed, Life
from sidecar.simulation.network import Network
from sidecar.simulation.plan import Plan
from sidecar.simulation.spec import Spec
from sidecar.simulation.transcript import Transcript
from sidecar.wiring import Doors, Instruments, Sidecar

DRIVER: Final = "world.csi-node-sidecar.io"
TOPOLOGY_KEY: Final = f"topology.{DRIVER}/node"
EPOCH: Final = 1_767_225_600.0
"""The wall clock at the beginning of every world."""
NAMESPACE: Final = "default"
POOL: Final = "main"
SPARE_POOL: Final = "spare"
"""Nobody claims anything of it."""

CALL_TIMEOUT: Final = 10.0
SHUTDOWN_TIMEOUT: Final = 25.0
_ARGS: Final = ("--node-deployment", "--enable-capacity", "--capacity-ownerref-level=-1", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1")


def csi_node(name: str) -> dict[str, Any]:
    """What a kubelet tells of the driver on its node."""
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [TOPOLOGY_KEY]}]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


class Around(Protocol):
    """What a node needs of the world around it."""

    plan: Plan
    clock: Callable[[], float]
    api: KubeApi
    network: Network
    ledger: Ledger
    transcript: Transcript

    def found(self, kind: str, what: str) -> None:
        """Report a violation."""

    def acted(self, node: str, method: str, name: str) -> None:
        """The node's driver has just done that."""


@dataclass(frozen=True, slots=True)
class End:
    """How a life ended."""

    at: float
    number: int
    how: str


class Node:
    """One life after the other, with a pause in between, as a kubelet would have it."""

    def __init__(self, world: Around, name: str) -> None:
        self.name = name
        self.ends: list[End] = []
        self.asker: dict[str, int] = {}
        """The life that was the last to ask for that volume's creation."""
        self._world = world
        self._dice = random.Random(f"node {world.plan.seed} {name}")
        pools = {POOL: parse_bytes(world.plan.pool), SPARE_POOL: parse_bytes("7Gi")}
        self.driver = LocalDriver(Spec(node_id=name, name=DRIVER, pools=pools, topology={TOPOLOGY_KEY: name}))
        self.link = Link(forsakes=lambda: self._dice.random() < 0.5)
        self.folder = Folder()
        self.reception = Reception(record=Record(now=world.clock))
        self.reception.faults.set([fault for node, fault in world.plan.faults if node == name])
        self._drawn = self.reception.faults
        self.sidecar: Sidecar | None = None
        """The one that runs now."""
        self.tools: Instruments | None = None
        """What it reports to."""
        self._life: Life | None = None
        self._over: asyncio.Future[str] | None = None
        self._doom = 0
        self._lives = 0

    def last_creation(self, name: str) -> Call | None:
        """The last call for that volume's creation, as the driver saw it."""
        calls = [call for call in self.reception.record.calls if (call.method, call.name) == ("CreateVolume", name)]
        return calls[-1] if calls else None

    def has_ended(self, life: int) -> bool:
        return any(end.number == life for end in self.ends)

    # --- what may befall it -------------------------------------------------------------------------------------------

    def kill(self) -> None:
        if self._life is not None:
            self._life.kill("kill -9")

    def doom(self, crossings: int) -> None:
        """Its sidecar dies at that crossing from now; if none runs, the next one does."""
        self._doom = crossings
        if self._life is not None and self._life.alive:
            self._condemn(self._life)

    def stop(self) -> None:
        """SIGTERM."""
        if self._over is not None and not self._over.done() and self._life is not None and self._life.alive:
            self._over.set_result("stopped")

    def driver_away(self) -> None:
        self.link.go_down()

    def driver_back(self) -> None:
        """What the process does when its link becomes ready again."""
        if not self.link.up:
            self.link.come_back()
            self._world.ledger.started(self.name)
            if self.sidecar is not None:
                self.sidecar.wake_all()

    def strike(self, fault: Fault | None) -> None:
        """The driver has this fault and no other until it has none of the kind; then again the ones that were drawn."""
        self.reception.faults = self._drawn if fault is None else Faults([fault])

    def spare(self) -> None:
        """From now on nothing befalls it any more."""
        self.strike(None)
        self._doom = 0
        if self._life is not None:
            self._life.pardon()
        self.reception.faults.set([])
        self.folder.full = False
        self.driver_back()

    # --- its lives ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            self._lives += 1
            self._world.transcript.tell(self.name, f"starts, life {self._lives}")
            self._world.ledger.started(self.name)
            how = await self._live()
            self.ends.append(End(self._world.clock(), self._lives, how))
            self._world.transcript.tell(self.name, how)
            await asyncio.sleep(self._dice.uniform(0.5, 10.0))

    async def _live(self) -> str:
        self._over = over = asyncio.get_running_loop().create_future()
        life = self._life = Life(self._lives, on_death=self._died)
        if self._doom:
            self._condemn(life)
        program = asyncio.create_task(self._program(life), name=f"{self.name} life {self._lives}")
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
        await self.link.ready()
        self.sidecar = self._assemble(life)
        await self.sidecar.run()

    async def _drain(self, life: Life) -> None:
        """As on SIGTERM: calls in flight may end. It may be killed at that too."""
        if self.sidecar is None or not life.alive:
            return
        self._world.transcript.tell(self.name, "SIGTERM")
        draining = asyncio.create_task(self.sidecar.drain(SHUTDOWN_TIMEOUT))
        while not draining.done() and life.alive:
            await asyncio.wait({draining}, timeout=0.1)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)

    def _condemn(self, life: Life) -> None:
        life.doom(self._doom)
        self._doom = 0

    def _asked(self, method: str, name: str, life: Life) -> None:
        if method == "CreateVolume":
            self.asker[name] = life.number

    def _died(self, why: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(f"killed: {why}")

    def _assemble(self, life: Life) -> Sidecar:
        world = self._world
        tell = world.transcript.voice(self.name)
        dice = random.Random(f"sidecar {world.plan.seed} {self.name} {life.number}")
        kube = NodeKube(world.api, world.network, life, node=self.name, tell=tell, ledger=world.ledger)
        driver = NodeDriver(
            self.driver,
            self.reception,
            life,
            network=world.network,
            timeout=CALL_TIMEOUT,
            tell=tell,
            link=self.link,
            on_sent=lambda method, name: self._asked(method, name, life),
            on_done=lambda method, name: world.acted(self.name, method, name),
        )

        def wall() -> float:
            return EPOCH + world.clock()

        tools = self.tools = Instruments(metrics=Metrics("simulated", wall=wall), clock=world.clock, wall=wall, rng=dice.random)
        recorder = EventRecorder(
            kube, component=f"{DRIVER}_{self.name}", host=self.name, clock=tools.clock, wall=tools.wall, rng=dice.random
        )
        parsed = parse([*_ARGS, *world.plan.args], {"NODE_NAME": self.name, "NAMESPACE": NAMESPACE})
        assert isinstance(parsed, Parsed), parsed
        return Sidecar(parsed.config, Doors(kube, kube, driver, NodeJournal(self.folder, life)), tools, recorder=recorder)


def _others_than_killed(error: BaseException | None) -> list[Any]:
    """What was raised beside our own knife."""
    if isinstance(error, BaseExceptionGroup):
        return [found for inner in error.exceptions for found in _others_than_killed(inner)]
    return [] if error is None or isinstance(error, Killed) else [repr(error)]
