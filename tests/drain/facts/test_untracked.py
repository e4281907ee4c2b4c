"""What the driver has and no PersistentVolume stands for: asked beside the judgements, on virtual time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.world.doors import NodeDriver
from sidecar.csi.api import LIST_VOLUMES, DriverInfo
from sidecar.csi.outcome import Code, DriverError
from sidecar.drain.facts.driver_list import NOTHING_LISTED, DriverList
from sidecar.drain.facts.untracked import Untracked
from sidecar.drain.facts.watched import Watched
from sidecar.kube.api import VOLUMES, Change
from sidecar.kube.errors import Forbidden
from sidecar.kube.store import Store
from sidecar.model.nodes import Node
from sidecar.model.objects import Volume
from sidecar.model.topology import Segment
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube
from tests.harness.drain.simulated import JUDGING, Bench, fill, node_of, play, report_of, wait, with_pod

ABLE = samples.info(controller=(LIST_VOLUMES,))


class Scene:
    """The part alone, with a driver that forgot one volume unless it is said otherwise."""

    def __init__(
        self, *lists: tuple[str, ...] | dict[str, bool] | Exception, info: DriverInfo = ABLE, under_way: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self.driver = ScriptedDriver(info=info, lists=list(lists) or [("lv-1",)])
        self.kube = ScriptedKube()
        self.volumes: Store[Volume] = Store()
        none: Any = Store()
        self.nodes: Store[Node] = Store()
        watched = Watched(self.nodes, none, none, none, none, self.volumes, none, ignorance=tuple)
        self.woken: list[float] = []
        self.untracked = Untracked(
            self.kube,  # type: ignore[arg-type]
            self.driver,
            watched,
            under_way=under_way,
            clock=lambda: asyncio.get_running_loop().time(),
            on_found=lambda: self.woken.append(asyncio.get_running_loop().time()),
        )

    def stored(self, handle: str, *, driver: str = samples.DRIVER) -> "Scene":
        """Somewhere in the cluster."""
        self.kube.objects[VOLUMES.plural, handle] = of(handle, driver)
        return self

    async def goes_on(self, seconds: float) -> None:
        task = asyncio.create_task(self.untracked.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def after(self, seconds: float) -> tuple[tuple[str, ...], str]:
        """What is known then."""
        run_virtual(self.goes_on(seconds))
        return self.untracked.handles, self.untracked.unknown

    def listed_after(self, seconds: float) -> DriverList:
        async def story() -> DriverList:
            await self.goes_on(seconds)
            return self.untracked.listed()

        return run_virtual(story())


def of(handle: str, driver: str = samples.DRIVER) -> dict[str, Any]:
    return samples.volume_json(meta={"name": handle}, spec={"csi": {"driver": driver, "volumeHandle": handle}})


def test_what_two_looks_a_minute_apart_have_counts() -> None:
    assert Scene().after(59) == ((), "the driver has not been asked yet")
    assert Scene().after(61) == (("lv-1",), "")
    assert Scene(("lv-1", "lv-2"), ("lv-2", "lv-3")).after(61) == (("lv-2",), "")


def test_a_volume_with_a_PersistentVolume_on_any_node_is_tracked() -> None:
    assert Scene().stored("lv-1").after(61) == ((), "")
    assert Scene().stored("lv-1", driver="other").after(61) == (("lv-1",), "")
    scene = Scene()
    scene.volumes.apply(Change("lv-1", None, Volume.of(of("lv-1"))))
    assert scene.after(61) == ((), "")
    scene = Scene()
    scene.volumes.apply(Change("lv-1", None, Volume.of(of("lv-1", "other"))))
    assert scene.after(61) == (("lv-1",), "")


def test_what_is_being_created_is_waited_for() -> None:
    """A volume whose PersistentVolume is stored at last was never forgotten; others that are begun meanwhile keep nobody waiting."""
    begun = ["uid-1"]
    scene = Scene(under_way=lambda: begun)

    async def story() -> None:
        running = asyncio.create_task(scene.goes_on(3000))
        await asyncio.sleep(1500)
        assert (scene.untracked.handles, scene.untracked.unknown) == ((), "a volume creation has not finished yet")
        begun[:] = ["uid-2"]
        await asyncio.sleep(59)
        asked = scene.driver.count("list")
        scene.stored("lv-1")
        await asyncio.sleep(121)
        assert scene.driver.count("list") == asked + 1
        assert (scene.untracked.handles, scene.untracked.unknown) == ((), "")
        running.cancel()

    run_virtual(story())


def test_a_driver_that_cannot_say_what_is_here_is_not_asked() -> None:
    for info, why in [
        (samples.info(), "the driver does not list its volumes"),
        (replace(ABLE, segment=Segment()), "the driver reports no topology, so a volume that it lists may be on any node"),
    ]:
        scene = Scene(info=info)
        assert scene.after(1000) == ((), why)
        assert scene.driver.count("list") == 0


def test_a_failure_is_told_and_what_was_found_before_holds() -> None:
    broken = DriverError(Code.INTERNAL, "it broke")
    assert Scene(broken).after(61) == ((), str(broken))
    assert Scene(("lv-1",), broken).after(61) == ((), str(broken)), "one look alone is none"
    assert Scene(("lv-1",), ("lv-1",), broken).after(700) == (("lv-1",), str(broken))
    scene = Scene()
    scene.kube.failures["list"] = [Forbidden("not allowed", status=403)]
    assert scene.after(61) == ((), "not allowed")


def test_a_driver_that_takes_too_long_for_its_list_counts_as_one_that_cannot_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page after page, none of them late: without an end of its own such a list would keep the node from being judged."""

    async def endless(_: ScriptedDriver) -> dict[str, bool]:
        await asyncio.sleep(100_000)
        return {}

    monkeypatch.setattr(ScriptedDriver, "list_volumes", endless)
    scene = Scene()
    assert scene.listed_after(500).not_asked
    assert Scene().listed_after(620) == NOTHING_LISTED
    scene = Scene()
    scene.after(620)
    assert "600 s" in scene.untracked.unknown


