"""What is told from the beginning of a line, and what has to be read."""

import json
from typing import Any

import pytest

from sidecar.kube.api import CLAIMS
from sidecar.kube.event_prefix import EventPrefix, read_item_prefix, read_prefix, without_managed_fields
from tests.harness.loops import run
from tests.kube.server import ScriptedServer, streams

CLAIM = {
    "kind": "PersistentVolumeClaim",
    "apiVersion": "v1",
    "metadata": {"name": "data", "namespace": "ns", "uid": "u-1", "resourceVersion": "42", "labels": {"uid": "no"}},
    "spec": {},
}


def line(type_: str = "MODIFIED", **changes: Any) -> bytes:
    return json.dumps({"type": type_, "object": CLAIM | changes}, separators=(",", ":")).encode() + b"\n"


def test_an_event_tells_of_its_object_within_its_first_bytes() -> None:
    assert read_prefix(line()) == read_prefix(line("ADDED")) == EventPrefix("data", "u-1", "42")
    of_cluster = {"name": "pv", "generateName": "p", "uid": "u-2", "resourceVersion": "7"}
    assert read_prefix(line(kind="PersistentVolume", metadata=of_cluster)) == EventPrefix("pv", "u-2", "7")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(line("DELETED"), id="gone"),
        pytest.param(line("BOOKMARK"), id="bookmark"),
        pytest.param(json.dumps({"type": "MODIFIED", "object": CLAIM}).encode(), id="spaces"),
        pytest.param(json.dumps({"object": CLAIM, "type": "MODIFIED"}, separators=(",", ":")).encode(), id="another order"),
        pytest.param(line(metadata={"uid": "u-1", "name": "data", "resourceVersion": "42"}), id="another order of fields"),
        pytest.param(line(metadata={"name": 'a"b', "uid": "u-1", "resourceVersion": "42"}), id="escaped"),
        pytest.param(line(metadata={"name": "data", "uid": "u-1", "resourceVersion": "x"}), id="no number"),
        pytest.param(line().replace(b"data", b"\xff"), id="no text"),
        pytest.param(line().replace(b"u-1", b"\xff"), id="no text either"),
        pytest.param(b"", id="empty"),
    ],
)
def test_whatever_begins_otherwise_is_read(odd: bytes) -> None:
    assert read_prefix(odd) is None


def test_an_object_in_a_list_tells_the_same_without_its_kind() -> None:
    item = json.dumps({"metadata": CLAIM["metadata"], "spec": {}}, separators=(",", ":")).encode()
    assert read_item_prefix(item) == read_prefix(line())
    assert read_item_prefix(line()) is None


def test_what_passes_by_is_a_bookmark_and_the_rest_is_read() -> None:
    asked: list[EventPrefix] = []

    def skip(skimmed: EventPrefix, _: bytes) -> bool:
        asked.append(skimmed)
        return skimmed.uid == "u-1"

    other = line(metadata={"name": "other", "namespace": "ns", "uid": "u-2", "resourceVersion": "43"})

    async def main() -> list[tuple[str, str, str]]:
        async with ScriptedServer(streams(line(), other, line("DELETED"))) as server, await server.client() as client:
            heard = client.watch(CLAIMS, resource_version="1", skip=skip)
            return [(each.type, each.resource_version, each.object["metadata"].get("name", "")) async for each in heard]

    assert run(main()) == [("BOOKMARK", "42", ""), ("MODIFIED", "43", "other"), ("DELETED", "42", "data")]
    assert [each.uid for each in asked] == ["u-1", "u-2"]


def test_the_rest_of_an_event_is_read_without_its_managed_fields() -> None:
    entry = {"manager": "kubectl", "time": "2026-11-25T00:00:00Z", "fieldsV1": {"f:spec": {}, 'k:{"port":[1]},"spec":{': {}}}
    spec = {"resources": {"requests": {"storage": "1Gi"}}}
    meta = {**CLAIM["metadata"], "annotations": {"a": ',"managedFields":[', "b": ']},"spec":{'}, "managedFields": [entry, entry]}  # type: ignore[dict-item]
    shortened = without_managed_fields(line(metadata=meta, spec=spec))
    kept = {name: value for name, value in meta.items() if name != "managedFields"}
    assert shortened == line(metadata=kept, spec=spec)


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(line(), id="it has none"),
        pytest.param(line(metadata={"uid": "u", "managedFields": [], "name": "data"}), id="something is between them and what comes next"),
        pytest.param(line().replace(b'"uid":"no"', b'"uid":"no","managedFields":["'), id="broken off"),
    ],
)
def test_of_an_event_that_is_written_otherwise_nothing_is_left_out(whole: bytes) -> None:
    assert without_managed_fields(whole) == whole


def test_what_is_heard_has_no_managed_fields() -> None:
    async def main() -> list[dict[str, Any]]:
        owned = line(metadata={**CLAIM["metadata"], "managedFields": [{"manager": "kubectl"}]})  # type: ignore[dict-item]
        async with ScriptedServer(streams(owned)) as server, await server.client() as client:
            return [each.object async for each in client.watch(CLAIMS, resource_version="1", skip=lambda prefix, raw: False)]

    assert run(main()) == [CLAIM]
