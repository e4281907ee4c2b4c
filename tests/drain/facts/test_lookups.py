"""What is asked for and not watched: what cannot be learnt is said, and leaves the verdict open."""

import asyncio
from typing import Any

from sidecar.drain.facts.asking_io import Asking
from sidecar.drain.facts.lookups import Lookups
from sidecar.drain.facts.watched import Watched
from sidecar.drain.settings import Settings
from sidecar.kube.api import NODES, VOLUMES, Change, Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Claim, Volume
from sidecar.model.topology import Requirement
from tests.harness.drain.listed_cluster import claim, meta, node, volume

Json = dict[str, Any]


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
    tenants: tuple[Requirement, ...] = (),
) -> Lookups:
    held: Store[Volume] = Store()
    for obj in volumes:
        held.apply(Change(obj["metadata"]["name"], None, Volume.of(obj)))
    known: Store[Claim] = Store({"node": lambda item: (item.selected_node,)})
    for obj in claims:
        known.apply(Change(obj["metadata"]["uid"], None, Claim.of(obj)))
    nothing: Store[Any] = Store()
    watched = Watched(nothing, nothing, nothing, nothing, known, held, nothing, lambda: ())
    settings = Settings("n1", "d", "ns", "1", tenant_policies=tenants)
    return Lookups(kube, settings, watched, clock=lambda: 0.0)  # type: ignore[arg-type]


def test_an_unseen_volume_of_a_claim_bound_here_is_unknown_unless_it_is_gone() -> None:
    for answer, unknown in [
        (volume("pv-9", "n1", driver="d", claim="a"), 1),
        (NotFound("gone", status=404), 0),
        (Forbidden("no", status=403), 1),
    ]:
        kube = Kube(answer)
        room = asker(kube, claims=(claim("a", selected="n1", volume_name="pv-9"), claim("waits", selected="n1")))
        room.begin()
        asyncio.run(room.unseen_volumes())
        assert len(room.ignorance) == unknown
        assert room.forbidden == ({"volume pv-9": "no"} if isinstance(answer, Forbidden) else {})
        assert kube.asked == [(VOLUMES.plural, "pv-9")]


def made_on(maker: str, stored: Json) -> Json:
    attributes = {names.PROVISIONER_IDENTITY: f"1700000000000-1234-d-{maker}"}
    return {**stored, "spec": {**stored["spec"], "csi": {**stored["spec"]["csi"], "volumeAttributes": attributes}}}


def test_a_volume_that_may_be_here_and_was_not_seen_yet_leaves_the_verdict_open() -> None:
    for stored in [
        volume("pv-9", "x", key="lost", driver="d", claim="a"),  # by a label that the node lacks
        made_on("n1", volume("pv-9", "n2", driver="d", claim="a")),  # made here
        made_on("an-earlier-name", volume("pv-9", "n1", driver="d", claim="a")),  # made under another name of this node
    ]:
        room = asker(Kube(stored), claims=(claim("a", selected="n1", volume_name="pv-9"),))
        room.begin()
        asyncio.run(room.unseen_volumes(Node.of(node("n1"))))
        assert len(room.ignorance) == 1


HERE = Node.of(node("n1"))


def held(room: Lookups) -> tuple[Volume, ...]:
    return asyncio.run(room.facts(HERE)).volumes


def test_a_volume_that_may_be_here_counts_if_the_other_nodes_may_not_be_listed() -> None:
    room = asker(Kube(Forbidden("no", status=403)), volumes=(volume("pv-both", "n1", "n2"),))
    assert [item.name for item in held(room)] == ["pv-both"]
    assert room.ignorance == ["the other nodes: no"]


def test_of_which_namespaces_the_own_word_for_block_counts() -> None:
    """Of one that cannot be read it does: that is the stricter."""
    for answer, unheeded in [
        ({"metadata": meta("default", labels={"team": "data"})}, set()),  # fits
        ({"metadata": meta("default", labels={"team": "web"})}, {"default"}),  # another
        ({"metadata": meta("default")}, {"default"}),  # none
        (Forbidden("no", status=403), set()),  # cannot be read
    ]:
        held = {"volumes": (volume("pv-1", "n1", claim="a"),), "claims": (claim("a", volume_name="pv-1"),)}
        room = asker(Kube(answer), **held, tenants=(Requirement("team", "In", ("data",)),))
        assert asyncio.run(room.facts(HERE)).unheeded_namespaces == unheeded
        room = asker(Kube(answer), **held)
        assert asyncio.run(room.facts(HERE)).unheeded_namespaces == set()


# --- What could not be learnt is told in every look ---


class Scene:
    def __init__(self, answer: Any) -> None:
        self.answer, self.now, self.count = answer, 0.0, 0
        self.asking = Asking(clock=lambda: self.now)

    async def question(self) -> Any:
        self.count += 1
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer

    def look(self, **how: Any) -> Any:
        self.asking.begin()
        return asyncio.run(self.asking.ask("it", self.question, **how))


def test_a_refusal_is_told_in_each_look_and_kept_for_a_minute_at_most() -> None:
    scene = Scene(Forbidden("no", status=403))
    for _ in range(2):
        assert scene.look(trusted=600.0) is None
        assert (scene.asking.ignorance, scene.asking.unread) == (["it: no"], {"it"})
        assert scene.asking.forbidden == {"it": "no"}
    assert scene.count == 1
    scene.now = 60.0
    scene.look(trusted=600.0)
    assert scene.count == 2


def test_what_is_not_there_is_known() -> None:
    scene = Scene(NotFound("none", status=404))
    assert (scene.look(), scene.asking.ignorance, scene.asking.knows("it")) == (None, [], True)


def test_a_volume_that_several_nodes_reach_is_on_none_and_the_others_are_listed_once_a_minute() -> None:
    kube = Kube({})
    room = asker(kube, volumes=(volume("pv-1", "n1"), volume("pv-both", "n1", "n2"), volume("pv-rest", "n1", "gone")))
    for _ in range(3):
        assert [item.name for item in held(room)] == ["pv-1", "pv-rest"]
    assert kube.asked == [(NODES.plural, "")]
