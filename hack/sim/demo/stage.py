"""A control plane and three nodes with a driver and a sidecar each, and what the acts do with them.

Everything but the control plane of `--kubeconfig` is a child process that works in one folder and ends with the stage.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import Final, TypeVar

from sidecar.kube.api import CSI_DRIVERS
from hack.sim.demo.processes import Node, Program, connects, node, page, stop
from hack.sim.demo.report import ClaimHistory, Verdict, judge
from hack.sim.demo.watcher import DRIVER, KEY, NAMESPACE, Progress, Watcher
from hack.sim.driver.calls import read_calls
from hack.sim.driver.faults import Fault, write_faults
from hack.sim.driver.state import State, read_state
from sidecar.config.parse import Parsed, parse
from sidecar.csi.outcome import Code
from sidecar.doors import Instruments, open_doors
from sidecar.errors import SidecarError
from sidecar.frozen import frozen
from sidecar.kube.api import CLAIMS, CLASSES, CSI_NODES, NODES, PODS, KubeApi, Resource
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.model.quantity import format_bytes, parse_bytes

T = TypeVar("T")

CLASS_OF: Final = {IMMEDIATE: "local-now", LATE: "local-late"}
# The third one is small, so that it can run full.
POOLS: Final = {"node-a": "20Gi", "node-b": "20Gi", "node-c": "8Gi"}
SMALL: Final = "node-c"
PATIENCE: Final = 45.0
_HOSTNAME: Final = "kubernetes.io/hostname"
_LOOK: Final = 0.05


class Failed(SidecarError):
    """The demo did not go as it should; the text says what was waited for or found."""


@frozen(kw_only=True)
class Place:
    """Where the demo runs. Without a kubeconfig it starts a control plane of its own."""

    work: Path
    kubeconfig: Path | None = None
    sidecar_kubeconfig: Path | None = None
    """A kubeconfig with the rights that sidecars have. Without it they use the demo's own."""
    node_labels: Mapping[str, str] = field(default_factory=dict)


