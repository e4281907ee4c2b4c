"""A volume that others change all the time is worked on no more often than one that they leave alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hack.sim.driver.faults import Fault
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.claim_rates import DELETIONS, MOST, WRITES
from hack.sim.world.node import DRIVER
from sidecar.csi.outcome import Code
from sidecar.kube.api import CLAIMS, MERGE_PATCH, VOLUMES
from sidecar.model.names import SELECTED_NODE, STORAGE_PROVISIONER
from tests.harness.drain.simulated import play, wait

PAUSE, TIMES = 0.5, 180


async def volume(bench: NotebookWorld) -> str:
    """The name of one that is bound."""
    spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "a", "namespace": "default", "annotations": {STORAGE_PROVISIONER: DRIVER, SELECTED_NODE: "n0"}}
    await bench.you.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace="default")
    await wait(bench, 3)
    (made,) = (await bench.you.list_page(VOLUMES)).items
    assert made["status"]["phase"] == "Bound"
    name: str = made["metadata"]["name"]
    return name


async def released(bench: NotebookWorld) -> str:
    """One that the driver does not delete."""
    name = await volume(bench)
    bench.nodes["n0"].strike(Fault(method="DeleteVolume", fail=Code.INTERNAL, times=10**6))
    await bench.you.delete(CLAIMS, "a", namespace="default")
    await wait(bench, 5)
    return name


async def patch(bench: NotebookWorld, name: str, body: dict[str, Any]) -> None:
    await bench.you.patch(VOLUMES, name, body, content_type=MERGE_PATCH)


async def edited(bench: NotebookWorld, name: str, number: int) -> None:
    await patch(bench, name, {"metadata": {"annotations": {"note": str(number)}}})


async def policy_changed(bench: NotebookWorld, name: str, number: int) -> None:
    await patch(bench, name, {"spec": {"persistentVolumeReclaimPolicy": "Delete" if number % 2 else "Retain"}})


async def finalizer_taken_off(bench: NotebookWorld, name: str, _: int) -> None:
    await patch(bench, name, {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}})


async def driver_lost(bench: NotebookWorld, _: str, __: int) -> None:
    bench.nodes["n0"].driver_away()
    await asyncio.sleep(0.1)
    bench.nodes["n0"].driver_back()


BEGINNINGS: dict[str, Callable[[NotebookWorld], Awaitable[str]]] = {"bound": volume, "released": released}
CHANGES: dict[str, Callable[[NotebookWorld, str, int], Awaitable[None]]] = {
    "edited": edited,
    "policy changed": policy_changed,
    "finalizer taken off": finalizer_taken_off,
    "driver lost": driver_lost,
}


@pytest.mark.parametrize(
    ("begin", "change", "what"),
    [
        ("released", "edited", DELETIONS),
        ("released", "driver lost", DELETIONS),
        ("released", "policy changed", DELETIONS),
        ("bound", "policy changed", WRITES),
        ("bound", "finalizer taken off", WRITES),
    ],
)
def test_changes_are_no_calls_and_no_writes(begin: str, change: str, what: str) -> None:
    counts: dict[str, int] = {}

    async def story(bench: NotebookWorld) -> None:
        name = await BEGINNINGS[begin](bench)
        for number in range(TIMES):
            await CHANGES[change](bench, name, number)
            await asyncio.sleep(PAUSE)
        for asker, count in bench.request_log.rates.busiest():
            counts[asker.what] = max(counts.get(asker.what, 0), count)

    play(story, args=(), nodes=("n0",))
    assert counts[what] > 4 and all(count <= MOST[what] for what, count in counts.items()), counts


def test_who_mends_a_volume_need_not_wait_for_the_end_of_a_long_back_off() -> None:
    async def story(bench: NotebookWorld) -> None:
        name = await released(bench)
        await wait(bench, 600)
        bench.nodes["n0"].strike(None)
        await edited(bench, name, 1)
        await wait(bench, 1)
        assert (await bench.you.list_page(VOLUMES)).items == []

    play(story, args=(), nodes=("n0",))
