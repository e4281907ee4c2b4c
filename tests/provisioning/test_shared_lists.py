"""Before a deletion all PersistentVolumes are listed. Hundreds that are due together share a few lists, also where all of them fail."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.csi.api import Capability, CreatedVolume, CreateRequest
from sidecar.csi.outcome import Code
from sidecar.kube.api import VOLUMES, Page, Resource
from sidecar.model.objects import Volume
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord
from tests.harness import samples
from tests.harness.provisioning.bench import rpc
from tests.harness.provisioning.room import KeepingKube, OpenDriver, Room

MANY, WORKERS, PAGES = 100, 50, 6
HOUR = 3600.0
APART = 3.0
"""Seconds: as a limit of requests, or their users, have them come."""
REQUEST = CreateRequest(name="", required_bytes=100, capabilities=(Capability("SINGLE_NODE_WRITER"),))


@dataclass
class PagedKube(KeepingKube):
    """A list of volumes has so many pages, of which each takes a moment, as does a read."""

    pages: list[float] = field(default_factory=list)

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return await super().get(resource, name, namespace=namespace)

    async def list_page(self, resource: Resource, *, continue_token: str = "", namespace: str = "", **more: Any) -> Page:
        await asyncio.sleep(0.03)
        number = int(continue_token or 0) + 1
        if resource == VOLUMES:
            self.pages.append(asyncio.get_running_loop().time())
        found = await super().list_page(resource, namespace=namespace) if number == 1 else Page([], "1", "")
        return replace(found, continue_token=str(number) if number < PAGES else "")


class Town(Room):
    """A room on the clock of the loop."""

    kube: PagedKube

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @now.setter
    def now(self, _: float) -> None:
        pass


def town(**driver: Any) -> Town:
    made = Town(driver=OpenDriver(own_handles=True, **driver), kube=PagedKube(), options={"volume_name_uuid_length": -1})
    made.see(class_=samples.class_())
    return made


def records(*, deleting: bool) -> dict[str, CreationRecord]:
    uids = [f"uid-{number:03}" for number in range(MANY)]
    begun = {uid: CreationRecord(uid, "fake-ns", f"of-{uid}", "fake-class", replace(REQUEST, name=f"test-{uid}")) for uid in uids}
    if deleting:
        return {uid: replace(record, deletion=BegunDeletion(f"handle-{uid}")) for uid, record in begun.items()}
    return begun


async def follow(keys: list[str], look: Callable[[str], Awaitable[float | None]], *, until: float, apart: float = 0.0) -> int:
    """What the loop does with keys that come so many seconds apart, with so many workers. Returns how many are left."""
    loop, workers, left = asyncio.get_running_loop(), asyncio.Semaphore(WORKERS), set(keys)

    async def one(key: str) -> None:
        due: float | None = loop.time() + apart * keys.index(key)
        while due is not None and due < until:
            await asyncio.sleep(due - loop.time())
            async with workers:
                due = await look(key)
        if due is None:
            left.discard(key)

    await asyncio.gather(*map(one, keys))
    return len(left)


def begun(made: Callable[[], Town], *, deleting: bool, seconds: float, apart: float = 0.0) -> tuple[int, list[float]]:
    """How many are left, and when a page was asked for."""

    async def story() -> tuple[int, list[float]]:
        there = made()
        there.paper.lines |= records(deleting=deleting)
        await there.room.take_over()
        left = await follow(list(there.paper.lines), there.room.handle_claim, until=seconds, apart=apart)
        return left, there.kube.pages

    return run_virtual(story())


def released(made: Callable[[], Town], *, seconds: float, apart: float) -> tuple[int, list[float]]:
    async def story() -> tuple[int, list[float]]:
        there = made()
        for number in range(MANY):
            source = {"driver": samples.DRIVER, "volumeHandle": f"handle-{number}"}
            obj = samples.volume_json(meta={"name": f"pv-{number}", "uid": f"uid-{number}"}, spec={"csi": source})
            there.add("persistentvolumes", obj).see(volume=Volume.of(obj))
        left = await follow([f"pv-{number}" for number in range(MANY)], there.room.removal.handle, until=seconds, apart=apart)
        return left, there.kube.pages

    return run_virtual(story())


def test_what_a_process_leaves_that_died_under_load_costs_few_lists() -> None:
    left, pages = begun(lambda: town(creates=[CreatedVolume("made", 100)]), deleting=False, seconds=60.0)
    assert left == 0
    assert len(pages) <= 10 * PAGES, f"{len(pages)} pages for {MANY} leftovers"


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(lambda made: begun(made, deleting=True, seconds=HOUR, apart=APART), id="of creations"),
        pytest.param(lambda made: released(made, seconds=HOUR, apart=APART), id="of released volumes"),
    ],
)
def test_a_driver_that_deletes_nothing_costs_few_lists_in_the_long_run(play: Callable[[Any], tuple[int, list[float]]]) -> None:
    left, pages = play(lambda: town(deletes=[rpc(Code.INTERNAL)]))
    late = [at for at in pages if at > HOUR / 2]
    assert left == MANY
    assert len(late) <= 700, f"{len(late)} pages in half an hour for {MANY} deletions that fail"
