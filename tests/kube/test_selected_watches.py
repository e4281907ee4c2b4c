"""One kind, listed whole and watched by labels: the store is as it would be with one watch of everything, whatever one watch suffers."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sidecar.kube.api import VOLUMES
from sidecar.kube.errors import ApiError, Forbidden, Gone, Unavailable
from sidecar.kube.reflector_state import Degraded, Synced
from sidecar.model.objects import Json
from tests.harness.held_watches import a_cluster
from tests.harness.labelled_volumes import HELD, MINE, NONE, OTHER, OWN, Scene, played


def play(story: Callable[[Scene], Awaitable[None]], **options: Any) -> Scene:
    return played(lambda: Scene(**options), story)


# --- what is heard --------------------------------------------------------------------------------------------------------


def test_all_is_listed_and_then_watched_by_each_selector_from_the_version_of_the_list() -> None:
    async def story(scene: Scene) -> None:
        assert scene.held == HELD
        version = scene.api.watches[0][2]
        assert [watch[1:] for watch in scene.api.watches] == [(OWN, version), (NONE, version)]
        assert isinstance(scene.reflector.state, Synced)

    scene = play(story)
    assert scene.reflector.attempts == 3


def test_what_carries_the_own_label_or_none_is_heard_and_what_carries_another_node_s_is_not() -> None:
    async def story(scene: Scene) -> None:
        before = scene.reflector.events
        for name, label in (("a", MINE), ("b", "several"), ("c", None), ("d", OTHER)):
            await scene.make(name, label)
        await asyncio.sleep(1.0)
        assert scene.held == HELD | {"a", "b", "c"}
        assert scene.reflector.events - before == 3

    play(story)


# --- what goes and what only leaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mine", "plain"])
def test_what_is_held_is_gone_only_when_the_server_does_not_know_its_name(name: str) -> None:
    async def story(scene: Scene) -> None:
        scene.api.slow = 2.0
        await scene.delete(name)
        await asyncio.sleep(1.0)
        assert name in scene.held
        await asyncio.sleep(2.0)
        assert scene.held == HELD - {name}

    scene = play(story)
    assert scene.api.count("get") == 1
    assert [change for change in scene.changes if not change[1]] == [(name, False)]


@pytest.mark.parametrize(("name", "to"), [("mine", None), ("plain", MINE), ("shared", MINE)])
def test_what_goes_from_one_selector_to_another_never_goes_from_the_store(name: str, to: str | None) -> None:
    async def story(scene: Scene) -> None:
        await scene.label(name, to)
        await asyncio.sleep(5.0)
        await scene.edit(name, "later")
        await asyncio.sleep(5.0)
        assert scene.reflector.store.get(name).endswith("later")  # type: ignore[union-attr]

    scene = play(story)
    assert scene.held == HELD
    assert (name, False) not in scene.changes


@pytest.mark.parametrize("name", ["mine", "plain"])
def test_what_no_selector_fits_any_more_is_asked_for_until_it_is_gone(name: str) -> None:
    async def story(scene: Scene) -> None:
        await scene.label(name, OTHER)
        await asyncio.sleep(300.0)
        assert scene.held == HELD
        assert scene.api.count("get") == 4, "at once, after 30, 90 and 210 s"
        await scene.edit(name, "seen")
        await asyncio.sleep(300.0)
        assert scene.reflector.store.get(name).endswith("seen")  # type: ignore[union-attr]
        await scene.delete(name)
        await asyncio.sleep(200.0)
        assert scene.held == HELD - {name}
        asked = scene.api.count("get")
        await asyncio.sleep(300.0)
        assert scene.api.count("get") == asked

    play(story)


def test_many_strays_are_asked_for_one_a_second() -> None:
    async def story(scene: Scene) -> None:
        for number in range(100):
            await scene.make(f"v{number}", MINE)
        await asyncio.sleep(1.0)
        for number in range(100):
            await scene.label(f"v{number}", OTHER)
        await asyncio.sleep(20.0)
        asked = scene.api.count("get")
        await asyncio.sleep(300.0)
        assert 200 < scene.api.count("get") - asked <= 301
        assert len(scene.held) == 103

    play(story)


def test_that_there_are_strays_is_told_once_an_hour_with_what_would_mend_it(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[dict[str, Any]]:
        return [record.fields for record in caplog.records if "no watch shows them" in record.getMessage()]  # type: ignore[attr-defined]

    async def story(scene: Scene) -> None:
        await asyncio.sleep(3600.0)
        assert told() == []
        for number in range(100):
            await scene.make(f"v{number}", MINE)
            await scene.label(f"v{number}", OTHER)
        await asyncio.sleep(3000.0)
        ((told_of,),) = [told()]
        assert (told_of["resource"], told_of["objects"], told_of["selectors"]) == ("persistentvolumes", 100, [OWN, NONE])
        await asyncio.sleep(3600.0)
        assert len(told()) == 2
        for number in range(100):
            await scene.label(f"v{number}", None)
        await asyncio.sleep(7200.0)
        assert len(told()) == 2

    play(story)


@pytest.mark.parametrize("label", [OTHER, MINE, None])
def test_an_object_that_took_the_name_of_another_counts_as_another(label: str | None) -> None:
    async def story(scene: Scene) -> None:
        scene.api.slow = 1.0
        first = scene.reflector.store.get("mine")
        await scene.delete("mine")
        await scene.make("mine", label)
        await asyncio.sleep(2.0)
        assert scene.reflector.store.get("mine") not in (None, first)
        assert scene.changes[-2:] == [("mine", False), ("mine", True)]

    play(story)


# --- order -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [OWN, NONE])
def test_what_a_slow_watch_tells_late_does_not_undo_what_a_quick_one_has_told(slow: str) -> None:
    """To and fro between the selectors, and then gone: no old record comes back, and the end is the end."""

    async def story(scene: Scene) -> None:
        scene.api.hold(slow)
        await scene.edit("mine", "1")
        await scene.label("mine", None)
        await scene.edit("mine", "2")
        await scene.label("mine", MINE)
        await scene.edit("mine", "3")
        await scene.label("mine", None)
        await scene.edit("mine", "4")
        await asyncio.sleep(5.0)
        first = scene.reflector.store.get("mine")
        scene.api.let_go(slow)
        await asyncio.sleep(5.0)
        last = scene.reflector.store.get("mine")
        assert last is not None and last.endswith("4")
        assert first is not None and first.split()[1:] <= ["4"]
        scene.api.hold(slow)
        await scene.label("mine", MINE)
        await scene.delete("mine")
        await asyncio.sleep(5.0)
        scene.api.let_go(slow)
        await asyncio.sleep(5.0)
        assert "mine" not in scene.held

    notes: list[int] = []
    scene = play(story, project=lambda obj: _noting(notes, obj))
    assert scene.changes.count(("mine", False)) == 1 and scene.changes[-1] == ("mine", False)


def _noting(notes: list[int], obj: Json) -> str:
    return f"{obj['metadata']['uid']} {obj['metadata'].get('annotations', {}).get('n', '')}"


@pytest.mark.parametrize("begins_selected", [False, True])
def test_whatever_happens_and_however_late_it_is_told_the_end_is_as_the_server_has_it(begins_selected: bool) -> None:
    """Labels, edits, deletions and new objects of old names, while watches are held, cut and refused, and questions are slow and fail."""

    async def story(scene: Scene) -> None:
        for step in range(60):
            name = dice.choice(("mine", "plain", "shared", "a"))
            try:
                match dice.randrange(9):
                    case 0 | 1 | 2:
                        await scene.label(name, dice.choice((MINE, OTHER, "several", None)))
                    case 3:
                        await scene.edit(name, str(step))
                    case 4:
                        await scene.delete(name)
                    case 5:
                        await scene.make(name, dice.choice((MINE, "several", None)))
                    case 6:
                        scene.api.slow = dice.choice((0.0, 0.0, 1.0, 7.0))
                        scene.api.failing = dice.choice((None, None, Unavailable("away"), Forbidden("no", status=403)))
                    case 7:
                        for selector in list(scene.api.held):
                            scene.api.let_go(selector)
                        if dice.random() < 0.5:
                            scene.api.hold(dice.choice((OWN, NONE)))
                    case _:
                        selector = dice.choice((OWN, NONE))
                        if scene.api.open[selector]:
                            scene.api.cut(selector, dice.choice((None, Unavailable("cut"), Gone("compacted"))))
            except ApiError:
                pass  # there is no such object, or there is one
            await asyncio.sleep(dice.choice((0.0, 0.0, 0.1, 3.0, 20.0)))
        scene.api.slow, scene.api.failing = 0.0, None
        for selector in list(scene.api.held):
            scene.api.let_go(selector)
        await asyncio.sleep(300.0)
        page = await scene.people.list_page(VOLUMES, limit=0)
        there = {obj["metadata"]["name"]: scene._project(obj) for obj in page.items}
        assert {name: scene.reflector.store.get(name) for name in scene.held} == {name: made for name, made in there.items() if made}

    for seed in range(30):
        dice = random.Random(seed)
        play(story, begins_selected=begins_selected)


# --- troubles ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [OWN, NONE])
@pytest.mark.parametrize("error", [None, Unavailable("cut")])
def test_when_one_watch_ends_each_continues_from_its_own_version(which: str, error: ApiError | None) -> None:
    async def story(scene: Scene) -> None:
        await asyncio.sleep(10.0)
        await scene.edit("mine", "1")
        await asyncio.sleep(1.0)
        scene.api.hold(NONE if which == OWN else OWN)
        scene.api.cut(which, error)
        for name in HELD:
            await scene.edit(name, "2")
        await asyncio.sleep(1.0)
        for selector in list(scene.api.held):
            scene.api.let_go(selector)
        await asyncio.sleep(5.0)
        for name in HELD:
            record = scene.reflector.store.get(name)
            assert record is not None and record.endswith("2")

    scene = play(story)
    assert scene.reflector.lists == 1
    assert int(scene.api.watches[2][2]) > int(scene.api.watches[3][2]) == int(scene.api.watches[0][2])


@pytest.mark.parametrize("which", [OWN, NONE])
def test_410_of_one_watch_lists_anew(which: str) -> None:
    async def story(scene: Scene) -> None:
        await asyncio.sleep(10.0)
        scene.api.cut(which, Gone("compacted"))
        await scene.make("a", MINE)
        await asyncio.sleep(10.0)
        assert scene.held == {*HELD, "a"}

    assert play(story).reflector.lists == 2


@pytest.mark.parametrize("which", [OWN, NONE])
def test_while_one_watch_is_refused_it_does_not_claim_to_watch_and_lists_after_a_while(which: str) -> None:
    async def story(scene: Scene) -> None:
        await asyncio.sleep(30.0)
        scene.api.refused[which] = Forbidden("no", status=403)
        scene.api.cut(which)
        await asyncio.sleep(1.0)
        begun = len(scene.api.asked)
        for _ in range(600):
            assert not scene.reflector.is_watching
            await asyncio.sleep(1.0)
        assert not isinstance(scene.reflector.state, Synced)
        assert scene.reflector.lists > 1
        await scene.make("a", MINE)
        await scene.make("b", None)
        await asyncio.sleep(200.0)
        assert scene.held == {*HELD, "a", "b"}, "what the other one tells, and the lists"
        assert len(scene.api.asked) - begun < 200
        scene.api.refused.clear()
        await asyncio.sleep(120.0)
        assert isinstance(scene.reflector.state, Synced)

    play(story)


@pytest.mark.parametrize("error", [Unavailable("away"), Forbidden("no", status=403)])
def test_a_question_that_fails_drops_nothing_and_is_asked_again_at_a_pace(error: ApiError) -> None:
    async def story(scene: Scene) -> None:
        await asyncio.sleep(30.0)
        scene.api.failing = error
        await scene.label("mine", OTHER)
        await scene.label("shared", OTHER)
        await asyncio.sleep(1.0)
        await scene.make("new", None)
        await asyncio.sleep(300.0)
        assert scene.held == {*HELD, "new"}
        assert len(scene.api.asked) < 150
        scene.api.failing = None
        await scene.delete("mine")
        await asyncio.sleep(90.0)
        assert scene.held == {"shared", "plain", "new"}

    scene = play(story)
    assert ("shared", False) not in scene.changes


def test_where_nobody_may_ask_a_list_decides() -> None:
    async def story(scene: Scene) -> None:
        scene.api.failing = Forbidden("no", status=403)
        await scene.delete("mine")
        await asyncio.sleep(60.0)
        assert scene.held == HELD - {"mine"}

    assert play(story).reflector.lists == 2


def test_an_outage_loses_nothing() -> None:
    async def story(scene: Scene) -> None:
        await asyncio.sleep(30.0)
        for selector in (OWN, NONE):
            scene.api.refused[selector] = Unavailable("away")
        scene.api.cut(OWN, Unavailable("away"))
        await scene.delete("mine")
        await scene.label("plain", OTHER)
        await scene.make("a", MINE)
        await asyncio.sleep(100.0)
        assert scene.held == HELD
        assert isinstance(scene.reflector.state, Degraded)
        scene.api.refused.clear()
        await asyncio.sleep(60.0)
        assert scene.held == {"shared", "plain", "a"}

    assert play(story).reflector.lists == 1


@pytest.mark.parametrize("which", [OWN, NONE])
@pytest.mark.parametrize("ahead", [0, 10])
def test_a_server_that_was_put_back_is_listed_anew(which: str, ahead: int) -> None:
    """It accepts versions that it has not reached yet, and is silent. It may have come to a version between those of the watches, and it
    may have again what was gone."""

    async def story(scene: Scene) -> None:
        busy, quiet = ("shared", "plain") if which == OWN else ("plain", "shared")
        await scene.delete("mine")
        await asyncio.sleep(1.0)
        await scene.edit(quiet, "0")
        for number in range(20):
            await scene.edit(busy, str(number))
        await asyncio.sleep(10.0)
        restored = a_cluster()
        scene.people.cluster = restored
        await scene.make("mine", MINE)
        for number in range(ahead):
            await scene.edit("mine", str(number))
        scene.api.cluster = restored
        scene.api.cut(which, Unavailable("restarting"))
        await asyncio.sleep(60.0)
        assert scene.held == {"mine"}
        await scene.edit("mine", "after")
        await asyncio.sleep(1.0)
        record = scene.reflector.store.get("mine")
        assert record is not None and record.endswith("after"), "versions that are lower than those of before are no old ones"

    assert play(story).reflector.lists == 2


@pytest.mark.parametrize("pair", list(itertools.product((OWN, NONE), ("gets", "watches"))), ids=" ".join)
def test_however_broken_it_asks_no_more_than_once_a_second(pair: tuple[str, str]) -> None:
    which, what = pair

    async def story(scene: Scene) -> None:
        await asyncio.sleep(10.0)
        if what == "gets":
            scene.api.failing = Unavailable("away")
            await scene.delete("mine" if which == OWN else "plain")
        else:
            scene.api.refused[which] = Unavailable("away")
            scene.api.cut(which)
        begun = len(scene.api.asked)
        await asyncio.sleep(600.0)
        assert len(scene.api.asked) - begun < 600 * 0.3
        assert scene.held == HELD

    play(story)
