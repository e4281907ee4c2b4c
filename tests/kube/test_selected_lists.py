"""One kind that begins with lists by the labels that it is watched by: nothing is missed between them, and the rest is found later."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import ApiError, Gone, Unavailable
from sidecar.kube.reflector_state import Synced
from tests.harness.held_watches import now
from tests.harness.labelled_volumes import HELD, MINE, NONE, OTHER, OWN, VOLUMES_OF_ALL, Scene, played

Story = Callable[[Scene], Awaitable[None]]
ALL = ""
HALF_AN_HOUR = 1800.0


def play(
    story: Story, *, between: Story | None = None, refused: ApiError | None = None, nodes: int | None = None
) -> tuple[Scene, list[tuple[float, str, str]]]:
    """The scene at its end, and when it has listed by which selector, with the version. `between` happens after the first list of each
    kind; `refused`: so the first second list ends."""
    lists: list[tuple[float, str, str]] = []

    def scene_of() -> Scene:
        scene = Scene(begins_selected=True, nodes=lambda: nodes)
        answer = scene.api.list_page

        async def list_page(resource: Resource, **more: Any) -> Page:
            nonlocal refused
            if refused is not None and more["label_selector"] == NONE:
                error, refused = refused, None
                raise error
            page = await answer(resource, **more)
            lists.append((now(), more["label_selector"], page.resource_version))
            if between is not None and len(lists) == 1:
                await between(scene)
            return page

        scene.api.list_page = list_page  # type: ignore[assignment]
        return scene

    return played(scene_of, story, (*VOLUMES_OF_ALL, ("stray", OTHER)), settled=10.0), lists


async def end_of_watches(scene: Scene) -> None:
    """As servers end them every few minutes."""
    while True:
        await asyncio.sleep(400.0)
        scene.api.cut(OWN)


def test_it_begins_with_what_it_watches_and_each_watch_goes_on_where_its_own_list_ends() -> None:
    async def story(scene: Scene) -> None:
        assert scene.held == HELD and isinstance(scene.reflector.state, Synced)

    async def between(scene: Scene) -> None:
        await scene.make("another", OTHER, handle="foreign")

    scene, lists = play(story, between=between)
    assert [selector for _, selector, _ in lists] == [OWN, NONE]
    assert lists[0][2] != lists[1][2]
    assert [watch[1:] for watch in scene.api.watches] == [(OWN, lists[0][2]), (NONE, lists[1][2])]
    assert scene.reflector.lists == 1


@pytest.mark.parametrize(("name", "to"), [("mine", None), ("plain", MINE), ("shared", MINE), ("stray", MINE), ("stray", None)])
def test_what_goes_from_one_selector_to_the_other_between_their_lists_is_not_missed(name: str, to: str | None) -> None:
    async def story(scene: Scene) -> None:
        assert scene.held == HELD | {name}
        await scene.delete(name)
        await asyncio.sleep(10.0)
        assert scene.held == HELD - {name}

    async def between(scene: Scene) -> None:
        await scene.label(name, to)

    play(story, between=between)


def test_what_goes_between_the_lists_is_gone() -> None:
    async def story(scene: Scene) -> None:
        assert scene.held == HELD - {"mine", "plain"}

    async def between(scene: Scene) -> None:
        await scene.delete("mine")
        await scene.delete("plain")

    play(story, between=between)


def test_if_the_second_list_fails_both_are_asked_for_again() -> None:
    async def story(scene: Scene) -> None:
        assert scene.held == HELD

    _, lists = play(story, refused=Unavailable("away"))
    assert [selector for _, selector, _ in lists] == [OWN, OWN, NONE]


def test_what_has_a_label_that_shows_it_to_nobody_is_found_within_the_hour_and_all_is_listed_every_half_hour() -> None:
    async def story(scene: Scene) -> None:
        ending = asyncio.create_task(end_of_watches(scene))
        await asyncio.sleep(3 * HALF_AN_HOUR)
        assert scene.held == {*HELD, "stray"}
        await asyncio.sleep(17 * HALF_AN_HOUR)
        await scene.delete("stray")
        await asyncio.sleep(600.0)
        assert scene.held == HELD
        ending.cancel()

    _, lists = play(story)
    whole = [at for at, selector, _ in lists if selector == ALL]
    assert len(lists) == len(whole) + 2
    assert whole[0] <= HALF_AN_HOUR + 400.0
    assert 13 <= len(whole) <= 25


def test_all_is_listed_when_the_servers_history_is_too_short() -> None:
    async def story(scene: Scene) -> None:
        scene.api.cut(OWN, Gone("compacted"))
        await asyncio.sleep(10.0)
        assert scene.held == {*HELD, "stray"}

    _, lists = play(story)
    assert [selector for _, selector, _ in lists] == [OWN, NONE, ALL]
