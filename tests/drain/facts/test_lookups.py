"""What is asked for and not watched: once in a while, and what cannot be learnt is said."""

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.driver_list import DriverList
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.watched import Watched
from sidecar.drain.settings import Settings
from sidecar.kube.api import CLAIMS, CLASSES, NAMESPACES, NODES, SNAPSHOT_CONTENTS, VOLUMES, Change, Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import Claim, Volume
from sidecar.model.topology import Requirement
from tests.harness.drain.listed_cluster import claim, meta, node, pod, volume

Json = dict[str, Any]


HELD = (Volume.of(volume("pv-1", "n1", claim="a")),)


class Kube:
    """Answers every question with the same object, or error, and counts them."""

    def __init__(self, answer: Json | Page | ApiError) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        return self._say(resource, name)

    async def list_page(self, resource: Resource, *, limit: int = 500, **_: Any) -> Page:
        said = self._say(resource, "")
        return said if isinstance(said, Page) else Page([node("n1"), node("n2")] if resource == NODES else [], "1", "")

    def _say(self, resource: Resource, name: str) -> Any:
        self.asked.append((resource.plural, name))
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def asker(
    kube: Kube,
    *,
    volumes: tuple[Json, ...] = (),
    claims: tuple[Json, ...] = (),
    contents_absent: bool = False,
    tenants: tuple[Requirement, ...] = (),
) -> tuple[Lookups, list[float]]:
    held: Store[Volume] = Store()
    for obj in volumes:
        held.apply(Change(obj["metadata"]["name"], None, Volume.of(obj)))
    known: Store[Claim] = Store({"node": lambda item: (item.selected_node,)})
    for obj in claims:
        known.apply(Change(obj["metadata"]["uid"], None, Claim.of(obj)))
    nothing: Store[Any] = Store()
    watched = Watched(nothing, nothing, nothing, nothing, known, held, nothing, lambda: (), lambda: contents_absent)
    now = [0.0]
    settings = Settings("n1", "d", "ns", "1", tenant_policies=tenants)
    return Lookups(kube, settings, watched, clock=lambda: now[0]), now  # type: ignore[arg-type]


def test_a_claim_that_the_watch_dropped_is_read_once_a_minute() -> None:
    kube = Kube(claim("a", volume_name="pv-1"))
    room, now = asker(kube, volumes=(volume("pv-1", "n1", claim="a"),))
    for _ in range(3):
        room.begin()
        assert [found.name for found in asyncio.run(room.claims(HELD))] == ["a"]
    assert kube.asked == [(CLAIMS.plural, "a")]
    now[0] = 61.0
    room.begin()
    asyncio.run(room.claims(HELD))
    assert len(kube.asked) == 2


def test_a_refusal_is_kept_as_well_and_reported_in_each_look() -> None:
    kube = Kube(Forbidden("no", status=403))
    room, _ = asker(kube, volumes=(volume("pv-1", "n1", claim="a"),))
    for _ in range(3):
        room.begin()
        assert asyncio.run(room.namespaces(HELD)) == {"default": None}
        assert (room.ignorance, room.unread) == (["namespace default: no"], {"namespace default"})
    assert kube.asked == [(NAMESPACES.plural, "default")]


def test_a_namespace_that_is_gone_says_nothing_and_leaves_nothing_unknown() -> None:
    room, _ = asker(Kube(NotFound("gone", status=404)), volumes=(volume("pv-1", "n1", claim="a"),))
    room.begin()
    assert (asyncio.run(room.namespaces(HELD)), room.ignorance, room.unread) == ({"default": None}, [], set())


@pytest.mark.parametrize(
    ("answer", "unknown"),
    [(volume("pv-9", "n1", driver="d", claim="a"), 1), (NotFound("gone", status=404), 0), (Forbidden("no", status=403), 1)],
)
def test_an_unseen_volume_of_a_claim_bound_here_is_unknown_unless_it_is_gone(answer: Any, unknown: int) -> None:
    kube = Kube(answer)
    room, _ = asker(kube, claims=(claim("a", selected="n1", volume_name="pv-9"), claim("waits", selected="n1")))
    room.begin()
    asyncio.run(room.unseen_volumes())
    assert len(room.ignorance) == unknown
    assert room.forbidden == ({"volume pv-9": "no"} if isinstance(answer, Forbidden) else {})
    assert kube.asked == [(VOLUMES.plural, "pv-9")]


