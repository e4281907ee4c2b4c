"""A control plane and three nodes with a driver and a sidecar each, what the acts do with them, and what is seen of the cluster.

Drivers and sidecars are child processes that work in one folder and end with the stage. The API server is in this process, or the one of
a kubeconfig.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from hack.lib import programs
from hack.lib.programs import OurDriver, Sidecar, all_of
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.cluster.serve import serving_cluster
from hack.sim.driver.calls import read_calls
from hack.sim.driver.state import State, read_state
from hack.sim.stand_ins import Binder, Kubelet, Scheduler, StandInBase
from sidecar.csi.outcome import Code
from sidecar.errors import SidecarError
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CSI_DRIVERS, CSI_NODES, NODES, PODS, VOLUMES, KubeApi, Resource
from sidecar.kube.client import open_client
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json
from sidecar.model.quantity import format_bytes, parse_bytes

T = TypeVar("T")

NAMESPACE: Final = "default"
DRIVER: Final = "demo.csi-node-sidecar.io"
CLASS_OF: Final = {IMMEDIATE: "local-now", LATE: "local-late"}
# The third one is small, so that it can run full.
POOLS: Final = {"node-a": "20Gi", "node-b": "20Gi", "node-c": "8Gi"}
SMALL: Final = "node-c"
PATIENCE: Final = 120.0
_HOSTNAME: Final = "kubernetes.io/hostname"
_HEAD: Final = ("claim", "size", "node", "to owner", "to bound", "what happened")
# Short delays, since three contenders make no crowd, and no limits, since a minute is not the time to be modest.
_ARGS: Final = (
    *("--node-deployment-base-delay=1s", "--node-deployment-max-delay=3s", "--kube-api-qps=-1", "--kube-api-capacity-qps=-1"),
    *("--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=5s", "--shutdown-timeout=3s"),
)


class Failed(SidecarError):
    """The demo did not go as it should; the text says what was waited for or found."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One claim as it was seen from outside. Times are seconds on one clock."""

    size: str
    created: float
    uid: str = ""
    node: str = ""
    owned: float | None = None
    bound: float | None = None
    what: str = ""

    def after(self, moment: float | None) -> str:
        return "-" if moment is None else f"{moment - self.created:.1f} s"


