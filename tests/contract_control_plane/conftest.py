"""One suite for the components around the API server: our stand-ins on the embedded one, and the real ones on a real one.

Tests here are coroutines that ask for `land`. What holds for the one side and not for the other is wrong in the stand-in.
"""

import asyncio
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from hack.lib.control_plane import ALL_COMPONENTS, ControlPlane, binaries
from hack.lib.kwok import KWOK_LABEL
from hack.sim.clock import run_virtual
from hack.sim.cluster import Cluster, InProcessApi
from hack.sim.stand_ins import (
    AttachDetach,
    Binder,
    DaemonSetPods,
    Disruptions,
    EphemeralClaims,
    Kubelet,
    PodGarbageCollector,
    Scheduler,
    StandInBase,
    StatefulSets,
)
from sidecar.kube.api import NODES
from sidecar.kube.client import open_client
from tests.contract_control_plane.land import Land

Story = Callable[[Land], Coroutine[Any, Any, None]]
_numbers = itertools.count(1)
STAND_INS = (Binder, Scheduler, AttachDetach, DaemonSetPods, StatefulSets, EphemeralClaims, Disruptions, PodGarbageCollector)
MANAGED = {KWOK_LABEL: "fake"}
"""The label of nodes for which a kubelet speaks."""


class Side(Protocol):
    """Who plays the components."""

    def play(self, story: Story) -> None:
        """Run the coroutine that `story` makes of a land, and leave nothing of it behind."""
        ...


class StandIns:
    def play(self, story: Story) -> None:
        async def whole() -> None:
            loop = asyncio.get_running_loop()
            cluster = Cluster(clock=lambda: 1_767_225_600.0 + loop.time(), rng=random.Random(1).random)
            api = InProcessApi(cluster)
            base = StandInBase(api, clock=loop.time, rng=random.Random(2))
            for stand_in in STAND_INS:
                stand_in(base)
            Kubelet(base, silent=Silent(cluster))
            at_work = [asyncio.create_task(base.run()), asyncio.create_task(_collect(cluster))]
            await story(Land(api, number=1, node_labels=MANAGED))
            for task in at_work:
                task.cancel()
            await asyncio.gather(*at_work, return_exceptions=True)

        run_virtual(whole(), limit=3600.0)


@dataclass(frozen=True)
class Silent:
    """The nodes for which no kubelet speaks."""

    cluster: Cluster

    def __contains__(self, name: object) -> bool:
        node = self.cluster.store.find(NODES, str(name))
        return node is None or not MANAGED.items() <= (node["metadata"].get("labels") or {}).items()


async def _collect(cluster: Cluster) -> None:
    while True:
        await asyncio.sleep(0.5)
        cluster.collect_garbage()


class RealComponents:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def play(self, story: Story) -> None:
        async def whole() -> None:
            api = await open_client(kubeconfig=str(self._plane.kubeconfig), qps=-1.0, environ={})
            land = Land(api, number=next(_numbers), node_labels=MANAGED)
            try:
                async with asyncio.timeout(120):
                    await story(land)
            finally:
                await land.clear()
                await api.aclose()

        asyncio.run(whole())


@pytest.fixture(scope="session", params=["stand-ins", pytest.param("real-components", marks=pytest.mark.real_api)])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    if request.param == "stand-ins":
        yield StandIns()
    else:
        with ControlPlane(binaries("core", "kwok"), tmp_path_factory.mktemp("plane"), components=ALL_COMPONENTS) as plane:
            yield RealComponents(plane)


@pytest.fixture
def land(side: Side) -> Side:
    """In its place the test is given the land that this side makes for it, inside a running loop."""
    return side


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    def story(land: Land) -> Coroutine[Any, Any, None]:
        told: Coroutine[Any, Any, None] = pyfuncitem.obj(land=land)
        return told

    side = pyfuncitem.funcargs["land"]
    assert isinstance(side, StandIns | RealComponents)
    side.play(story)
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many scenarios each side passed."""
    passed: Counter[str] = Counter()
    here = f"tests/{Path(__file__).parent.name}/"
    for report in terminalreporter.stats.get("passed", []):
        if here in report.nodeid and report.when == "call":
            passed["real components" if "real-components" in report.nodeid else "stand-ins"] += 1
    for name, count in passed.items():
        terminalreporter.write_line(f"control plane: {count} scenarios hold for {name}")
