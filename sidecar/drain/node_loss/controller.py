"""Looks for nodes that are gone and tells what they have left, one sidecar for all (`turn`); under Cleanup clears some of it away.

It runs beside the room's own loop, so that a slow list delays no verdict. Whether a node is gone is asked anew each time; what is
remembered is only when to ask, since when a node is missed, and what was told.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from sidecar.drain import leases
from sidecar.drain.lease_io import LeaseWriter, Overtaken, Written
from sidecar.drain.leases import Hold, Lease
from sidecar.drain.leases import identity as holder_of
from sidecar.drain.machine_mark import Machine
from sidecar.drain.node_loss import gap, report, suspects, turn
from sidecar.drain.node_loss.cleanup_io import Cleanup, Cleared
from sidecar.drain.node_loss.evidence import Gone, LossView, NotGone, Verdict, judge, of_same_name
from sidecar.drain.node_loss.gap_io import Gaps
from sidecar.drain.node_loss.report import Left
from sidecar.drain.node_loss.report_io import Reports
from sidecar.drain.node_loss.returned_io import Returned
from sidecar.drain.node_loss.surroundings_io import Surroundings
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.node_loss.things import LostVolume
from sidecar.drain.node_loss.unplaced_io import DeleteByDriver, UnplacedVolumes
from sidecar.drain.publish.stored import entries
from sidecar.drain.settings import Settings
from sidecar.kube.api import CSI_NODES, NODES, VOLUMES, records
from sidecar.kube.errors import ApiError, Conflict, NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Claim, Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

ROOM: Final = "node-loss"
MOST_TOLD: Final = 50
"""Claims of one node that get their event in one look; the next look tells the others."""

Others = Mapping[Suspect, Sequence[LostVolume]]
"""What other machines of the same name have left."""


class NodeLoss:
    """`run` as a task."""

    def __init__(
        self,
        tools: Tools,
        settings: Settings,
        *,
        own_node: Callable[[], Node | None],
        attaches: bool,
        delete: DeleteByDriver | None = None,
        claims: Callable[[], Iterable[Claim]] = tuple,
    ) -> None:
        self._kube = tools.kube
        self._settings = settings
        self._own_node = own_node
        self._recorder = tools.recorder
        self._narrator = tools.narrator
        self._metrics = tools.metrics
        self._clock = tools.clock
        self._wall = tools.wall
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._surroundings = Surroundings(tools.kube, driver=settings.driver, attaches=attaches)
        self._reports = Reports(tools.kube, driver=settings.driver)
        unplaced = UnplacedVolumes(tools, delete)
        self._cleanup = Cleanup(
            tools.kube,
            self._surroundings,
            self._reports,
            tools.recorder,
            unplaced,
            driver=settings.driver,
            clock=tools.clock,
            wall=tools.wall,
        )
        self._returned = Returned(tools.kube, claims=claims, dry_run=settings.dry_run)
        self._gaps = Gaps(self._writer, driver=settings.driver, namespace=settings.namespace, clock=tools.clock, wall=tools.wall)
        self._gap = ""
        """As `gap.ended`."""
        self._held: Lease | None = None
        """As this process has it; None: it has it not, or does not know."""
        self._others: turn.Seen | None = None
        self._there: Mapping[str, str] = {}
        self._due_at = 0.0
        """When volumes are listed next, by the clock."""
        self._missed: dict[Suspect, float] = {}
        """Since when, by this process's own clock."""
        self._asked: dict[Suspect, float] = {}
        self._acknowledged: frozenset[Suspect] = frozenset()
        self._told_claims: dict[Suspect, frozenset[str]] = {}
        """Uids of those whose event is written: a report remembers but so many."""
        self._lost: Mapping[str, int] = MappingProxyType({})
        self._failures = 0
        self._refused: list[str] = []
        """What could not be cleared away in the latest look, while all else went on."""
        self._told = ""

    def lost(self) -> Mapping[str, int] | None:
        """Volumes on nodes that are gone, by evidence; None: another one looks after them."""
        return self._lost if self._held is not None else None

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(turn.first_pause(self._settings.node))
        while True:
            await self.turn()
            due_in = self._due_at - self._clock()
            await asyncio.sleep(turn.pause(self._settings.node, holds=self._held is not None, due_in=due_in))

    async def turn(self) -> None:
        """One look, if it is this process's turn. It raises nothing."""
        own = self._own_node()
        if own is None:
            return
        try:
            refused = await self._returned.take_marks_off(Machine(own.name, own.uid))
            failures = await self._look() if await self._has_turn(own) else []
            failures = failures if failures is None else [*refused, *failures]
        except ApiError as error:
            failures = [str(error)]
            self._failures += 1
        if failures is not None:
            self._tell_failures(failures)
        self._metrics.looked("gone nodes")

    async def _has_turn(self, own: Node) -> bool:
        settings, had = self._settings, self._held is not None
        me = holder_of(own.uid, settings.driver)
        lease, self._held = self._held, None
        if lease is None or lease.holder != me:
            lease = await self._writer.find(names.node_loss(settings.driver))
        self._others = turn.seen(lease, self._others, now=self._clock()) if lease is not None and lease.holder != me else None
        view = turn.view(
            lease,
            self._others,
            node=own.name,
            node_uid=own.uid,
            driver=settings.driver,
            namespace=settings.namespace,
            now=self._clock(),
            wall=self._wall(),
        )
        decision = leases.decide(view)
        match await self._writer.perform(decision):
            case Written(held):
                self._held = held
            case Overtaken():
                self._held = None
            case _:
                self._held = lease if isinstance(decision, Hold) else None
        if self._held is not None and not had:
            log.info("This sidecar looks after nodes that are gone now", extra={"fields": {"why": decision.why}})
            self._there, self._due_at, self._missed, self._asked, self._told_claims = {}, 0.0, {}, {}, {}
            self._gaps.begin()
        return self._held is not None and await self._knows_gap(me)

    async def _knows_gap(self, holder: str) -> bool:
        found = await self._gaps.latest(holder)
        self._gap = found or ""
        return found is not None

    async def _still_has_turn(self) -> bool:
        """If the write succeeds, this process is the holder at that moment."""
        own = self._own_node()
        if own is None or self._held is None:
            return False
        settings = self._settings
        view = turn.view(
            self._held, None, node=own.name, node_uid=own.uid, driver=settings.driver, namespace=settings.namespace, now=0.0, wall=0.0
        )
        match await self._writer.perform(leases.renewal(view.terms, self._held, now=self._wall())):
            case Written(Lease() as held):
                self._held = held
            case _:
                self._held = None
        return self._held is not None

    # --- a look -----------------------------------------------------------------------------------------------------------

    async def _look(self) -> list[str] | None:
        """What failed; None: it was not due. Raises ApiError."""
        there = dict([pair async for pair in records(self._kube, CSI_NODES, suspects.living, cached=True)])
        if self._settings.node not in there:
            return None  # a list without this very node is too old to say anything
        now = self._clock()
        if suspects.vanished(self._there, there) or any(missed.node in there for missed in self._missed):
            self._due_at = now
        self._there = there
        if now < self._due_at and not await self._newly_acknowledged():
            return None
        self._due_at = now + turn.HOLDER_EVERY
        failures, again = await self._look_at_volumes(there)
        self._due_at = now + (turn.after_failures(self._failures) if failures else again)
        self._failures = self._failures + 1 if failures else 0
        return failures + self._refused

    async def _newly_acknowledged(self) -> bool:
        """A person has said that the disks of a node are lost, and waits for what follows."""
        stored = await self._stored() if self._missed else {}
        said = frozenset(suspect for suspect in self._missed if self._is_acknowledged(stored.get(suspect), suspect))
        new, self._acknowledged = said - self._acknowledged, said
        return bool(new)

    def _is_acknowledged(self, stored: Json | None, suspect: Suspect) -> bool:
        return report.acknowledged(stored, suspect, doubt=self._doubt(stored, suspect))

    def _doubt(self, stored: Json | None, suspect: Suspect) -> str:
        return gap.doubt(self._gap, missed_since=report.since(stored, suspect, now=self._wall()))

    async def _look_at_volumes(self, there: Mapping[str, str]) -> tuple[list[str], float]:
        """What failed, and in how many seconds there is more to do."""
        found = await self._volumes(there)
        stored = await self._stored()
        self._forget(found)
        self._cleanup.begin(suspect.machine for suspect in found if suspect.machine is not None)
        self._refused = []
        said = [suspect for suspect, obj in stored.items() if self._is_acknowledged(obj, suspect)]
        chosen = suspects.chosen(suspects.one_of_each_name(found, stored, acknowledged=said), self._asked)
        failures: list[str] = []
        again = turn.HOLDER_EVERY if any(suspect not in self._asked and suspect not in chosen for suspect in found) else turn.VOLUMES_EVERY
        counts: dict[str, int] = {}
        for suspect in chosen:
            others = suspects.beside(suspect, found)
            self._asked |= dict.fromkeys((suspect, *others), self._clock())
            try:
                again = min(again, await self._judge(suspect, tuple(found.get(suspect, ())), others, stored.get(suspect), counts))
            except (Conflict, NotFound) as error:
                failures.append(f"node {suspect.node}: {error}")
            except ApiError as error:
                failures.append(f"node {suspect.node}: {error}")
        self._lost = MappingProxyType(counts)
        return failures, again

    async def _volumes(self, there: Mapping[str, str]) -> dict[Suspect, list[LostVolume]]:
        driver, found = self._settings.driver, dict[Suspect, list[LostVolume]]()
        async for lost in records(self._kube, VOLUMES, lambda obj: suspects.perhaps_lost(obj, driver, there), cached=True):
            found.setdefault(suspects.suspect_of(lost), []).append(lost)
        if any(not suspect.uid for suspect in found):
            nodes = [node async for node in records(self._kube, NODES, Node.of, cached=True)]
            found = {key: volumes if key.uid else suspects.unreached(volumes, nodes) for key, volumes in found.items()}
        return {key: volumes for key, volumes in found.items() if volumes}

    async def _stored(self) -> dict[Suspect, Json]:
        try:
            return await self._reports.stored()
        except NotFound:
            return {}  # without their type there are none

    def _forget(self, found: Mapping[Suspect, list[LostVolume]]) -> None:
        self._missed = {suspect: at for suspect, at in self._missed.items() if suspect in found}
        self._asked = {suspect: at for suspect, at in self._asked.items() if suspect in found}
        self._told_claims = {suspect: uids for suspect, uids in self._told_claims.items() if suspect in found}

    async def _judge(
        self, suspect: Suspect, volumes: tuple[LostVolume, ...], others: Others, listed: Json | None, counts: dict[str, int]
    ) -> float:
        """In how many seconds there is more to do. `others` is told beside it and never cleared away. Raises ApiError."""
        stored = await self._reports.find(suspect.node) if volumes else listed
        verdict = await self._verdict(suspect, volumes, stored)
        if volumes:
            self._narrator.note(ROOM, suspect.node, suspect.node, verdict)
        if isinstance(verdict, NotGone) and verdict.unread:
            raise ApiError(verdict.why)
        if isinstance(verdict, NotGone) or not volumes:
            self._missed.pop(suspect, None)
            if listed is not None:
                await self._take_away(listed)
            return turn.VOLUMES_EVERY
        missed_at = self._missed.setdefault(suspect, self._clock())
        verdicts = {lost.volume.name: verdict for lost in volumes}
        for other, beside in others.items():
            verdicts |= dict.fromkeys((lost.volume.name for lost in beside), of_same_name(suspect.node, other.machine, since=verdict.since))
        for found in map(report.evidence_of, verdicts.values()):
            counts[found] = counts.get(found, 0) + 1
        left = await self._surroundings.left(suspect.node, (*volumes, *chain.from_iterable(others.values())))
        told = report.told_claims(stored, suspect) | self._told_claims.get(suspect, frozenset())
        if left.unread and told:
            raise ApiError("; ".join(left.unread))  # the report that knows what was told must not be overwritten
        untold = [there for there in left.claims if there.uid not in told]
        for there in untold[:MOST_TOLD]:
            claim = there.claim
            ref = ObjectRef("v1", names.CLAIM, claim.namespace, claim.name, there.uid)
            once = names.shared_event(claim.name, there.uid, "node-gone")
            self._recorder.record(
                ref, names.WARNING, names.NODE_GONE, report.event(suspect, verdicts.get(there.volume, verdict), there), once=once
            )
        self._told_claims[suspect] = told | {there.uid for there in untold[:MOST_TOLD]}
        done = [*entries(report.gone_of(stored), "done")] if report.is_about(stored, suspect) else []
        cleared = Cleared()
        try:
            cleared = await self._clear(verdict, replace(left, volumes=volumes), done, missed_for=self._clock() - missed_at)
        finally:
            listed_claims = tuple(there for there in left.claims if there not in untold[MOST_TOLD:])
            status = report.status(
                suspect,
                verdict,
                replace(left, claims=listed_claims),
                beside=len(left.volumes) - len(volumes),
                agent=self._settings.agent,
                now=self._wall(),
                said=cleared.said,
                done=done,
                dropped=report.dropped(stored, suspect),
            )
            await self._reports.write(suspect, status, stored, doubt=verdict.doubt if isinstance(verdict, Gone) else "")
        self._refused += cleared.refused
        again = cleared.again
        if len(untold) > MOST_TOLD:
            return turn.SOON
        # Garbage collection may have taken what was written in place of the report that was the Node's.
        return min(again, turn.HOLDER_EVERY) if stored is None or report.has_owner(stored) else again

    async def _verdict(self, suspect: Suspect, volumes: tuple[LostVolume, ...], stored: Json | None) -> Verdict:
        doubt = self._doubt(stored, suspect)
        return judge(
            LossView(
                node=suspect.node,
                machine=suspect.machine,
                node_uid=await self._surroundings.node_uid(suspect.node),
                has_csi_node=await self._surroundings.has_csi_node(suspect.node),
                leaving=tuple(lost.leaving for lost in volumes),
                spoken=report.said(stored, suspect, doubt=doubt),
                missed_since=report.since(stored, suspect, now=self._wall()),
                doubt=doubt,
            )
        )

    async def _clear(self, verdict: Verdict, left: Left, done: list[Json], *, missed_for: float) -> Cleared:
        settings = self._settings
        if isinstance(verdict, NotGone) or not settings.clears or left.unread:
            return Cleared(turn.VOLUMES_EVERY)
        if missed_for < settings.gone_after:
            return Cleared(settings.gone_after - missed_for)
        before = len(done)
        cleared = await self._cleanup.clear(await self._surroundings.view(verdict, left), done, may_go_on=self._still_has_turn)
        again = turn.SOON if len(done) > before else max(turn.SOON, min(cleared.again, turn.VOLUMES_EVERY))
        return replace(cleared, again=again)

    async def _take_away(self, stored: Json) -> None:
        try:
            await self._reports.remove(stored)
        except (Conflict, NotFound):
            pass  # somebody has changed it, or its node's own sidecar writes it by now

    def _tell_failures(self, failures: list[str]) -> None:
        """Each kind once, until it is over."""
        if failures and not self._told:
            log.warning("Nodes that are gone could not all be looked after", extra={"fields": {"err": "; ".join(failures[:3])}})
        elif not failures and self._told:
            log.info("Nodes that are gone are looked after again")
        self._told = failures[0] if failures else ""
