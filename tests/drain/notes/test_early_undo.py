"""What was announced for a node is taken off its volumes also while its driver is dead, and whatever process came after that."""

import asyncio
import contextlib

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.config.parse import Parsed, parse
from sidecar.doors import Instruments
from sidecar.drain.notes.early_undo_io import EVERY, LISTED_EVERY
from sidecar.errors import Fatal
from sidecar.kube.api import CLAIMS, NODES, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from sidecar.model import names
from sidecar.start import before_the_driver
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import node_loss
from tests.harness.drain.node_loss import CLEANING, gone, one_replica, there, vanish
from tests.harness.drain.notes import Writes, apps, marks, play
from tests.harness.drain.simulated import EVACUATE, Json, all_of, change, wait

SOON = 2 * EVERY


async def announced(bench: NotebookWorld) -> None:
    """Both nodes, by word and by note; then n0 has lost its driver, and its sidecar has started since."""
    await apps(bench, "n0", "n1", "n0")
    await wait(bench, 60)
    for node in ("n0", "n1"):
        await change(bench, node, {"taints": [EVACUATE]})
    await wait(bench, 30)
    assert set((await marks(bench)).values()) == {("n0", "n0"), ("n1", "n1")}
    bench.nodes["n0"].driver_away()
    bench.nodes["n0"].kill()
    await wait(bench, 60)


def test_an_undo_is_heard_although_the_driver_is_dead_and_other_nodes_keep_their_word() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await announced(bench)
        before = len(seen.calls)
        await wait(bench, 600)
        assert len(seen.calls) == before, "it is still announced"
        await change(bench, "n0", {"taints": None})
        await wait(bench, SOON)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", "n1"), "app-2": ("n0", "")}
        assert len(seen.calls) == before + 2
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, SOON)
        assert len(seen.calls) == before + 2, "what is noted anew waits for the driver"
        bench.nodes["n0"].driver_back()
        await wait(bench, 120)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n1", "n1"), "app-2": ("n0", "n0")}

    play(story, seen)


@pytest.mark.parametrize("error", [Conflict("changed", status=409), Forbidden("no"), Unavailable("no answer")])
def test_what_is_refused_is_tried_again_and_keeps_no_other_one(error: ApiError) -> None:
    refused: list[str] = []
    benches: list[NotebookWorld] = []

    def refuse(call: Call) -> ApiError | None:
        if not benches or call.resource != VOLUMES or call.verb != "patch":
            return None
        refused.append(call.name)
        return error if len(refused) in (1, 2) else None

    async def story(bench: NotebookWorld) -> None:
        await announced(bench)
        benches.append(bench)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 3 * SOON)
        assert {found for claim, found in (await marks(bench)).items() if claim != "app-1"} == {("n0", "")}
        assert len(refused) == 4

    play(story, Writes(refuse))


def test_a_driver_that_is_dead_for_long_has_volumes_listed_seldom() -> None:
    lists: list[str] = []

    def count(call: Call) -> None:
        if call.resource == VOLUMES and call.verb == "list" and benches:
            lists.append(call.verb)

    benches: list[NotebookWorld] = []

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0")
        await wait(bench, 60)
        bench.nodes["n1"].kill()
        bench.nodes["n1"].driver_away()
        bench.nodes["n0"].driver_away()
        bench.nodes["n0"].kill()
        await wait(bench, SOON)
        benches.append(bench)
        await wait(bench, 4 * LISTED_EVERY)
        assert 2 <= len(lists) <= 10

    node_loss.simulated.play(story, args=("--drain-report",), refuse=count)


def test_nothing_is_deleted_if_the_node_is_lost_after_the_undo() -> None:
    async def story(bench: NotebookWorld) -> None:
        await one_replica(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        (stored,) = await all_of(bench, VOLUMES)
        assert stored["metadata"]["annotations"][names.LEAVING]
        bench.nodes["n0"].driver_away()
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        await change(bench, "n0", {"taints": None})
        await wait(bench, SOON)
        await vanish(bench)
        await wait(bench, 1200)
        assert (await gone(bench))["evidence"] == "None"
        assert await there(bench, VOLUMES) == [stored["metadata"]["name"]]
        assert await there(bench, CLAIMS) == ["data-db-0"]

    node_loss.play(story, args=CLEANING)


class Remembered:
    """The driver that the process before has served."""

    async def read(self) -> str:
        return DRIVER

    async def write(self, driver: str) -> None:
        pass


@pytest.mark.parametrize(("taints", "after"), [([], False), ([EVACUATE], True)], ids=["undone", "announced"])
@pytest.mark.parametrize("met", ["", "another.example.com"], ids=["the driver fails at once", "another driver answers"])
def test_a_process_that_never_meets_that_driver_takes_it_off_too(met: str, taints: list[Json], after: bool) -> None:
    parsed = parse(["--node-deployment", *CLEANING], {"NODE_NAME": "n0", "NAMESPACE": "default"})
    assert isinstance(parsed, Parsed)
    config = parsed.config

    async def story() -> None:
        kube = InProcessApi(new_cluster())
        node = await kube.create(NODES, {"metadata": {"name": "n0"}, "spec": {"taints": taints}})
        said = {names.LEAVING: f"n0/{node['metadata']['uid']}"}
        csi = {"driver": DRIVER, "volumeHandle": "h"}
        spec = {"csi": csi, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
        await kube.create(VOLUMES, {"metadata": {"name": "pv", "annotations": said}, "spec": spec})
        with contextlib.suppress(ExceptionGroup):
            async with before_the_driver(config, kube, Instruments(wall=lambda: 0.0), Remembered) as meet:
                if not met:
                    raise Fatal("the driver failed NodeGetInfo")
                await meet(met)
                await asyncio.sleep(SOON)
        stored = await kube.get(VOLUMES, "pv")
        assert (names.LEAVING in (stored["metadata"].get("annotations") or {})) is after

    run_virtual(story())
