"""Notes on volumes, as processes write them: led step by step against a simulated API server."""

from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.notes.controller import Notes
from sidecar.kube.api import MERGE_PATCH, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from sidecar.model import names
from tests.harness.drain.notes import ARGS, Writes, apps, marks, play
from tests.harness.drain.simulated import EVACUATE, all_of, change, node_of, wait, with_pod


def test_each_node_notes_its_own_volumes_and_then_rests() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n1", "n0")
        await wait(bench, 60)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", ""), "app-2": ("n0", "")}
        assert len(seen.calls) == 3
        await wait(bench, 7200)
        assert len(seen.calls) == 3

    play(story, seen)


def test_an_announcement_is_on_all_volumes_soon_and_an_undo_takes_it_off() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n1", "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 5)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n1", ""), "app-2": ("n0", "n0")}
        await change(bench, "n0", {"taints": None})
        await wait(bench, 5)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", ""), "app-2": ("n0", "")}
        assert len(seen.calls) == 7
        await wait(bench, 7200)
        assert len(seen.calls) == 7

    play(story, seen)


def test_nothing_is_announced_by_what_a_watch_has_shown_before_it_was_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of the API server a sidecar may hear late that its node stays."""
    real = Notes._view
    monkeypatch.setattr(Notes, "_view", lambda self: (view := real(self)) and replace(view, leaving=True))

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 120)
        assert await marks(bench) == {"app-0": ("", ""), "app-1": ("", "")}
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 20)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n0", "n0")}

    play(story, Writes())


def test_an_announcement_does_not_wait_for_the_first_notes() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, *["n0"] * 10)
        await change(bench, "n0", {"taints": [EVACUATE | {"effect": "PreferNoSchedule"}]})
        await wait(bench, 12)
        assert set((await marks(bench)).values()) == {("n0", "n0")}

    play(story, seen)


def test_an_announcement_does_not_wait_until_what_is_not_urgent_is_done() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, *["n0"] * 40)
        while len(seen.calls) < 5:
            await wait(bench, 1)
        assert len(seen.calls) < 20
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 8)
        assert set((await marks(bench)).values()) == {("n0", "n0")}

    play(story, seen)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"unschedulable": True}, id="a cordon that nobody explains"),
        pytest.param({"taints": [EVACUATE | {"value": "reboot"}], "unschedulable": True}, id="a reboot"),
        pytest.param({"taints": [EVACUATE | {"value": ""}]}, id="a taint without a word"),
        pytest.param({"taints": [EVACUATE | {"value": "retier"}]}, id="a wrong word"),
    ],
)
def test_what_does_not_say_that_the_node_goes_for_good_is_not_noted(spec: dict[str, Any]) -> None:
    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0")
        await wait(bench, 60)
        await change(bench, "n0", spec)
        await wait(bench, 300)
        assert await marks(bench) == {"app-0": ("n0", "")}

    play(story, Writes(), args=("--drain-report", "--node-drain-policy=Evacuate"))


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(("--node-drain-policy=NoSchedule",), id="nothing is judged"),
        pytest.param((*ARGS, "--dry-run"), id="dry run"),
    ],
)
def test_nothing_is_noted_otherwise(args: tuple[str, ...]) -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0")
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 300)

    play(story, seen, args=args)
    assert seen.calls == []


def test_a_right_that_is_missing_is_told_once_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen = Writes(lambda _: Forbidden("no such right", status=403))

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0", "n0")
        await wait(bench, 3000)
        assert len(await marks(bench)) == 3
        assert set((await marks(bench)).values()) == {("", "")}
        seen.refuse = lambda _: None
        await wait(bench, 700)
        assert set((await marks(bench)).values()) == {("n0", "")}

    play(story, seen)
    told = [record for record in caplog.records if "Notes on volumes" in record.getMessage()]
    assert len(told) == 1
    assert len(seen.calls) <= 10, "a few questions in fifty minutes, and three notes"


@pytest.mark.parametrize("error", [Conflict("somebody was faster"), Unavailable("no answer"), Invalid("a policy refuses it", status=422)])
def test_what_fails_is_written_later_and_holds_up_no_other(error: ApiError) -> None:
    failed: list[str] = []

    def refuse(call: Call) -> ApiError | None:
        if failed and call.name not in failed:
            return None
        failed.append(call.name)
        return error if len(failed) == 1 else None

    seen = Writes(refuse)

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0", "n0")
        await wait(bench, 60)
        volumes = {volume["metadata"]["name"]: volume for volume in await all_of(bench, VOLUMES)}
        others = [each for name, each in volumes.items() if name != failed[0]]
        assert all(names.LIES_ON in each["metadata"]["annotations"] for each in others)
        first = {"metadata": {"labels": {"touched": "true"}}}
        await bench.you.patch(VOLUMES, failed[0], first, content_type=MERGE_PATCH)  # as somebody did who was faster
        await wait(bench, 1300)
        assert set((await marks(bench)).values()) == {("n0", "")}

    play(story, seen)


def test_a_conflict_that_nobody_has_caused_does_not_leave_a_volume_without_its_note() -> None:
    """As of a proxy, or of an API server that is behind the others: no watch will show a newer version."""
    seen = Writes(lambda _: Conflict("the object has been modified") if len(seen.calls) == 1 else None)

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0")
        await wait(bench, 300)
        assert len(seen.calls) == 1
        await wait(bench, 400)
        assert set((await marks(bench)).values()) == {("n0", "")}

    play(story, seen)


def test_what_every_volume_is_refused_is_not_tried_for_every_volume() -> None:
    seen = Writes(lambda _: Invalid("a policy refuses it", status=422))

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, *["n0"] * 30)
        await wait(bench, 120)

    play(story, seen)
    assert len(seen.calls) <= 9


def test_a_volume_that_goes_meanwhile_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    seen = Writes(lambda _: NotFound("gone"))

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0")
        await wait(bench, 300)

    play(story, seen)
    assert len(seen.calls) == 1
    assert not [record for record in caplog.records if "otes on volumes" in record.getMessage()]


def test_a_process_that_starts_again_writes_nothing() -> None:
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        before = len(seen.calls)
        bench.nodes["n0"].kill()
        await wait(bench, 1300)
        assert len(seen.calls) == before
        assert set((await marks(bench)).values()) == {("n0", "n0")}

    play(story, seen)


def test_an_undo_that_no_process_saw_is_made_good_at_the_next_start() -> None:
    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 10)
        bench.nodes["n0"].kill()
        await change(bench, "n0", {"taints": None})
        await wait(bench, 60)
        assert set((await marks(bench)).values()) == {("n0", "")}

    play(story, Writes())


@pytest.mark.parametrize("undone", [True, False], ids=["undone", "still announced"])
def test_a_process_that_judges_no_more_takes_back_that_the_machine_leaves(undone: bool) -> None:
    """Nobody here would notice that it stays after all, and a peer deletes by what is noted. Where it lies is as true as before."""
    seen = Writes()

    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n1", "n0")
        await wait(bench, 60)
        for node in ("n0", "n1"):
            await change(bench, node, {"taints": [EVACUATE]})
        await wait(bench, 10)
        bench.nodes["n0"].flags = ("--drain-report=false",)
        bench.nodes["n0"].kill()
        if undone:
            await change(bench, "n0", {"taints": None})
        await wait(bench, 60)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", "n1"), "app-2": ("n0", "")}
        written = len(seen.calls)
        await with_pod(bench, "later", node="n0")
        await wait(bench, 7200)
        assert len(seen.calls) == written, "it notes nothing"

    play(story, seen)


def test_a_note_that_somebody_takes_off_is_written_again_and_one_of_others_stays() -> None:
    async def story(bench: NotebookWorld) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 60)
        first, second = (volume["metadata"]["name"] for volume in await all_of(bench, VOLUMES))
        for name, note in ((first, None), (second, "hands off")):
            await bench.you.patch(VOLUMES, name, {"metadata": {"annotations": {names.LIES_ON: note}}}, content_type=MERGE_PATCH)
        await wait(bench, 60)
        texts = {
            volume["metadata"]["name"]: volume["metadata"]["annotations"].get(names.LIES_ON) for volume in await all_of(bench, VOLUMES)
        }
        assert texts[second] == "hands off"
        assert texts[first] == f"n0/{(await node_of(bench))['metadata']['uid']}"

    play(story, Writes())
