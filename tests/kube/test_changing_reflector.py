"""One kind, watched by label selectors that change: the store is what the selectors select, without a gap, and nothing with which something
is under way is taken for gone because its label has changed."""

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from sidecar.kube.api import VOLUMES, Change, KubeApi
from sidecar.kube.changing_reflector import ChangingReflector
from sidecar.kube.errors import Gone, Unavailable
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import Degraded, Synced
from sidecar.kube.selected import Selected
from sidecar.kube.store import Store, by_uid
from sidecar.model.objects import Json
from tests.harness.held_watches import a_cluster, now
from tests.harness.labelled_volumes import LABEL, NONE, People, played

A, AB, B, ALL = f"{LABEL} in (a)", f"{LABEL} in (a,b)", f"{LABEL} in (b)", ""
Record = tuple[str, str, str]
"""Name, version and note."""


class Scene(People):
    """A cluster that people change, and a reflector that keeps what has no note `foreign`, except what is busy."""

    def __init__(self, *selectors: str) -> None:
        super().__init__()
        self.busy: set[str] = set()
        self.store: Store[Record] = Store()
        api, dice = cast(KubeApi, self.api), random.Random(1).random
        self.reflector = ChangingReflector(
            api,
            VOLUMES,
            selected=Selected(
                selectors=selectors,
                place_of=lambda record: ("", record[0]),
                version_of=lambda record: record[1],
                is_under_way=lambda key: self.name_of(key) in self.busy,
            ),
            make=lambda selector, store, on_state: Reflector(
                api,
                VOLUMES,
                project=self._project,
                store=store,
                key_of=by_uid,
                label_selector=selector,
                on_change=self._note,
                on_state=on_state,
                clock=now,
                rng=dice,
            ),
            project=self._project,
            store=self.store,
            key_of=by_uid,
            on_change=self._note,
            on_state=self.states.append,
            clock=now,
            rng=dice,
        )

    def name_of(self, key: str) -> str:
        record = self.store.get(key)
        return record[0] if record else ""

    def _project(self, obj: Json) -> Record | None:
        meta = obj["metadata"]
        note = (meta.get("annotations") or {}).get("n", "")
        return (meta["name"], meta["resourceVersion"], note) if note != "foreign" or meta["name"] in self.busy else None

    def _note(self, change: Change[Record]) -> None:
        record = change.new or change.old
        assert record is not None
        self.changes.append((record[0], change.new is not None))

    @property
    def held(self) -> set[str]:
        return {record[0] for record in self.store.values()}

    def note(self, name: str) -> str:
        return next(record[2] for record in self.store.values() if record[0] == name)

    def losses(self, name: str) -> int:
        return self.changes.count((name, False))


S = TypeVar("S", bound=Scene)


def play(story: Callable[[S], Awaitable[None]], *selectors: str, scene_of: type[S] = Scene) -> S:  # type: ignore[assignment]
    return played(lambda: scene_of(*selectors), story, (("in-a", "a"), ("in-b", "b"), ("in-c", "c"), ("plain", None)))


# --- what is heard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selectors", "held"), [((A,), {"in-a"}), ((AB, NONE), {"in-a", "in-b", "plain"}), ((ALL,), {"in-a", "in-b", "in-c", "plain"})]
)
def test_only_what_the_selectors_select_is_listed_and_watched(selectors: tuple[str, ...], held: set[str]):
    async def story(scene: Scene) -> None:
        assert scene.held == held
        for name in ("in-a", "in-b", "in-c", "plain"):
            await scene.edit(name, "edited")
        await asyncio.sleep(1.0)
        assert {record[0] for record in scene.store.values() if record[2] == "edited"} == held
        assert scene.reflector.has_synced
        assert scene.reflector.selectors == selectors
        assert isinstance(scene.reflector.state, Synced)

    scene = play(story, *selectors)
    assert Counter(watch[1] for watch in scene.api.watches) == Counter(selectors)


# --- what leaves ------------------------------------------------------------------------------------------------------------


