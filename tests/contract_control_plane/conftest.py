"""One suite for the components around the API server: our stand-ins on the embedded one, and the real ones on a real one.

Tests here are coroutines on a `land` of their own. What holds for the one side and not for the other is wrong in the stand-in.
"""

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, binaries
from hack.lib.kwok import KWOK_LABEL
from hack.sim.clock import VirtualTimeLoop
from hack.sim.cluster import ApiServer, InProcessApi
from hack.sim.stand_ins import Binder, Disruptions, EphemeralClaims, Kubelet, PodGarbageCollector, Scheduler, StandInBase, StatefulSets
from hack.sim.stand_ins.node_controllers import AttachDetach, NodeLifecycle
from sidecar.kube.api import NODES
from sidecar.kube.client import open_client
from tests.contract_control_plane.land import LOST, Land
from tests.harness.coroutines import break_off, run_in_runner

_numbers = itertools.count(1)
STAND_INS = (Binder, Scheduler, StatefulSets, EphemeralClaims, Disruptions, PodGarbageCollector)
MANAGED = {KWOK_LABEL: "fake"}
"""The label of nodes for which a kubelet speaks."""


class Side(Protocol):
    """Who plays the components, and by which clock."""

    loop: Callable[[], asyncio.AbstractEventLoop]

    def land(self) -> AbstractAsyncContextManager[Land]:
        """Leaves nothing of it behind."""
        ...


class StandIns:
    loop = staticmethod(lambda: VirtualTimeLoop(limit=3600.0))

    @asynccontextmanager
    async def land(self) -> AsyncIterator[Land]:
        loop = asyncio.get_running_loop()
        cluster = ApiServer(clock=lambda: 1_767_225_600.0 + loop.time(), rng=random.Random(1).random)
        api = InProcessApi(cluster)
        base = StandInBase(api, clock=loop.time, rng=random.Random(2))
        for stand_in in STAND_INS:
            stand_in(base)
        Kubelet(base, silent=Silent(cluster))
        land = Land(api, number=1, node_labels=MANAGED)
        lifecycle = NodeLifecycle(api, clock=loop.time, nodes=[land.own(LOST)])
        attaching = AttachDetach(api, land.attaching, clock=loop.time, dice=random.Random(3), in_use=functools.partial(_in_use, cluster))
        at_work = [asyncio.create_task(run) for run in (base.run(), _collect(cluster), lifecycle.run(), attaching.run())]
        yield land
        for task in at_work:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)


@dataclass(frozen=True)
class Silent:
    """The nodes for which no kubelet speaks."""

    cluster: ApiServer

    def __contains__(self, name: object) -> bool:
        node = self.cluster.store.find(NODES, str(name))
        return node is None or not MANAGED.items() <= (node["metadata"].get("labels") or {}).items()


def _in_use(cluster: ApiServer, node: str, handle: str) -> bool:
    found = cluster.store.find(NODES, node) or {}
    return any(name.endswith(f"^{handle}") for name in (found.get("status") or {}).get("volumesInUse") or ())


async def _collect(cluster: ApiServer) -> None:
    while True:
        await asyncio.sleep(0.5)
        cluster.collect_garbage()


class RealComponents:
    loop = staticmethod(asyncio.new_event_loop)

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    @asynccontextmanager
    async def land(self) -> AsyncIterator[Land]:
        api = await open_client(kubeconfig=str(self._plane.kubeconfig), qps=-1.0, environ={})
        land = Land(api, number=next(_numbers), node_labels=MANAGED)
        yield land
        await land.clear()
        await api.aclose()


@pytest.fixture(scope="session", params=["stand-ins", pytest.param("real-components", marks=pytest.mark.real_api)])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    if request.param == "stand-ins":
        yield StandIns()
    else:
        with ControlPlane(binaries("core", "kwok"), tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as plane:
            yield RealComponents(plane)


@pytest.fixture
def runner(side: Side) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=side.loop) as runner:
        yield runner
        break_off(runner)


@pytest.fixture
def land(side: Side, runner: asyncio.Runner) -> Iterator[Land]:
    context = side.land()
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_in_runner(pyfuncitem)
