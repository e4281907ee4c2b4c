"""The API server is put back to a backup under a sidecar that lives on: what it has written since counts as not written."""

import pytest

from hack.sim.cluster import Call, InProcessApi
from hack.sim.notebook.notebook_world import NotebookWorld
from sidecar.kube.api import NODES, VOLUMES, Resource
from sidecar.kube.errors import Unavailable
from tests.harness.drain.backups import back_up, put_back
from tests.harness.drain.notes import Writes, apps, marks, play
from tests.harness.drain.simulated import EVACUATE, change, wait


@pytest.mark.parametrize("later", [NODES, VOLUMES], ids=["Nodes later", "volumes later"])
def test_an_undo_is_noted_again_on_a_volume_that_is_as_it_was_before_the_first_one(later: Resource) -> None:
    """Its version is the very one that this process has written over. `later`: what is listed last after the restore."""

    async def story(bench: NotebookWorld) -> None:
        api = bench.api
        assert isinstance(api, InProcessApi)
        await apps(bench, "n0")
        await wait(bench, 60)
        await change(bench, "n0", {"taints": [EVACUATE]})
        await wait(bench, 60)
        assert await marks(bench) == {"app-0": ("n0", "n0")}
        backup = back_up(bench.cluster)
        bench.cluster.store.revision += 1000  # what others have written since
        await change(bench, "n0", {"taints": None})
        await wait(bench, 60)
        assert await marks(bench) == {"app-0": ("n0", "")}
        put_back(bench.cluster, backup)
        before = api.before

        async def slow(call: Call) -> None:
            if call.resource == later and call.verb in ("list", "watch"):
                raise Unavailable("restarting")
            await before(call)

        api.before = slow
        api.cut_watches(Unavailable("restarting"))
        await wait(bench, 120)
        api.before = before
        await wait(bench, 600)
        assert await marks(bench) == {"app-0": ("n0", "n0")}, "the taint is there again, too"
        await change(bench, "n0", {"taints": None})
        await wait(bench, 200)
        assert await marks(bench) == {"app-0": ("n0", "")}

    play(story, Writes())