def test_what_leaves_is_believed_to_be_gone_without_a_question():
    async def story(scene: Scene) -> None:
        await scene.label("in-a", "c")
        await asyncio.sleep(1.0)
        assert scene.held == set()
        await scene.label("in-a", "a")
        await asyncio.sleep(1.0)
        assert scene.held == {"in-a"}

    assert play(story, A).api.count("get") == 0


def test_what_is_busy_is_asked_for_when_it_leaves_and_stays():
    async def story(scene: Scene) -> None:
        scene.busy.add("in-a")
        await scene.label("in-a", "c", "left")
        await asyncio.sleep(1.0)
        assert scene.note("in-a") == "left"
        await scene.edit("in-a", "foreign")
        await asyncio.sleep(300.0)
        assert scene.note("in-a") == "foreign"
        assert 300 / 36 - 1 <= scene.api.count("get") <= 2 + 300 / 24
        scene.busy.clear()
        await asyncio.sleep(40.0)
        assert scene.held == set()
        asked = scene.api.count("get")
        await asyncio.sleep(300.0)
        assert scene.api.count("get") == asked

    assert play(story, A).losses("in-a") == 1


def test_what_is_busy_and_gone_goes_when_the_server_says_so():
    async def story(scene: Scene) -> None:
        scene.busy.add("in-a")
        scene.api.slow = 2.0
        await scene.delete("in-a")
        await asyncio.sleep(1.0)
        assert scene.held == {"in-a"}
        await asyncio.sleep(3.0)
        assert scene.held == set()

    assert play(story, A).api.count("get") == 1


def test_a_question_without_an_answer_is_asked_again():
    async def story(scene: Scene) -> None:
        scene.busy.add("in-a")
        scene.api.failing = Unavailable("away")
        await scene.delete("in-a")
        await asyncio.sleep(60.0)
        assert scene.held == {"in-a"}
        assert scene.api.count("get") <= 13
        scene.api.failing = None
        await asyncio.sleep(15.0)
        assert scene.held == set()

    play(story, A)


def test_what_is_looked_for_by_name_is_kept_and_asked_for():
    async def story(scene: Scene) -> None:
        await scene.reflector.look("", "in-c")
        await scene.reflector.look("", "there-is-none")
        assert scene.held == {"in-a", "in-c"}
        assert scene.changes[-1] == ("in-c", True)
        await scene.edit("in-c", "seen")
        await asyncio.sleep(40.0)
        assert scene.note("in-c") == "seen"
        await scene.delete("in-c")
        await asyncio.sleep(40.0)
        assert scene.held == {"in-a"}

    play(story, A)


def test_what_stays_as_it_is_gets_asked_for_ever_less_often_until_it_changes():
    """A label made by hand, by which no watch selects, on what can never be dealt with: by many nodes, for ever."""

    async def story(scene: Scene) -> None:
        await scene.reflector.look("", "in-c")
        await asyncio.sleep(4 * 3600.0)
        assert scene.api.count("get") <= 5 + 4 * 3600 / (0.8 * 960)
        asked = scene.api.count("get")
        await asyncio.sleep(4 * 3600.0)
        assert 4 * 3600 / (1.2 * 960) - 1 <= scene.api.count("get") - asked <= 1 + 4 * 3600 / (0.8 * 960)
        await scene.edit("in-c", "seen")
        await asyncio.sleep(1.2 * 960)
        assert scene.note("in-c") == "seen"
        await scene.edit("in-c", "seen again")
        await asyncio.sleep(40.0)
        assert scene.note("in-c") == "seen again"

    play(story, A)


# --- changes of selectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        ((A,), (AB,), {"in-a", "in-b"}),
        ((AB,), (B,), {"in-b"}),
        ((AB, NONE), (ALL,), {"in-a", "in-b", "in-c", "plain"}),
        ((ALL,), (A, NONE), {"in-a", "plain"}),
    ],
)
def test_after_a_change_the_store_is_what_the_new_selectors_select(before: tuple[str, ...], after: tuple[str, ...], held: set[str]):
    async def story(scene: Scene) -> None:
        stays = scene.held & held
        scene.reflector.select(after)
        await asyncio.sleep(5.0)
        assert scene.held == held
        assert scene.reflector.selectors == after
        assert not any(scene.losses(name) for name in stays)
        assert set(+Counter(scene.api.open)) == set(after)
        for name in ("in-a", "in-b", "in-c", "plain"):
            await scene.edit(name, "edited")
        await asyncio.sleep(1.0)
        assert {record[0] for record in scene.store.values() if record[2] == "edited"} == held

    play(story, *before)


