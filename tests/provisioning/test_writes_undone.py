"""What something else takes back at once (an admission webhook, a controller that reverts what it does not know) is not written again and
again, and somebody is told."""

from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.notebook.notebook_world import NotebookWorld
from hack.sim.world.claim_rates import CREATIONS, MEASURES, MOST, WRITES
from hack.sim.world.node import DRIVER
from sidecar.kube.api import CLAIMS, EVENTS, MERGE_PATCH, VOLUMES, Resource
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE
from tests.harness.drain.simulated import play, wait

Json = dict[str, Any]
PLACEMENTS = pytest.mark.parametrize("placement", ["random", "ranked"])


async def claim(bench: NotebookWorld, node: str, *, class_: str = "late") -> None:
    spec = {"storageClassName": class_, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    notes = {names.STORAGE_PROVISIONER: DRIVER, **({names.SELECTED_NODE: node} if node else {})}
    meta = {"name": "a", "namespace": "default", "annotations": notes}
    await bench.you.create(CLAIMS, {"metadata": meta, "spec": spec}, namespace="default")


def webhook(bench: NotebookWorld, resource: Resource, change: Callable[[Json], None]) -> None:
    """What admission makes of each write."""
    real = bench.cluster._update

    def update(kind: Any, old: Any, new: Json, **rest: Any) -> Any:
        if kind.resource == resource:
            change(new["metadata"])
        return real(kind, old, new, **rest)

    bench.cluster._update = update  # type: ignore[method-assign]


def no_node(meta: Json) -> None:
    (meta.get("annotations") or {}).pop(names.SELECTED_NODE, None)


def no_finalizers(meta: Json) -> None:
    meta.pop("finalizers", None)


def busiest(bench: NotebookWorld) -> dict[str, int]:
    counts: dict[str, int] = {}
    for asker, count in bench.request_log.rates.busiest():
        counts[asker.what] = max(counts.get(asker.what, 0), count)
    return counts


async def told(bench: NotebookWorld) -> set[str]:
    return {event["message"] for event in (await bench.you.list_page(EVENTS)).items if event.get("type") == "Warning"}


async def volume_of(bench: NotebookWorld) -> Json:
    (volume,) = (await bench.you.list_page(VOLUMES)).items
    return volume


@PLACEMENTS
def test_a_bid_that_does_not_stay_is_repeated_at_a_pace_and_told(placement: str) -> None:
    counts, notes = dict[str, int](), set[str]()

    async def story(bench: NotebookWorld) -> None:
        await bench.storage_class("immediate", IMMEDIATE)
        webhook(bench, CLAIMS, no_node)
        await claim(bench, "", class_="immediate")
        await wait(bench, 65)
        counts.update(busiest(bench))
        notes.update(await told(bench))

    play(story, args=(f"--node-deployment-placement={placement}",))
    assert counts[WRITES] <= MOST[WRITES] and counts[MEASURES] <= MOST[MEASURES], counts
    assert any(names.SELECTED_NODE in note and "something takes it off again" in note for note in notes)


@PLACEMENTS
def test_when_nothing_takes_it_off_any_more_the_claim_is_taken(placement: str) -> None:
    async def story(bench: NotebookWorld) -> None:
        await bench.storage_class("immediate", IMMEDIATE)
        is_on = True
        webhook(bench, CLAIMS, lambda meta: no_node(meta) if is_on else None)
        await claim(bench, "", class_="immediate")
        await wait(bench, 60)
        is_on = False
        await wait(bench, 400)
        assert busiest(bench)[CREATIONS] == 1 and (await volume_of(bench))["status"]["phase"] == "Bound"

    play(story, args=(f"--node-deployment-placement={placement}",))


def test_a_finalizer_that_somebody_takes_off_is_put_on_at_a_pace() -> None:
    counts = dict[str, int]()

    async def story(bench: NotebookWorld) -> None:
        await claim(bench, "n0")
        await wait(bench, 10)
        name = (await volume_of(bench))["metadata"]["name"]
        for _ in range(600):
            await bench.you.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            await wait(bench, 0.1)
        counts.update(busiest(bench))
        await wait(bench, 300)
        assert names.VOLUME_FINALIZER in (await volume_of(bench))["metadata"]["finalizers"], "in the end it is on"

    play(story, args=())
    assert counts[WRITES] <= MOST[WRITES]


def test_a_reclaim_policy_that_goes_to_and_fro_is_followed_at_a_pace() -> None:
    async def story(bench: NotebookWorld) -> None:
        await claim(bench, "n0")
        await wait(bench, 10)
        name = (await volume_of(bench))["metadata"]["name"]
        for number in range(300):
            policy = "Delete" if number % 2 else "Retain"
            await bench.you.patch(VOLUMES, name, {"spec": {"persistentVolumeReclaimPolicy": policy}}, content_type=MERGE_PATCH)
            await wait(bench, 0.2)
        assert busiest(bench)[WRITES] <= MOST[WRITES]
        await wait(bench, 300)
        assert names.VOLUME_FINALIZER in (await volume_of(bench))["metadata"]["finalizers"]

    play(story, args=())


def test_a_finalizer_that_does_not_stay_is_no_hot_loop() -> None:
    async def story(bench: NotebookWorld) -> None:
        await claim(bench, "n0")
        await wait(bench, 10)
        webhook(bench, VOLUMES, no_finalizers)
        volume = await volume_of(bench)
        await bench.you.patch(VOLUMES, volume["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH)
        await wait(bench, 120)
        assert busiest(bench)[WRITES] <= MOST[WRITES]

    play(story, args=())
