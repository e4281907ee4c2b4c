"""What a person has said on the report on a gone node, and evidence that is taken back while a peer clears up."""

from collections.abc import Callable
from typing import Final

from hack.sim.cluster import Call
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.spoken import No, Nothing, Yes, spoken
from sidecar.kube.api import CLAIMS, MERGE_PATCH, STATEFUL_SETS, VOLUMES
from sidecar.model import names
from tests.harness.drain.node_loss import (
    CLEANING,
    Watchman,
    announce,
    app,
    note,
    one_replica,
    play,
    replicas,
    say,
    settled,
    there,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import Bench, wait

UID: Final = "0b5b1c8e-2f0b-4a53-9d0c-2f6f6d8f7a11"
OTHER: Final = "7c2d9f30-8a44-4a5e-b7d2-94f1f3a2c9aa"
N1: Final = Machine("n1", UID)


def test_whoever_names_himself_acknowledges() -> None:
    for text in ["me", "ticket 7", "true", "yes", "ops/alice", "n1", f"n1/{UID}", f" n1/{UID}\n", "nobody", "x" * 9999]:
        assert spoken(text, N1) == Yes()


def test_an_empty_text_says_nothing() -> None:
    for text in ["", "  ", "\n\t"]:
        assert spoken(text, N1) == Nothing()


def test_no_is_no() -> None:
    for text in ["false", "False", " no ", "NO!", '"false"', "none", "null", "0", "off", "no, wait for Bob", "not lost"]:
        found = spoken(text, N1)
        assert isinstance(found, No)
        assert "says no" in found.why


def test_another_machine_is_not_this_one() -> None:
    for text in [f"n1/{OTHER}", "n1/uid-0", f"n2/{OTHER}", f"n2/{UID}"]:
        found = spoken(text, N1)
        assert isinstance(found, No)
        assert "another machine" in found.why


def test_a_no_stops_at_once_what_goes_on() -> None:
    """It is written between two steps."""
    seen = Watchman()

    async def story(bench: Bench) -> None:
        await one_replica(bench)
        await announce(bench)
        await vanish(bench)
        for _ in range(200):
            await wait(bench, 1)
            claim = await bench.you.get(CLAIMS, "data-db-0", namespace="default")
            if names.LOST_WITH in claim["metadata"]["annotations"]:
                break
        await say(bench, "no")
        await wait(bench, 1500)
        assert await there(bench, CLAIMS) == ["data-db-0"]

    play(story, seen, args=CLEANING)
    assert seen.of("patch", CLAIMS) != []
    assert seen.of("delete", CLAIMS) == []


# --- Evidence that is taken back while a peer clears up, or that is younger than the API server's cache: nothing more goes ---


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


def unsaid(bench: Bench, claims: tuple[str, ...]) -> None:
    """What the undo of the node's own sidecar had reached."""
    for claim in claims:
        volume = bench.cluster.get(CLAIMS, claim, namespace="default").obj["spec"]["volumeName"]
        patch = {"metadata": {"annotations": {names.LEAVING: None}}}
        bench.cluster.patch(VOLUMES, volume, patch, content_type=MERGE_PATCH)


ALL: Final = ("data-db-0", "data-db-1")


def test_what_volumes_say_now_counts_and_not_what_a_list_had() -> None:
    def case(reached: tuple[str, ...]) -> None:
        seen = Midway()

        async def story(bench: Bench) -> None:
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

    for reached in [
        ALL,  # all
        ALL[:1],  # the first
        ALL[1:],  # the last
    ]:
        case(reached)
