"""Lists the nodes that may bid for a claim, and the free space that they publish.

It lists them now and then and never watches them. If N nodes watched N nodes, one change of each node would mean N² events; a list that
is minutes old only costs a step of delay or a write conflict now and then. Without the right to list, nodes wait for a random time.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.engine.backoff import Backoff, jittered
from sidecar.kube.api import CAPACITIES, CSI_NODES, KubeApi, records
from sidecar.kube.errors import ApiError, Forbidden, NotFound, TooManyRequests
from sidecar.model import names
from sidecar.model.names import shard_of
from sidecar.model.objects import CapacityRecord, Class, Json
from sidecar.ownership.published_space import free_of
from sidecar.ownership.roster import Roster
from sidecar.ownership.shards import LISTENERS, is_shared_out, listeners_of
from sidecar.tools import Tools

log = logging.getLogger(__name__)

# Pauses between two lists, in seconds: the usual one, and the shortest one when claims show that the order is wrong. A list that
# brings nothing new doubles the pause before the next one, so that a doubt that no list can settle does not load the API server.
_USUAL: Final = 600.0
_SOONEST: Final = 60.0
# After a list that failed, most often on a server that is busy because a whole DaemonSet starts: without contenders claims are raced for.
_AGAIN: Final = Backoff(start=2.0, cap=_USUAL)
# The first list waits for a random part of this time, so that the nodes do not all list at once when a whole DaemonSet starts.
_START_SPREAD: Final = 5.0


class Contenders:
    """`roster` returns what is known. `run` keeps it up to date. `doubt` reports that a claim came here that others should have taken.

    `on_known` is called when contenders become known after none were known: the turns of earlier claims were drawn at random and have
    to be set anew by the order.
    """

    def __init__(
        self,
        tools: Tools,
        *,
        driver: str,
        namespace: str,
        classes: Callable[[], Mapping[str, Class]],
        on_known: Callable[[], None] = lambda: None,
        on_nodes: Callable[[], None] = lambda: None,
        by_shards: Callable[[], bool] = lambda: False,
        listeners: int = LISTENERS,
    ) -> None:
        """`on_nodes` is called when there are others than before. `by_shards`: whether only those contend who hear of the claim's shard."""
        self._kube = tools.kube
        self._driver = driver
        self._namespace = namespace
        self._classes = classes
        self._clock = tools.clock
        self._rng = tools.rng
        self._on_known = on_known
        self._on_nodes = on_nodes
        self._by_shards = by_shards
        self._listeners = listeners
        self._nodes: frozenset[str] = frozenset()
        self._free: dict[str, dict[str, int]] = {}
        """Free bytes by class, then by the label that names the publisher."""
        self._rosters: dict[tuple[str, str], Roster] = {}
        """By class, and by shard if only those contend who hear of it."""
        self._doubted = asyncio.Event()
        self._listed_at = -math.inf
        self._patience = _SOONEST
        self._failures = 0
        """Lists in a row that failed, or told only a part."""
        self._told = ""

    def roster(self, class_name: str, uid: str = "", label: str = "") -> Roster | None:
        """The contenders for claims of this class, or for that one with its label; None while no contender is known."""
        if not self._nodes:
            return None
        shard = shard_of(label, uid) if uid and self._are_chosen else ""
        if (class_name, shard) not in self._rosters:
            self._rosters[class_name, shard] = self._chosen(class_name, shard)
        return self._rosters[class_name, shard]

    @property
    def _are_chosen(self) -> bool:
        return is_shared_out(len(self._nodes), listeners=self._listeners) and self._by_shards()

    def _chosen(self, class_name: str, shard: str) -> Roster:
        free = free_of(class_name, self._nodes, self._free, self._classes())
        if not shard:
            return Roster.of(self._nodes, free)
        return Roster.of(listeners_of(shard, self._nodes, listeners=self._listeners), free, chosen_from=len(self._nodes))

    @property
    def nodes(self) -> frozenset[str]:
        """As last listed; empty while they are not known."""
        return self._nodes

    def doubt(self) -> None:
        self._doubted.set()

    async def run(self) -> None:
        """Lists until it is cancelled."""
        await asyncio.sleep(_START_SPREAD * self._rng())
        while True:
            failed = await self._learn()
            if failed is None or isinstance(failed, Forbidden):
                self._failures = 0
                await self._pause()
            else:
                least = failed.retry_after if isinstance(failed, TooManyRequests) else 0.0
                await asyncio.sleep(jittered(max(least, _AGAIN.delay(self._failures)), self._rng, spread=1.0))
                self._failures += 1

    async def _pause(self) -> None:
        """Waits for the usual pause, or for a shorter one when the order is doubted."""
        try:
            async with asyncio.timeout(jittered(_USUAL, self._rng, spread=0.2)):
                await self._doubted.wait()
                await asyncio.sleep(max(0.0, self._listed_at + jittered(self._patience, self._rng, spread=1.0) - self._clock()))
        except TimeoutError:
            if not self._doubted.is_set():
                self._patience = _SOONEST
        self._doubted.clear()

    async def _learn(self) -> ApiError | None:
        """Returns why not all of it could be learned."""
        self._listed_at = self._clock()
        try:
            nodes = await nodes_with(self._kube, self._driver)
        except ApiError as error:
            self._tell(error)
            return error
        free, failed = await self._published() if nodes else ({}, None)
        same = (nodes, free) == (self._nodes, self._free)
        self._patience = min(2.0 * self._patience, _USUAL) if same else _SOONEST
        if nodes != self._nodes:
            log.info("Contenders for claims that bind immediately", extra={"fields": {"nodes": len(nodes)}})
        first, others = not self._nodes, nodes != self._nodes
        self._nodes, self._free, self._rosters, self._told = nodes, free, {}, ""
        if others:
            self._on_nodes()
        if first and nodes:
            self._on_known()
        return failed

    async def _published(self) -> tuple[dict[str, dict[str, int]], ApiError | None]:
        """What other nodes publish. If that cannot be listed, it is what it was, and the reason is there too."""
        try:
            return await published_space(self._kube, self._driver, self._namespace), None
        except ApiError as error:
            log.debug("The free space of other nodes cannot be listed", extra={"fields": {"err": str(error)}})
            return self._free, error

    def _tell(self, error: ApiError) -> None:
        """Logs each kind of error once, not at every list."""
        # Without the right to list, the list would only grow older; after an outage it is read again, so it is kept until then.
        if isinstance(error, Forbidden):
            self._nodes, self._rosters = frozenset(), {}
            self._on_nodes()
        kind = type(error).__name__
        if self._told != kind:
            what = "claims are raced for by random delay" if not self._nodes else "the former list stays in use"
            log.warning("The contenders cannot be listed", extra={"fields": {"err": str(error), "so": what}})
        self._told = kind


