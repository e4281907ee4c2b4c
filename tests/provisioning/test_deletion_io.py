"""What is asked of the API server before the driver is asked to delete, and how often."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.deletion.rules import Delete, DeletionView, Keep, Need, Released, Undone
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import ApiError, Gone, Unavailable
from sidecar.model import names
from sidecar.model.objects import Volume
from sidecar.provisioning.deletion_io import Deletion, HandleUsers
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube

Json = dict[str, Any]


def pv(name: str, handle: str, *, driver: str = samples.DRIVER, node: str = "foo") -> Json:
    spec = {"csi": {"driver": driver, "volumeHandle": handle}, "nodeAffinity": samples.placed(node)}
    return samples.volume_json(meta={"name": name}, spec=spec)


@dataclass
class SlowKube(ScriptedKube):
    """A list takes as long as the test says, and others may ask meanwhile."""

    lists: int = 0
    volumes: list[Json] = field(default_factory=list)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.goes_on.set()

    async def list_page(self, resource: Resource, **_: Any) -> Page:
        self.lists += 1
        seen = list(self.volumes)
        await self.goes_on.wait()
        self._ask("list", resource, "", None)
        return Page(seen, "1", "")


def users_of(kube: SlowKube) -> HandleUsers:
    return HandleUsers(here=samples.here, kube=kube)  # type: ignore[arg-type]


def test_those_of_this_driver_count_and_each_says_whether_it_is_elsewhere() -> None:
    kube = SlowKube(
        volumes=[pv("here", "h"), pv("far", "h", node="bar"), pv("other", "h", driver="other"), pv("another", "i"), {"spec": {}}]
    )
    found = asyncio.run(users_of(kube).of("h"))
    assert [(item.volume.name, item.elsewhere) for item in found] == [("here", False), ("far", True)]


def test_one_list_answers_all_who_asked_before_it_began_and_nobody_who_asked_later() -> None:
    kube = SlowKube(volumes=[pv("one", "h")])
    users = users_of(kube)

    async def main() -> list[list[str]]:
        kube.goes_on.clear()
        first = asyncio.create_task(users.of("h"))
        await asyncio.sleep(0)
        assert kube.lists == 1
        kube.volumes.append(pv("two", "h"))
        later = [asyncio.create_task(users.of("h")) for _ in range(20)]
        await asyncio.sleep(0)
        kube.goes_on.set()
        return [[item.volume.name for item in await task] for task in (first, *later)]

    names = asyncio.run(main())
    assert names == [["one"], *[["one", "two"]] * 20]
    assert kube.lists == 2
    assert not users._open and not users._answers


def test_a_list_that_fails_fails_all_who_asked_before_it_began() -> None:
    """Else hundreds would list all volumes one after another, each as long as the API server takes to refuse, and hold their workers."""
    kube = SlowKube(failures={"list": [None, Unavailable("away"), Unavailable("away")]})
    users = users_of(kube)

    async def main() -> list[Any]:
        kube.goes_on.clear()
        first = asyncio.create_task(users.of("h"))
        await asyncio.sleep(0)
        later = [asyncio.create_task(users.of("h")) for _ in range(20)]
        await asyncio.sleep(0)
        kube.goes_on.set()
        return await asyncio.gather(first, *later, return_exceptions=True)

    first, *later = asyncio.run(main())
    assert first == () and all(isinstance(answer, Unavailable) for answer in later)
    assert kube.lists == 2
    assert not users._open and not users._answers


async def no_secrets() -> Mapping[str, str]:
    return {}


def test_secrets_are_read_only_for_what_is_deleted() -> None:
    read: list[bool] = []

    async def secrets() -> Mapping[str, str]:
        read.append(True)
        return {}

    for used in (True, False):
        kube, driver = SlowKube(volumes=[pv("one", "h")] * used), ScriptedDriver()
        deletion = Deletion(here=samples.here, kube=kube, driver=driver)  # type: ignore[arg-type]
        kept = asyncio.run(deletion.delete(DeletionView(reason=Undone(), handle="h"), secrets=secrets))
        assert (kept is not None, bool(read), driver.count("delete")) == (used, not used, 0 if used else 1)


class LabelledKube(ScriptedKube):
    """Lists by label, and notes by which."""

    def __init__(self, *volumes: Json) -> None:
        super().__init__()
        self.asked_for: list[str] = []
        self.objects |= {("persistentvolumes", item["metadata"]["name"]): item for item in volumes}

    async def list_page(self, resource: Resource, *, label_selector: str = "", **_: Any) -> Page:
        self.asked_for.append(label_selector)
        return Page([obj for obj in self.objects.values() if _fits(label_selector, obj)], "1", "")


def _fits(selector: str, obj: Json) -> bool:
    value = obj["metadata"].get("labels", {}).get(names.VOLUME_NODE)
    return not selector or (value is None if selector.startswith("!") else value in ("foo", names.SEVERAL_NODES))


def labelled(volume: Json, value: str) -> Json:
    return volume | {"metadata": volume["metadata"] | {"labels": {names.VOLUME_NODE: value}}}


def judged(kube: LabelledKube, *held: Json, topology: bool = True) -> Delete | Keep | Need:
    """Whether the volume of a PersistentVolume `mine` may be deleted."""
    mine = labelled(pv("mine", "h"), "foo")
    kube.objects["persistentvolumes", "mine"] = mine
    view = DeletionView(reason=Released(Volume.of(mine)), handle="h")
    deletion = Deletion(
        here=lambda: samples.here(samples.info(topology=topology)),
        kube=kube,  # type: ignore[arg-type]
        driver=ScriptedDriver(),
        held=lambda handle: [Volume.of(item) for item in held],
    )
    return asyncio.run(deletion.judge(view, name="mine", claim=("ns", "a")))


def test_for_a_released_volume_nothing_is_listed_that_lies_on_other_nodes() -> None:
    kube = LabelledKube(labelled(pv("far", "h", node="bar"), "bar"))
    assert isinstance(judged(kube), Delete)
    assert kube.asked_for == [f"!{names.VOLUME_NODE}", f"{names.VOLUME_NODE} in (foo,{names.SEVERAL_NODES})"]


def test_what_has_the_handle_of_a_released_volume_keeps_it() -> None:
    for label in ["", "foo", names.SEVERAL_NODES]:
        other = pv("other", "h")
        assert isinstance(judged(LabelledKube(labelled(other, label) if label else other)), Keep)


def test_so_does_what_the_cache_shows_and_somebody_has_given_another_nodes_label() -> None:
    stray = labelled(pv("stray", "h"), "bar")
    assert isinstance(judged(LabelledKube(stray), stray), Keep)
    assert isinstance(judged(LabelledKube(), stray), Delete), "it is gone"


def test_without_topology_all_volumes_are_listed() -> None:
    kube = LabelledKube()
    judged(kube, topology=False)
    assert kube.asked_for == [""]


def test_without_a_handle_nothing_is_deleted() -> None:
    driver = ScriptedDriver()
    deletion = Deletion(here=samples.here, kube=SlowKube(), driver=driver)  # type: ignore[arg-type]
    assert asyncio.run(deletion.delete(DeletionView(reason=Undone()), secrets=no_secrets)) is not None
    assert driver.asked == []


class HalfKube(ScriptedKube):
    """Fails after the first page of a list."""

    error: ApiError

    async def list_page(self, resource: Resource, *, continue_token: str = "", **_: Any) -> Page:
        if continue_token:
            raise self.error
        return Page([], "1", "more")


def test_the_first_half_of_a_list_says_nothing() -> None:
    for error in (Gone("410: the continue token has expired"), ApiError("500"), Unavailable("away")):
        kube, driver = HalfKube(), ScriptedDriver()
        kube.error = error
        deletion = Deletion(here=samples.here, kube=kube, driver=driver)  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            asyncio.run(deletion.delete(DeletionView(reason=Undone(), handle="h"), secrets=no_secrets))
        assert driver.asked == []