class Stage:
    """What the acts use. Made by `staged`."""

    def __init__(self, api: KubeApi, drivers: Mapping[str, OurDriver], sidecars: Mapping[str, Sidecar]) -> None:
        self.drivers, self.sidecars = drivers, sidecars
        self.claims: dict[str, Seen] = {}
        self.api = api
        self._start = time.monotonic()
        self._told: set[str] = set()
        self._now: dict[Resource, dict[str, Json]] = {}

    def say(self, text: str) -> None:
        """One line for each thing that happens, with the seconds since the beginning."""
        print(f"{self.seconds():5.1f} s  {text}", flush=True)

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.say(text)

    def table(self) -> str:
        """One row a claim, in the order they were made."""
        rows = [_HEAD]
        rows += [
            (name, seen.size, seen.node or "-", seen.after(seen.owned), seen.after(seen.bound), seen.what)
            for name, seen in self.claims.items()
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)

    async def until(self, condition: Callable[[], T], what: str) -> T:
        """Waits for the first true answer. Failed if there is none in time, or if a program ends that should not."""
        end = time.monotonic() + PATIENCE
        while True:
            await self._look()
            if answer := condition():
                return answer
            for program in (*self.drivers.values(), *self.sidecars.values()):
                if (code := program.child.poll()) is not None and code >= 0:
                    raise Failed(f"{program.name} ended with {code} while this was waited for: {what}\n{program.output()[-2000:]}")
            if time.monotonic() > end:
                raise Failed(f"waited {PATIENCE:.0f} s in vain: {what}")
            await asyncio.sleep(0.1)

    async def until_settled(self) -> None:
        """Waits until every node publishes what its driver's own state leaves free."""

        def settled() -> bool:
            return self.published() == {name: parse_bytes(size) - self.state(name).used("main") for name, size in POOLS.items()}

        await self.until(settled, "the published capacities agree with the drivers' own state")

    async def until_ready(self, *names: str) -> None:
        """The sidecars of these nodes, or of all."""
        for name in names or self.sidecars:
            await asyncio.to_thread(self.sidecars[name].until_ready)

    async def _look(self) -> None:
        for resource in (CLAIMS, VOLUMES, PODS, CAPACITIES):
            page = await self.api.list_page(resource, namespace=NAMESPACE if resource.namespaced else "")
            self._now[resource] = {item["metadata"]["name"]: item for item in page.items}
        for name, claim in self._now[CLAIMS].items():
            seen, node = self.claims[name], str((claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, ""))
            if node and node != seen.node:
                seen.node, seen.owned = node, time.monotonic()
                self.say(f"{name}: {node} is its node after {seen.after(seen.owned)}")
            if seen.bound is None and claim["status"]["phase"] == "Bound":
                seen.bound = time.monotonic()
                self.say(f"{name}: bound after {seen.after(seen.bound)}")
        for name, pod in self._now[PODS].items():
            if self.runs(name):
                self._once(f"pod {name}: runs on {pod['spec']['nodeName']}")
            elif why := self.waits_because(name):
                self._once(f"pod {name}: waits, {why}")

    def published(self) -> dict[str, int]:
        """Bytes by node, for late claims."""
        found = (item for item in self._now[CAPACITIES].values() if item["storageClassName"] == CLASS_OF[LATE])
        return {item["nodeTopology"]["matchLabels"][self.drivers[SMALL].key]: parse_bytes(item.get("capacity", 0)) for item in found}

    def free(self, node: str) -> str:
        return format_bytes(self.published()[node])

    def is_bound(self, *claims: str) -> bool:
        return all(self.claims[name].bound is not None for name in claims)

    def exists(self, claim: str) -> bool:
        return claim in self._now[CLAIMS]

    def has_volume(self, claim: str) -> bool:
        return any(volume["spec"]["claimRef"]["uid"] == self.claims[claim].uid for volume in self._now[VOLUMES].values())

    def runs(self, pod: str) -> bool:
        return bool(self._now[PODS].get(pod, {}).get("status", {}).get("phase") == "Running")

    def node_of(self, pod: str) -> str:
        return str(self._now[PODS][pod]["spec"].get("nodeName") or "")

    def waits_because(self, pod: str) -> str:
        """The scheduler's complaint about that pod; empty if it has none."""
        conditions = self._now[PODS].get(pod, {}).get("status", {}).get("conditions") or ()
        found = (item for item in conditions if (item["type"], item["status"]) == ("PodScheduled", "False"))
        return next((str(item.get("message", "")).partition(". ")[0] for item in found), "")

    def state(self, node: str) -> State:
        """What the node's driver knows, from its own file."""
        return read_state(self.drivers[node].state)

    def calls_to_create(self, claim: str) -> list[tuple[str, Code | None]]:
        """Node and outcome (None: the call is under way) of every CreateVolume for this claim, by the drivers' own record."""
        volume = f"pvc-{self.claims[claim].uid}"
        records = ((name, call) for name, driver in self.drivers.items() for call in read_calls(driver.calls))
        return [(name, call.code) for name, call in records if (call.method, call.name) == ("CreateVolume", volume)]

    async def bids(self, *nodes: str) -> int:
        """How often the sidecars of these nodes, or of all, have bid for an Immediate claim."""
        sidecars = [self.sidecars[name] for name in nodes or self.sidecars]
        return int(sum([await asyncio.to_thread(one.metric, "csi_node_sidecar_ownership_bids_total") for one in sidecars]))

    async def claim(self, name: str, binding: str, size: str) -> None:
        self.claims[name] = Seen(size=size, created=time.monotonic())
        body = programs.claim(name, CLASS_OF[binding], size=size)
        self.claims[name].uid = (await self.api.create(CLAIMS, body, namespace=NAMESPACE))["metadata"]["uid"]

    async def pod(self, name: str, *, on: str = "") -> None:
        """A pod with the claim of its name; `on` binds it to a node as a nodeSelector does, which leaves the choice to the scheduler."""
        body = programs.pod(name, name, **({"nodeSelector": {_HOSTNAME: on}} if on else {}))
        await self.api.create(PODS, body, namespace=NAMESPACE)

    def misbehave(self, *faults: Json) -> None:
        """Sets the faults of all drivers from now on; none if none is given."""
        for driver in self.drivers.values():
            driver.misbehave(*faults)

    async def furnish(self, node_labels: Mapping[str, str]) -> None:
        """Creates what an administrator and the kubelets would have created."""
        if (await self.api.list_page(NODES, limit=1)).items:
            raise Failed("this cluster has nodes already; the demo wants one of its own, and makes the nodes itself")
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False, "storageCapacity": True}})
        for binding, name in CLASS_OF.items():
            await self.api.create(CLASSES, programs.storage_class(name, DRIVER, binding))
        resources = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        for name, driver in self.drivers.items():
            meta = {"name": name, "labels": {_HOSTNAME: name, driver.key: name, **node_labels}}
            await self.api.create(NODES, {"metadata": meta, "status": {"allocatable": resources, "capacity": resources}})
            known = {"drivers": [{"name": DRIVER, "nodeID": name, "topologyKeys": [driver.key]}]}
            await self.api.create(CSI_NODES, {"metadata": {"name": name}, "spec": known})

    def verdict(self) -> tuple[str, bool]:
        """The drivers' own state against what the API server says, and whether they agree."""
        made = [volume for name in self.drivers for volume in self.state(name).volumes.values()]
        told = [volume["spec"] for volume in self._now[VOLUMES].values() if volume["spec"].get("csi", {}).get("driver") == DRIVER]
        handles = {spec["csi"]["volumeHandle"] for spec in told}
        leaked = [volume.id for volume in made if volume.id not in handles]
        lost = sorted(handles - {volume.id for volume in made})
        twice = Counter([volume.name for volume in made] + [spec["claimRef"]["name"] for spec in told])
        doubled = sorted(name for name, count in twice.items() if count > 1)
        counts = f"{len(leaked)} leaked, {len(doubled)} doubled"
        text = f"{len(made)} volumes in the drivers' own state, {len(told)} PersistentVolumes: {counts}"
        found = [f"\n  {word}: {name}" for word, some in (("leaked", leaked), ("doubled", doubled), ("lost", lost)) for name in some]
        return text + "".join(found), not found


