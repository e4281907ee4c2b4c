"""What a sidecar holds in memory when it has listed a large cluster."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sidecar.config.parse import Parsed, parse
from sidecar.doors import Doors, Instruments
from sidecar.kube.api import Page, Resource, WatchEvent
from sidecar.kube.events.recorder import EventRecorder
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube

Json = dict[str, Any]


class Cluster(ScriptedKube):
    """An API server with any number of objects of a kind, which it makes page by page, as answers on the wire come to be."""

    def __init__(self, **kinds: tuple[Json, int]) -> None:
        super().__init__()
        kinds["storageclasses"] = samples.class_json(), 1
        self._kinds = {plural: (json.dumps(sample), count) for plural, (sample, count) in kinds.items()}
        self.pages: list[str] = []

    async def list_page(self, resource: Resource, *, limit: int = 0, continue_token: str = "", **_: Any) -> Page:
        text, count = self._kinds.get(resource.plural, ("", 0))
        first = int(continue_token or 0)
        after = min(first + limit, count)
        self.pages.append(resource.plural)
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
    place = {"key": samples.KEY, "operator": "In", "values": [node]}
    return samples.volume_json(
        meta={"name": "volume-NUMBER", "uid": "volume-uid-NUMBER", "labels": _LABELS, "managedFields": _MANAGED_FIELDS},
        spec={
            "csi": {"driver": driver, "volumeHandle": "handle-NUMBER", "volumeAttributes": {"pool": "main"}},
            "claimRef": {"uid": "claim-uid-NUMBER", "namespace": "fake-ns", "name": "claim-NUMBER"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [place]}]}},
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
    parsed = parse(["--node-deployment"], {"NODE_NAME": samples.NODE})
    assert isinstance(parsed, Parsed)
    doors = Doors(cluster, cluster, ScriptedDriver())  # type: ignore[arg-type]
    tools = Instruments()
    program = Sidecar(parsed.config, doors, tools, recorder=EventRecorder(cluster, component="test"))  # type: ignore[arg-type]
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
