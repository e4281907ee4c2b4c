"""Events: where they live, how they are found, and that what the recorder writes is accepted."""

import asyncio

import pytest

from sidecar.kube.api import EVENTS, STRATEGIC_MERGE_PATCH
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Invalid
from sidecar.kube.events.recorder import EventRecorder, ObjectRef
from tests.contract.objects import event


async def test_create_and_count(api: KubeClient, namespace: str) -> None:
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "a", "uid": "u"}
    await api.create(EVENTS, event(namespace, "a.1", about=about), namespace=namespace)
    again = {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "told again"}
    patched = await api.patch(EVENTS, "a.1", again, content_type=STRATEGIC_MERGE_PATCH, namespace=namespace)
    assert {key: patched[key] for key in again} == again
    assert patched["firstTimestamp"] == "2026-01-01T00:00:00Z"


async def test_an_event_lives_where_its_object_does(api: KubeClient, namespace: str) -> None:
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "a"}
    with pytest.raises(Invalid, match="namespace"):
        await api.create(EVENTS, event(namespace, "a.1", about=about), namespace=namespace)


async def test_events_of_cluster_wide_objects_live_in_default(api: KubeClient, namespace: str) -> None:
    about = {"apiVersion": "v1", "kind": "PersistentVolume", "name": f"pv-{namespace}"}
    await api.create(EVENTS, event("default", f"{namespace}.1", about=about), namespace="default")
    with pytest.raises(Invalid, match="namespace"):
        await api.create(EVENTS, event(namespace, f"{namespace}.1", about=about), namespace=namespace)


async def test_events_can_be_found_by_their_object(api: KubeClient, namespace: str) -> None:
    for name in "ab":
        about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
        await api.create(EVENTS, event(namespace, f"{name}.1", about=about), namespace=namespace)
    page = await api.list_page(EVENTS, namespace=namespace, field_selector="involvedObject.name=b")
    assert [item["metadata"]["name"] for item in page.items] == ["b.1"]


async def test_what_the_recorder_writes_is_accepted(api: KubeClient, namespace: str) -> None:
    recorder = EventRecorder(api, component="driver.example_node_1", host="node-1")
    writing = asyncio.create_task(recorder.run())
    claim = ObjectRef("v1", "PersistentVolumeClaim", namespace, "a", "uid-a", "1")
    for number in range(13):
        recorder.record(claim, "Warning", "ProvisioningFailed", f"attempt {number}")
    recorder.record(claim, "Normal", "Provisioning", "x" * 5000)
    recorder.record(claim, "Normal", "Provisioning", "x" * 5000)
    recorder.record(ObjectRef("v1", "PersistentVolume", "", f"pv-{namespace}"), "Warning", "VolumeFailedDelete", "no")
    assert await recorder.flush(10.0)
    writing.cancel()
    assert (recorder.written, recorder.dropped) == (16, 0)
    page = await api.list_page(EVENTS, namespace=namespace)
    counts = sorted((item["reason"], item["count"]) for item in page.items)
    assert counts == [("Provisioning", 2)] + [("ProvisioningFailed", 1)] * 10 + [("ProvisioningFailed", 3)]
    combined = next(item for item in page.items if item["count"] == 3)
    assert combined["message"] == "(combined from similar events): attempt 12"
    assert combined["source"] == {"component": "driver.example_node_1", "host": "node-1"}
    page = await api.list_page(EVENTS, namespace="default", field_selector=f"involvedObject.name=pv-{namespace}")
    assert [item["reason"] for item in page.items] == ["VolumeFailedDelete"]