async def nodes_with(kube: KubeApi, driver: str) -> frozenset[str]:
    """The nodes on which that driver is registered. Raises ApiError."""
    running = records(kube, CSI_NODES, lambda obj: obj["metadata"]["name"] if _runs(obj, driver) else None, cached=True)
    return frozenset([name async for name in running])


async def published_space(kube: KubeApi, driver: str, namespace: str) -> dict[str, dict[str, int]]:
    """The free space that other nodes publish. It is empty if this driver publishes no capacity or it may not be listed: then all nodes
    have equal shares, and the race goes on. Raises ApiError if it cannot be listed now."""
    free: dict[str, dict[str, int]] = {}
    if not namespace:
        return free
    try:
        scope = {"namespace": namespace, "label_selector": f"{names.CAPACITY_DRIVER_LABEL}={driver}"}
        async for record in records(kube, CAPACITIES, CapacityRecord.of, cached=True, **scope):
            if record.capacity is not None:
                free.setdefault(record.class_name, {})[record.labels.get(names.CAPACITY_MANAGER_LABEL, "")] = record.capacity
    except (Forbidden, NotFound) as error:
        log.debug("Free space of other nodes is not known", extra={"fields": {"err": str(error)}})
        return {}
    return free


def _runs(csi_node: Json, driver: str) -> bool:
    return any(item.get("name") == driver for item in (csi_node.get("spec") or {}).get("drivers") or ())
