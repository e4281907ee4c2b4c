"""Looks after the gates of nodes whose own sidecars have stopped; which sidecar does, and when a gate opens: `gate/takeover`.

It lists leases now and then instead of watching them: every node does, so the more gates there are, the less often. To judge another
node means to read the whole cluster: a node judges one neighbour in each look, and one that stays as it is less and less often.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.drain import leases
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.assembly import assemble
from sidecar.drain.facts.cluster_listing import ClusterListing
from sidecar.drain.gate import rules, takeover
from sidecar.drain.gate.controller import take_away
from sidecar.drain.gate.takeover import GateFacts, Judgement, Keep, LetGo, LookAfter, NeighbourView, Nothing, TakeOver
from sidecar.drain.judgement.assess import assess
from sidecar.drain.lease_io import LeaseWriter, Written
from sidecar.drain.leases import RENEWED_EVERY, Lease, LeaseView, identity
from sidecar.drain.settings import Settings
from sidecar.engine.backoff import jittered
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, NODES, find
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM = "drain"

_STOPPED: Final = "the sidecar of this node gives no sign of life"
_UNSEEN: Final = "volumes that the node's driver has without a PersistentVolume are not seen from another node"
# After so many pauses without a look this process does not know who has renewed a lease meanwhile.
_OVERSLEPT: Final = 2.5
# Between two looks, and as long again for every so many gates: so the load on the API server grows with the gates, not with their square.
_USUAL: Final = 60.0
_GATES_A_MINUTE: Final = 100.0
# How often another node is judged: at first, and at least, however often the judgement stays the same.
_JUDGED_SOON: Final = 300.0
_JUDGED_AT_LEAST: Final = 1800.0


@dataclass(slots=True)
class _Seen:
    """One lease, as this process has seen it."""

    version: str
    since: float
    judged_at: float | None = None
    judged_every: float = _JUDGED_SOON
    told: str = ""


class Neighbours:
    """`run` as a task. It remembers only since when leases are unchanged, what was judged when, and what was told."""

    def __init__(self, tools: Tools, settings: Settings, *, own_node: Callable[[], Node | None]) -> None:
        self._kube = tools.kube
        self._settings = settings
        self._own_node = own_node
        self._recorder = tools.recorder
        self._narrator = tools.narrator
        self._clock = tools.clock
        self._wall = tools.wall
        self._rng = tools.rng
        self._chance = tools.rng()
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._looked_at: float | None = None
        self._may_judge = True
        """No other node has been judged in this look."""
        self._seen: dict[str, _Seen] = {}
        self._failure = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(jittered(self._pause(), self._rng, spread=0.2))
            failures: list[str] = []
            try:
                failures += await self.look()
            except ApiError as error:
                failures.append(str(error))
            self._tell_failures(failures)

    def _pause(self) -> float:
        """Short enough to renew in time the leases of the neighbours that this process looks after."""
        return min(_USUAL * max(1.0, len(self._seen) / _GATES_A_MINUTE), RENEWED_EVERY)

    async def look(self) -> list[str]:
        """At the leases of all gates. What fails for one neighbour is returned and keeps no other waiting. Raises ApiError."""
        own = self._own_node()
        if own is None:
            return []
        views = await self._views(own, identity(own.uid, self._settings.driver))
        decided = [(view, takeover.responsible(view)) for view in views]
        looked_after = sorted((view for view, found in decided if isinstance(found, LookAfter)), key=self._judged_at)
        orphans = ((view, found) for view, found in decided if isinstance(found, TakeOver))
        failures: list[str] = []
        self._may_judge = True
        for view in looked_after:
            try:
                await self._look_after(view)
            except ApiError as error:
                failures.append(f"gate of {view.lease.node}: {error}")
        for view, found in orphans:
            try:
                if self._settings.dry_run or await self._take(view, found.why):
                    break  # the next one is for another neighbour, or for the next look
            except ApiError as error:
                failures.append(f"lease of {view.lease.node}: {error}")
        return failures

    async def _views(self, own: Node, me: str) -> list[NeighbourView]:
        now, driver = self._clock(), self._settings.driver
        found = [lease for lease in await self._writer.all(rules.selector(driver), cached=True) if lease.node not in ("", own.name)]
        # As when the API server was away: no sidecar could renew its lease then, so all of them get their time again.
        blind = self._looked_at is not None and now - self._looked_at > _OVERSLEPT * self._pause()
        self._looked_at = now
        self._seen = {lease.name: self._see(lease, now, blind=blind) for lease in found}
        return [NeighbourView(now, me, driver, lease, self._seen[lease.name].since, self._chance) for lease in found]

    def _see(self, lease: Lease, now: float, *, blind: bool) -> _Seen:
        seen = self._seen.get(lease.name)
        if seen is None:
            return _Seen(lease.resource_version, now)
        if seen.version != lease.resource_version or blind:
            seen.version, seen.since = lease.resource_version, now
        return seen

    def _judged_at(self, view: NeighbourView) -> float:
        at = self._seen[view.lease.name].judged_at
        return float("-inf") if at is None else at

    async def _take(self, view: NeighbourView, why: str) -> bool:
        """Whether this node has the lease now."""
        node = await self._node(view.lease)
        if node is None or not isinstance(await self._writer.perform(leases.decide(self._lease_view(view, takeable=why))), Written):
            return False
        log.warning("This sidecar looks after the gate of another node now", extra={"fields": {"node": node.name, "why": why}})
        return True

    def _lease_view(self, view: NeighbourView, *, takeable: str = "") -> LeaseView:
        terms = takeover.terms(view, namespace=self._settings.namespace)
        return LeaseView(self._wall(), terms, wanted=True, stored=view.lease, takeable=takeable)

    async def _look_after(self, view: NeighbourView) -> None:
        facts = await self._facts(view.lease)
        decision, name = takeover.judge(facts), f"gate of {view.lease.node}"
        if facts.retire is not None or not isinstance(decision, Keep):
            self._narrator.note(ROOM, name, name, decision)
        if not self._settings.dry_run:
            await self._perform(view, facts, decision)

    async def _facts(self, lease: Lease) -> GateFacts:
        node, namespace, name = await self._node(lease), self._settings.namespace, lease.name
        parts = [await find(self._kube, kind, name, namespace=namespace) for kind in (BUDGETS, DEPLOYMENTS)] if node else []
        there = tuple(part for part in parts if part is not None and "deletionTimestamp" not in part["metadata"])
        override = node_marks.read(node, self._settings.driver, now=self._wall()).override if node else ""
        facts = GateFacts(lease=lease, node=node, gate=there, override=override, retire=None, strays=())
        return await self._judge(facts) if node and there and not override and self._is_due(lease) else facts

    async def _node(self, lease: Lease) -> Node | None:
        """None: it is gone. Another machine under its name is another node."""
        found = await find(self._kube, NODES, lease.node)
        node = Node.of(found) if found else None
        return node if node and node.uid == lease.node_uid else None

    def _is_due(self, lease: Lease) -> bool:
        seen = self._seen[lease.name]
        return self._may_judge and (seen.judged_at is None or self._clock() - seen.judged_at >= seen.judged_every)

    async def _judge(self, facts: GateFacts) -> GateFacts:
        """As `explain node` judges, by what the API server tells. Where what only the driver knows would block, that is not enough."""
        driver = self._settings.driver
        self._seen[facts.lease.name].judged_at, self._may_judge = self._clock(), False
        listed = await ClusterListing(self._kube, facts.lease.node, now=self._wall()).look()
        if self._settings.untracked_blocks:
            listed = replace(listed, ignorance=(*listed.ignorance, _UNSEEN))
        snapshot = assemble(listed.facts_of(driver), now=listed.at, default_policy=self._settings.default_policy)
        return replace(facts, retire=assess(snapshot).retire, strays=listed.unlocated.get(driver, ()))

    async def _perform(self, view: NeighbourView, facts: GateFacts, decision: Judgement) -> None:
        match decision:
            case LetGo():
                await self._open(view, facts, decision)
            case Nothing(why, by_itself=False):
                self._tell_opened(facts, why)
                await self._writer.perform(leases.release(view.lease, why))
            case Keep(why) if facts.node is not None:
                await self._writer.perform(leases.decide(self._lease_view(view)))
                if facts.retire is not None:
                    self._tell_kept(facts, why)
            case _:
                pass

    async def _open(self, view: NeighbourView, facts: GateFacts, decision: LetGo) -> None:
        """Only if the lease can be renewed: the node's own sidecar may have come back while all this was read."""
        terms = takeover.terms(view, namespace=self._settings.namespace)
        match await self._writer.perform(leases.renewal(terms, view.lease, now=self._wall())):
            case Written(Lease() as held):
                for obj in decision.objects:
                    await take_away(self._kube, obj, namespace=self._settings.namespace)
                self._tell_opened(facts, decision.why)
                await self._writer.perform(leases.release(held, decision.why))
            case _:
                pass

    # --- telling --------------------------------------------------------------------------------------------------------

    def _tell_opened(self, facts: GateFacts, why: str) -> None:
        seen = self._seen[facts.lease.name]
        if seen.told != names.DRAIN_LET_GO:
            seen.told = names.DRAIN_LET_GO
            self._tell(facts, names.NORMAL, names.DRAIN_LET_GO, f"{why} ({_STOPPED}, so the sidecar of another node has opened its gate)")

    def _tell_kept(self, facts: GateFacts, why: str) -> None:
        """Once for each reason. A neighbour for which the reason stays the same is judged less and less often."""
        seen = self._seen[facts.lease.name]
        if seen.told == why:
            seen.judged_every = min(2.0 * seen.judged_every, _JUDGED_AT_LEAST)
            return
        seen.told, seen.judged_every = why, _JUDGED_SOON
        remedy = f"to let the node be drained regardless, annotate it with {names.FORCE_DRAIN}: WHY"
        self._tell(facts, names.WARNING, names.DRAIN_HELD, f"{_STOPPED}, and its gate stays: {why}; {remedy}")

    def _tell(self, facts: GateFacts, type_: str, reason: str, message: str) -> None:
        if facts.node is not None:
            ref = ObjectRef("v1", names.NODE, "", facts.node.name, facts.node.uid)
            self._recorder.record(ref, type_, reason, f"{self._settings.driver}: {message}")

    def _tell_failures(self, failures: list[str]) -> None:
        """Once as long as they stay the same."""
        why = "; ".join(failures)
        if why and why != self._failure:
            log.warning("Some gates of nodes whose sidecars have stopped could not be looked after", extra={"fields": {"err": why}})
        self._failure = why
