"""What is asked for and not watched: once in a while, and what cannot be learnt is said."""

import asyncio
from typing import Any

import pytest

from sidecar.drain.asking import Asker
from sidecar.drain.settings import Settings
from sidecar.drain.watched import Watched
from sidecar.kube.api import CLAIMS, NAMESPACES, SNAPSHOT_CONTENTS, VOLUMES, Change, Page, Resource
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.kube.store import Store
from sidecar.model.objects import Claim, Volume
from tests.drain.test_gathering import claim, volume

Json = dict[str, Any]


class Kube:
    """Answers every question with the same object, or error, and counts them."""

    def __init__(self, answer: Json | ApiError) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str]] = []

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        return self._say(resource, name)

    async def list_page(self, resource: Resource, *, limit: int = 500) -> Page:
        self._say(resource, "")
        return Page([], "1", "")

    def _say(self, resource: Resource, name: str) -> Json:
        self.asked.append((resource.plural, name))
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def asker(
    kube: Kube, *, volumes: tuple[Json, ...] = (), claims: tuple[Json, ...] = (), contents_absent: bool = False
) -> tuple[Asker, list[float]]:
    held: Store[Volume] = Store()
    for obj in volumes:
        held.apply(Change(obj["metadata"]["name"], None, Volume.of(obj)))
    known: Store[Claim] = Store({"node": lambda item: (item.selected_node,)})
    for obj in claims:
        known.apply(Change(obj["metadata"]["uid"], None, Claim.of(obj)))
    nothing: Store[Any] = Store()
    watched = Watched(nothing, nothing, nothing, nothing, known, held, nothing, lambda: (), lambda: contents_absent)
    now = [0.0]
    return Asker(kube, Settings("n1", "d", "ns", "1"), watched, clock=lambda: now[0]), now  # type: ignore[arg-type]


def test_a_claim_that_the_watch_did_not_keep_is_asked_for_once_in_a_while() -> None:
    kube = Kube(claim("a", volume_name="pv-1"))
    room, now = asker(kube, volumes=(volume("pv-1", "n1", claim="a"),))
    for _ in range(3):
        room.begin()
        assert [found.name for found in asyncio.run(room.claims())] == ["a"]
    assert kube.asked == [(CLAIMS.plural, "a")]
    now[0] = 61.0
    room.begin()
    asyncio.run(room.claims())
    assert len(kube.asked) == 2


def test_a_refusal_is_remembered_too_and_said_each_time() -> None:
    kube = Kube(Forbidden("no", status=403))
    room, _ = asker(kube, volumes=(volume("pv-1", "n1", claim="a"),))
    for _ in range(3):
        room.begin()
        assert asyncio.run(room.policies()) == {}
        assert room.ignorance == ["namespace default: no"]
    assert kube.asked == [(NAMESPACES.plural, "default")]


def test_a_namespace_that_is_gone_says_nothing_and_leaves_nothing_unknown() -> None:
    room, _ = asker(Kube(NotFound("gone", status=404)), volumes=(volume("pv-1", "n1", claim="a"),))
    room.begin()
    assert (asyncio.run(room.policies()), room.ignorance) == ({}, [])


@pytest.mark.parametrize(
    ("answer", "unknown"), [({"metadata": {}}, 1), (NotFound("gone", status=404), 0), (Forbidden("no", status=403), 1)]
)
def test_a_volume_that_is_bound_here_and_not_heard_of_is_unknown_unless_it_is_gone(answer: Any, unknown: int) -> None:
    kube = Kube(answer)
    room, _ = asker(kube, claims=(claim("a", selected="n1", volume_name="pv-9"), claim("waits", selected="n1")))
    room.begin()
    asyncio.run(room.volumes())
    assert len(room.ignorance) == unknown
    assert kube.asked == [(VOLUMES.plural, "pv-9")]


@pytest.mark.parametrize(("absent", "answer", "unknown"), [(False, {}, 0), (True, NotFound("none", status=404), 0), (True, {}, 1)])
def test_snapshots_that_came_to_be_served_later_are_unknown(absent: bool, answer: Any, unknown: int) -> None:
    kube = Kube(answer)
    room, _ = asker(kube, contents_absent=absent)
    room.begin()
    asyncio.run(room.snapshots())
    assert len(room.ignorance) == unknown
    assert len(kube.asked) == absent
    assert all(plural == SNAPSHOT_CONTENTS.plural for plural, _ in kube.asked)
