"""What a person has said on the report on a node that is gone."""

from typing import Final

import pytest

from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.spoken import No, Nothing, Yes, spoken
from sidecar.kube.api import CLAIMS, DRAIN_REPORTS, VOLUMES
from sidecar.model import names
from tests.harness.drain.node_loss import (
    CLEANING,
    REPORT,
    Watchman,
    announce,
    gone,
    note,
    one_replica,
    play,
    say,
    there,
    vanish,
)
from tests.harness.drain.simulated import wait

UID: Final = "0b5b1c8e-2f0b-4a53-9d0c-2f6f6d8f7a11"
OTHER: Final = "7c2d9f30-8a44-4a5e-b7d2-94f1f3a2c9aa"
N1: Final = Machine("n1", UID)


@pytest.mark.parametrize("text", ["me", "ticket 7", "true", "yes", "ops/alice", "n1", f"n1/{UID}", f" n1/{UID}\n", "nobody", "x" * 9999])
def test_whoever_names_himself_acknowledges(text: str) -> None:
    assert spoken(text, N1) == Yes()


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_an_empty_text_says_nothing(text: str) -> None:
    assert spoken(text, N1) == Nothing()


@pytest.mark.parametrize("text", ["false", "False", " no ", "NO!", '"false"', "none", "null", "0", "off", "no, wait for Bob", "not lost"])
def test_no_is_no(text: str) -> None:
    found = spoken(text, N1)
    assert isinstance(found, No)
    assert "says no" in found.why


@pytest.mark.parametrize("text", [f"n1/{OTHER}", "n1/uid-0", f"n2/{OTHER}", f"n2/{UID}"])
def test_another_machine_is_not_this_one(text: str) -> None:
    found = spoken(text, N1)
    assert isinstance(found, No)
    assert "another machine" in found.why


@pytest.mark.parametrize("text", ["false", "n0/uid-of-an-earlier-one"])
def test_a_no_keeps_what_was_announced_and_the_report_says_why(text: str) -> None:
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        await one_replica(bench)
        await vanish(bench)
        await wait(bench, 90)
        await say(bench, text)
        machine = f"n0/{(await gone_uid(bench))}"
        await note(bench, "data-db-0", {names.LEAVING: machine})
        await wait(bench, 1500)
        assert text in (await gone(bench))["message"]
        assert (await gone(bench))["evidence"] == "None"

    play(story, seen, args=CLEANING)
    assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []


async def gone_uid(bench: NotebookWorld) -> str:
    return str((await bench.you.get(DRAIN_REPORTS, REPORT))["status"]["nodeUID"])


def test_a_no_stops_at_once_what_goes_on() -> None:
    """It is written between two steps."""
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
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
