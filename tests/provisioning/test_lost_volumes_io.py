"""What keeps this node's driver from being asked to delete a volume whose maker is gone."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.csi.api import LIST_VOLUMES
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.errors import Unavailable
from sidecar.model.objects import Volume
from sidecar.provisioning.lost_volumes_io import LONGEST_LIST, LostVolumes
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube, tools

Json = dict[str, Any]
LISTING = samples.info(controller=frozenset({*samples.info().controller, LIST_VOLUMES}))


def pv(name: str = "pv", handle: str = "h", *, node: str = "", **meta: Any) -> Json:
    spec: Json = {"csi": {"driver": samples.DRIVER, "volumeHandle": handle}}
    spec |= {"nodeAffinity": samples.placed(node)} if node else {}
    return samples.volume_json(meta={"name": name, "uid": f"uid-{name}", "resourceVersion": "9"} | meta, spec=spec)


def ask(
    *others: Json, driver: ScriptedDriver | None = None, now: Json | None = None, still: bool = True, kube: ScriptedKube | None = None
) -> tuple[str | None, ScriptedDriver]:
    """`now`: the volume as it is stored by then."""
    driver, kube = driver or ScriptedDriver(), kube or ScriptedKube()
    kube.objects |= {("persistentvolumes", obj["metadata"]["name"]): obj for obj in (now or pv(), *others)}

    async def last_look() -> bool:
        assert driver.count("delete") == 0
        return still

    lost = LostVolumes(tools(kube, driver), here=lambda: samples.here(driver=driver.info))
    return asyncio.run(lost.delete(Volume.of(pv()), last_look)), driver


def test_the_driver_is_asked_once() -> None:
    why, driver = ask()
    assert why == ""
    assert driver.asked == [("delete", "h")]


def test_any_other_object_with_the_handle_keeps_it() -> None:
    for node in ["", samples.NODE, "elsewhere"]:
        why, driver = ask(pv("other", node=node))
        assert why and "PersistentVolume other has the same handle" in why
        assert driver.count("delete") == 0


def test_what_is_not_as_it_was_judged_is_left_to_the_next_look() -> None:
    for now in [pv(resourceVersion="10"), pv(uid="uid-2")]:
        why, driver = ask(now=now)
        assert why is None
        assert driver.count("delete") == 0


def test_what_the_driver_has_on_this_node_alone_may_be_another_volume() -> None:
    for listed, kept in [({"h": True}, True), ({"h": False}, False), ({"x": True}, False)]:
        why, driver = ask(driver=ScriptedDriver(info=LISTING, lists=[listed]))
        assert bool(why) is kept
        assert driver.count("delete") == (0 if kept else 1)


class Endless(ScriptedDriver):
    """It gives page after page, each in time."""

    async def list_volumes(self) -> Mapping[str, bool]:
        while True:
            await asyncio.sleep(1.0)


def test_a_list_that_does_not_end_counts_as_a_driver_that_does_not_answer() -> None:
    """Whoever asks looks after all gone nodes: others' losses must not wait for hours."""
    driver = Endless(info=LISTING)
    kube = ScriptedKube({("persistentvolumes", "pv"): pv()})
    lost = LostVolumes(tools(kube, driver), here=lambda: samples.here(driver=driver.info))

    async def yes() -> bool:
        return True

    async def whole() -> None:
        async with asyncio.timeout(LONGEST_LIST + 1):
            with pytest.raises(DriverError) as found:
                await lost.delete(Volume.of(pv()), yes)
        assert found.value.code is Code.DEADLINE_EXCEEDED

    run_virtual(whole())
    assert driver.count("delete") == 0


def test_nothing_is_deleted_while_the_api_server_is_away() -> None:
    driver = ScriptedDriver()
    with pytest.raises(Unavailable):
        ask(driver=driver, kube=ScriptedKube(failures={"list": [Unavailable("no answer")]}))
    assert driver.count("delete") == 0


def test_the_last_look_has_the_last_word() -> None:
    why, driver = ask(still=False)
    assert why is None
    assert driver.count("delete") == 0