def made_on(maker: str, stored: Json) -> Json:
    attributes = {names.PROVISIONER_IDENTITY: f"1700000000000-1234-d-{maker}"}
    return {**stored, "spec": {**stored["spec"], "csi": {**stored["spec"]["csi"], "volumeAttributes": attributes}}}


@pytest.mark.parametrize(
    "stored",
    [
        volume("pv-9", "x", key="lost", driver="d", claim="a"),
        made_on("n1", volume("pv-9", "n2", driver="d", claim="a")),
        made_on("an-earlier-name", volume("pv-9", "n1", driver="d", claim="a")),
    ],
    ids=["by a label that the node lacks", "made here", "made under another name of this node"],
)
def test_a_volume_that_may_be_here_and_was_not_seen_yet_leaves_the_verdict_open(stored: Json) -> None:
    room, _ = asker(Kube(stored), claims=(claim("a", selected="n1", volume_name="pv-9"),))
    room.begin()
    asyncio.run(room.unseen_volumes(Node.of(node("n1"))))
    assert len(room.ignorance) == 1


@pytest.mark.parametrize(
    "other",
    [
        volume("pv-9", "n1", driver="other", claim="a"),
        volume("pv-9", "n1", driver="d", claim="b"),
        volume("pv-9", "n2", driver="d", claim="a"),
        made_on("n2", volume("pv-9", "x", key="lost", driver="d", claim="a")),
    ],
    ids=["of another driver", "of another claim", "on another node", "made on another node"],
)
def test_whoever_writes_a_claim_may_say_that_it_is_bound_here_to_any_volume_there_is(other: Json) -> None:
    """Its owner would keep the node's verdict Unknown for ever."""
    room, now = asker(kube := Kube(other), claims=(claim("a", selected="n1", volume_name="pv-9"),))
    for _ in range(3):
        room.begin()
        asyncio.run(room.unseen_volumes(Node.of(node("n1"))))
        assert room.ignorance == []
    assert kube.asked == [(VOLUMES.plural, "pv-9")], "not at every look"
    now[0] = 60.0
    room.begin()
    asyncio.run(room.unseen_volumes(Node.of(node("n1"))))
    assert len(kube.asked) == 2


def test_of_many_claims_that_name_volumes_which_do_not_exist_a_list_says_so() -> None:
    room, _ = asker(kube := Kube({}), claims=tuple(claim(f"c-{n}", selected="n1", volume_name=f"none-{n}") for n in range(1000)))
    room.begin()
    asyncio.run(room.unseen_volumes())
    assert (kube.asked, room.ignorance) == ([(VOLUMES.plural, "")], [])


@pytest.mark.parametrize(
    ("absent", "answer", "unknown"),
    [
        (False, Page([{}], "1", ""), 0),
        (True, NotFound("none", status=404), 0),
        (True, Page([], "1", ""), 0),
        (True, Page([{}], "1", ""), 1),
    ],
)
def test_snapshots_that_came_to_be_served_later_are_unknown(absent: bool, answer: Any, unknown: int) -> None:
    kube = Kube(answer)
    room, _ = asker(kube, contents_absent=absent)
    room.begin()
    asyncio.run(room.snapshots())
    assert len(room.ignorance) == unknown
    assert len(kube.asked) == absent
    assert all(plural == SNAPSHOT_CONTENTS.plural for plural, _ in kube.asked)


HERE = Node.of(node("n1"))


def held(room: Lookups) -> tuple[Volume, ...]:
    return asyncio.run(room.facts(HERE)).volumes


def test_of_volumes_that_ask_for_this_node_alone_no_other_node_is_asked() -> None:
    kube = Kube({})
    room, _ = asker(kube, volumes=(volume("pv-1", "n1"), volume("pv-2", "n2")))
    assert [item.name for item in held(room)] == ["pv-1"]
    assert kube.asked == []


def test_a_volume_that_several_nodes_reach_is_on_none_and_the_others_are_listed_once_a_minute() -> None:
    kube = Kube({})
    room, _ = asker(kube, volumes=(volume("pv-1", "n1"), volume("pv-both", "n1", "n2"), volume("pv-rest", "n1", "gone")))
    for _ in range(3):
        assert [item.name for item in held(room)] == ["pv-1", "pv-rest"]
    assert kube.asked == [(NODES.plural, "")]


def test_a_volume_that_may_be_here_counts_if_the_other_nodes_may_not_be_listed() -> None:
    room, _ = asker(Kube(Forbidden("no", status=403)), volumes=(volume("pv-both", "n1", "n2"),))
    assert [item.name for item in held(room)] == ["pv-both"]
    assert room.ignorance == ["the other nodes: no"]


