"""What keeps an idle instance small: what it loads, what it keeps of each object, and how much it holds while it lists.

Absolute figures beside the peer's, on a real API server, are what `hack/bench memory` measures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sidecar.config import Parsed, parse
from sidecar.kube.api import CLAIMS, CLASSES, VOLUMES, Page, Resource, WatchEvent
from sidecar.kube.recorder import EventRecorder
from sidecar.wiring import Doors, Instruments, Sidecar
from tests import samples
from tests.doors import ScriptedDriver, ScriptedKube
from tests.e2e import actors
from tests.e2e.controlplane import until

Json = dict[str, Any]

IDLE_LIMIT_MIB = 65.0
# Today 2.3 kB for a claim that this node may write, and 1.9 kB for a volume of this node.
OWN_LIMIT_BYTES = 3_000
NO_API = "http://127.0.0.1:1"
# The program as it is, which at its end says what it had loaded.
TELLING = "import sys; from sidecar.cli import main; code = main(); print('modules:', *sys.modules); sys.exit(code)"


@dataclass(frozen=True)
class Life:
    """One start with a driver and an API server that refuses connections: every room is joined, every request fails."""

    modules: frozenset[str]
    resident_mib: float


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    work = tmp_path_factory.mktemp("life")
    with actors.OurDriver(work, node="n1") as driver:
        args = [f"--master={NO_API}", "--enable-capacity", "--capacity-ownerref-level=-1"]
        sidecar = actors.Sidecar(work, node="n1", address=driver.socket, kubeconfig="", args=args, environ={"NAMESPACE": "default"})
        sidecar.command[1:3] = ["-c", TELLING]
        with sidecar:
            until(lambda: sidecar.output().count("List and watch will be tried again") >= 3, "every cache has asked", seconds=30)
            assert sidecar.page("/metrics")[0] == 200
            resident = _resident_mib(sidecar.child.pid)
        assert sidecar.child.returncode == 0, sidecar.output()
    told = sidecar.output().splitlines()[-1]
    assert told.startswith("modules: ")
    return Life(frozenset(told.split()[1:]), resident)


def _resident_mib(pid: int) -> float:
    """Zero where the kernel does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def test_a_start_is_a_whole_one(life: Life) -> None:
    """Or the tests below would look at a program that had not loaded anything yet."""
    assert {"sidecar.kube.client", "sidecar.csi.driver", "sidecar.capacity.controller", "aiohttp.web", "grpc.aio"} <= life.modules


@pytest.mark.parametrize(
    "unwanted",
    [
        pytest.param("kubernetes", id="the-library-that-reads-kubeconfigs"),
        pytest.param("pydantic", id="nor-what-that-would-bring"),
        pytest.param("sidecar.simulation", id="the-simulation"),
        pytest.param("sidecar.explain", id="another-command"),
        pytest.param("sidecar.drain", id="drain-decisions-that-nobody-asked-for"),
    ],
)
def test_the_program_does_not_load(unwanted: str, life: Life) -> None:
    assert [name for name in sorted(life.modules) if name == unwanted or name.startswith(f"{unwanted}.")] == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
def test_an_idle_instance_stays_within_its_budget(life: Life) -> None:
    assert 0 < life.resident_mib <= IDLE_LIMIT_MIB


# --- what is kept of objects ------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def nothing() -> Held:
    held_by(Cluster())  # once to warm up: what is imported or cached at first use belongs to nobody
    return held_by(Cluster())


def test_nothing_is_kept_of_objects_that_are_not_ours(nothing: Held) -> None:
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


def test_lists_are_asked_for_in_pages() -> None:
    cluster = Cluster(persistentvolumeclaims=(some_claim(node="bar"), 2_000))
    held_by(cluster)
    assert cluster.pages.count(CLAIMS.plural) >= 4
    assert cluster.pages.count(VOLUMES.plural) == cluster.pages.count(CLASSES.plural) == 1
