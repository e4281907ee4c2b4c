"""What a node leaves behind is deleted by another one, once it is sure that the node is gone."""

import asyncio
from typing import Any

import pytest

from sidecar.capacity.gone_nodes import DAY, HOUR, MOST_OF_ONE, left_by, pause, share_of
from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.kube.api import Page
from sidecar.kube.errors import Conflict, Forbidden, Gone, NotFound, Unauthorized, Unavailable
from sidecar.model import names
from sidecar.model.objects import CapacityRecord
from tests.harness.doors import ScriptedKube, tools

DRIVER, KEY = "d.example.com", "topology.d.example.com/node"
FORBIDDEN = Forbidden("list csinodes: forbidden", status=403)


def published(
    name: str, node: str, *, manager: str = "", selector: Any = "its own", deleting: bool = False, version: str = "7"
) -> dict[str, Any]:
    labels = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: manager or names.capacity_manager(node)}
    meta: dict[str, Any] = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    topology = {"matchLabels": {KEY: node}} if selector == "its own" else selector
    return {"metadata": meta, "storageClassName": "fast", "nodeTopology": topology, "capacity": "1Gi"}


def cluster(*objects: dict[str, Any], nodes: tuple[str, ...] = ("n1",), csi_nodes: tuple[str, ...] = ("n1",)) -> ScriptedKube:
    there = {("csistoragecapacities", item["metadata"]["name"]): item for item in objects}
    there |= {("nodes", name): {"metadata": {"name": name}} for name in nodes}
    return ScriptedKube(there | {("csinodes", name): {"metadata": {"name": name}} for name in csi_nodes})


class Selecting(ScriptedKube):
    """Lists nodes by the one label that this test's nodes have: their name, unless `labelled` says more."""

    labelled: tuple[str, ...] = ()
    says_so = True
    """Else a proxy before the API server answers."""

    async def get(self, resource: Any, name: str, *, namespace: str = "") -> Any:
        try:
            return await super().get(resource, name, namespace=namespace)
        except NotFound:
            raise NotFound(f"get {resource} {name}: not found", status=404, reason="NotFound" if self.says_so else "") from None

    async def list_page(self, resource: Any, **scope: Any) -> Any:
        page = await super().list_page(resource, **scope)
        wanted = scope.get("label_selector", "").rpartition("=")[2]
        if resource.plural == "nodes":
            page.items[:] = [obj for obj in page.items if wanted in (obj["metadata"]["name"], *self.labelled)]
        elif resource.plural == "csistoragecapacities" and names.CAPACITY_MANAGER_LABEL in scope["label_selector"]:
            marked = [obj for obj in page.items if obj["metadata"]["labels"][names.CAPACITY_MANAGER_LABEL] == wanted]
            page.items[:] = marked[: scope["limit"]]
        return page


def look(kube: ScriptedKube, *, dry_run: bool = False, says_so: bool = True) -> list[str]:
    api = Selecting(kube.objects, kube.failures)
    api.labelled, api.says_so = getattr(kube, "labelled", ()), says_so
    asyncio.run(room(api, dry_run=dry_run).look())
    return deleted(api)


def room(api: ScriptedKube, *, dry_run: bool = False) -> GoneNodes:
    return GoneNodes(tools(kube=api, dry_run=dry_run), driver=DRIVER, namespace="ns", node="n1")


def deleted(api: ScriptedKube) -> list[str]:
    return [name for verb, _, name, _ in api.asked if verb == "delete"]


def test_what_a_node_that_is_gone_has_published_is_deleted() -> None:
    assert look(cluster(published("a", "n1"), published("b", "gone"), published("c", "gone"))) == ["b", "c"]


def test_a_node_of_which_anything_is_left_keeps_them() -> None:
    for nodes, csi_nodes in [(("n1", "n2"), ("n1", "n2")), (("n1", "n2"), ("n1",)), (("n1",), ("n1", "n2"))]:
        assert look(cluster(published("b", "n2"), nodes=nodes, csi_nodes=csi_nodes)) == []


def test_a_segment_that_another_node_is_in_keeps_them() -> None:
    """A node that was given another name, with the same disks."""
    kube = cluster(published("b", "old-name"), nodes=("n1", "new-name"), csi_nodes=("n1", "new-name"))
    kube.labelled = ("old-name",)  # type: ignore[attr-defined]
    assert look(kube) == []


def test_what_does_not_say_whose_it_is_stays() -> None:
    for obj in [
        published("b", "gone", selector=None),
        published("b", "gone", selector={}),
        published("b", "gone", selector={"matchExpressions": [{"key": KEY, "operator": "In", "values": ["gone"]}]}),
        published("b", "gone", manager="somebody"),
        published("b", "gone", manager="external-provisioner"),
        published("b", "x" * 60),
        published("b", "gone", deleting=True),
    ]:
        assert look(cluster(obj)) == []