def test_a_volume_that_asks_for_a_label_that_only_other_nodes_have_is_unknown() -> None:
    room, _ = asker(Kube({}), volumes=(volume("pv-zone", "y", key="zone"), volume("pv-rack", "7", key="rack")))
    facts = asyncio.run(room.facts(replace(HERE, labels={names.HOSTNAME: "n1"})))
    assert facts.volumes == ()
    (told,) = assemble(facts, now=0.0).ignorance
    assert "pv-zone" in told and "lacks labels" in told
    assert "pv-rack" not in told, "a label that no node has says nothing about this one"


def test_a_class_that_names_no_driver_is_read() -> None:
    kube = Kube({"metadata": meta("static", annotations={names.DRAIN_POLICY: "Block"}), "provisioner": "kubernetes.io/no-provisioner"})
    obj = volume("pv-1", "n1")
    obj["spec"]["storageClassName"] = "static"
    room, _ = asker(kube)
    for _ in range(2):
        room.begin()
        (found,) = asyncio.run(room.classes((Volume.of(obj), *HELD)))
        assert dict(found.notes) == {names.DRAIN_POLICY: "Block"}
    assert kube.asked == [(CLASSES.plural, "static")]


def test_an_empty_policy_of_a_namespace_is_not_the_same_as_none() -> None:
    said = {"metadata": meta("default", annotations={names.DRAIN_POLICY: ""})}
    room, _ = asker(Kube(said), volumes=(volume("pv-1", "n1", claim="a"),), claims=(claim("a", volume_name="pv-1"),))
    assert asyncio.run(room.facts(HERE)).namespace_policies == {"default": ((names.DRAIN_POLICY, ""),)}


@pytest.mark.parametrize(
    ("answer", "unheeded"),
    [
        ({"metadata": meta("default", labels={"team": "data"})}, set()),
        ({"metadata": meta("default", labels={"team": "web"})}, {"default"}),
        ({"metadata": meta("default")}, {"default"}),
        (Forbidden("no", status=403), set()),
    ],
    ids=["fits", "another", "none", "cannot be read"],
)
def test_of_which_namespaces_the_own_word_for_block_counts(answer: Any, unheeded: set[str]) -> None:
    """Of one that cannot be read it does: that is the stricter."""
    held = {"volumes": (volume("pv-1", "n1", claim="a"),), "claims": (claim("a", volume_name="pv-1"),)}
    room, _ = asker(Kube(answer), **held, tenants=(Requirement("team", "In", ("data",)),))
    assert asyncio.run(room.facts(HERE)).unheeded_namespaces == unheeded
    room, _ = asker(Kube(answer), **held)
    assert asyncio.run(room.facts(HERE)).unheeded_namespaces == set()


def test_what_one_look_may_not_ask_the_next_one_asks_soon() -> None:
    """A process that starts on a full node must not stay in doubt for as many minutes as there are claims of other drivers."""
    room, _ = asker(Kube(claim("many", volume_name="pv-of-other")))
    names_of_claims = [f"c{number}" for number in range(30)]
    mounting = Pod.of(pod("p", *names_of_claims, node="n1", phase="Running"))
    pods: Store[Pod] = Store()
    pods.apply(Change("p", None, mounting))
    room._watched = replace(room._watched, pods=pods)
    asyncio.run(room.facts(Node.of(node("n1"))))
    assert any("not asked yet" in sentence for sentence in room.ignorance)
    assert room.changes_in == 5.0


def test_a_snapshot_that_has_the_former_name_of_its_node_lies_where_the_driver_lists_its_source() -> None:
    old = volume("pv-1", "old", driver="d")
    label = {names.CONTENT_MANAGED_BY: "old"}
    content = {"metadata": meta("snap", labels=label), "spec": {"driver": "d", "source": {"volumeHandle": "h-pv-1"}}}
    kube = Kube(Page([content], "1", ""))
    room, _ = asker(kube, volumes=(old,))
    listed = DriverList(MappingProxyType({"h-pv-1": True}), ())
    room._watched = replace(room._watched, listed=lambda: listed)
    facts = asyncio.run(room.facts(HERE))
    assert (facts.renamed, [item.name for item in facts.contents]) == (frozenset({"pv-1"}), ["snap"])
    assert [item.name for item in assemble(facts, now=0.0).contents] == ["snap"]
