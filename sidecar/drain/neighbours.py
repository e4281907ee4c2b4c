"""Looks after the gates of nodes whose own sidecars give no sign of life. Who does, and what becomes of a gate, says `takeover`.

By lists now and then and never by a watch: every node looks, so the more gates there are the less often, and of the costly looks at a
whole cluster it makes one at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.drain import gate, signals, takeover
from sidecar.drain.assess import assess
from sidecar.drain.assessment import Verdict
from sidecar.drain.gathering import Gathering
from sidecar.drain.guarding import stored, take_away
from sidecar.drain.leases import Lease, identity
from sidecar.drain.picture import snapshot_of
from sidecar.drain.settings import Settings
from sidecar.drain.stored import of_this_node, status_of
from sidecar.drain.takeover import GateFacts, Judgement, Keep, LeaseView, LetGo, Mind, Nothing, TakeOver
from sidecar.engine.backoff import jittered
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, DRAIN_REPORTS, LEASES, NODES, KubeApi, every
from sidecar.kube.correlator import ObjectRef
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.observe.narrator import Narrator

log = logging.getLogger(__name__)

ROOM = "drain"

# Between two looks, and as long again for every so many gates: the load on the API server grows with the gates, not with their square.
_USUAL: Final = 60.0
_GATES_A_MINUTE: Final = 100.0
# How often one node is judged as a whole: nothing on it changes fast without its sidecar.
_JUDGED_EVERY: Final = 300.0


@dataclass(slots=True)
class _Seen:
    """One lease, as this process has seen it."""

    version: str
    since: float
    judged_at: float | None = None
    told: str = ""


class Neighbours:
    """`run` as a task. What it remembers is only since when leases are unchanged, what was judged when, and what was told."""

    def __init__(
        self,
        kube: KubeApi,
        settings: Settings,
        *,
        own_node: Callable[[], Node | None],
        recorder: Recorder,
        narrator: Narrator,
        clock: Callable[[], float],
        wall: Callable[[], float],
        rng: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._own_node = own_node
        self._recorder = recorder
        self._narrator = narrator
        self._clock = clock
        self._wall = wall
        self._rng = rng
        self._chance = rng()
        self._may_judge = True
        """No other node has been judged in this look."""
        self._seen: dict[str, _Seen] = {}
        self._failure = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause = _USUAL * max(1.0, len(self._seen) / _GATES_A_MINUTE)
            await asyncio.sleep(jittered(pause, self._rng, spread=0.2))
            failures: list[str] = []
            try:
                failures += await self.look()
            except ApiError as error:
                failures.append(str(error))
            self._tell_failures(failures)

    async def look(self) -> list[str]:
        """At all signs of life; what could not be done for one neighbour is told and keeps nobody waiting. Raises ApiError."""
        own = self._own_node()
        if own is None:
            return []
        views = await self._views(own, identity(own.uid, self._settings.driver))
        minded = sorted((view for view in views if isinstance(takeover.whose(view), Mind)), key=self._judged_at)
        orphans = ((view, found) for view in views if isinstance(found := takeover.whose(view), TakeOver))
        failures: list[str] = []
        self._may_judge = True
        for view in minded:
            try:
                await self._mind(view)
            except ApiError as error:
                failures.append(f"gate of {view.lease.node}: {error}")
        for view, found in orphans:
            if self._settings.dry_run or await self._take(view, found.why):
                break  # the next one is for another neighbour, or for the next look
        return failures

    async def _views(self, own: Node, me: str) -> list[LeaseView]:
        now, driver = self._clock(), self._settings.driver
        listed = every(self._kube, LEASES, namespace=self._settings.namespace, label_selector=gate.selector(driver), cached=True)
        found = [lease async for obj in listed if (lease := Lease.of(obj)).node not in ("", own.name)]
        self._seen = {lease.name: self._see(lease, now) for lease in found}
        return [LeaseView(now, me, driver, lease, self._seen[lease.name].since, self._chance) for lease in found]

    def _see(self, lease: Lease, now: float) -> _Seen:
        seen = self._seen.get(lease.name)
        if seen is None:
            return _Seen(lease.resource_version, now)
        if seen.version != lease.resource_version:
            seen.version, seen.since = lease.resource_version, now
        return seen

    def _judged_at(self, view: LeaseView) -> float:
        at = self._seen[view.lease.name].judged_at
        return float("-inf") if at is None else at

    async def _take(self, view: LeaseView, why: str) -> bool:
        """Whether this node has the lease now."""
        node = await self._node(view.lease)
        if node is None or not await self._hold(view, node):
            return False
        fields = {"node": node.name, "why": why}
        log.warning("The gate of another node is looked after here", extra={"fields": fields})
        return True

    async def _hold(self, view: LeaseView, node: Node) -> bool:
        body = takeover.body(view, node, namespace=self._settings.namespace, wall=self._wall())
        try:
            await self._kube.replace(LEASES, body, name=view.lease.name, namespace=self._settings.namespace)
        except (Conflict, NotFound):
            return False  # another neighbour was faster, or the node's own sidecar is back
        return True

    async def _mind(self, view: LeaseView) -> None:
        facts = await self._facts(view.lease)
        decision, name = takeover.judge(facts), f"gate of {view.lease.node}"
        await self._perform(view, facts, decision)
        if facts.retire is not None or not isinstance(decision, Keep):
            self._narrator.note(ROOM, name, name, decision)
            self._tell(view, facts, decision)

    async def _facts(self, lease: Lease) -> GateFacts:
        node, namespace, name = await self._node(lease), self._settings.namespace, lease.name
        parts = [await stored(self._kube, kind, name, namespace=namespace) for kind in (BUDGETS, DEPLOYMENTS)] if node else []
        there = tuple(part for part in parts if part is not None and "deletionTimestamp" not in part["metadata"])
        override = signals.read(node, self._settings.driver, now=self._wall()).override if node else ""
        looks = node is not None and bool(there) and not override and self._is_due(lease)
        return GateFacts(
            lease=lease,
            node=node,
            gate=there,
            override=override,
            retire=await self._judge(lease) if looks else None,
            report=await self._report(lease) if looks else None,
        )

    async def _node(self, lease: Lease) -> Node | None:
        """None: it is gone, and another one under its name is not it."""
        found = await stored(self._kube, NODES, lease.node, namespace="")
        node = Node.of(found) if found else None
        return node if node and node.uid == lease.node_uid else None

    def _is_due(self, lease: Lease) -> bool:
        at = self._seen[lease.name].judged_at
        return self._may_judge and (at is None or self._clock() - at >= _JUDGED_EVERY)

    async def _judge(self, lease: Lease) -> Verdict:
        """As `explain node` would: nothing is known of it but what the API server tells."""
        self._seen[lease.name].judged_at, self._may_judge = self._clock(), False
        picture = await Gathering(self._kube, lease.node, now=self._wall()).look()
        return assess(snapshot_of(picture, self._settings.driver, default_policy=self._settings.default_policy)).retire

    async def _report(self, lease: Lease) -> Json | None:
        name = names.drain_report(lease.node, self._settings.driver)
        return of_this_node(status_of(await stored(self._kube, DRAIN_REPORTS, name, namespace="")), lease.node_uid) or None

    async def _perform(self, view: LeaseView, facts: GateFacts, decision: Judgement) -> None:
        lease, namespace = view.lease, self._settings.namespace
        if self._settings.dry_run:
            return
        match decision:
            case LetGo(objects):
                for obj in objects:
                    await take_away(self._kube, obj, namespace=namespace)
                await self._drop(lease)
            case Nothing(by_itself=False):
                await self._drop(lease)
            case Keep() if facts.node is not None and not lease.is_fresh(self._wall()):
                await self._hold(view, facts.node)
            case _:
                pass

    async def _drop(self, lease: Lease) -> None:
        try:
            await self._kube.delete(
                LEASES, lease.name, namespace=self._settings.namespace, uid=lease.uid, resource_version=lease.resource_version
            )
        except (Conflict, NotFound):
            pass  # the node's own sidecar is back, or it is gone

    def _tell(self, view: LeaseView, facts: GateFacts, decision: Judgement) -> None:
        """On the node, once for each reason."""
        seen, driver = self._seen[view.lease.name], self._settings.driver
        if facts.node is None or self._settings.dry_run or seen.told == decision.why:
            return
        ref = ObjectRef("v1", "Node", "", facts.node.name, facts.node.uid)
        dead = "the sidecar of this node gives no sign of life"
        match decision:
            case LetGo(_, why):
                self._recorder.record(
                    ref, "Normal", names.DRAIN_LET_GO, f"{driver}: {why} ({dead}, so that of another node has opened its gate)"
                )
            case Keep(why):
                remedy = f"to let it be drained all the same, annotate it with {names.FORCE_DRAIN}: WHY"
                self._recorder.record(ref, "Warning", names.DRAIN_HELD, f"{driver}: {dead}, and its gate stays: {why}; {remedy}")
            case _:
                return
        seen.told = decision.why

    def _tell_failures(self, failures: list[str]) -> None:
        """Once, as long as they are the same."""
        why = "; ".join(failures)
        if why and why != self._failure:
            log.warning("The gates of other nodes could not be looked after", extra={"fields": {"err": why}})
        self._failure = why
