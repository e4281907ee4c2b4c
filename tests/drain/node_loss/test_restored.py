"""Evidence after the API server was put back to a backup, and volumes without node affinity: never deleted without proof."""

import asyncio
import copy
from dataclasses import replace
from typing import Any

from hack.sim.cluster import Cluster
from hack.sim.world.node import DRIVER
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import gap
from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.remains import RemainsView, Step, remains
from sidecar.drain.node_loss.surroundings_io import Surroundings
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, volume_of
from sidecar.drain.remade import LostClaim
from sidecar.kube.api import CLAIMS, CSI_NODES, DRAIN_REPORTS, MERGE_PATCH, NODES, VOLUMES
from sidecar.model import names
from tests.harness.doors import ScriptedKube
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
from tests.harness.drain.simulated import Bench, Json, node_of, wait

Backup = tuple[Any, int]


def back_up(cluster: Cluster) -> Backup:
    return copy.deepcopy(cluster.store._histories), cluster.store.revision


def put_back(cluster: Cluster, backup: Backup) -> None:
    """Versions go back too. Watches that are open see nothing of it, as with a server that accepts a version that it has not reached."""
    histories, revision = backup
    cluster.store._histories, cluster.store.revision = copy.deepcopy(histories), revision


ACK: Json = {"metadata": {"annotations": {names.ACKNOWLEDGED: "ticket 7"}}}
LONG = gap.LONGEST + 60.0


async def back_with_its_disks(bench: Bench, node: Json, csi_node: Json) -> None:
    """As another Node, which is not to be retired."""
    for resource, obj in ((NODES, node), (CSI_NODES, csi_node)):
        meta = {"name": "n0", "labels": obj["metadata"].get("labels") or {}}
        await bench.you.create(resource, {"metadata": meta, "spec": obj.get("spec") or {}})
    await note(bench, "data-db-0", {names.LIES_ON: f"n0/{await uid_of(bench)}", names.LEAVING: None})


async def returned_then_restored(bench: Bench, *, acknowledged: bool = False, age: float = LONG) -> tuple[Json, Json]:
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


async def what_is_there(bench: Bench) -> tuple[int, int]:
    return len(await there(bench, CLAIMS)), len(await there(bench, VOLUMES))


def test_what_a_backup_says_of_a_machine_is_no_evidence() -> None:
    """Its Node is made again once its kubelet starts; until then nobody knows that it is there."""

    def played(how: dict[str, Any]) -> None:
        seen = Watchman()

        async def story(bench: Bench) -> None:
            found = await returned_then_restored(bench, **how)
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

    for how in [
        {},  # announced
        {"acknowledged": True},  # acknowledged
        {"age": 900.0},  # a young backup, which only a process that lives on can know of
    ]:
        played(how)


# --- Volumes without node affinity, whose maker is gone: the driver of another node is asked for those of that very machine alone ---


N1 = Machine("n1", "uid-1")
ANNOUNCED = Gone(N1, Evidence.ANNOUNCED, 0.0, "")
BACK = ClaimThere(LostClaim("shop", "data", None), "uid-c", "8", "pv", deleting=False, lost_with="")


def volume(
    *, maker: str = "n1", phase: str = "Released", reclaim: str = "Delete", lies_on: str = "n1/uid-1", claim: str = "", **meta: Any
) -> LostVolume:
    identity = {names.PROVISIONER_IDENTITY: f"1-2-{DRIVER}-{maker}"} if maker else {}
    csi = {"driver": DRIVER, "volumeHandle": "h", "volumeAttributes": identity}
    head = {"name": "pv", "uid": "uid-pv", "resourceVersion": "7", "annotations": {names.LIES_ON: lies_on}} | meta
    ref = {"claimRef": {"namespace": "shop", "name": "data", "uid": claim}} if claim else {}
    spec = {"csi": csi, "persistentVolumeReclaimPolicy": reclaim} | ref
    found = volume_of({"metadata": head, "spec": spec, "status": {"phase": phase}}, DRIVER)
    assert found is not None
    return found


def view(lost: LostVolume | None = None, **more: Any) -> RemainsView:
    seen = RemainsView(ANNOUNCED, cleanup=True, volumes=(lost or volume(),), claims={}, deleted=frozenset())
    return replace(seen, **more)


DELETED = frozenset({"uid-pv"})
LEAVES: dict[str, Any] = {"deletionTimestamp": "t", "finalizers": [names.VOLUME_FINALIZER]}
MADE_BY_OTHERS = {names.LIES_ON: "n1/uid-1", names.PROVISIONED_BY: "other.example"}


def test_the_next_step() -> None:
    for seen, step in [
        (view(), Step.EMPTY_VOLUME),  # first the driver is asked
        (view(deleted=DELETED), Step.DELETE_VOLUME),  # then it is deleted
        (view(volume(**LEAVES), deleted=DELETED), Step.RELEASE_VOLUME),  # and our finalizer taken off
        (view(volume(**LEAVES)), Step.EMPTY_VOLUME),  # after a crash the driver is asked again
        (view(deleted=None), Step.NOTHING),  # another program provisions
        (view(volume(maker="n2")), Step.NOTHING),  # another node made it, and it came here since
        (view(volume(maker="n1-x")), Step.NOTHING),  # the maker's name only begins so
        (view(volume(maker="")), Step.NOTHING),  # nobody says who made it
        (view(volume(annotations=MADE_BY_OTHERS)), Step.NOTHING),  # another provisioner says that it made it
        (view(volume(annotations={})), Step.NOTHING),  # no note of the machine
        (view(volume(lies_on="n1/uid-0")), Step.NOTHING),  # G1 an earlier machine of the name made it
        (view(volume(lies_on="n1")), Step.NOTHING),  # garbage in the note
        (view(volume(phase="Bound")), Step.NOTHING),  # bound
        (view(volume(reclaim="Retain")), Step.NOTHING),  # kept
        (view(attachments=(AttachmentThere("a", "u", "pv", deleting=True),)), Step.NOTHING),  # it is attached
        (view(volume(claim="uid-c"), claims={"uid-c": BACK}), Step.NOTHING),  # its claim is back
        (view(volume(claim="uid-c"), claims={"uid-c": replace(BACK, volume="pv-2")}), Step.EMPTY_VOLUME),  # with another volume
        (view(cleanup=False), Step.NOTHING),  # Orphan
        (view(loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING),  # no evidence
        (view(loss=Unproven("no note", 0.0)), Step.NOTHING),  # which machine it was is not known
    ]:
        (found,) = (item for item in remains(seen) if item.kind == names.VOLUME)
        assert found.step is step, found.why
        assert found.why


# --- the story ------------------------------------------------------------------------------------------------------------


def test_an_attachment_to_whatever_node_counts() -> None:
    def attachment(name: str, attacher: str, wanted: str) -> Json:
        source = {"persistentVolumeName": wanted}
        return {"metadata": {"name": name, "uid": name}, "spec": {"attacher": attacher, "nodeName": "n2", "source": source}}

    made = (("a", DRIVER, "pv"), ("b", DRIVER, "pv-2"), ("c", "other.example", "pv"))
    objects = {("volumeattachments", name): attachment(name, driver, wanted) for name, driver, wanted in made}
    for attaches, found in ((True, ["a"]), (False, [])):
        around = Surroundings(ScriptedKube(objects), driver=DRIVER, attaches=attaches)  # type: ignore[arg-type]
        assert [item.name for item in asyncio.run(around.attachments_of("pv"))] == found
