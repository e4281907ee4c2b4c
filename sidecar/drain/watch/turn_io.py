"""One sidecar of each driver looks after what no single node can: sidecars that are silent (`silent_io`), nodes that are gone (`loss_io`).

Who has the Lease `watch.DRIVER` looks every minute; all others look at the Lease every seven minutes, and take it if nobody has renewed it
for its whole term. It goes with its holder's Node. From the deletion of a node until its loss is told it takes 90 s, seven minutes if that
was the looker's own node, and 25 minutes where the looker has died and its Node stays. With 1,000 nodes that is 2.4 requests a second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final
from zlib import crc32

from sidecar.drain.course import Held, NotKnown
from sidecar.drain.lease_io import HeldLease, Holder
from sidecar.drain.settings import Settings
from sidecar.drain.watch.loss_io import LostNodes
from sidecar.drain.watch.silent_io import SilentSidecars
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.tools import Tools

log = logging.getLogger(__name__)

EVERY: Final = 60.0
SOON: Final = 10.0  # while things are cleared away
OTHERS_EVERY: Final = 400.0


class Watch:
    """`run` as a task; its faults are the caller's to guard."""

    def __init__(self, tools: Tools, settings: Settings, *, own_node: Callable[[], Node | None], attaches: bool) -> None:
        self._tools, self._settings, self._own_node = tools, settings, own_node
        self._lease: HeldLease | None = None
        self._holds = False
        self._silent = SilentSidecars(tools, settings)
        self._lost = LostNodes(tools, settings, attaches=attaches, may_go_on=self._still_holds) if settings.follows_loss else None
        self._told = ""

    def lost(self) -> Mapping[str, int] | None:
        """Volumes on nodes that are gone, by evidence; None: another one looks after them."""
        return MappingProxyType(self._lost.counts) if self._lost is not None and self._holds else None

    async def run(self) -> None:
        """Until cancelled. Nodes that start together do not all ask at once."""
        share = crc32(self._settings.node.encode()) / 2**32
        await asyncio.sleep(EVERY * share)
        while True:
            again = await self.turn()
            await asyncio.sleep(max(SOON, min(again, EVERY)) if self._holds else OTHERS_EVERY * (1 + share / 10))

    async def turn(self) -> float:
        """One look, if this process has the Lease: seconds until there is more to do. It raises nothing that the API server answers."""
        node = self._own_node()
        if node is None or not self._settings.namespace or self._settings.dry_run:
            return EVERY
        held = await self._of(node).hold()
        before, self._holds = self._holds, isinstance(held, Held)
        if isinstance(held, NotKnown):
            self._tell([held.why])
        if not self._holds:
            return EVERY
        if not before:
            log.info("This sidecar looks after silent sidecars and gone nodes of its driver now")
        failures: list[str] = []
        again = EVERY
        looks: list[Callable[[], Awaitable[float]]] = [self._silent.look, *([self._lost.look] if self._lost else [])]
        for look in looks:
            try:
                again = min(again, await look())
            except ApiError as error:
                failures.append(str(error))
        failures += self._silent.refused + (self._lost.refused if self._lost else [])
        self._tell(failures)
        self._tools.metrics.looked("gone nodes")
        return again

    def _of(self, node: Node) -> HeldLease:
        """Another machine under the node's name is another holder."""
        settings = self._settings
        holder = Holder(node.name, node.uid, settings.driver, settings.namespace)
        if self._lease is None or self._lease.holder != holder:
            tools, name = self._tools, names.watch(settings.driver)
            self._lease = HeldLease(tools.kube, name, holder, label=names.NODE_LOSS_FOR, clock=tools.clock, wall=tools.wall)
        return self._lease

    async def _still_holds(self) -> bool:
        """If the write succeeds, this process is the holder at that moment."""
        self._holds = self._lease is not None and isinstance(await self._lease.hold(now=True), Held)
        return self._holds

    def _tell(self, failures: list[str]) -> None:
        """Once, until it is over."""
        if failures and not self._told:
            log.warning("Not all silent sidecars and gone nodes could be looked after", extra={"fields": {"err": "; ".join(failures[:3])}})
        elif not failures and self._told:
            log.info("Silent sidecars and gone nodes are looked after again")
        self._told = failures[0] if failures else ""
