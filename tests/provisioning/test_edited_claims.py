"""A claim that fails is tried again with back-off, however often its owner edits it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import CLAIMS, MERGE_PATCH
from sidecar.model import names
from tests.harness.drain.simulated import play, wait

MINUTES = 2
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
EDITS: dict[str, Callable[[int], dict[str, Any]]] = {
    "a note": lambda number: {"annotations": {"note": str(number)}},
    "our note": lambda number: {"annotations": {names.TRIED_BY: f"{number} n0"}},
    "a finalizer": lambda number: {"finalizers": [names.CLONE_FINALIZER] if number % 2 else []},
    "an owner": lambda number: {"ownerReferences": [OWNER] if number % 2 else []},
    "a class": lambda number: {"annotations": {names.STORAGE_CLASS_BETA: "late" if number % 2 else None}},
}


class Refusing:
    """A driver that makes nothing."""

    def __init__(self, code: Code) -> None:
        self.code, self.calls = code, 0

    async def create_volume(self, request: object, **_: object) -> Any:
        self.calls += 1
        raise DriverError(self.code, "not now")


async def refused(bench: NotebookWorld, code: Code) -> Refusing:
    driver = Refusing(code)
    sidecar = bench.nodes["n0"].sidecar
    assert sidecar is not None
    sidecar.provisioning.room._creator._driver = driver  # type: ignore[assignment]
    spec = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    notes = {names.STORAGE_PROVISIONER: DRIVER, names.SELECTED_NODE: "n0"}
    meta = {"name": "a", "namespace": "default", "annotations": notes}
    await bench.you.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace="default")
    return driver


@pytest.mark.parametrize("code", [Code.INTERNAL, Code.DEADLINE_EXCEEDED, Code.FAILED_PRECONDITION])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_each_second_is_no_call_each_second(code: Code, edit: str) -> None:
    calls: list[int] = []

    async def story(bench: NotebookWorld) -> None:
        driver = await refused(bench, code)
        await wait(bench, 5)
        before = driver.calls
        for number in range(MINUTES * 60):
            meta = {"metadata": EDITS[edit](number)}
            await bench.you.patch(CLAIMS, "a", meta, content_type=MERGE_PATCH, namespace="default")
            await asyncio.sleep(1)
        calls.append(driver.calls - before)

    play(story, args=())
    assert calls[0] <= MINUTES * 4 + 6, "four a minute, and those of the back-off"


def test_who_mends_a_claim_need_not_wait_for_the_end_of_a_long_back_off() -> None:
    async def story(bench: NotebookWorld) -> None:
        driver = await refused(bench, Code.INTERNAL)
        await wait(bench, 260)
        before = driver.calls
        await wait(bench, 16)
        assert driver.calls == before
        meta = {"metadata": {"annotations": {"note": "mended"}}}
        await bench.you.patch(CLAIMS, "a", meta, content_type=MERGE_PATCH, namespace="default")
        await wait(bench, 1)
        assert driver.calls == before + 1

    play(story, args=())
