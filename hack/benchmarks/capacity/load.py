"""Claims that come and go on one node at a steady rate, and a watcher who notes when each published figure reaches it.

The claims are late-binding with their node chosen, as the scheduler leaves them. What the volume controller writes is written from here:
the real one takes a claim at a time, and with the servers on the same few CPUs it falls seconds behind what is to be measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hack.benchmarks.capacity.ages import Json, Sighting
from hack.lib.programs import claim
from sidecar.kube.api import CAPACITIES, CLAIMS, MERGE_PATCH, VOLUMES, Resource, WatchEvent
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names
from sidecar.model.quantity import parse_bytes

NAMESPACE = "default"
# No two of them are likely to give and take the same: a figure that stays as it was would prove nothing.
SIZES_MIB = range(256, 1792)
OLD_ENOUGH = 2.0
"""Seconds a claim stays bound."""
TIME_TO_VANISH = 120.0


@dataclass(frozen=True)
class Load:
    """Changes a second, half of them creations and half deletions; seconds of it before and while it is measured."""

    rate: float
    warm_up: float
    seconds: float


@dataclass(frozen=True)
class Played:
    """The part that counts, by the wall clock, and every figure that was seen from the beginning to the end."""

    begins: float
    ends: float
    figures: list[Sighting]


async def play(kubeconfig: Path, *, class_: str, driver: str, node: str, load: Load) -> Played:
    """Ends when all claims and volumes are gone again."""
    figures: list[Sighting] = []
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube, asyncio.TaskGroup() as group:
        marks = {names.STORAGE_PROVISIONER: driver, names.STORAGE_PROVISIONER_BETA: driver, names.SELECTED_NODE: node}
        user = _User(kube, group, class_=class_, marks=marks)
        watchers = [
            group.create_task(_watch(kube, CAPACITIES, lambda event: _note_figure(figures, event))),
            group.create_task(_watch(kube, VOLUMES, user.notice)),
        ]
        begins = time.time() + load.warm_up
        await user.come_and_go(load)
        await user.leave()
        for watcher in watchers:
            watcher.cancel()
    return Played(begins, begins + load.seconds, figures)


class _User:
    """Creates and deletes claims, and is the volume controller for them."""

    def __init__(self, kube: KubeClient, group: asyncio.TaskGroup, *, class_: str, marks: dict[str, str]) -> None:
        self._kube = kube
        self._group = group
        self._class = class_
        self._marks = marks
        self._created = self._met = self._gone = 0
        self._owed = 0
        self._bound: deque[tuple[float, str, str]] = deque()
        """Since when, and the names of claim and volume."""
        self._moved = asyncio.Event()

    async def come_and_go(self, load: Load) -> None:
        """By the clock, not by the answers: whoever is slow gets a backlog."""
        dice = random.Random(1)
        started = time.monotonic()
        for turn in range(round(load.rate * (load.warm_up + load.seconds))):
            await asyncio.sleep(max(0.0, started + turn / load.rate - time.monotonic()))
            if turn % 2 == 0:
                self._create(dice.choice(SIZES_MIB))
            else:
                self._owed += 1
            while self._owed and self._bound and self._bound[0][0] <= time.monotonic() - OLD_ENOUGH:
                self._owed -= 1
                self._delete_oldest()

    async def leave(self) -> None:
        """Delete what is left. Every claim gets its volume first, so that none is made for a claim that is gone."""
        async with asyncio.timeout(TIME_TO_VANISH):
            await self._until(lambda: self._met == self._created)
            while self._bound:
                self._delete_oldest()
            await self._until(lambda: self._gone == self._created)

    def notice(self, event: WatchEvent) -> None:
        if event.type == "ADDED":
            self._do(self._bind(event.object))
        elif event.type == "DELETED":
            self._gone += 1
            self._moved.set()

    def _create(self, mebibytes: int) -> None:
        self._created += 1
        body = claim(f"bench-{self._created}", self._class, size=f"{mebibytes}Mi", annotations=self._marks)
        self._do(self._kube.create(CLAIMS, body, namespace=NAMESPACE))

    def _delete_oldest(self) -> None:
        _, name, volume = self._bound.popleft()
        self._do(self._release(name, volume))

    async def _bind(self, volume: Json) -> None:
        name, claim_name = volume["metadata"]["name"], volume["spec"]["claimRef"]["name"]
        await self._set_status(VOLUMES, name, {"phase": "Bound"})
        binding = {"spec": {"volumeName": name}, "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
        await self._kube.patch(CLAIMS, claim_name, binding, content_type=MERGE_PATCH, namespace=NAMESPACE)
        status = {"phase": "Bound", "accessModes": volume["spec"]["accessModes"], "capacity": volume["spec"]["capacity"]}
        await self._set_status(CLAIMS, claim_name, status)
        self._bound.append((time.monotonic(), claim_name, name))
        self._met += 1
        self._moved.set()

    async def _release(self, claim_name: str, volume: str) -> None:
        await self._kube.delete(CLAIMS, claim_name, namespace=NAMESPACE)
        await self._set_status(VOLUMES, volume, {"phase": "Released"})

    async def _set_status(self, resource: Resource, name: str, status: Json) -> None:
        namespace = NAMESPACE if resource.namespaced else ""
        await self._kube.patch(resource, name, {"status": status}, content_type=MERGE_PATCH, namespace=namespace, subresource="status")

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        self._group.create_task(work)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._moved.clear()
            await self._moved.wait()


async def _watch(kube: KubeClient, resource: Resource, note: Callable[[WatchEvent], None]) -> NoReturn:
    """Begun again where it ended: a server that is short of breath ends watches, and nothing may be missed."""
    namespace = NAMESPACE if resource.namespaced else ""
    page = await kube.list_page(resource, namespace=namespace)
    for item in page.items:
        note(WatchEvent("ADDED", item))
    version = page.resource_version
    while True:
        async for event in kube.watch(resource, namespace=namespace, resource_version=version):
            version = event.resource_version
            if event.type != "BOOKMARK":
                note(event)


def _note_figure(figures: list[Sighting], event: WatchEvent) -> None:
    if event.type != "DELETED":
        figures.append(Sighting(time.time(), event.resource_version, parse_bytes(event.object.get("capacity", 0))))
