"""Evidence that is taken back while a peer clears up, or that is younger than the API server's cache: nothing more goes."""

from collections.abc import Callable
from typing import Final

import pytest

from hack.sim.cluster import Call
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, MERGE_PATCH, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from tests.harness.drain.node_loss import (
    CLEANING,
    REPORT,
    Watchman,
    app,
    note,
    one_replica,
    play,
    replicas,
    settled,
    there,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import wait


class Midway(Watchman):
    """Does something once, in the middle of a look: after its lists of volumes and before its first effect."""

    def __init__(self) -> None:
        super().__init__(self._watch)
        self.todo: Callable[[], None] | None = None
        self.done = False

    def _watch(self, call: Call) -> None:
        if self.todo is not None and call.verb == "list" and call.resource == STATEFUL_SETS:
            todo, self.todo, self.done = self.todo, None, True
            todo()


def unsaid(bench: NotebookWorld, claims: tuple[str, ...]) -> None:
    """What the undo of the node's own sidecar had reached."""
    for claim in claims:
        volume = bench.cluster.get(CLAIMS, claim, namespace="default").obj["spec"]["volumeName"]
        patch = {"metadata": {"annotations": {names.LEAVING: None}}}
        bench.cluster.patch(VOLUMES, volume, patch, content_type=MERGE_PATCH)


ALL: Final = ("data-db-0", "data-db-1")


@pytest.mark.parametrize("reached", [ALL, ALL[:1], ALL[1:]], ids=["all", "the first", "the last"])
def test_what_volumes_say_now_counts_and_not_what_a_list_had(reached: tuple[str, ...]) -> None:
    seen = Midway()

    async def story(bench: NotebookWorld) -> None:
        await replicas(bench, 2)
        for claim in ALL:
            await app(bench, claim)
        await settled(bench)
        for claim in ALL:
            await note(bench, claim, {names.LEAVING: f"n0/{await uid_of(bench)}"})
        await vanish(bench)
        seen.todo = lambda: unsaid(bench, reached)
        await wait(bench, 1500)
        assert seen.done
        assert sorted(await there(bench, CLAIMS)) == list(ALL)
        for claim in ALL:
            stored = await bench.you.get(CLAIMS, claim, namespace="default")
            assert names.LOST_WITH not in stored["metadata"]["annotations"]

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []


def test_an_acknowledgement_is_heeded_within_two_minutes_and_then_asks_for_nothing_more() -> None:
    """Whoever has written it looks whether anything happens, and would write it again elsewhere."""
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        await replicas(bench, 1)
        await app(bench)
        await app(bench, "of-nobody")
        await settled(bench)
        await vanish(bench)
        await wait(bench, 200)
        assert await there(bench, CLAIMS) == ["data-db-0", "of-nobody"]
        word = {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}}
        await bench.you.patch(DRAIN_REPORTS, REPORT, word, content_type=MERGE_PATCH)
        await wait(bench, 120)
        assert await there(bench, CLAIMS) == ["of-nobody"]
        await wait(bench, 600)
        before = len(seen.of("list", VOLUMES))
        await wait(bench, 3000)
        assert len(seen.of("list", VOLUMES)) - before <= 6, "what stays is looked at as seldom as ever"

    play(story, seen, args=CLEANING)


def test_an_acknowledgement_that_is_taken_back_stops_what_goes_on() -> None:
    seen = Midway()

    async def story(bench: NotebookWorld) -> None:
        await one_replica(bench)
        await vanish(bench)
        await wait(bench, 300)
        word = {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}}
        await bench.you.patch(DRAIN_REPORTS, REPORT, word, content_type=MERGE_PATCH)
        back = {"metadata": {"annotations": {names.ACKNOWLEDGED: None}}}

        def take_back() -> None:
            bench.cluster.patch(DRAIN_REPORTS, REPORT, back, content_type=MERGE_PATCH)

        seen.todo = take_back
        await wait(bench, 1500)
        assert seen.done
        claim = await bench.you.get(CLAIMS, "data-db-0", namespace="default")
        assert names.LOST_WITH not in claim["metadata"]["annotations"]

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == []
