"""What each verb of `KubeApi` puts on the wire."""

import json
from collections.abc import Awaitable, Callable

import pytest

from sidecar.kube.api import CAPACITIES, CLAIMS, JSON_PATCH, MERGE_PATCH, PODS, STRATEGIC_MERGE_PATCH, VOLUMES, every
from sidecar.kube.client import KubeClient
from sidecar.kube.errors import NotFound, Unavailable
from tests.harness.loops import run
from tests.kube.server import ScriptedServer, Seen, says, streams

Call = Callable[[KubeClient], Awaitable[object]]


def _seen(call: Call, *answers: object) -> list[Seen]:
    async def main() -> list[Seen]:
        async with ScriptedServer(*(answers or (says({"metadata": {"resourceVersion": "9"}}),))) as server, await server.client() as client:  # type: ignore[arg-type]
            await call(client)
            return server.seen

    return run(main())


def _one(call: Call) -> Seen:
    (seen,) = _seen(call)
    return seen


def test_get() -> None:
    seen = _one(lambda client: client.get(CLAIMS, "a", namespace="ns"))
    assert (seen.method, seen.path, seen.query, seen.body) == ("GET", "/api/v1/namespaces/ns/persistentvolumeclaims/a", {}, b"")
    assert seen.headers["accept"] == "application/json"
    assert seen.headers["accept-encoding"] == "gzip"
    assert seen.headers["user-agent"].startswith("csi-node-sidecar/")
    assert "authorization" not in seen.headers
    assert "content-type" not in seen.headers


def test_list_asks_for_pages_and_for_no_version() -> None:
    seen = _one(
        lambda client: client.list_page(VOLUMES, label_selector="a in (b,c+d)", field_selector="metadata.name=x", continue_token="t=+/")
    )
    assert seen.query == {"limit": "500", "labelSelector": "a in (b,c+d)", "fieldSelector": "metadata.name=x", "continue": "t=+/"}


def test_a_list_without_items_is_an_empty_page() -> None:
    async def call(client: KubeClient) -> None:
        page = await client.list_page(VOLUMES)
        assert (page.items, page.resource_version, page.continue_token) == ([], "9", "")

    _seen(call, says({"metadata": {"resourceVersion": "9"}, "items": None}))


def test_a_list_without_end_is_given_up() -> None:
    async def call(client: KubeClient) -> None:
        with pytest.raises(Unavailable, match="list persistentvolumes: the list has no end"):
            async for _ in every(client, VOLUMES):
                pass

    assert len(_seen(call, says({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": []}))) == 2


def test_watch_asks_for_bookmarks_and_an_end() -> None:
    async def call(client: KubeClient) -> None:
        async for _ in client.watch(VOLUMES, resource_version="7"):
            pass

    spread = set()
    for _ in range(5):
        (seen,) = _seen(call, streams())
        spread.add(seen.query.pop("timeoutSeconds"))
        assert seen.query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7"}
        assert seen.headers["accept-encoding"] == "identity"
    assert all(290 <= int(seconds) <= 600 for seconds in spread) and len(spread) > 1


def test_create() -> None:
    seen = _one(lambda client: client.create(CAPACITIES, {"kind": "X", "capacity": "1Gi"}, namespace="ns"))
    assert (seen.method, seen.path) == ("POST", "/apis/storage.k8s.io/v1/namespaces/ns/csistoragecapacities")
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == {"kind": "X", "capacity": "1Gi"}


def test_replace_sends_bytes_as_they_are() -> None:
    seen = _one(lambda client: client.replace(CLAIMS, b'{ "as":  "is" }', name="a", namespace="ns", subresource="status"))
    assert (seen.method, seen.path) == ("PUT", "/api/v1/namespaces/ns/persistentvolumeclaims/a/status")
    assert seen.body == b'{ "as":  "is" }'


@pytest.mark.parametrize("content_type", [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH])
def test_patch_says_which_kind_it_is(content_type: str) -> None:
    seen = _one(lambda client: client.patch(VOLUMES, "pv", {"metadata": {"finalizers": []}}, content_type=content_type))
    assert (seen.method, seen.path, seen.headers["content-type"]) == ("PATCH", "/api/v1/persistentvolumes/pv", content_type)
    assert seen.body == b'{"metadata":{"finalizers":[]}}'


def test_delete_with_and_without_conditions() -> None:
    seen = _one(lambda client: client.delete(VOLUMES, "pv"))
    assert (seen.method, json.loads(seen.body)) == ("DELETE", {"apiVersion": "v1", "kind": "DeleteOptions"})
    seen = _one(
        lambda client: client.delete(
            PODS, "p", namespace="ns", uid="u", resource_version="7", grace_period_seconds=0, propagation="Background"
        )
    )
    assert json.loads(seen.body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


def test_subresources_are_posted_to() -> None:
    seen = _one(lambda client: client.create_subresource(PODS, "p", "eviction", {"kind": "Eviction"}, namespace="ns"))
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/ns/pods/p/eviction")


DISCOVERY = {
    "resources": [
        {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
        {"name": "daemonsets/status", "kind": "DaemonSet", "namespaced": True},
    ]
}


def test_discovery_is_remembered_also_by_clients_of_other_limits() -> None:
    async def call(client: KubeClient) -> None:
        found = await client.resource_for("apps/v1", "DaemonSet")
        assert (found.plural, found.api_version, found.namespaced) == ("daemonsets", "apps/v1", True)
        assert await client.with_limits(qps=1.0, burst=1).resource_for("apps/v1", "DaemonSet") == found

    (seen,) = _seen(call, says(DISCOVERY))
    assert seen.path == "/apis/apps/v1"


def test_what_is_odd_in_discovery_costs_nothing_else() -> None:
    async def call(client: KubeClient) -> None:
        await client.resource_for("apps/v1", "DaemonSet")

    odd: list[object] = [None, 3, {}, {"name": "x"}, {"kind": "X"}, {"name": 3, "kind": "X"}, {"name": "x", "kind": ["X"]}]
    _seen(call, says({"resources": [*odd, *DISCOVERY["resources"]]}))


@pytest.mark.parametrize("resources", [None, 3, {"a": 1}, "daemonsets"])
def test_discovery_that_is_none_knows_nothing(resources: object) -> None:
    async def call(client: KubeClient) -> None:
        with pytest.raises(NotFound):
            await client.resource_for("apps/v1", "DaemonSet")

    _seen(call, says({"resources": resources}))


def test_what_discovery_does_not_know_is_asked_again() -> None:
    async def call(client: KubeClient) -> None:
        for _ in range(2):
            with pytest.raises(NotFound, match="discover apps/v1 Nothing"):
                await client.resource_for("apps/v1", "Nothing")

    assert len(_seen(call, says(DISCOVERY))) == 2