def test_the_old_watch_goes_on_until_the_new_list_is_complete():
    async def story(scene: Scene) -> None:
        scene.api.list_failing = Unavailable("away")
        scene.reflector.select((AB,))
        for number in range(20):
            await scene.edit("in-a", str(number))
            await asyncio.sleep(1.0)
            assert scene.note("in-a") == str(number)
        assert scene.reflector.selectors == (A,)
        assert isinstance(scene.reflector.state, Synced)
        scene.api.list_failing = None
        await asyncio.sleep(40.0)
        assert scene.held == {"in-a", "in-b"}

    scene = play(story, A)
    assert not any(isinstance(state, Degraded) for state in scene.states)
    assert scene.losses("in-a") == 0


@pytest.mark.parametrize("name", ["in-a", "new"])
def test_what_the_old_watch_shows_after_the_new_list_was_made_does_not_go(name: str):
    async def story(scene: Scene) -> None:
        scene.api.list_late = 2.0
        scene.api.hold(AB)
        scene.reflector.select((AB,))
        await asyncio.sleep(1.0)
        await (scene.edit("in-a", "edited") if name == "in-a" else scene.make("new", "a"))
        await asyncio.sleep(4.0)
        assert scene.reflector.selectors == (AB,)
        assert name in scene.held
        assert scene.losses(name) == 0
        scene.api.let_go(AB)
        await asyncio.sleep(1.0)
        assert scene.held >= {"in-a", "in-b", name}
        asked = scene.api.count("get")
        await asyncio.sleep(100.0)
        assert scene.api.count("get") == asked

    play(story, A)


def test_a_410_in_the_middle_of_a_change():
    async def story(scene: Scene) -> None:
        scene.api.list_failing = Unavailable("away")
        scene.reflector.select((B,))
        await asyncio.sleep(2.0)
        scene.api.cut(A, Gone("compacted"))
        await scene.label("in-a", "b", "moved")
        await scene.make("new", "b")
        await asyncio.sleep(2.0)
        scene.api.list_failing = None
        await asyncio.sleep(40.0)
        assert scene.held == {"in-a", "in-b", "new"}
        assert scene.note("in-a") == "moved"

    play(story, A)


def test_what_changes_in_the_middle_of_a_change_is_what_it_is_in_the_end():
    """Each object is labelled anew again and again while selectors are changed again and again."""

    async def story(scene: Scene) -> None:
        dice = random.Random(5)
        labels: dict[str, str | None] = {"in-a": "a", "in-b": "b", "in-c": "c", "plain": None}
        wanted: tuple[str, ...] = (A,)
        scene.api.list_slow = 0.7
        for _ in range(60):
            if dice.random() < 0.3:
                wanted = dice.choice(((A,), (B,), (AB, NONE), (ALL,), (NONE,)))
                scene.reflector.select(wanted)
            name = dice.choice(list(labels))
            labels[name] = dice.choice(("a", "b", "c", None))
            await scene.label(name, labels[name], str(dice.random()))
            await asyncio.sleep(dice.choice((0.0, 0.1, 0.5, 1.0)))
        await asyncio.sleep(60.0)
        chosen: dict[tuple[str, ...], set[str | None]] = {(A,): {"a"}, (B,): {"b"}, (AB, NONE): {"a", "b", None}, (NONE,): {None}}
        expected = {name for name, label in labels.items() if wanted == (ALL,) or label in chosen[wanted]}
        assert scene.held == expected

    play(story, A)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_change_that_is_taken_back_when_half_of_its_lists_have_come(ahead: bool):
    """What the new watch has shown is shown by the old one too, which was never listed again."""

    async def story(scene: Scene) -> None:
        scene.api.unlisted = {ALL}
        scene.reflector.select((AB, ALL))
        await asyncio.sleep(3.0)
        if ahead:
            scene.api.hold(A)
            await scene.edit("in-a", "edited")
            await asyncio.sleep(1.0)
        scene.reflector.select((A,))
        await asyncio.sleep(1.0)
        assert scene.held == {"in-a"}
        if ahead:
            scene.api.let_go(A)
        await scene.delete("in-a")
        await asyncio.sleep(1.0)
        assert scene.held == set()

    assert play(story, A).losses("in-a") == 1


