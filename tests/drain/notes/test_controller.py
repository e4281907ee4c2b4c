"""Notes on volumes as processes write them and take them off, also while the driver is dead."""

from dataclasses import replace

import pytest

from hack.sim.cluster import Call
from sidecar.drain.notes.controller import Notes
from sidecar.drain.notes.early_undo_io import EVERY
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.kube.errors import ApiError, Conflict, Forbidden, Unavailable
from sidecar.model import names
from tests.harness.drain import node_loss
from tests.harness.drain.node_loss import CLEANING, gone, one_replica, there, vanish
from tests.harness.drain.notes import Writes, apps, marks, play
from tests.harness.drain.simulated import EVACUATE, Bench, all_of, change, wait, with_pod


def test_each_node_notes_its_own_volumes_and_then_rests() -> None:
    seen = Writes()

    async def story(bench: Bench) -> None:
        await apps(bench, "n0", "n1", "n0")
        await wait(bench, 60)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", ""), "app-2": ("n0", "")}
        assert len(seen.calls) == 3
        await wait(bench, 7200)
        assert len(seen.calls) == 3

    play(story, seen)


def test_an_announcement_is_on_all_volumes_soon_and_an_undo_takes_it_off() -> None:
    seen = Writes()

    async def story(bench: Bench) -> None:
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

    async def story(bench: Bench) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 120)
        assert await marks(bench) == {"app-0": ("", ""), "app-1": ("", "")}
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 20)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n0", "n0")}

    play(story, Writes())


def test_a_right_that_is_missing_is_told_once_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen = Writes(lambda _: Forbidden("no such right", status=403))

    async def story(bench: Bench) -> None:
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


def test_an_undo_that_no_process_saw_is_made_good_at_the_next_start() -> None:
    async def story(bench: Bench) -> None:
        await apps(bench, "n0", "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 10)
        bench.nodes["n0"].kill()
        await change(bench, "n0", {"taints": None})
        await wait(bench, 60)
        assert set((await marks(bench)).values()) == {("n0", "")}

    play(story, Writes())


def test_a_process_that_judges_no_more_takes_back_that_the_machine_leaves() -> None:
    """Nobody here would notice that it stays after all, and a peer deletes by what is noted. Where it lies is as true as before."""

    def case(undone: bool) -> None:
        seen = Writes()

        async def story(bench: Bench) -> None:
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

    for undone in [
        True,  # undone
        False,  # still announced
    ]:
        case(undone)


# --- What was announced for a node is taken off its volumes also while its driver is dead, and whatever process came after that ---


SOON = 2 * EVERY


async def announced(bench: Bench) -> None:
    """Both nodes, by word and by note; then n0 has lost its driver, and its sidecar has started since."""
    await apps(bench, "n0", "n1", "n0")
    await wait(bench, 60)
    for node in ("n0", "n1"):
        await change(bench, node, {"taints": [EVACUATE]})
    await wait(bench, 30)
    assert set((await marks(bench)).values()) == {("n0", "n0"), ("n1", "n1")}
    bench.nodes["n0"].driver_away()
    bench.nodes["n0"].kill()
    await wait(bench, 60)


def test_an_undo_is_heard_although_the_driver_is_dead_and_other_nodes_keep_their_word() -> None:
    seen = Writes()

    async def story(bench: Bench) -> None:
        await announced(bench)
        before = len(seen.calls)
        await wait(bench, 600)
        assert len(seen.calls) == before, "it is still announced"
        await change(bench, "n0", {"taints": None})
        await wait(bench, SOON)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", "n1"), "app-2": ("n0", "")}
        assert len(seen.calls) == before + 2
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, SOON)
        assert len(seen.calls) == before + 2, "what is noted anew waits for the driver"
        bench.nodes["n0"].driver_back()
        await wait(bench, 120)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n1", "n1"), "app-2": ("n0", "n0")}

    play(story, seen)


def test_nothing_is_deleted_if_the_node_is_lost_after_the_undo() -> None:
    async def story(bench: Bench) -> None:
        await one_replica(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        (stored,) = await all_of(bench, VOLUMES)
        assert stored["metadata"]["annotations"][names.LEAVING]
        bench.nodes["n0"].driver_away()
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        await change(bench, "n0", {"taints": None})
        await wait(bench, SOON)
        await vanish(bench)
        await wait(bench, 1200)
        assert (await gone(bench))["evidence"] == "None"
        assert await there(bench, VOLUMES) == [stored["metadata"]["name"]]
        assert await there(bench, CLAIMS) == ["data-db-0"]

    node_loss.play(story, args=CLEANING)


@pytest.mark.parametrize("error", [Conflict("changed", status=409), Unavailable("no answer")])
def test_an_undo_that_is_refused_for_one_volume_is_tried_again(error: ApiError) -> None:
    refused: list[str] = []
    benches: list[Bench] = []

    def refuse(call: Call) -> ApiError | None:
        if not benches or call.resource != VOLUMES or call.verb != "patch":
            return None
        refused.append(call.name)
        return error if len(refused) in (1, 2) else None

    async def story(bench: Bench) -> None:
        await announced(bench)
        benches.append(bench)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 3 * SOON)
        assert {found for claim, found in (await marks(bench)).items() if claim != "app-1"} == {("n0", "")}
        assert len(refused) == 4

    play(story, Writes(refuse))