@asynccontextmanager
async def staged(
    work: Path, kubeconfig: Path | None, sidecar_kubeconfig: Path | None, node_labels: Mapping[str, str]
) -> AsyncIterator[tuple[Stage, Path]]:
    """The stage with everything running, and a kubeconfig for it. Without a kubeconfig it starts a control plane of its own.
    `sidecar_kubeconfig` has the rights that sidecars have; without it they use the demo's own."""
    async with contextlib.AsyncExitStack() as stack:
        if kubeconfig is None:
            kubeconfig = await stack.enter_async_context(_control_plane(work / "kubeconfig"))
        drivers = {name: OurDriver(work, node=name, name=DRIVER, pools={"main": pool}) for name, pool in POOLS.items()}
        how: dict[str, Any] = {"kubeconfig": sidecar_kubeconfig or kubeconfig, "args": _ARGS, "environ": {"NAMESPACE": NAMESPACE}}
        sidecars = {name: Sidecar(work, node=name, address=driver.socket, **how) for name, driver in drivers.items()}
        api = await stack.enter_async_context(await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}))
        stage = Stage(api, drivers, sidecars)
        await stage.furnish(node_labels)
        stage.say(f"starting three drivers ({', '.join(f'{name} {size}' for name, size in POOLS.items())}) and three sidecars")
        running = all_of([*drivers.values(), *sidecars.values()])
        await asyncio.to_thread(running.__enter__)
        stack.push_async_callback(asyncio.to_thread, running.__exit__, None, None, None)
        await stage.until_ready()
        stage.say("the sidecars are ready")
        await stage.until_settled()
        yield stage, kubeconfig


@asynccontextmanager
async def _control_plane(kubeconfig: Path) -> AsyncIterator[Path]:
    """The simulated API server in this process, and with it those who bind, schedule and run pods."""
    print("starting the embedded API server, with stand-ins for volume controller, scheduler and kubelets", flush=True)
    cluster = ApiServer(clock=time.time, rng=random.random)
    base = StandInBase(InProcessApi(cluster), clock=time.monotonic, rng=random.Random())
    for stand_in in (Binder, Scheduler, Kubelet):
        stand_in(base)

    async def collect() -> None:
        while True:
            await asyncio.sleep(1.0)
            cluster.collect_garbage()

    async with serving_cluster(cluster) as served:
        at_work = [asyncio.create_task(base.run()), asyncio.create_task(collect())]
        yield served.kubeconfig(kubeconfig)
        for task in at_work:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
