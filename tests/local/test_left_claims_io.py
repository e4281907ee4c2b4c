"""What those who hear of a shard leave in it is found by others, whatever else is open in the cluster, and at a cost that has an end."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import cast

import pytest

from hack.sim.clock import run_virtual
from sidecar.kube.api import KubeApi, Page, Resource, Take
from sidecar.kube.errors import Unavailable
from sidecar.local.left_claims_io import LeftClaims
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness import samples
from tests.harness.doors import tools
from tests.harness.virtual import AsyncTest, staged

OTHERS = list(names.SHARDS)
A_PAGE = 500


class Scene:
    """Claims as a list has them, page by page, in the order in which they are made."""

    def __init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.claims: dict[str, Json] = {}
        self.lists = 0
        self.failing = False
        its = tools(cast(KubeApi, self), clock=clock, wall=clock, rng=random.Random(1).random)
        self.left = LeftClaims(its, driver=samples.DRIVER, contenders=lambda: None)

    async def list_page(self, resource: Resource, *, label_selector: str, continue_token: str, begin: Callable[[], Take]) -> Page:
        self.lists += 1
        if self.failing:
            raise Unavailable("away")
        asked = set(label_selector.removeprefix(f"{names.CLAIM_LABEL} in (").removesuffix(")").split(","))
        found = [claim for claim in self.claims.values() if claim["metadata"]["labels"][names.CLAIM_LABEL] in asked]
        at, take = int(continue_token or 0), begin()
        for claim in found[at : at + A_PAGE]:
            take(claim)
        return Page([], "7", str(at + A_PAGE) if len(found) > at + A_PAGE else "")

    def make(self, name: str, shard: str, *, driver: str = samples.DRIVER) -> None:
        notes = {names.STORAGE_PROVISIONER: driver}
        self.claims[name] = {"metadata": {"name": name, "uid": name, "labels": {names.CLAIM_LABEL: shard}, "annotations": notes}}

    def make_many(self, count: int, shards: Iterable[str], *, driver: str = samples.DRIVER) -> None:
        """Made before all others."""
        chosen = list(shards)
        for number in range(count):
            self.make(f"a-{number:05}", chosen[number % len(chosen)], driver=driver)

    async def heard_within(self, looks: int) -> set[str]:
        heard: set[str] = set()
        for _ in range(looks):
            await self.left.look(OTHERS)
            heard |= self.left.heard
        return heard


def looks(story: AsyncTest) -> Callable[[], None]:
    """A test of such a scene."""

    async def main() -> None:
        await story(Scene())

    return staged(lambda _: run_virtual(main()), story)


@looks
async def test_a_shard_is_heard_while_something_is_left_in_it(scene: Scene) -> None:
    assert await scene.heard_within(1) == set()
    scene.make("left", "open.07")
    assert await scene.heard_within(1) == {"open.07"}
    del scene.claims["left"]
    assert await scene.heard_within(1) == set()


@looks
async def test_claims_that_nobody_takes_hide_no_others(scene: Scene) -> None:
    """More than a page of them, which come first in every list: as of a tenant, or of a driver that is gone."""
    for driver in (samples.DRIVER, "another-driver"):
        for shards in (names.SHARDS, ["open.00"]):
            scene.claims.clear()
            scene.make_many(3 * A_PAGE, shards, driver=driver)
            scene.make("z-left", "open.07")
            assert "open.07" in await scene.heard_within(60)


@looks
async def test_a_node_hears_of_few_shards_that_are_not_its_own_and_of_each_in_its_turn(scene: Scene) -> None:
    scene.make_many(A_PAGE - 100, names.SHARDS)
    heard: set[str] = set()
    for _ in range(100):
        await scene.left.look(OTHERS)
        assert len(scene.left.heard) <= len(names.SHARDS) / 8
        heard |= scene.left.heard
    assert heard == set(names.SHARDS)


@looks
async def test_a_list_that_fails_changes_nothing(scene: Scene) -> None:
    scene.make("left", "open.07")
    await scene.left.look(OTHERS)
    scene.failing = True
    with pytest.raises(Unavailable):
        await scene.left.look(OTHERS)
    assert scene.left.heard == {"open.07"}
