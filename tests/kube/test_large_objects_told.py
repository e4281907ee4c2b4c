"""Who fills the cluster with large objects is told: each object once, and never without end."""

import json

import pytest

from sidecar.kube.api import CLAIMS
from sidecar.kube.large_objects import LARGE, LargeObjects
from sidecar.kube.transport import Observer
from tests.harness.loops import run
from tests.kube.server import ScriptedServer, event, says, streams


def test_each_is_told_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    found = LargeObjects(counted.append)
    for number in range(5):
        found.note("persistentvolumeclaims", f"ns/a{number % 2}", 300_000)
    assert [record.fields["key"] for record in caplog.records] == ["ns/a0", "ns/a1"]  # type: ignore[attr-defined]
    assert counted == ["persistentvolumeclaims"] * 5


def test_there_is_an_end_to_it(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    found = LargeObjects(counted.append)
    for number in range(3000):
        found.note("persistentvolumeclaims", f"ns/{number}", 300_000)
    assert len(counted) == 3000
    assert len(caplog.records) == 1001
    assert caplog.records[-1].message == "Further large objects are only counted"
    assert len(found._told) == 1000


def with_note(name: str, size: int) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7", "annotations": {"note": "x" * size}}}


def test_lists_and_watches_say_which_objects_are_large() -> None:
    seen: list[tuple[str, str, int]] = []
    listed = says({"metadata": {"resourceVersion": "9"}, "items": [with_note("a", LARGE), with_note("b", 10), with_note("c", LARGE)]})
    watched = streams({"type": "ADDED", "object": with_note("d", 2 * LARGE)}, event("ADDED", "e", 7))
    foreign = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **with_note("f", LARGE)}
    passed_over = streams(json.dumps({"type": "ADDED", "object": foreign}, separators=(",", ":")).encode() + b"\n")

    async def main() -> None:
        observer = Observer(on_large=lambda *large: seen.append(large))
        async with ScriptedServer(listed, watched, passed_over) as server, await server.client(observer=observer) as client:
            await client.list_page(CLAIMS)
            async for _ in client.watch(CLAIMS, resource_version="5"):
                pass
            async for skipped in client.watch(CLAIMS, resource_version="5", skip=lambda prefix, line: True):
                assert skipped.type == "BOOKMARK"

    run(main())
    assert [(resource, name) for resource, name, _ in seen] == [("persistentvolumeclaims", f"ns/{name}") for name in "acdf"]
    assert all(size > LARGE for _, _, size in seen)
