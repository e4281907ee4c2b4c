"""Volumes without node affinity, whose maker is gone: the driver of another node is asked to delete those of that very machine."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call
from hack.sim.driver.faults import Fault
from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.node import DRIVER
from sidecar.csi.outcome import Code
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss.evidence import Evidence, Gone, Unproven
from sidecar.drain.node_loss.remains import RemainsView, Step, remains
from sidecar.drain.node_loss.surroundings_io import Surroundings
from sidecar.drain.node_loss.things import AttachmentThere, ClaimThere, LostVolume, volume_of
from sidecar.drain.remade import LostClaim
from sidecar.kube.api import CLAIMS, CLASSES, CSI_NODES, EVENTS, NODES, VOLUMES
from sidecar.kube.errors import Unavailable
from sidecar.model import names
from tests.harness.doors import ScriptedKube
from tests.harness.drain.node_loss import (
    CLEANING,
    TELLING,
    UNPLACED,
    Watchman,
    app,
    asked,
    note,
    play,
    replicas,
    settled,
    there,
    uid_of,
    vanish,
)
from tests.harness.drain.simulated import Json, all_of, wait

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


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        pytest.param(view(), Step.EMPTY_VOLUME, id="first the driver is asked"),
        pytest.param(view(deleted=DELETED), Step.DELETE_VOLUME, id="then it is deleted"),
        pytest.param(view(volume(**LEAVES), deleted=DELETED), Step.RELEASE_VOLUME, id="and our finalizer taken off"),
        pytest.param(view(volume(**LEAVES)), Step.EMPTY_VOLUME, id="after a crash the driver is asked again"),
        pytest.param(view(deleted=None), Step.NOTHING, id="another program provisions"),
        pytest.param(view(volume(maker="n2")), Step.NOTHING, id="another node made it, and it came here since"),
        pytest.param(view(volume(maker="n1-x")), Step.NOTHING, id="the maker's name only begins so"),
        pytest.param(view(volume(maker="")), Step.NOTHING, id="nobody says who made it"),
        pytest.param(view(volume(annotations=MADE_BY_OTHERS)), Step.NOTHING, id="another provisioner says that it made it"),
        pytest.param(view(volume(annotations={})), Step.NOTHING, id="no note of the machine"),
        pytest.param(view(volume(lies_on="n1/uid-0")), Step.NOTHING, id="G1 an earlier machine of the name made it"),
        pytest.param(view(volume(lies_on="n1")), Step.NOTHING, id="garbage in the note"),
        pytest.param(view(volume(phase="Bound")), Step.NOTHING, id="bound"),
        pytest.param(view(volume(reclaim="Retain")), Step.NOTHING, id="kept"),
        pytest.param(view(attachments=(AttachmentThere("a", "u", "pv", deleting=True),)), Step.NOTHING, id="it is attached"),
        pytest.param(view(volume(claim="uid-c"), claims={"uid-c": BACK}), Step.NOTHING, id="its claim is back"),
        pytest.param(
            view(volume(claim="uid-c"), claims={"uid-c": replace(BACK, volume="pv-2")}), Step.EMPTY_VOLUME, id="with another volume"
        ),
        pytest.param(view(cleanup=False), Step.NOTHING, id="Orphan"),
        pytest.param(view(loss=replace(ANNOUNCED, evidence=Evidence.NONE)), Step.NOTHING, id="no evidence"),
        pytest.param(view(loss=Unproven("no note", 0.0)), Step.NOTHING, id="which machine it was is not known"),
    ],
)
def test_the_next_step(seen: RemainsView, step: Step) -> None:
    (found,) = (item for item in remains(seen) if item.kind == names.VOLUME)
    assert found.step is step, found.why
    assert found.why


@pytest.mark.parametrize("attaches", [True, False])
def test_an_attachment_to_whatever_node_counts(attaches: bool) -> None:
    def attachment(name: str, attacher: str, wanted: str) -> Json:
        source = {"persistentVolumeName": wanted}
        return {"metadata": {"name": name, "uid": name}, "spec": {"attacher": attacher, "nodeName": "n2", "source": source}}

    made = (("a", DRIVER, "pv"), ("b", DRIVER, "pv-2"), ("c", "other.example", "pv"))
    objects = {("volumeattachments", name): attachment(name, driver, wanted) for name, driver, wanted in made}
    found = Surroundings(ScriptedKube(objects), driver=DRIVER, attaches=attaches)  # type: ignore[arg-type]
    assert [item.name for item in asyncio.run(found.attachments_of("pv"))] == (["a"] if attaches else [])


# --- the story ------------------------------------------------------------------------------------------------------------


async def lost(bench: NotebookWorld, **words: str) -> None:
    """n0 is announced to go, and goes, with the only replica and its volume without node affinity."""
    await replicas(bench, 1)
    await app(bench)
    (stored,) = await all_of(bench, VOLUMES)
    assert "nodeAffinity" not in stored["spec"]
    await settled(bench)
    mark = f"n0/{await uid_of(bench)}"
    await note(bench, "data-db-0", {names.LIES_ON: mark, names.LEAVING: mark} | words)
    await vanish(bench)


def test_the_driver_of_another_node_is_asked_and_then_the_object_goes() -> None:
    async def story(bench: NotebookWorld) -> None:
        await lost(bench)
        (stored,) = await all_of(bench, VOLUMES)
        await wait(bench, 400)
        assert await there(bench, VOLUMES) == []
        assert asked(bench) == [stored["spec"]["csi"]["volumeHandle"]]
        messages = [event["message"] for event in await all_of(bench, EVENTS) if event["involvedObject"]["kind"] == names.VOLUME]
        assert [message for message in messages if "says that the volume is deleted" in message and "scrub" in message]

    play(story, args=(*CLEANING, UNPLACED))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(TELLING, {}, id="Orphan"),
        pytest.param(CLEANING, {names.LEAVING: ""}, id="not announced"),
        pytest.param(CLEANING, {names.LIES_ON: ""}, id="no note of the machine"),
    ],
)
def test_otherwise_no_driver_is_asked(args: tuple[str, ...], words: dict[str, str]) -> None:
    async def story(bench: NotebookWorld) -> None:
        await lost(bench, **words)
        (stored,) = await all_of(bench, VOLUMES)
        if args == CLEANING:  # the person whose claim it was gives it up
            await bench.you.delete(CLAIMS, "data-db-0", namespace="default")
        await wait(bench, 2000)
        assert await there(bench, VOLUMES) == [stored["metadata"]["name"]]
        assert asked(bench) == []

    play(story, args=(*args, UNPLACED))


@pytest.mark.parametrize("code", [Code.FAILED_PRECONDITION, Code.UNAVAILABLE, Code.INTERNAL])
def test_what_the_driver_refuses_is_told_and_tried_again(code: Code) -> None:
    async def story(bench: NotebookWorld) -> None:
        for node in bench.nodes.values():
            node.reception.faults.set([Fault(method="DeleteVolume", fail=code, message="owner node exists")])
        await lost(bench)
        await wait(bench, 1200)
        assert len(await there(bench, VOLUMES)) == 1
        tries = len(asked(bench))
        assert 3 <= tries <= 20, "again and again, with a back-off"
        failed = [event for event in await all_of(bench, EVENTS) if event["reason"] == names.VOLUME_FAILED_DELETE]
        assert [event for event in failed if "owner node exists" in event["message"]]
        for node in bench.nodes.values():
            node.reception.faults.set([])
        await wait(bench, 700)
        assert await there(bench, VOLUMES) == []

    play(story, args=(*CLEANING, UNPLACED))


def test_another_volume_with_the_same_handle_keeps_it() -> None:
    async def story(bench: NotebookWorld) -> None:
        await lost(bench)
        (stored,) = await all_of(bench, VOLUMES)
        spec = {key: value for key, value in stored["spec"].items() if key != "claimRef"}
        await bench.you.create(VOLUMES, {"metadata": {"name": "by-hand"}, "spec": spec})
        await wait(bench, 1200)
        assert asked(bench) == []
        assert len(await there(bench, VOLUMES)) == 2

    play(story, args=(*CLEANING, UNPLACED))


def test_a_sidecar_that_dies_between_the_driver_and_the_object_is_followed_by_one_that_asks_again() -> None:
    benches: list[NotebookWorld] = []

    def refuse(call: Call) -> Unavailable | None:
        if benches and call.verb == "delete" and call.resource == VOLUMES:
            bench = benches.pop()
            for name in ("n1", "n2"):
                bench.nodes[name].kill()  # the one that asked, and it comes back
            return Unavailable("no answer")
        return None

    async def story(bench: NotebookWorld) -> None:
        benches.append(bench)
        await lost(bench)
        await wait(bench, 3000)
        assert not benches
        assert await there(bench, VOLUMES) == []
        assert len(asked(bench)) == 2

    play(story, Watchman(refuse), args=(*CLEANING, UNPLACED))


def test_G1_a_node_that_is_back_before_the_driver_is_asked_keeps_it() -> None:
    """It registers after the look that comes before each step, while the API server is asked who has the handle."""
    benches: list[tuple[NotebookWorld, Json]] = []

    def back(call: Call) -> None:
        if benches and call.verb == "get" and call.resource == CLASSES:
            bench, csi_node = benches.pop()
            bench.cluster.create(NODES, {"metadata": {"name": "n0"}, "spec": {}}, namespace="")
            bench.cluster.create(CSI_NODES, {"metadata": {"name": "n0"}, "spec": csi_node["spec"]}, namespace="")

    async def story(bench: NotebookWorld) -> None:
        csi_node = await bench.you.get(CSI_NODES, "n0")
        await lost(bench)
        benches.append((bench, csi_node))
        await wait(bench, 1500)
        assert not benches
        assert asked(bench) == []
        assert len(await there(bench, VOLUMES)) == 1

    play(story, Watchman(back), args=(*CLEANING, UNPLACED))
