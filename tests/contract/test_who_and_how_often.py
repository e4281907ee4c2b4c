"""Who is asking, evictions, and Events."""

import asyncio

import pytest

from sidecar.kube.api import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS, STRATEGIC_MERGE_PATCH, VOLUMES
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import Forbidden, Invalid, NotFound, TooManyRequests, Unauthorized
from sidecar.kube.events.recorder import EventRecorder, ObjectRef
from tests.contract.conftest import Connect, Server
from tests.contract.objects import BUDGETS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Json, budget, config_map, event, pod


@pytest.fixture
def reader(server: Server, connect: Connect, runner: asyncio.Runner, api: KubeClient, namespace: str) -> KubeClient:
    """A service account that may list claims in its own namespace."""

    async def make() -> None:
        rule = {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]}
        await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": "reader"}}, namespace=namespace)
        await api.create(ROLES, {"metadata": {"name": "reader"}, "rules": [rule]}, namespace=namespace)
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        await api.create(ROLE_BINDINGS, {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": role}, namespace=namespace)

    runner.run(make())
    return connect(kubeconfig=str(server.kubeconfig_for(namespace=namespace, service_account="reader")))


@pytest.fixture
def stranger(connect: Connect, impostor: str) -> KubeClient:
    return connect(kubeconfig=impostor)


async def test_a_role_allows_what_it_says_and_the_refusal_names_verb_and_resource(reader: KubeClient, namespace: str) -> None:
    for _ in range(100):  # the server learns of a new role by a watch of its own
        try:
            assert (await reader.list_page(CLAIMS, namespace=namespace)).items == []
            break
        except Forbidden:
            pass
    with pytest.raises(Forbidden, match=r'list persistentvolumes: .*cannot list resource "persistentvolumes"'):
        await reader.list_page(VOLUMES)
    with pytest.raises(Forbidden, match=r'list persistentvolumeclaims: .*cannot list resource "persistentvolumeclaims"'):
        await reader.list_page(CLAIMS)
    with pytest.raises(Forbidden, match=r'cannot watch resource "persistentvolumeclaims"'):
        async for _ in reader.watch(CLAIMS, namespace=namespace, resource_version="1"):
            pass
    with pytest.raises(Forbidden, match=r'cannot create resource "configmaps"'):
        await reader.create(CONFIG_MAPS, config_map("a"), namespace=namespace)
    with pytest.raises(Forbidden, match=r'cannot get resource "nodes"'):
        await reader.get(NODES, "none")  # also of what does not exist


async def test_anybody_known_may_ask_for_the_version(reader: KubeClient) -> None:
    assert await reader.server_version()


async def test_a_token_that_was_never_issued(stranger: KubeClient) -> None:
    with pytest.raises(Unauthorized, match="list persistentvolumes: Unauthorized"):
        await stranger.list_page(VOLUMES)
    with pytest.raises(Unauthorized):
        async for _ in stranger.watch(VOLUMES, resource_version="1"):
            pass
    with pytest.raises(Unauthorized):
        await stranger.server_version()


async def _set_running(api: KubeClient, pod: Json, *, ready: bool) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    meta = pod["metadata"]
    await api.replace(PODS, pod | {"status": status}, name=meta["name"], namespace=meta["namespace"], subresource="status")


class TestEviction:
    @pytest.fixture
    def app(self, runner: asyncio.Runner, api: KubeClient, namespace: str) -> str:
        """A running pod with a budget of one."""

        async def make() -> None:
            await api.create(BUDGETS, budget("app", {"app": "x"}), namespace=namespace)
            made = await api.create(PODS, pod("p", labels={"app": "x"}), namespace=namespace)
            await _set_running(api, made, ready=True)

        runner.run(make())
        return namespace

    async def _allow(self, api: KubeClient, namespace: str, disruptions: int) -> None:
        now = await api.get(BUDGETS, "app", namespace=namespace)
        status = {"disruptionsAllowed": disruptions, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        status["observedGeneration"] = now["metadata"]["generation"]
        await api.replace(BUDGETS, now | {"status": status}, name="app", namespace=namespace, subresource="status")

    async def _evict(self, api: KubeClient, namespace: str, name: str = "p") -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        await api.create_subresource(PODS, name, "eviction", body, namespace=namespace)

    async def test_a_budget_nobody_has_counted_yet_forbids(self, api: KubeClient, app: str) -> None:
        with pytest.raises(TooManyRequests, match=f"create pods/eviction {app}/p: ") as caught:
            await self._evict(api, app)
        assert caught.value.retry_after == 10.0

    async def test_a_spent_budget_forbids_and_the_pod_stays(self, api: KubeClient, app: str) -> None:
        await self._allow(api, app, 0)
        with pytest.raises(TooManyRequests, match="disruption budget"):
            await self._evict(api, app)
        assert "deletionTimestamp" not in (await api.get(PODS, "p", namespace=app))["metadata"]

    async def test_a_budget_allows_as_many_as_it_says(self, api: KubeClient, app: str) -> None:
        await self._allow(api, app, 1)
        await self._evict(api, app)
        with pytest.raises(NotFound):  # no kubelet has it, so it goes at once
            await api.get(PODS, "p", namespace=app)
        assert (await api.get(BUDGETS, "app", namespace=app))["status"]["disruptionsAllowed"] == 0

    async def test_a_spent_budget_does_not_keep_what_does_not_run(self, api: KubeClient, app: str) -> None:
        await self._allow(api, app, 0)
        await api.create(PODS, pod("pending", labels={"app": "x"}), namespace=app)
        await self._evict(api, app, "pending")
        await _set_running(api, await api.create(PODS, pod("sick", labels={"app": "x"}), namespace=app), ready=False)
        await self._evict(api, app, "sick")  # as long as enough others are healthy

    async def test_a_dry_spell_is_not_held_against_others(self, api: KubeClient, app: str) -> None:
        """A budget says nothing about the server: the next request goes out at once, although the answer had a Retry-After."""
        with pytest.raises(TooManyRequests):
            await self._evict(api, app)
        async with asyncio.timeout(5):
            await api.get(PODS, "p", namespace=app)

    async def test_a_pod_that_is_gone(self, api: KubeClient, app: str) -> None:
        with pytest.raises(NotFound):
            await self._evict(api, app, "none")


class TestEvents:
    async def test_create_and_count(self, api: KubeClient, namespace: str) -> None:
        about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "a", "uid": "u"}
        await api.create(EVENTS, event(namespace, "a.1", about=about), namespace=namespace)
        again = {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z", "message": "told again"}
        patched = await api.patch(EVENTS, "a.1", again, content_type=STRATEGIC_MERGE_PATCH, namespace=namespace)
        assert {key: patched[key] for key in again} == again
        assert patched["firstTimestamp"] == "2026-01-01T00:00:00Z"

    async def test_an_event_lives_where_its_object_does(self, api: KubeClient, namespace: str) -> None:
        about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "a"}
        with pytest.raises(Invalid, match="namespace"):
            await api.create(EVENTS, event(namespace, "a.1", about=about), namespace=namespace)

    async def test_events_of_cluster_wide_objects_live_in_default(self, api: KubeClient, namespace: str) -> None:
        about = {"apiVersion": "v1", "kind": "PersistentVolume", "name": f"pv-{namespace}"}
        await api.create(EVENTS, event("default", f"{namespace}.1", about=about), namespace="default")
        with pytest.raises(Invalid, match="namespace"):
            await api.create(EVENTS, event(namespace, f"{namespace}.1", about=about), namespace=namespace)

    async def test_events_can_be_found_by_their_object(self, api: KubeClient, namespace: str) -> None:
        for name in "ab":
            about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
            await api.create(EVENTS, event(namespace, f"{name}.1", about=about), namespace=namespace)
        page = await api.list_page(EVENTS, namespace=namespace, field_selector="involvedObject.name=b")
        assert [item["metadata"]["name"] for item in page.items] == ["b.1"]

    async def test_what_the_recorder_writes_is_accepted(self, api: KubeClient, namespace: str) -> None:
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
