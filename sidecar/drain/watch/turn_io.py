"""One sidecar of each driver looks after what no single node can: sidecars that are silent, and nodes that are gone (`loss_io`).

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

from sidecar.drain.assess import Verdict
from sidecar.drain.course import Held, NotKnown
from sidecar.drain.gate import HeldPods
from sidecar.drain.gate_io import open_gate
from sidecar.drain.lease_io import HeldLease, Holder
from sidecar.drain.marks import read
from sidecar.drain.node_io import conditions_of, put_status, unsay
from sidecar.drain.report import status_of
from sidecar.drain.settings import Settings
from sidecar.drain.watch.loss_io import LostNodes
from sidecar.drain.words import Reason, Status
from sidecar.kube.api import DRAIN_REPORTS, NODES, find, records
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

EVERY: Final = 60.0
SOON: Final = 10.0  # while things are cleared away
OTHERS_EVERY: Final = 400.0
SILENT_AFTER: Final = 900.0  # seconds without a new heartbeat
SILENT_EVERY: Final = 300.0
SILENT: Final = Verdict(Status.UNKNOWN, Reason.AGENT_UNAVAILABLE, Reason.AGENT_UNAVAILABLE.says)


class Looker:
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
        if failures and not self._told:
            log.warning("Not all silent sidecars and gone nodes could be looked after", extra={"fields": {"err": "; ".join(failures[:3])}})
        elif not failures and self._told:
            log.info("Silent sidecars and gone nodes are looked after again")
        self._told = failures[0] if failures else ""


class SilentSidecars:
    """Takes back what silent sidecars have said of their nodes, and opens their gates, on a person's word alone. For the looker.

    A sidecar renews its conditions every five minutes. Where they have not changed for a quarter of an hour, by this process's own clock,
    nobody stands for them: they become Unknown, so that no one acts on an old True. The gate of such a node stays, since only its own
    sidecar could know that nothing there would be lost; it opens once somebody says so on the Node (`force-drain`). The list of pods that
    must not be evicted goes then too, or once nobody drains the node any more.
    """

    def __init__(self, tools: Tools, settings: Settings) -> None:
        self._kube, self._recorder, self._clock, self._wall = tools.kube, tools.recorder, tools.clock, tools.wall
        self._settings, self._driver = settings, settings.driver
        self._seen: dict[str, tuple[str, float]] = {}  # by uid of a node: its conditions' heartbeat, and since when it is that one
        self._due_at = float("-inf")
        self.refused: list[str] = []

    async def look(self) -> float:
        """Seconds until there is more to do. Raises ApiError."""
        if self._clock() < self._due_at:
            return self._due_at - self._clock()
        self._due_at, self.refused, now = self._clock() + SILENT_EVERY, [], self._clock()

        def spoken(obj: Json) -> tuple[Node, str] | None:
            heartbeat = self._heartbeat(obj)
            return (Node.of(obj), heartbeat) if heartbeat else None

        nodes = [each async for each in records(self._kube, NODES, spoken, cached=True)]
        before, self._seen = self._seen, {}
        for node, heartbeat in nodes:
            had, since = before.get(node.uid, ("", now))
            self._seen[node.uid] = heartbeat, since if had == heartbeat else now
        for node, _ in nodes:
            if node.name != self._settings.node and now - self._seen[node.uid][1] >= SILENT_AFTER:
                try:
                    await self._withdraw(node)
                    await self._open(node)
                except (Conflict, NotFound):
                    self._seen.pop(node.uid, None)  # its sidecar lives, or the node is gone
                except ApiError as error:
                    self.refused.append(f"node {node.name}: {error}")
        return SILENT_EVERY

    async def _withdraw(self, node: Node) -> None:
        """On condition of the version in which the conditions are as old as they were seen: the list may be older than that."""
        stored = await self._kube.get(NODES, node.name)
        if self._heartbeat(stored) != self._seen[node.uid][0]:
            raise Conflict(f"the sidecar of node {node.name} has renewed its conditions", status=409)
        after = await unsay(self._kube, stored, self._driver, SILENT, now=self._wall())
        if after is not None:
            self._seen[node.uid] = self._heartbeat(after), self._seen[node.uid][1]  # this one was not its sidecar's
            log.warning("The sidecar of a node is silent: what it said counts no more", extra={"fields": {"node": node.name}})

    def _heartbeat(self, obj: Json) -> str:
        """Of its conditions; empty: there are none."""
        return "/".join(str(item.get("lastHeartbeatTime")) for item in conditions_of(obj, self._driver))

    async def _open(self, node: Node) -> None:
        """By the Node as it is now: people may have taken their word back."""
        fresh = Node.of(await self._kube.get(NODES, node.name))
        marks = read(fresh, self._driver, now=self._wall(), policy=self._settings.policy)
        if fresh.uid != node.uid or (marks.draining and not marks.forced):
            return
        stored = await find(self._kube, DRAIN_REPORTS, names.drain_report(node.name, self._driver))
        status = status_of(stored, node.uid)
        if stored is not None and status.get("heldBecause"):
            await put_status(self._kube, stored, {**status, **HeldPods().as_json()})  # a policy refuses evictions by it
        if marks.forced and await open_gate(self._kube, fresh, self._driver, namespace=self._settings.namespace):
            why = f"{names.FORCE_DRAIN}: {marks.forced} (its sidecar is silent, so the sidecar of another node has opened its gate)"
            ref = ObjectRef("v1", names.NODE, "", fresh.name, fresh.uid)
            self._recorder.record(ref, names.WARNING, names.DRAIN_LET_GO, f"{self._driver}: {why}")
