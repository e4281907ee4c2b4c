"""Claims that are made by the clock or all at once, and the one observer who notes what becomes of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from hack.lib.programs import Json, claim
from sidecar.kube.api import CLAIMS, WatchEvent
from sidecar.kube.client import KubeClient, open_client
from sidecar.model import names

NAMESPACE = "default"
WRITES_AT_ONCE = 32


@dataclass(frozen=True)
class Phase:
    """Claims of 1 GiB; without a rate they come as fast as they can be written."""

    name: str
    class_: str
    claims: int
    rate: float | None = None
    nodes: Sequence[str] = ()
    """Chosen for the claims in turn, as a scheduler would for pods that are to run there; empty: the programs decide."""

    def claim(self, number: int) -> Json:
        chosen = {names.SELECTED_NODE: self.nodes[number % len(self.nodes)]} if self.nodes else {}
        return claim(f"{self.name}-{number}", self.class_, annotations=chosen)


@dataclass
class Seen:
    """One claim, by the wall clock. All but `created` is when the observer was told; infinity: not yet."""

    created: float
    asked: float = float("inf")
    """The volume controller has named the provisioner: from here on the race is open."""
    owned: float = float("inf")
    """The first time a node was selected."""
    bound: float = float("inf")
    node: str = ""
    """The one that was selected last."""


@dataclass
class Played:
    """What the observer saw in one phase; nothing of it is looked at while it is still going on."""

    seen: dict[str, Seen] = field(default_factory=dict)

    @property
    def bound(self) -> list[Seen]:
        return [item for item in self.seen.values() if item.bound < float("inf")]


async def play(kubeconfig: Path, phase: Phase, *, patience: float) -> Played:
    """Until every claim is bound, or none has been for so many seconds."""
    played = Played()
    async with await open_client(kubeconfig=str(kubeconfig), qps=-1.0, environ={}) as kube:
        page = await kube.list_page(CLAIMS, namespace=NAMESPACE, limit=1)
        watcher = asyncio.create_task(_observe(kube, played, since=page.resource_version))
        try:
            await _create(kube, played, phase)
            await _settle(played, watcher, patience=patience)
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
    return played


async def _create(kube: KubeClient, played: Played, phase: Phase) -> None:
    numbers = iter(range(phase.claims))
    started = time.monotonic()

    async def write(number: int) -> None:
        body = phase.claim(number)
        played.seen[body["metadata"]["name"]] = Seen(time.time())
        await kube.create(CLAIMS, body, namespace=NAMESPACE)

    async def work(numbers: Iterable[int]) -> None:
        for number in numbers:
            await write(number)

    async with asyncio.TaskGroup() as group:
        if phase.rate is None:
            for _ in range(WRITES_AT_ONCE):
                group.create_task(work(numbers))
        else:
            for number in numbers:
                await asyncio.sleep(max(0.0, started + number / phase.rate - time.monotonic()))
                group.create_task(write(number))


async def _settle(played: Played, watcher: asyncio.Task[NoReturn], *, patience: float) -> None:
    moved, count = time.monotonic(), 0
    while (now_bound := len(played.bound)) < len(played.seen) and time.monotonic() < moved + patience:
        if now_bound > count:
            moved, count = time.monotonic(), now_bound
        if watcher.done():
            watcher.result()
        await asyncio.sleep(0.1)


async def _observe(kube: KubeClient, played: Played, *, since: str) -> NoReturn:
    """Begun again where it ended: a server that is short of breath ends watches, and nothing may be missed."""
    while True:
        async for event in kube.watch(CLAIMS, namespace=NAMESPACE, resource_version=since):
            since = event.resource_version
            _note(played, event)


def _note(played: Played, event: WatchEvent) -> None:
    seen = played.seen.get(event.object["metadata"].get("name", ""))  # a bookmark has none
    if seen is None:
        return
    now, notes = time.time(), event.object["metadata"].get("annotations") or {}
    if names.STORAGE_PROVISIONER in notes:
        seen.asked = min(seen.asked, now)
    if node := notes.get(names.SELECTED_NODE, ""):
        seen.owned, seen.node = min(seen.owned, now), node
    if (event.object.get("status") or {}).get("phase") == "Bound":
        seen.bound = min(seen.bound, now)