@pytest.mark.parametrize("unlisted", [ALL, "each"])
def test_selectors_that_are_wanted_no_more_before_they_are_listed_cost_nothing_further(unlisted: str):
    """Each change while a list fails left a reflector behind, which went on asking and watching until one arrived."""
    changes = [f"{LABEL} in (a,x{number})" for number in range(30)]

    async def story(scene: Scene) -> None:
        scene.api.unlisted = {ALL, *(changes if unlisted == "each" else ())}
        for one in changes:
            scene.reflector.select((one, ALL))
            await asyncio.sleep(10.0)
        assert sum(scene.api.open.values()) <= 2
        before = scene.api.count("list") + len(scene.api.refusals)
        await asyncio.sleep(600.0)
        assert scene.api.count("list") + len(scene.api.refusals) - before <= 2 * 60, "of two lists, each a dozen times a minute at most"
        await scene.edit("in-a", "edited")
        await asyncio.sleep(1.0)
        assert scene.note("in-a") == "edited"
        scene.api.unlisted = set()
        await asyncio.sleep(60.0)
        assert scene.held == {"in-a", "in-b", "in-c", "plain"}

    assert play(story, A).losses("in-a") == 0


def test_what_is_busy_stays_through_a_change():
    async def story(scene: Scene) -> None:
        scene.busy.add("in-a")
        scene.reflector.select((B,))
        await asyncio.sleep(5.0)
        assert scene.held == {"in-a", "in-b"}
        scene.busy.clear()
        await scene.edit("in-a", "foreign")
        await asyncio.sleep(40.0)
        assert scene.held == {"in-b"}

    assert play(story, A).losses("in-a") == 1


# --- a server that was put back ---------------------------------------------------------------------------------------------------


class Restored(Scene):
    """Edited, backed up, edited again, and put back. One watch notices it soon, the other one half a minute later."""

    async def back_up(self) -> None:
        self.backup = a_cluster()
        self.backup.store._histories = copy.deepcopy(self.cluster.store._histories)
        self.backup.store.revision = self.cluster.store.revision

    async def put_back(self, *, first: str) -> None:
        await asyncio.sleep(10.0)
        self.people.cluster = self.api.cluster = self.backup
        for selector in (A, NONE):
            self.api.cut(selector, Gone("compacted") if selector == first else Unavailable("restarting"))
        await asyncio.sleep(120.0)


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("first", [A, NONE])
def test_after_a_restore_what_is_held_is_what_the_backup_had(first: str, busy: bool):
    """Its versions are lower than those that were seen before, and no old ones."""

    async def story(scene: Restored) -> None:
        scene.busy |= {"in-a"} if busy else set()
        for number in range(10):
            await scene.edit("in-a", str(number))
        await scene.back_up()
        for number in range(10):
            await scene.edit("in-a", f"lost {number}")
            await scene.edit("plain", f"lost {number}")
        await scene.make("lost", "a")
        await scene.put_back(first=first)
        assert scene.held == {"in-a", "plain"}
        assert (scene.note("in-a"), scene.note("plain")) == ("9", "")
        await scene.edit("in-a", "after")
        await asyncio.sleep(2.0)
        assert scene.note("in-a") == "after"

    play(story, A, NONE, scene_of=Restored)


@pytest.mark.parametrize("held", [AB, NONE])
def test_a_watch_that_is_behind_takes_nothing_from_the_other(held: str):
    async def story(scene: Scene) -> None:
        scene.api.hold(held)
        await scene.edit("in-a", "old")
        await scene.label("in-a", None, "mid")
        await scene.label("in-a", "a", "new")
        await scene.label("plain", "a", "new")
        await asyncio.sleep(5.0)
        scene.api.let_go(held)
        await asyncio.sleep(5.0)
        assert (scene.note("in-a"), scene.note("plain")) == ("new", "new")

    play(story, AB, NONE)
