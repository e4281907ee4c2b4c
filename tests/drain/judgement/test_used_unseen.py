"""An acknowledgement does not outlive a use that nobody saw; and a restart in which nothing happened takes none away."""

from collections.abc import Awaitable, Callable

from hack.sim.notebook.commands import do
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES
from sidecar.model import names
from tests.harness.drain.simulated import all_of, node_of, play, report_of, wait, with_pod

CONDITION = "world.csi-node-sidecar.io/RetireReady"


async def acknowledged(bench: NotebookWorld) -> None:
    """A volume that nobody has used for a while, and that may vanish."""
    await with_pod(bench, "a")
    await do(bench, "until running a")
    await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
    await wait(bench, 70)
    (volume,) = await all_of(bench, VOLUMES)
    patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: "somebody, today"}}}
    await bench.you.patch(VOLUMES, volume["metadata"]["name"], patch, content_type=MERGE_PATCH)
    await wait(bench, 100)
    assert await retire(bench) == "True"


async def used_for_a_moment(bench: NotebookWorld) -> None:
    spec = {
        "containers": [{"name": "main", "image": "none"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}],
    }
    await bench.you.create(PODS, {"metadata": {"name": "b"}, "spec": spec}, namespace="default")
    await do(bench, "until running b")
    await bench.you.delete(PODS, "b", namespace="default", grace_period_seconds=0)


async def nothing(bench: NotebookWorld) -> None:
    await wait(bench, 1)


async def history_is_dropped(bench: NotebookWorld) -> None:
    bench.cluster.compact()


async def claim_is_deleted(bench: NotebookWorld) -> None:
    await bench.you.delete(CLAIMS, "a", namespace="default")


async def away(bench: NotebookWorld, meanwhile: Callable[[NotebookWorld], Awaitable[None]], *, seconds: float = 20.0) -> None:
    bench.nodes["n0"].lay_down()
    await wait(bench, 1)
    await meanwhile(bench)
    await wait(bench, seconds)
    bench.nodes["n0"].get_up()


async def retire(bench: NotebookWorld) -> str:
    return next(item["status"] for item in (await node_of(bench))["status"]["conditions"] if item["type"] == CONDITION)


async def settles_on(bench: NotebookWorld, status: str) -> list[str]:
    """The notes then. Before that it may be unknown, and nothing else."""
    for _ in range(40):
        await wait(bench, 5)
        assert await retire(bench) in ("Unknown", status)
    assert await retire(bench) == status
    return [note for note in (await report_of(bench))["notes"] if names.ACKNOWLEDGED in note]


def test_a_use_while_the_sidecar_was_away_voids_an_acknowledgement() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        await away(bench, used_for_a_moment)
        (note,) = await settles_on(bench, "False")
        assert "may have been used while the sidecar was away; to renew it, change its text" in note
        await away(bench, nothing)
        await settles_on(bench, "False")

    play(story)


def test_a_restart_in_which_nothing_happened_voids_none() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        for _ in range(3):
            await away(bench, nothing)
            await settles_on(bench, "True")

    play(story)


def test_a_process_that_is_killed_before_it_has_found_out_leaves_that_to_the_next_one() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        await away(bench, used_for_a_moment)
        for _ in range(4):
            await wait(bench, 4)
            bench.nodes["n0"].kill()
        await settles_on(bench, "False")

    play(story)


def test_where_the_api_server_has_forgotten_what_pods_did_an_acknowledgement_is_void() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        await away(bench, history_is_dropped)
        (note,) = await settles_on(bench, "False")
        assert "may have been used while the sidecar was away" in note

    play(story)


def test_that_of_a_volume_without_a_claim_outlasts_every_absence() -> None:
    """No pod can use it before another claim gets it."""

    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        (volume,) = await all_of(bench, VOLUMES)
        keep = {"spec": {"persistentVolumeReclaimPolicy": "Retain"}}
        await bench.you.patch(VOLUMES, volume["metadata"]["name"], keep, content_type=MERGE_PATCH)
        await claim_is_deleted(bench)
        await wait(bench, 100)
        await away(bench, history_is_dropped, seconds=1000.0)
        assert await settles_on(bench, "True") == []

    play(story)


def test_a_watch_that_began_anew_with_a_list_has_missed_something_too() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        bench.network.take_down("n0")
        await used_for_a_moment(bench)
        bench.cluster.compact()
        await wait(bench, 5)
        bench.network.bring_up("n0")
        await wait(bench, 40)
        await settles_on(bench, "False")

    play(story)


def test_a_use_between_two_looks_counts_although_the_volume_was_still_taken_for_used_from_before() -> None:
    """It is over before anybody looks, and within the minute after the pod before it."""

    async def story(bench: NotebookWorld) -> None:
        await with_pod(bench, "a")
        await do(bench, "until running a")
        await bench.you.delete(PODS, "a", namespace="default", grace_period_seconds=0)
        await wait(bench, 20)
        (volume,) = await all_of(bench, VOLUMES)
        patch = {"metadata": {"annotations": {names.ACKNOWLEDGED: "somebody, today"}}}
        await bench.you.patch(VOLUMES, volume["metadata"]["name"], patch, content_type=MERGE_PATCH)
        await wait(bench, 10)
        await used_for_a_moment(bench)
        await settles_on(bench, "False")

    play(story)


def test_while_it_counts_the_memory_is_kept_fresh_every_minute() -> None:
    async def story(bench: NotebookWorld) -> None:
        await acknowledged(bench)
        before = (await report_of(bench))["podsSeen"]
        await wait(bench, 125)
        assert int((await report_of(bench))["podsSeen"]) > int(before)

    play(story)
