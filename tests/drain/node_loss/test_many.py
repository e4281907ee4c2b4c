"""A node that has left more than lists hold: claims of many namespaces, many claims, and volumes of several machines of its name."""

import pytest

from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.node_loss import controller, report, surroundings_io
from sidecar.kube.api import CLAIMS, EVENTS, MERGE_PATCH, VOLUMES
from sidecar.model import names
from tests.harness.drain.node_loss import CLEANING, TELLING, Watchman, bound, database, gone, play, settled, there, told, uid_of, vanish
from tests.harness.drain.simulated import wait


def test_claims_of_any_number_of_namespaces_are_told_and_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings_io, "MOST_NAMESPACES", 2)

    async def story(bench: NotebookWorld) -> None:
        await settled(bench)
        uid = await uid_of(bench)
        for number in range(4):
            await database(bench, f"team-{number}")
            await bound(bench, "data-db-0", f"team-{number}", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})
        await bound(bench, "data-db-0", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})  # nobody makes it again
        await vanish(bench)
        await wait(bench, 1500)
        assert [item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items] == ["default"]
        assert (await told(bench)).count("data-db-0") == 5
        assert (await gone(bench)).get("unread", []) == []

    play(story, args=CLEANING)


def test_more_claims_than_a_report_holds_are_told_once_and_the_looks_calm_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_CLAIMS", 4)
    monkeypatch.setattr(controller, "MOST_TOLD", 3)
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        await settled(bench)
        uid = await uid_of(bench)
        for number in range(12):
            await bound(bench, f"claim-{number}", **{names.LIES_ON: f"n0/{uid}"})
        await vanish(bench)
        await wait(bench, 1000)
        assert sorted(await told(bench)) == sorted(await there(bench, CLAIMS))
        assert ((await gone(bench))["claimsTruncated"], len((await gone(bench))["claims"])) == (8, 4)
        before = len(seen.of("list", VOLUMES)), len(seen.of("create", EVENTS))
        await wait(bench, 6000)
        assert len(seen.of("list", VOLUMES)) - before[0] < 12
        assert len(seen.of("create", EVENTS)) == before[1]

    play(story, seen, args=TELLING)


def test_what_several_machines_of_a_name_have_left_is_told_and_only_that_of_one_cleared_away() -> None:
    seen = Watchman()

    async def story(bench: NotebookWorld) -> None:
        await settled(bench)
        uid = await uid_of(bench)
        await database(bench, "team")
        await bound(bench, "data-db-0", "team", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})
        for name, notes in (("first", {}), ("second", {}), ("former", {names.LIES_ON: "n0/former", names.LEAVING: "n0/former"})):
            await database(bench, name)
            await bound(bench, "data-db-0", name, **notes)
        await vanish(bench)
        await wait(bench, 90)
        told = {item["metadata"]["namespace"] for item in (await bench.you.list_page(EVENTS)).items if item["reason"] == names.NODE_GONE}
        assert told == {"team", "first", "second", "former"}
        found = await gone(bench)
        assert (found["evidence"], len(found["volumes"])) == ("Announced", 4)
        assert "3 of the volumes" in found["message"]
        await wait(bench, 1500)
        left = {item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items}
        assert left == {"first", "second"}, "the former machine has its turn once nothing of this one is left"
        assert (await gone(bench))["evidence"] == "Unproven"
        lists = len(seen.of("list", VOLUMES))
        await wait(bench, 6000)
        assert len(seen.of("list", VOLUMES)) - lists < 12

    play(story, seen, args=CLEANING)


@pytest.mark.parametrize("evidence", ["Announced", "None"])
def test_what_one_machine_of_a_name_leaves_for_a_person_keeps_no_other_from_its_turn(evidence: str) -> None:
    """The former machine has left more: volumes without claims whose reclaim policy is Retain, or nobody says that it is lost."""

    async def story(bench: NotebookWorld) -> None:
        await settled(bench)
        uid = await uid_of(bench)
        former = {names.LIES_ON: "n0/former"} | ({names.LEAVING: "n0/former"} if evidence == "Announced" else {})
        for name in ("first", "second"):
            await database(bench, name)
            await bound(bench, "data-db-0", name, **former)
            if evidence == "Announced":
                pv = (await bench.you.get(CLAIMS, "data-db-0", namespace=name))["spec"]["volumeName"]
                kept = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
                await bench.you.patch(VOLUMES, pv, kept, content_type=MERGE_PATCH)
        await vanish(bench)
        await wait(bench, 700)
        assert (await gone(bench))["evidence"] == evidence
        await database(bench, "team")
        await bound(bench, "data-db-0", "team", **{names.LIES_ON: f"n0/{uid}", names.LEAVING: f"n0/{uid}"})
        await wait(bench, 1500)
        left = {item["metadata"]["namespace"] for item in (await bench.you.list_page(CLAIMS)).items}
        assert left == ({"first", "second"} if evidence == "None" else set())
        assert (await gone(bench))["evidence"] == evidence

    play(story, args=CLEANING)