def test_a_dry_run_deletes_nothing() -> None:
    assert look(cluster(published("b", "gone")), dry_run=True) == []


def test_a_topology_that_no_node_can_be_asked_for_keeps_its_object() -> None:
    for topology in [
        {KEY: "a,b!=c"},
        {KEY: "two words"},
        {KEY: "x" * 64},
        {f"{KEY},other": "a"},
        {"": "a"},
        {f"key-{number}": "a" for number in range(1000)},
    ]:
        obj = published("b", "gone", selector={"matchLabels": topology})
        assert left_by(CapacityRecord.of(obj)) == ""
        assert look(cluster(obj)) == []


def test_a_404_that_is_not_the_api_server_s_own_proves_nothing() -> None:
    assert look(cluster(published("b", "gone")), says_so=False) == []


def test_lists_without_anything_prove_nothing() -> None:
    """Neither an empty list of CSINodes, nor one of nodes that goes on."""

    class Empty(Selecting):
        async def list_page(self, resource: Any, **scope: Any) -> Any:
            page = await super().list_page(resource, **scope)
            return page if resource.plural == "csistoragecapacities" else Page([], "1", "more" if resource.plural == "nodes" else "")

    api = Empty(cluster(published("b", "n2"), published("c", "gone"), nodes=("n1", "n2"), csi_nodes=()).objects)
    asyncio.run(room(api).look())
    assert deleted(api) == []


def test_a_node_that_joins_while_it_is_asked_about_keeps_what_it_writes() -> None:
    """Its Node comes after the answer that there is none, and its labels later still."""

    class Joining(Selecting):
        written = 7

        async def get(self, resource: Any, name: str, *, namespace: str = "") -> Any:
            try:
                return await super().get(resource, name, namespace=namespace)
            finally:
                self.written += 1
                self.objects["csistoragecapacities", "b"] = published("b", "late", version=str(self.written))

        async def delete(self, resource: Any, name: str, *, resource_version: str = "", **scope: Any) -> None:
            if resource_version != self.objects[resource.plural, name]["metadata"]["resourceVersion"]:
                raise Conflict("changed", status=409)
            await super().delete(resource, name, **scope)

    api = Joining(cluster(published("b", "late")).objects)
    asyncio.run(room(api).look())
    assert deleted(api) == []


def test_what_fails_between_proof_and_deletion_ends_the_look() -> None:
    for verb in ["get", "list", "delete"]:
        for error in [Unavailable("timeout"), Gone("expired", status=410), Unauthorized("who", status=401)]:
            for answered in range(3):
                api = Selecting(cluster(published("b", "gone"), published("c", "gone")).objects, {verb: [*[None] * answered, error]})
                asyncio.run((looking := room(api))._safely(looking.look))
                wanted = {"delete": min(answered + 1, 2), "get": 0, "list": 0}[verb]
                assert len(deleted(api)) == wanted


def test_all_nodes_together_look_once_an_hour_and_every_second_hour_while_nothing_changes() -> None:
    for nodes in [1, 10, 1000]:
        assert nodes * HOUR / pause(nodes) == pytest.approx(1.0)
        assert nodes * HOUR / pause(nodes, is_quiet=True) == pytest.approx(0.5)
        shares = [share_of(f"node-{number}") for number in range(1000)]
        assert 0.4 < sum(shares) / len(shares) < 0.6
        assert 0 <= min(shares) <= max(shares) < 1


async def _for_ever(kube: ScriptedKube, monkeypatch: pytest.MonkeyPatch, looks: int) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > looks:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    try:
        await room(kube).look_for_ever()
    except asyncio.CancelledError:
        pass
    return slept


@pytest.mark.parametrize("while_counting", [True, False])
def test_without_the_right_it_says_so_once_and_goes_on_rarely(
    while_counting: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kube = cluster(published("a", "n1"))
    kube.failures["list"] = [*([] if while_counting else [None, None]), *[FORBIDDEN] * 100]
    slept = asyncio.run(_for_ever(kube, monkeypatch, 50))
    assert len(slept) == 51
    assert slept[-1] == DAY
    assert [record.getMessage()[:50] for record in caplog.records] == ["Capacity objects of nodes that are gone are hardly"]


def test_of_one_node_only_some_objects_are_deleted_at_once() -> None:
    forged = [published(f"o{number}", "gone") for number in range(MOST_OF_ONE * 3)]
    assert len(look(cluster(*forged))) == MOST_OF_ONE
