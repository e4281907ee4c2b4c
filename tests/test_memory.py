"""What keeps an idle instance small: what it keeps of each object, and how much it holds while it lists.

Absolute figures beside the peer's, on a real API server, are what `hack/bench memory` measures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.doors import Doors, Instruments
from sidecar.kube.api import Page, Resource, WatchEvent
from sidecar.kube.events.recorder import EventRecorder
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.config import parsed
from tests.harness.doors import ScriptedDriver, ScriptedKube

Json = dict[str, Any]


class Cluster(ScriptedKube):
    """An API server with any number of objects of a kind, which it makes page by page, as answers on the wire come to be."""

    def __init__(self, **kinds: tuple[Json, int]) -> None:
        super().__init__()
        kinds["storageclasses"] = samples.class_json(), 1
        self._kinds = {plural: (json.dumps(sample), count) for plural, (sample, count) in kinds.items()}

    async def list_page(self, resource: Resource, *, limit: int = 0, continue_token: str = "", **_: Any) -> Page:
        text, count = self._kinds.get(resource.plural, ("", 0))
        first = int(continue_token or 0)
        after = min(first + limit, count)
        items = [json.loads(text.replace("NUMBER", f"{number:06}")) for number in range(first, after)]
        return Page(items, "1", str(after) if after < count else "")

    async def watch(self, resource: Resource, **_: Any) -> AsyncIterator[WatchEvent]:
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})


# As the server keeps them: the greater part of an object is about who wrote which field.
_MANAGED_FIELDS: list[Json] = [
    {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{name}-{part}": {".": {}, f"f:{name}": {}} for part in range(3)},
        "manager": name,
        "operation": "Update",
        "time": "2026-01-01T00:00:00Z",
    }
    for name in ("kube-controller-manager", "kube-scheduler", "storage-operator")
]
_LABELS: Json = {f"example.com/label-{number}": "some-value-of-it" for number in range(6)}


def some_claim(*, driver: str = samples.DRIVER, node: str = "") -> Json:
    selected = {"volume.kubernetes.io/selected-node": node} if node else {}
    return samples.claim_json(
        meta={"name": "claim-NUMBER", "uid": "claim-uid-NUMBER", "labels": _LABELS, "managedFields": _MANAGED_FIELDS},
        annotations={"volume.beta.kubernetes.io/storage-provisioner": driver, "example.com/note": "n" * 700, **selected},
    )


def some_volume(*, driver: str = samples.DRIVER, node: str = samples.NODE) -> Json:
    return samples.volume_json(
        meta={"name": "volume-NUMBER", "uid": "volume-uid-NUMBER", "labels": _LABELS, "managedFields": _MANAGED_FIELDS},
        spec={
            "csi": {"driver": driver, "volumeHandle": "handle-NUMBER", "volumeAttributes": {"pool": "main"}},
            "claimRef": {"uid": "claim-uid-NUMBER", "namespace": "fake-ns", "name": "claim-NUMBER"},
            "nodeAffinity": samples.placed(node),
        },
        status={"phase": "Bound"},
    )


@dataclass(frozen=True)
class Held:
    """Bytes that Python has allocated since before the program was made."""

    after: int
    peak: int
    claims: int
    volumes: int


def held_by(cluster: Cluster) -> Held:
    """When everything is listed and every claim and volume has been looked at once."""
    gc.collect()
    tracemalloc.start()
    try:
        return asyncio.run(_live(cluster))
    finally:
        tracemalloc.stop()


async def _live(cluster: Cluster) -> Held:
    config = parsed(environ={"NODE_NAME": samples.NODE}).config
    doors = Doors(cluster, cluster, ScriptedDriver())  # type: ignore[arg-type]
    tools = Instruments()
    program = Sidecar(config, doors, tools, recorder=EventRecorder(cluster, component="test"))  # type: ignore[arg-type]
    task = asyncio.create_task(program.run())
    try:
        async with asyncio.timeout(60):
            while not tools.health.ready()[0] or any(program.queues().values()):
                await asyncio.sleep(0.01)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
        return Held(after, peak, len(program.caches.claims), len(program.caches.volumes))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# Today 2.3 kB for a claim that this node may write, and 1.9 kB for a volume of this node.
OWN_LIMIT_BYTES = 3_000


@pytest.fixture(scope="module")
def nothing() -> Held:
    held_by(Cluster())  # once to warm up: what is imported or cached at first use belongs to nobody
    return held_by(Cluster())


def test_X6_nothing_is_kept_of_objects_that_are_not_ours(nothing: Held) -> None:
    """Of another driver, or of ours on another node. Thousands of them must not leave a trace."""
    for claim, volume in (
        (some_claim(driver="other", node="bar"), some_volume(driver="other")),
        (some_claim(node="bar"), some_volume(node="bar")),
    ):
        held = held_by(Cluster(persistentvolumeclaims=(claim, 2_500), persistentvolumes=(volume, 2_500)))
        assert (held.claims, held.volumes) == (0, 0)
        assert (held.after - nothing.after) / 5_000 < 16


def test_what_is_kept_of_our_own_objects_is_small(nothing: Held) -> None:
    """A claim that we may write is the dearest: it is kept whole, though without the fields' history."""
    waiting = held_by(Cluster(persistentvolumeclaims=(some_claim(), 1_000)))
    assert waiting.claims == 1_000
    assert (waiting.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES
    living = held_by(Cluster(persistentvolumes=(some_volume(), 1_000)))
    assert living.volumes == 1_000
    assert (living.after - nothing.after) / 1_000 < OWN_LIMIT_BYTES


def test_what_a_list_takes_while_it_lasts_is_a_page_and_not_the_list() -> None:
    """Memory that was once taken for a whole list is hardly ever given back to the system."""
    claim, volume = some_claim(node="bar"), some_volume(node="bar")
    short, long = (held_by(Cluster(persistentvolumeclaims=(claim, count), persistentvolumes=(volume, count))) for count in (1_000, 3_000))
    assert (long.peak - short.peak) / 4_000 < 300