class Stage:
    """What the acts use. Made by `staged`."""

    def __init__(self, place: Place, say: Progress, api: KubeApi, nodes: Mapping[str, Node], programs: list[Program]) -> None:
        self.say = say
        self.nodes = nodes
        self.watcher = Watcher(api, say)
        self._api = api
        self._place = place
        self._programs = programs

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], T], what: str, *, seconds: float = PATIENCE) -> T:
        """Waits for the first true answer. Failed if there is none in time, or if a program ends that should not."""
        return await until(condition, what, programs=self._programs, seconds=seconds)

    async def until_settled(self) -> None:
        """Waits until every node publishes what its driver's own state leaves free."""
        await self.until(self._is_settled, "the published capacities agree with the drivers' own state")

    def _is_settled(self) -> bool:
        return self.watcher.published(CLASS_OF[LATE]) == {
            name: item.pool - self.state(name).used("main") for name, item in self.nodes.items()
        }

    # --- questions ---------------------------------------------------------------------------------------------

    def state(self, name: str) -> State:
        """The state of the node's driver, from its own file."""
        return read_state(self.nodes[name].state)

    def free(self, name: str) -> str:
        """The published free space of that node."""
        return format_bytes(self.watcher.published(CLASS_OF[LATE])[name])

    def verdict(self) -> Verdict:
        return judge([self.state(name) for name in self.nodes], self.watcher.volumes())

    def calls_to_create(self, claim: str) -> list[tuple[str, Code | None]]:
        """Node and outcome (None: the call is under way) of every CreateVolume for this claim, by the drivers' own record."""
        volume = f"pvc-{self.watcher.histories[claim].uid}"
        records = ((name, call) for name, item in self.nodes.items() for call in read_calls(item.calls))
        return [(name, call.code) for name, call in records if (call.method, call.name) == ("CreateVolume", volume)]

    async def bids(self, *names: str) -> int:
        """How often the sidecars of these nodes, or of all, have bid for an Immediate claim."""
        ports = [self.nodes[name].port for name in names or self.nodes]
        pages = await asyncio.gather(*(asyncio.to_thread(page, port, "/metrics") for port in ports))
        lines = (line.rpartition(" ") for _, body in pages for line in body.splitlines())
        return sum(int(float(value)) for series, _, value in lines if series == "csi_node_sidecar_ownership_bids_total")

    # --- actions ------------------------------------------------------------------------------------------

    async def claim(self, name: str, binding: str, size: str) -> None:
        self.watcher.histories[name] = ClaimHistory(name=name, size=size, created=self.say.now())
        spec = {"storageClassName": CLASS_OF[binding], "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        made = await self._create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
        self.watcher.histories[name].uid = made["metadata"]["uid"]

    async def pod(self, name: str, *, on: str = "") -> None:
        """A pod with the claim of its name; `on` binds it to a node as a nodeSelector does, which leaves the choice to the scheduler."""
        spec: Json = {
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
            "terminationGracePeriodSeconds": 0,
        }
        await self._create(PODS, {"metadata": {"name": name}, "spec": spec | ({"nodeSelector": {_HOSTNAME: on}} if on else {})})

    async def delete(self, resource: Resource, name: str) -> None:
        await self._api.delete(resource, name, namespace=NAMESPACE)

    def slow_down(self, *faults: Fault) -> None:
        """Sets the faults of all drivers from now on; none if none is given."""
        for item in self.nodes.values():
            write_faults(item.faults, faults)

    async def until_ready(self, *names: str) -> None:
        """The sidecars of these nodes, or of all."""
        for name in names or self.nodes:
            port = self.nodes[name].port
            deadline = asyncio.get_running_loop().time() + PATIENCE
            while (await asyncio.to_thread(page, port, "/readyz"))[0] != 200:
                complain_about_the_dead(self._programs, f"the sidecar of {name} was not ready yet")
                if asyncio.get_running_loop().time() > deadline:
                    raise Failed(f"the sidecar of {name} was not ready after {PATIENCE:.0f} s: {page(port, '/readyz')[1]}")
                await asyncio.sleep(_LOOK)

    async def furnish(self) -> None:
        """Creates what an administrator and the kubelets would have created."""
        if (await self._api.list_page(NODES, limit=1)).items:
            raise Failed("this cluster has nodes already; the demo wants one of its own, and makes the nodes itself")
        await self._create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False, "storageCapacity": True}})
        for binding, name in CLASS_OF.items():
            await self._create(CLASSES, {"metadata": {"name": name}, "provisioner": DRIVER, "volumeBindingMode": binding})
        resources = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        for name in self.nodes:
            labels = {_HOSTNAME: name, KEY: name, **self._place.node_labels}
            await self._create(
                NODES, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": resources, "capacity": resources}}
            )
            drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [KEY]}]
            await self._create(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": drivers}})

    async def _create(self, resource: Resource, body: Json) -> Json:
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._api.create(resource, whole, namespace=NAMESPACE if resource.namespaced else "")


@asynccontextmanager
async def staged(place: Place, say: Progress) -> AsyncIterator[tuple[Stage, Path]]:
    """The stage with everything running, and a kubeconfig for it."""
    programs: list[Program] = []
    try:
        kubeconfig = place.kubeconfig or await _bring_control_plane(place.work, programs, say)
        nodes = {
            name: node(
                name,
                parse_bytes(pool),
                place.work,
                driver=DRIVER,
                key=KEY,
                kubeconfig=_for_sidecars(place, kubeconfig),
                namespace=NAMESPACE,
            )
            for name, pool in POOLS.items()
        }
        async with _api(kubeconfig) as api:
            stage = Stage(place, say, api, nodes, programs)
            watching = asyncio.create_task(stage.watcher.run())
            try:
                await _open(stage, programs)
                yield stage, kubeconfig
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
    finally:
        stop(programs)


async def _open(stage: Stage, programs: list[Program]) -> None:
    await stage.furnish()
    await stage.watcher.wait_synced()
    stage.say(f"starting three drivers ({', '.join(f'{name} {size}' for name, size in POOLS.items())}) and three sidecars")
    for item in stage.nodes.values():
        programs += [item.driver.start(), item.sidecar.start()]
    for item in stage.nodes.values():
        await stage.until(lambda item=item: connects(item.socket), f"the driver of {item.name} serves")  # type: ignore[misc]
    await stage.until_ready()
    stage.say("the sidecars are ready")
    await stage.until_settled()


async def _bring_control_plane(work: Path, programs: list[Program], say: Progress) -> Path:
    say("starting the embedded API server, with stand-ins for volume controller, scheduler and kubelets")
    kubeconfig = work / "kubeconfig"
    arguments = ["hack.sim.demo.control_plane", f"--write-kubeconfig={kubeconfig}"]
    programs.append(Program("control-plane", arguments, work).start())
    await until(kubeconfig.exists, "the embedded API server serves", programs=programs)
    return kubeconfig


def _for_sidecars(place: Place, kubeconfig: Path) -> Path:
    return place.sidecar_kubeconfig or kubeconfig


@asynccontextmanager
async def _api(kubeconfig: Path) -> AsyncIterator[KubeApi]:
    """A client made as the program makes its own."""
    parsed = parse(["--node-deployment", f"--kubeconfig={kubeconfig}", "--kube-api-qps=-1"], {"NODE_NAME": "demo"})
    assert isinstance(parsed, Parsed)
    doors = await open_doors(parsed.config, Instruments(), on_link=lambda _: None)
    try:
        yield doors.kube
    finally:
        await doors.close()


async def until(condition: Callable[[], T], what: str, *, programs: list[Program], seconds: float = PATIENCE) -> T:
    """Looks twenty times a second: only files and caches are read, which costs nothing."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := condition()):
        complain_about_the_dead(programs, f"this was waited for: {what}")
        if loop.time() > deadline:
            raise Failed(f"waited {seconds:.0f} s in vain: {what}")
        await asyncio.sleep(_LOOK)
    return answer


def complain_about_the_dead(programs: list[Program], when: str) -> None:
    for program in programs:
        if (code := program.ended_with()) is not None:
            raise Failed(f"{program.name} ended with {code} while {when}\n{program.last_words()}")
