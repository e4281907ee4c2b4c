"""What a node leaves behind is deleted by another one, once it is sure that the node is gone."""

import asyncio
from typing import Any

import pytest

from sidecar.capacity.gone_nodes import HOUR, MOST_AT_ONCE, pause, share_of, suspects
from sidecar.capacity.gone_nodes_io import GoneNodes
from sidecar.kube.errors import Conflict, Forbidden, NotFound, Unavailable
from sidecar.model import names
from sidecar.model.objects import CapacityRecord
from tests.harness.doors import ScriptedKube, tools

DRIVER, KEY = "d.example.com", "topology.d.example.com/node"
FORBIDDEN = Forbidden("list csinodes: forbidden", status=403)


def published(name: str, node: str, *, manager: str = "", selector: Any = "its own", deleting: bool = False) -> dict[str, Any]:
    labels = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: manager or names.capacity_manager(node)}
    meta: dict[str, Any] = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": labels}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    topology = {"matchLabels": {KEY: node}} if selector == "its own" else selector
    return {"metadata": meta, "storageClassName": "fast", "nodeTopology": topology, "capacity": "1Gi"}


def records(*objects: dict[str, Any]) -> list[CapacityRecord]:
    return [CapacityRecord.of(obj) for obj in objects]


def cluster(*objects: dict[str, Any], nodes: tuple[str, ...] = ("n1",), csi_nodes: tuple[str, ...] = ("n1",)) -> ScriptedKube:
    there = {("csistoragecapacities", item["metadata"]["name"]): item for item in objects}
    there |= {("nodes", name): {"metadata": {"name": name}} for name in nodes}
    return ScriptedKube(there | {("csinodes", name): {"metadata": {"name": name}} for name in csi_nodes})


class Selecting(ScriptedKube):
    """Lists nodes by the one label that this test's nodes have: their name, unless `labelled` says more."""

    labelled: tuple[str, ...] = ()

    async def list_page(self, resource: Any, **scope: Any) -> Any:
        page = await super().list_page(resource, **scope)
        if resource.plural != "nodes":
            return page
        wanted = scope["label_selector"].partition("=")[2]
        page.items[:] = [obj for obj in page.items if wanted in (obj["metadata"]["name"], *self.labelled)]
        return page


def look(kube: ScriptedKube, *, dry_run: bool = False) -> list[str]:
    api = Selecting(kube.objects, kube.failures)
    api.labelled = getattr(kube, "labelled", ())
    room = GoneNodes(tools(kube=api, dry_run=dry_run), driver=DRIVER, namespace="ns", node="n1")
    asyncio.run(room.look())
    return [name for verb, _, name, _ in api.asked if verb == "delete"]


def test_what_a_node_that_is_gone_has_published_is_deleted() -> None:
    assert look(cluster(published("a", "n1"), published("b", "gone"), published("c", "gone"))) == ["b", "c"]


@pytest.mark.parametrize(
    ("nodes", "csi_nodes"),
    [(("n1", "n2"), ("n1", "n2")), (("n1", "n2"), ("n1",)), (("n1",), ("n1", "n2"))],
)
def test_a_node_of_which_anything_is_left_keeps_them(nodes: tuple[str, ...], csi_nodes: tuple[str, ...]) -> None:
    assert look(cluster(published("b", "n2"), nodes=nodes, csi_nodes=csi_nodes)) == []


def test_a_segment_that_another_node_is_in_keeps_them() -> None:
    """A node that was given another name, with the same disks."""
    kube = cluster(published("b", "old-name"), nodes=("n1", "new-name"), csi_nodes=("n1", "new-name"))
    kube.labelled = ("old-name",)  # type: ignore[attr-defined]
    assert look(kube) == []


@pytest.mark.parametrize(
    "obj",
    [
        published("b", "gone", selector=None),
        published("b", "gone", selector={}),
        published("b", "gone", selector={"matchExpressions": [{"key": KEY, "operator": "In", "values": ["gone"]}]}),
        published("b", "gone", manager="somebody"),
        published("b", "gone", manager="external-provisioner"),
        published("b", "x" * 60),
        published("b", "gone", deleting=True),
    ],
)
def test_what_does_not_say_whose_it_is_stays(obj: dict[str, Any]) -> None:
    assert look(cluster(obj)) == []


def test_a_dry_run_deletes_nothing() -> None:
    assert look(cluster(published("b", "gone")), dry_run=True) == []


@pytest.mark.parametrize("error", [Conflict("changed", status=409), NotFound("gone", status=404)])
def test_what_somebody_was_quicker_with_is_no_failure(error: Exception) -> None:
    kube = cluster(published("b", "gone"), published("c", "gone"))
    kube.failures["delete"] = [error]
    assert look(kube) == ["b", "c"]


def test_of_many_only_a_few_are_asked_about_at_once() -> None:
    many = [published(f"o{number}", f"n{number}") for number in range(100)]
    assert len(suspects(records(*many), nodes=())) == MOST_AT_ONCE


def test_the_mark_names_the_node_unless_it_is_a_hash() -> None:
    assert names.manager_node(names.capacity_manager("n1")) == "n1"
    assert names.manager_node(names.capacity_manager("x" * 50)) == ""
    assert names.manager_node("") == names.manager_node("external-provisioner-") == ""


@pytest.mark.parametrize("nodes", [1, 10, 1000])
def test_all_nodes_together_look_once_an_hour(nodes: int) -> None:
    assert nodes * HOUR / pause(nodes) <= 1.0
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
    room = GoneNodes(tools(kube=kube), driver=DRIVER, namespace="ns", node="n1")
    try:
        await room.look_for_ever()
    except asyncio.CancelledError:
        pass
    return slept


def test_it_looks_again_and_again_and_bears_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = cluster(*(published(f"o{number}", "n1") for number in range(7)))
    kube.failures["list"] = [None, Unavailable("away"), None, None]
    share = share_of("n1")
    assert asyncio.run(_for_ever(kube, monkeypatch, 4)) == [(0.25 + share) * HOUR, share * 7 * HOUR, HOUR, 7 * HOUR, 7 * HOUR]


def test_without_the_right_it_says_so_once_and_ends(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    kube = cluster(published("a", "n1"))
    kube.failures["list"] = [None, None, FORBIDDEN]
    assert len(asyncio.run(_for_ever(kube, monkeypatch, 100))) == 2
    assert [record.getMessage()[:48] for record in caplog.records] == ["Capacity objects of nodes that are gone are not "]
