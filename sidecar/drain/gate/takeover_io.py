"""Looks after the gates of nodes whose own sidecars have stopped; which sidecar does, and when a gate opens: `gate/takeover`.

It lists leases now and then instead of watching them: every node does, so the more gates there are, the less often (`gate/pacing`, which
has the worst case in seconds). A gate is looked after in the same look in which its lease was taken. To judge another node means to read
the whole cluster: a node judges one neighbour in each look, and one that stays as it is less and less often.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sidecar.drain import leases
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.gate import pacing, rules, takeover
from sidecar.drain.gate.controller import take_away
from sidecar.drain.gate.hidden import known_volumes, seen_volumes, unseen_volumes
from sidecar.drain.gate.neighbour_marks_io import NeighbourMarks
from sidecar.drain.gate.seen import JUDGED_SOON, Seen
from sidecar.drain.gate.takeover import (
    CONFIRMED_AFTER,
    Confirm,
    GateFacts,
    Judgement,
    Keep,
    LeaveAlone,
    LetGo,
    LookAfter,
    NeighbourView,
    Nothing,
    TakeOver,
)
from sidecar.drain.gate.takeover_events_io import TakeoverEvents
from sidecar.drain.judgement.assess import assess
from sidecar.drain.lease_io import LeaseWriter, Written
from sidecar.drain.leases import Lease, LeaseView, identity
from sidecar.drain.settings import Settings
from sidecar.engine.backoff import jittered
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, DRAIN_REPORTS, NODES, VOLUMES, find
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM = "drain"

_UNSEEN: Final = "volumes that the node's driver has without a PersistentVolume are not seen from another node"
# After so many pauses without a look this process does not know who has renewed a lease meanwhile.
_OVERSLEPT: Final = 2.5


class Neighbours:
    """`run` as a task. It remembers only since when leases are unchanged, what was judged when, and what was told."""

    def __init__(self, tools: Tools, settings: Settings, *, own_node: Callable[[], Node | None]) -> None:
        self._kube = tools.kube
        self._settings = settings
        self._own_node = own_node
        self._marks = NeighbourMarks(tools.kube, settings, wall=tools.wall)
        self._events = TakeoverEvents(tools.recorder, settings)
        self._narrator = tools.narrator
        self._clock = tools.clock
        self._wall = tools.wall
        self._rng = tools.rng
        self._chance = tools.rng()
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._looked_at: float | None = None
        self._may_judge = True
        """No other node has been judged in this look."""
        self._seen: dict[str, Seen] = {}
        self._due: list[float] = []
        """When there is something to do that cannot wait for the usual pause to end."""
        self._failure = ""
        self._in_vain = 0
        """Looks in a row in which something failed."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self.pause())
            await self.turn()

    async def turn(self) -> None:
        """One look, after whose failure the next one comes soon."""
        failures: list[str] = []
        try:
            failures += await self.look()
        except ApiError as error:
            failures.append(str(error))
        self._in_vain = self._in_vain + 1 if failures else 0
        if failures:
            soon = pacing.after_failures(pacing.usual(len(self._seen)), self._in_vain)
            self._due.append(self._clock() + jittered(soon, self._rng, spread=1.0))
        self._tell_failures(failures)

    def pause(self) -> float:
        """Seconds until the next look."""
        usual = pacing.usual(len(self._seen))
        due = (*self._due, *filter(None, (seen.confirmed_at for seen in self._seen.values())))
        return pacing.pause(usual, spread=jittered(usual, self._rng, spread=0.2), due=due, now=self._clock())

    async def look(self) -> list[str]:
        """At the leases of all gates. What fails for one neighbour is returned and keeps no other waiting. Raises ApiError."""
        own, self._due = self._own_node(), []
        if own is None:
            return []
        views = await self._views(own, identity(own.uid, self._settings.driver))
        decided = [(view, takeover.responsible(view)) for view in views]
        self._due += [found.until for _, found in decided if isinstance(found, LeaveAlone) and found.until is not None]
        looked_after = sorted((view for view, found in decided if isinstance(found, LookAfter)), key=self._judged_at)
        self._may_judge = True
        failures = [failure for view in looked_after for failure in await self._try_to_look_after(view)]
        for view, found in decided:
            if not isinstance(found, TakeOver):
                continue
            try:
                if self._settings.dry_run:
                    break
                if (held := await self._take(view, found.why)) is not None:
                    failures += await self._try_to_look_after(replace(view, lease=held))
                    # Others may have run out too: the next one is for another neighbour, or for the next look, which comes soon.
                    self._due.append(self._clock())
                    break
            except ApiError as error:
                failures.append(f"lease of {view.lease.node}: {error}")
        return failures

    async def _try_to_look_after(self, view: NeighbourView) -> list[str]:
        try:
            return await self._look_after(view)
        except ApiError as error:
            return [f"gate of {view.lease.node}: {error}"]

    async def _views(self, own: Node, me: str) -> list[NeighbourView]:
        now, driver = self._clock(), self._settings.driver
        found = [lease for lease in await self._writer.all(rules.selector(driver), cached=True) if lease.node not in ("", own.name)]
        # As when the API server was away: no sidecar could renew its lease then, so all of them get their time again.
        blind = self._looked_at is not None and now - self._looked_at > _OVERSLEPT * pacing.usual(len(self._seen))
        self._looked_at = now
        self._seen = {lease.name: self._see(lease, now, blind=blind) for lease in found}
        return [NeighbourView(now, me, driver, lease, self._seen[lease.name].since, self._chance) for lease in found]

    def _see(self, lease: Lease, now: float, *, blind: bool) -> Seen:
        seen = self._seen.get(lease.name)
        if seen is None:
            seen = Seen(lease.resource_version, now)
        if seen.version != lease.resource_version or blind:
            seen.version, seen.since = lease.resource_version, now
        if lease.renewed and lease.holder == identity(lease.node_uid, self._settings.driver):
            seen.their_time = (lease.renewed, seen.since)
            seen.came_back()
            self._events.forget(lease.node_uid)
        return seen

    def _judged_at(self, view: NeighbourView) -> float:
        at = self._seen[view.lease.name].judged_at
        return float("-inf") if at is None else at

    async def _take(self, view: NeighbourView, why: str) -> Lease | None:
        """As this node has it now; None: it has not."""
        if await self._node(view.lease) is None:
            return None
        match await self._writer.perform(leases.decide(self._lease_view(view, takeable=why))):
            case Written(Lease() as held):
                log.warning("This sidecar looks after the gate of another node now", extra={"fields": {"node": held.node, "why": why}})
                return held
            case _:
                return None

    def _lease_view(self, view: NeighbourView, *, takeable: str = "") -> LeaseView:
        terms = takeover.terms(view, namespace=self._settings.namespace)
        return LeaseView(self._wall(), terms, wanted=True, stored=view.lease, takeable=takeable)

    async def _look_after(self, view: NeighbourView) -> list[str]:
        """What was refused of the marks on its Node."""
        stored = await self._node(view.lease)
        facts = await self._facts(view.lease, Node.of(stored) if stored else None)
        decision, name = takeover.judge(facts), f"gate of {view.lease.node}"
        if facts.retire is not None or not isinstance(decision, Keep):
            self._narrator.note(ROOM, name, name, decision)
        if self._settings.dry_run:
            return []
        return await self._perform(view, stored, facts, decision)

    async def _facts(self, lease: Lease, node: Node | None) -> GateFacts:
        namespace, name = self._settings.namespace, lease.name
        parts = [await find(self._kube, kind, name, namespace=namespace) for kind in (BUDGETS, DEPLOYMENTS)] if node else []
        there = tuple(part for part in parts if part is not None and "deletionTimestamp" not in part["metadata"])
        seen, now = self._seen[lease.name], self._clock()
        signals = self._signals(node) if node else None
        if signals is not None and signals.draining and not seen.draining:
            seen.forget_judgements()  # a drainer waits: what was said in peace is no answer
        seen.draining = signals is not None and signals.draining
        override = takeover.override(signals, self._settings, clocks=self._clocks(seen, now)) if signals else ""
        facts = GateFacts(
            lease=lease, node=node, gate=there, override=override, draining=seen.draining, retire=None, holds_volumes=None, strays=()
        )
        return await self._judge(facts) if node and there and not override and self._is_due(lease) else facts

    def _signals(self, node: Node) -> Signals:
        """The flags are the same on all nodes."""
        settings = self._settings
        return node_marks.read(node, settings.driver, now=self._wall(), default_policy=settings.policy, cordon_delay=settings.cordon_delay)

    def _clocks(self, seen: Seen, now: float) -> tuple[float, ...]:
        """This node's clock, and that of the neighbour as it was when its own sidecar last renewed the lease."""
        return (self._wall(), *((seen.their_time[0] + now - seen.their_time[1],) if seen.their_time else ()))

    async def _node(self, lease: Lease) -> Json | None:
        """As it is stored; None: it is gone. Another machine under its name is another node."""
        found = await find(self._kube, NODES, lease.node)
        return found if found and found["metadata"]["uid"] == lease.node_uid else None

    def _is_due(self, lease: Lease) -> bool:
        seen = self._seen[lease.name]
        return self._may_judge and (seen.judged_at is None or self._clock() - seen.judged_at >= seen.judged_every)

    async def _judge(self, facts: GateFacts) -> GateFacts:
        """As `explain node` judges, by what the API server tells. Where what only the driver knows would block, that is not enough."""
        # Hardly any node ever judges another, and what lists a cluster is half a MiB of code.
        from sidecar.drain.facts.cluster_listing import ClusterListing
        from sidecar.drain.publish.from_outside import snapshot_of

        driver, seen, now = self._settings.driver, self._seen[facts.lease.name], self._clock()
        seen.judged_at, self._may_judge = now, False
        listing = ClusterListing(self._kube, facts.lease.node, now=self._wall(), tenants=self._settings.tenant_policies)
        listed = await listing.look()
        if self._settings.untracked_blocks:
            listed = replace(listed, ignorance=(*listed.ignorance, _UNSEEN))
        snapshot = snapshot_of(listed, driver, default_policy=self._settings.default_policy, reported=True)
        judged = assess(snapshot)
        strays = listed.unlocated.get(driver, ())
        report, uid = await find(self._kube, DRAIN_REPORTS, names.drain_report(facts.lease.node, driver)), facts.lease.node_uid
        found = replace(
            facts,
            retire=judged.retire,
            holds_volumes=rules.holds_volumes(judged),
            strays=strays,
            orphans=listed.orphans.get(driver, ()),
            known=known_volumes(report, node_uid=uid),
            seen=seen_volumes(judged),
            unseen=tuple([name for name in unseen_volumes(report, judged, node_uid=uid) if await find(self._kube, VOLUMES, name)]),
        )
        seen.proven_since = None if takeover.unproven(found) else now if seen.proven_since is None else seen.proven_since
        return replace(found, proven_for=0.0 if seen.proven_since is None else now - seen.proven_since)

    async def _perform(self, view: NeighbourView, stored: Json | None, facts: GateFacts, decision: Judgement) -> list[str]:
        """What was refused of the marks on its Node."""
        match decision:
            case LetGo() | Nothing(by_itself=False) if stored is not None:
                return await self._end(view, stored, facts, decision)
            case Keep() | Confirm() if stored is not None:
                refused = await self._marks.withdraw(stored, at_once=False)
                refused += [] if facts.draining else await self._marks.let_pods_go(Node.of(stored))
                await self._writer.perform(leases.decide(self._lease_view(view)))
                self._pace(view, facts, decision)
                return refused
            case _:
                return []

    def _pace(self, view: NeighbourView, facts: GateFacts, decision: Keep | Confirm) -> None:
        """When the node is judged next."""
        seen = self._seen[view.lease.name]
        if isinstance(decision, Confirm):
            seen.judged_every = CONFIRMED_AFTER
        elif facts.retire is not None:
            seen.judged_every = JUDGED_SOON if self._events.kept(facts, decision.why) else seen.judged_less_often()

    async def _end(self, view: NeighbourView, stored: Json, facts: GateFacts, decision: LetGo | Nothing) -> list[str]:
        """Only if the lease can be renewed: the node's own sidecar may have come back while all this was read.

        The marks come before the lease is given back, and with it the right to speak for that sidecar. While they are refused it is kept:
        the admission policy lets them through once the verdicts are ten minutes old.
        """
        terms = takeover.terms(view, namespace=self._settings.namespace)
        match await self._writer.perform(leases.renewal(terms, view.lease, now=self._wall())):
            case Written(Lease() as held):
                for obj in decision.objects if isinstance(decision, LetGo) else ():
                    await take_away(self._kube, obj, namespace=self._settings.namespace)
                refused = await self._marks.withdraw(stored, at_once=True)
                refused += await self._marks.let_pods_go(Node.of(stored))
                if isinstance(decision, LetGo):
                    self._events.opened(facts, decision.why)
                else:
                    self._events.found_open(facts)
                seen = self._seen[view.lease.name]
                seen.let_go = seen.let_go or isinstance(decision, LetGo) or bool(facts.override)
                if seen.let_go:
                    refused += await self._marks.unprotect(Node.of(stored))
                if not refused or seen.gives_up(self._clock()):
                    await self._writer.perform(leases.release(held, decision.why))
                return refused
            case _:
                return []

    def _tell_failures(self, failures: list[str]) -> None:
        """Once as long as they stay the same."""
        why = "; ".join(failures)
        if why and why != self._failure:
            log.warning("Some gates of nodes whose sidecars have stopped could not be looked after", extra={"fields": {"err": why}})
        self._failure = why
