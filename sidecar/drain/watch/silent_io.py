"""Takes back what silent sidecars have said of their nodes, and opens their gates, on a person's word alone.

A sidecar renews its conditions every five minutes. Where they have not changed for a quarter of an hour, by this process's own clock,
nobody stands for them: they become Unknown, so that no one acts on an old True. The gate of such a node stays, since only its own sidecar
could know that nothing there would be lost; it opens once somebody says so on the Node (`force-drain`). The list of pods that must not be
evicted goes then too, or once nobody drains the node any more.
"""

import logging
from typing import Final

from sidecar.drain.assess import Verdict
from sidecar.drain.gate import HeldPods
from sidecar.drain.gate_io import open_gate
from sidecar.drain.marks import read
from sidecar.drain.node_io import conditions_of, unsay
from sidecar.drain.report_io import put_status
from sidecar.drain.settings import Settings
from sidecar.drain.words import Reason, Status
from sidecar.kube.api import DRAIN_REPORTS, NODES, find, records
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

SILENT_AFTER: Final = 900.0
EVERY: Final = 300.0
SILENT: Final = Verdict(Status.UNKNOWN, Reason.AGENT_UNAVAILABLE, Reason.AGENT_UNAVAILABLE.says)


class SilentSidecars:
    """For the elected looker. `look` returns the seconds until there is more to do. Raises ApiError."""

    def __init__(self, tools: Tools, settings: Settings) -> None:
        self._kube, self._recorder, self._clock, self._wall = tools.kube, tools.recorder, tools.clock, tools.wall
        self._settings, self._driver = settings, settings.driver
        self._seen: dict[str, tuple[str, float]] = {}  # by uid of a node: its conditions' heartbeat, and since when it is that one
        self._due_at = float("-inf")
        self.refused: list[str] = []

    async def look(self) -> float:
        if self._clock() < self._due_at:
            return self._due_at - self._clock()
        self._due_at, self.refused, now = self._clock() + EVERY, [], self._clock()

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
        return EVERY

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
        await self._let_pods_go(fresh)
        if marks.forced and await open_gate(self._kube, fresh, self._driver, namespace=self._settings.namespace):
            why = f"{names.FORCE_DRAIN}: {marks.forced} (its sidecar is silent, so the sidecar of another node has opened its gate)"
            ref = ObjectRef("v1", names.NODE, "", fresh.name, fresh.uid)
            self._recorder.record(ref, names.WARNING, names.DRAIN_LET_GO, f"{self._driver}: {why}")

    async def _let_pods_go(self, node: Node) -> None:
        """What its report says of pods that must not be evicted is taken back: a policy refuses their evictions by it."""
        stored = await find(self._kube, DRAIN_REPORTS, names.drain_report(node.name, self._driver))
        status = (stored or {}).get("status") or {}
        if stored is not None and status.get("nodeUID") == node.uid and status.get("heldBecause"):
            await put_status(self._kube, stored, {**status, **HeldPods().as_json()})
