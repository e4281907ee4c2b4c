"""What a node leaves behind is deleted by another one, once it is sure that the node is gone."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from sidecar.capacity.gone_nodes import DAY, HOUR, MOST_AT_ONCE, MOST_OF_ONE, Suspects, left_by, pause, share_of
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


def test_a_node_deletes_what_it_published_under_another_name() -> None:
    """The scheduler would go on by the figure of then, for as long as there is nothing else of that name."""
    kube = cluster(published("b", "old-name"))
    kube.labelled = ("old-name",)  # type: ignore[attr-defined]
    assert look(kube) == ["b"]


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


def test_what_somebody_was_quicker_with_is_no_failure() -> None:
    for error in [Conflict("changed", status=409), NotFound("gone", status=404)]:
        kube = cluster(published("b", "gone"), published("c", "gone"))
        kube.failures["delete"] = [error]
        assert look(kube) == ["b", "c"]


def test_of_many_only_a_few_are_asked_about_at_once_and_each_has_its_turn() -> None:
    """Those that stay suspect, such as nodes that were given another name, must not take all places."""
    many = [f"n{number}" for number in range(MOST_AT_ONCE * 5)]
    suspects, asked = Suspects(), []
    for _ in range(5):
        few = suspects.due(many, there=())
        assert len(few) == MOST_AT_ONCE
        for node in few:
            suspects.asks(node)
        asked += few
    assert sorted(asked) == sorted(many)
    assert suspects.due(many, there=()) == tuple(asked[:MOST_AT_ONCE])


def questions(api: ScriptedKube, looks: int) -> int:
    looking = room(api)
    for _ in range(looks):
        asyncio.run(looking.look())
    return sum(verb == "get" and name == "gone" for verb, _, name, _ in api.asked)


def test_objects_that_do_not_say_whose_they_are_and_hide_one_that_does_are_not_asked_about_for_ever() -> None:
    """One page of what bears the mark is read."""
    unplaced = [published(f"a{number}", "gone", selector=None) for number in range(MOST_OF_ONE)]
    assert questions(Selecting(cluster(*unplaced, published("b", "gone")).objects), 40) == 6


def test_who_stays_is_noted_with_the_answer_and_questions_grow_rare() -> None:
    """Of a Node without CSINode, and of a name that a node had before; what a node that goes later has left is deleted in the next look."""
    old = published("b", "old-name"), published("c", "no-driver")
    api = Selecting(cluster(*old, nodes=("n2", "no-driver"), csi_nodes=("n1", "n2")).objects)
    api.labelled = ("old-name",)
    looking = room(api)
    for _ in range(40):
        asyncio.run(looking.look())
    asked = Counter(name for verb, _, name, _ in api.asked if verb == "get")
    assert asked == {"no-driver": 6, "old-name": 6 * 3}
    api.objects["csistoragecapacities", "e"] = published("e", "gone")
    asyncio.run(looking.look())
    assert deleted(api) == ["e"]


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


def test_a_label_without_a_value_is_a_label() -> None:
    assert left_by(CapacityRecord.of(published("b", "gone", selector={"matchLabels": {KEY: ""}}))) == "gone"


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


def test_the_mark_names_the_node_unless_it_is_a_hash() -> None:
    assert names.manager_node(names.capacity_manager("n1")) == "n1"
    assert names.manager_node(names.capacity_manager("x" * 50)) == ""
    assert names.manager_node("") == names.manager_node("external-provisioner-") == ""


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


def seven(*, of_each: int = 1) -> ScriptedKube:
    """Seven nodes that are there, with so many objects each."""
    there = tuple(f"n{number}" for number in range(1, 8))
    return cluster(*(published(f"{node}-{count}", node) for node in there for count in range(of_each)), nodes=there, csi_nodes=there)


@pytest.mark.parametrize("of_each", [1, 4])
def test_it_looks_again_and_again_and_comes_no_sooner_to_a_server_that_is_away(of_each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kube = seven(of_each=of_each)
    kube.failures["list"] = [None, Unavailable("away"), None, None]
    share = share_of("n1")
    assert asyncio.run(_for_ever(kube, monkeypatch, 4)) == [(0.25 + share) * HOUR, share * 7 * HOUR, 14 * HOUR, 14 * HOUR, 14 * HOUR]


def test_a_look_that_tells_news_brings_the_next_one_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = seven()
    kube.objects["csistoragecapacities", "b"] = published("b", "no-driver")
    kube.objects["nodes", "no-driver"] = {"metadata": {"name": "no-driver"}}
    assert asyncio.run(_for_ever(kube, monkeypatch, 4))[2:] == [8 * HOUR, 16 * HOUR, 16 * HOUR]


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


@pytest.mark.parametrize("verb", ["list", "get", "delete"])
def test_when_the_right_is_granted_the_work_is_taken_up_again(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Selecting(cluster(published("a", "n1"), published("b", "gone")).objects, {verb: [FORBIDDEN] * 3})
    slept = asyncio.run(_for_ever(api, monkeypatch, 8))
    assert len(deleted(api)) > (3 if verb == "delete" else 0)
    assert max(slept) == 8 * HOUR
    assert slept[-1] <= 4 * HOUR


def test_of_one_node_only_some_objects_are_deleted_at_once() -> None:
    forged = [published(f"o{number}", "gone") for number in range(MOST_OF_ONE * 3)]
    assert len(look(cluster(*forged))) == MOST_OF_ONE