# --- in the whole program ---------------------------------------------------------------------------------------------


def test_a_forgotten_volume_is_a_note_and_with_the_flag_it_blocks_retiring() -> None:
    async def noted(bench: Bench) -> None:
        fill(bench, "n0", 1 << 20)
        await wait(bench, 700)
        report = await report_of(bench)
        assert [report["verdicts"][name]["status"] for name in ("drain", "retire")] == ["True", "True"]
        assert (report["untracked"], report["counts"]["classes"]) == (1, {"Untracked": 1})
        assert [note for note in report["notes"] if note.startswith("known to the driver alone: 'n0-vol-")]

    async def blocks(bench: Bench) -> None:
        forgotten = fill(bench, "n0", 1 << 20)
        await wait(bench, 700)
        report = await report_of(bench)
        assert [report["verdicts"][name]["status"] for name in ("drain", "retire")] == ["True", "False"]
        (blocker,) = report["blockers"]
        assert (blocker["kind"], blocker["reason"], blocker["blocks"]) == ("Volume", "UntrackedData", ["retire"])
        bench.nodes["n0"].driver.delete(forgotten)
        await wait(bench, 1000)
        assert (await report_of(bench))["verdicts"]["retire"]["status"] == "True"

    play(noted, nodes=("n0",))
    play(blocks, args=(*JUDGING, "--drain-untracked-blocks"), nodes=("n0",))


def test_a_driver_that_does_not_answer_delays_and_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def case(seconds: float) -> None:
        async def list_volumes(_: NodeDriver) -> tuple[str, ...]:
            await asyncio.sleep(seconds)
            raise DriverError(Code.DEADLINE_EXCEEDED, "too slow")

        monkeypatch.setattr(NodeDriver, "list_volumes", list_volumes)

        async def story(bench: Bench) -> None:
            await wait(bench, 600)
            why = (await report_of(bench))["notes"][-1]
            assert why.startswith("whether the driver has volumes without a PersistentVolume is not known: ")
            assert why.endswith("to its end within 600 s" if seconds else "too slow")
            await with_pod(bench, "a")
            await wait(bench, 20)
            report = await report_of(bench)
            assert (report["verdicts"]["drain"]["status"], report["verdicts"]["retire"]["reason"]) == ("True", "VolumeInUse")
            assert await node_of(bench)

        play(story, args=(*JUDGING, "--drain-untracked-blocks"), nodes=("n0",))

    for seconds in [
        0.0,  # fails
        100_000.0,  # hangs
    ]:
        case(seconds)


def test_what_a_failure_comes_after_goes_on_to_hold() -> None:
    scene = Scene({"lv-1": True}, DriverError(Code.INTERNAL, "it broke")).stored("lv-1")
    assert dict(scene.listed_after(3000).handles) == {"lv-1": True}
