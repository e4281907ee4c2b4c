"""How the watches that rooms describe are opened."""

import asyncio
from typing import Any

from hack.sim.cluster import ApiServer, InProcessApi
from sidecar.kube.api import CLAIMS
from sidecar.local.claim_labels import UNLABELLED, heard_claims
from sidecar.model import names
from sidecar.watching import Watching
from tests.harness import samples
from tests.harness.doors import tools
from tests.harness.provisioning.bench import Bench
from tests.harness.virtual import virtual


class Api(InProcessApi):
    """Its watches end after 20 s."""

    def __init__(self, cluster: ApiServer) -> None:
        super().__init__(cluster, watch_for=lambda: 20.0)
        self.opened: dict[str, list[float]] = {}

    def watch(self, resource: Any, *, label_selector: str = "", **more: Any) -> Any:
        self.opened.setdefault(label_selector, []).append(asyncio.get_running_loop().time())
        return super().watch(resource, label_selector=label_selector, **more)


@virtual
async def test_what_concerns_this_node_is_watched_again_sooner_than_what_has_no_label():
    """That tells of nothing in health."""

    clock = asyncio.get_running_loop().time
    api = Api(ApiServer(clock=clock, rng=lambda: 0.5))
    selectors = heard_claims(samples.NODE, names.SHARDS[:1])
    described = Bench().watches(claim_selectors=selectors).watches()
    watching = Watching(tools(api, clock=clock), nodes=lambda: None)
    ((_, reflector),) = watching.open(watch for watch in described if watch.resource == CLAIMS)
    running = asyncio.create_task(reflector.run())
    await asyncio.sleep(30.0)
    running.cancel()
    own, unlabelled = (api.opened[selector] for selector in selectors)
    assert selectors[1] == UNLABELLED
    assert own == [0.0, 20.5] and unlabelled == [0.0, 26.0]
