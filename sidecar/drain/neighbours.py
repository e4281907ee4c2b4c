"""Looks after the gates of nodes whose own sidecars give no sign of life. Who does, and what becomes of a gate, says `takeover`.

By lists now and then and never by a watch: every node looks, so the more gates there are the less often. Looks at a whole cluster are
costly: a node makes one at a time, and of a neighbour that stays as it is ever fewer.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.drain import gate, signals, takeover
from sidecar.drain.assess import assess
from sidecar.drain.gathering import Gathering
from sidecar.drain.guarding import take_away
from sidecar.drain.leases import RENEWED_EVERY, Lease, identity
from sidecar.drain.picture import snapshot_of
from sidecar.drain.settings import Settings
from sidecar.drain.takeover import GateFacts, Judgement, Keep, LeaseView, LetGo, Mind, Nothing, TakeOver
from sidecar.engine.backoff import jittered
from sidecar.kube.api import BUDGETS, DEPLOYMENTS, LEASES, NODES, KubeApi, every, find
from sidecar.kube.correlator import ObjectRef
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.recorder import Recorder
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.observe.narrator import Narrator

log = logging.getLogger(__name__)

ROOM = "drain"

_DEAD: Final = "the sidecar of this node gives no sign of life"
_UNSEEN: Final = "what the node's driver has without a PersistentVolume is not seen from here"
# So many pauses without a look are a gap in what is known.
_OVERSLEPT: Final = 2.5
# Between two looks, and as long again for every so many gates: the load on the API server grows with the gates, not with their square.
_USUAL: Final = 60.0
_GATES_A_MINUTE: Final = 100.0
# How often one node is judged as a whole: at first, and at the least when the judgement stays the same.
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
        """Short enough to have this process's own leases, of neighbours it minds, renewed in time."""
        return min(_USUAL * max(1.0, len(self._seen) / _GATES_A_MINUTE), RENEWED_EVERY)

    async def look(self) -> list[str]:
        """At all signs of life; what could not be done for one neighbour is told and keeps nobody waiting. Raises ApiError."""
        own = self._own_node()
        if own is None:
            return []
        views = await self._views(own, identity(own.uid, self._settings.driver))
        decided = [(view, takeover.whose(view)) for view in views]
        minded = sorted((view for view, found in decided if isinstance(found, Mind)), key=self._judged_at)
        orphans = ((view, found) for view, found in decided if isinstance(found, TakeOver))
        failures: list[str] = []
        self._may_judge = True
        for view in minded:
            try:
                await self._mind(view)
            except ApiError as error:
                failures.append(f"gate of {view.lease.node}: {error}")
        for view, found in orphans:
            try:
                if self._settings.dry_run or await self._take(view, found.why):
                    break  # the next one is for another neighbour, or for the next look
            except ApiError as error:
                failures.append(f"lease of {view.lease.node}: {error}")
        return failures

    async def _views(self, own: Node, me: str) -> list[LeaseView]:
        now, driver = self._clock(), self._settings.driver
        listed = every(self._kube, LEASES, namespace=self._settings.namespace, label_selector=gate.selector(driver), cached=True)
        found = [lease async for obj in listed if (lease := Lease.of(obj)).node not in ("", own.name)]
        # Whoever could not look for so long does not know who could not renew, as when the API server was away for all.
        blind = self._looked_at is not None and now - self._looked_at > _OVERSLEPT * self._pause()
        self._looked_at = now
        self._seen = {lease.name: self._see(lease, now, blind=blind) for lease in found}
        return [LeaseView(now, me, driver, lease, self._seen[lease.name].since, self._chance) for lease in found]

    def _see(self, lease: Lease, now: float, *, blind: bool) -> _Seen:
        seen = self._seen.get(lease.name)
        if seen is None:
            return _Seen(lease.resource_version, now)
        if seen.version != lease.resource_version or blind:
            seen.version, seen.since = lease.resource_version, now
        return seen

    def _judged_at(self, view: LeaseView) -> float:
        at = self._seen[view.lease.name].judged_at
        return float("-inf") if at is None else at

    async def _take(self, view: LeaseView, why: str) -> bool:
        """Whether this node has the lease now."""
        node = await self._node(view.lease)
        if node is None or await self._hold(view, node) is None:
            return False
        fields = {"node": node.name, "why": why}
        log.warning("The gate of another node is looked after here", extra={"fields": fields})
        return True

    async def _hold(self, view: LeaseView, node: Node) -> Lease | None:
        """The lease as it is then, this node's; None: another neighbour was faster, or the node's own sidecar is back."""
        body = takeover.body(view, node, namespace=self._settings.namespace, wall=self._wall())
        try:
            return Lease.of(await self._kube.replace(LEASES, body, name=view.lease.name, namespace=self._settings.namespace))
        except (Conflict, NotFound):
            return None

    async def _mind(self, view: LeaseView) -> None:
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
        override = signals.read(node, self._settings.driver, now=self._wall()).override if node else ""
        facts = GateFacts(lease=lease, node=node, gate=there, override=override, retire=None, strays=())
        return await self._judge(facts) if node and there and not override and self._is_due(lease) else facts

    async def _node(self, lease: Lease) -> Node | None:
        """None: it is gone, and another one under its name is not it."""
        found = await find(self._kube, NODES, lease.node)
        node = Node.of(found) if found else None
        return node if node and node.uid == lease.node_uid else None

    def _is_due(self, lease: Lease) -> bool:
        seen = self._seen[lease.name]
        return self._may_judge and (seen.judged_at is None or self._clock() - seen.judged_at >= seen.judged_every)

    async def _judge(self, facts: GateFacts) -> GateFacts:
        """As `explain node` would: nothing is known of it but what the API server tells. Where more would block, that is not enough."""
        driver = self._settings.driver
        self._seen[facts.lease.name].judged_at, self._may_judge = self._clock(), False
        picture = await Gathering(self._kube, facts.lease.node, now=self._wall()).look()
        if self._settings.untracked_blocks:
            picture = replace(picture, ignorance=(*picture.ignorance, _UNSEEN))
        retire = assess(snapshot_of(picture, driver, default_policy=self._settings.default_policy)).retire
        return replace(facts, retire=retire, strays=picture.strays.get(driver, ()))

    async def _perform(self, view: LeaseView, facts: GateFacts, decision: Judgement) -> None:
        match decision:
            case LetGo():
                await self._open(view, facts, decision)
            case Nothing(why, by_itself=False):
                self._tell_opened(facts, why)
                await self._drop(view.lease)
            case Keep(why) if facts.node is not None:
                if not view.lease.is_fresh(self._wall()):
                    await self._hold(view, facts.node)
                if facts.retire is not None:
                    self._tell_kept(facts, why)
            case _:
                pass

    async def _open(self, view: LeaseView, facts: GateFacts, decision: LetGo) -> None:
        """Only while the lease is this node's: its own sidecar may have come back while all this was looked at."""
        assert facts.node is not None
        held = await self._hold(view, facts.node)
        if held is None:
            return
        for obj in decision.objects:
            await take_away(self._kube, obj, namespace=self._settings.namespace)
        self._tell_opened(facts, decision.why)
        await self._drop(held)

    async def _drop(self, lease: Lease) -> None:
        namespace = self._settings.namespace
        try:
            await self._kube.delete(LEASES, lease.name, namespace=namespace, uid=lease.uid, resource_version=lease.resource_version)
        except (Conflict, NotFound):
            pass  # the node's own sidecar is back, or it is gone

    # --- telling --------------------------------------------------------------------------------------------------------

    def _tell_opened(self, facts: GateFacts, why: str) -> None:
        seen = self._seen[facts.lease.name]
        if seen.told != names.DRAIN_LET_GO:
            seen.told = names.DRAIN_LET_GO
            self._tell(facts, "Normal", names.DRAIN_LET_GO, f"{why} ({_DEAD}, so that of another node has opened its gate)")

    def _tell_kept(self, facts: GateFacts, why: str) -> None:
        """Once for each reason; a neighbour that stays as it is, is looked at less often."""
        seen = self._seen[facts.lease.name]
        if seen.told == why:
            seen.judged_every = min(2.0 * seen.judged_every, _JUDGED_AT_LEAST)
            return
        seen.told, seen.judged_every = why, _JUDGED_SOON
        remedy = f"to let it be drained all the same, annotate it with {names.FORCE_DRAIN}: WHY"
        self._tell(facts, "Warning", names.DRAIN_HELD, f"{_DEAD}, and its gate stays: {why}; {remedy}")

    def _tell(self, facts: GateFacts, type_: str, reason: str, message: str) -> None:
        if facts.node is not None:
            ref = ObjectRef("v1", "Node", "", facts.node.name, facts.node.uid)
            self._recorder.record(ref, type_, reason, f"{self._settings.driver}: {message}")

    def _tell_failures(self, failures: list[str]) -> None:
        """Once, as long as they are the same."""
        why = "; ".join(failures)
        if why and why != self._failure:
            log.warning("The gates of other nodes could not be looked after", extra={"fields": {"err": why}})
        self._failure = why
