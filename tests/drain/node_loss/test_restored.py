"""The API server is put back to a backup from before a machine came back: what its volumes said then is no evidence now."""

from typing import Any, Final

from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.drain.leases import Lease
from sidecar.drain.node_loss import gap
from sidecar.kube.api import CLAIMS, CSI_NODES, DRAIN_REPORTS, MERGE_PATCH, NODES, VOLUMES
from sidecar.model import names, timestamps
from tests.harness.drain.backups import back_up, put_back
from tests.harness.drain.node_loss import (
    CLEANING,
    REPORT,
    Watchman,
    announce,
    gone,
    note,
    one_replica,
    play,
    there,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import Json, node_of, wait

ACK: Json = {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}}
LONG = gap.LONGEST + 60.0


async def back_with_its_disks(bench: NotebookWorld, node: Json, csi_node: Json) -> None:
    """As another Node, which is not to be retired."""
    for resource, obj in ((NODES, node), (CSI_NODES, csi_node)):
        meta = {"name": "n0", "labels": obj["metadata"].get("labels") or {}}
        await bench.you.create(resource, {"metadata": meta, "spec": obj.get("spec") or {}})
    await note(bench, "data-db-0", {names.LIES_ON: f"n0/{await uid_of(bench)}", names.LEAVING: None})


async def returned_then_restored(bench: NotebookWorld, *, acknowledged: bool = False, age: float = LONG) -> tuple[Json, Json]:
    """n0 is deleted, with evidence, and comes back; later its Node is not stored any more, and the evidence is. Returns what it was."""
    await one_replica(bench)
    found = await node_of(bench), await bench.you.get(CSI_NODES, "n0")
    if not acknowledged:
        await announce(bench)
    await vanish(bench)
    if acknowledged:
        await wait(bench, 90)
        await bench.you.patch(DRAIN_REPORTS, REPORT, ACK, content_type=MERGE_PATCH)
    backup = back_up(bench.cluster)
    await back_with_its_disks(bench, *found)
    await wait(bench, age)
    assert await what_is_there(bench) == (1, 1), "it was not back in time"
    put_back(bench.cluster, backup)
    return found


async def what_is_there(bench: NotebookWorld) -> tuple[int, int]:
    return len(await there(bench, CLAIMS)), len(await there(bench, VOLUMES))


def test_what_a_backup_says_of_a_machine_is_no_evidence() -> None:
    """Its Node is made again once its kubelet starts; until then nobody knows that it is there."""

    def case(case: dict[str, Any]) -> None:
        seen = Watchman()

        async def story(bench: NotebookWorld) -> None:
            found = await returned_then_restored(bench, **case)
            await wait(bench, 1000)
            assert await what_is_there(bench) == (1, 1)
            told = await gone(bench)
            assert told["evidence"] == "None"
            assert "restored from a backup" in told["message"]
            await back_with_its_disks(bench, *found)
            await wait(bench, 700)
            assert await gone(bench) == {}

        play(story, seen, args=CLEANING)
        assert seen.of("delete", CLAIMS) == seen.of("delete", VOLUMES) == []

    for case in [
        {},  # announced
        {"acknowledged": True},  # acknowledged
        {"age": 900.0},  # a young backup, which only a process that lives on can know of
    ]:
        case(case)


# --- When nobody has looked for gone nodes for a while, and which losses are doubted because of it ---


NOW: Final = 1_800_000_000.0
LATELY, EARLIER, LONG_AGO = NOW - 300.0, NOW - gap.LONGEST, NOW - gap.LONGEST - 1.0
TEXT: Final = timestamps.to_text(NOW)
NOTED: Final = timestamps.to_text(NOW - 90_000.0)
DRIVER: Final = "local.example"


def stored(renewed: float, *, noted: str = "", version: str = "7") -> Lease:
    body = gap.body(DRIVER, namespace="kube-system", holder="uid-1/local.example", gap=noted, now=renewed, resource_version=version)
    return Lease.of(body)


def test_when_the_latest_gap_was_over() -> None:
    for found, before, over in [
        (None, "", ""),  # nobody has ever looked
        (None, "7", TEXT),  # it was there, and is not any more
        (stored(LATELY), "", ""),  # somebody looks
        (stored(EARLIER), "", ""),  # the one that looked has died, and is followed
        (stored(LONG_AGO), "", TEXT),  # nobody has looked
        (stored(NOW + 600.0), "", ""),  # another clock
        (stored(NOW + 601.0), "", TEXT),  # in the future
        (stored(LATELY, noted=NOTED), "", NOTED),  # an earlier gap
        (stored(LONG_AGO, noted=NOTED), "", TEXT),  # another one
        (stored(LATELY, noted="yesterday"), "", TEXT),  # garbage
        (stored(LATELY, version="7"), "8", TEXT),  # versions go back
        (stored(LATELY, version="9"), "8", ""),  # versions go on
    ]:
        assert gap.ended(found, before=before, now=NOW) == over


def test_what_is_missed_around_its_end_is_doubted() -> None:
    for over, since, doubted in [
        ("", NOW, False),
        (TEXT, NOW - 1e6, True),
        (TEXT, NOW + gap.SETTLING, True),
        (TEXT, NOW + gap.SETTLING + 1.0, False),
    ]:
        assert gap.doubt(over, missed_since=since) == (over if doubted else "")
