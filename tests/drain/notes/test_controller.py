"""Notes on volumes as processes write them and take them off, also while the driver is dead."""

from sidecar.drain.notes.early_undo_io import EVERY
from sidecar.kube.api import CLAIMS, VOLUMES
from sidecar.model import names
from tests.harness.drain import node_loss
from tests.harness.drain.node_loss import CLEANING, gone, one_replica, there, vanish
from tests.harness.drain.notes import Writes, apps, marks, play
from tests.harness.drain.simulated import EVACUATE, Bench, all_of, change, wait


def test_an_announcement_is_on_all_volumes_soon_and_an_undo_takes_it_off() -> None:
    seen = Writes()

    async def story(bench: Bench) -> None:
        await apps(bench, "n0", "n1", "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 5)
        assert await marks(bench) == {"app-0": ("n0", "n0"), "app-1": ("n1", ""), "app-2": ("n0", "n0")}
        await change(bench, "n0", {"taints": None})
        await wait(bench, 5)
        assert await marks(bench) == {"app-0": ("n0", ""), "app-1": ("n1", ""), "app-2": ("n0", "")}
        assert len(seen.calls) == 7
        await wait(bench, 7200)
        assert len(seen.calls) == 7

    play(story, seen)


def test_nothing_is_deleted_if_the_node_is_lost_after_the_undo() -> None:
    async def story(bench: Bench) -> None:
        await one_replica(bench)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 30)
        (stored,) = await all_of(bench, VOLUMES)
        assert stored["metadata"]["annotations"][names.LEAVING]
        bench.nodes["n0"].link.go_down()
        bench.nodes["n0"].kill()
        await wait(bench, 60)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 2 * EVERY)
        await vanish(bench)
        await wait(bench, 1200)
        assert (await gone(bench))["evidence"] == "None"
        assert await there(bench, VOLUMES) == [stored["metadata"]["name"]]
        assert await there(bench, CLAIMS) == ["data-db-0"]

    node_loss.play(story, args=CLEANING)
