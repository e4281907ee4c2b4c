"""Makes replicas anew on other nodes, one at a time: whose turn it is, and with whom to begin when none is under way.

Nothing is remembered that matters: how far a replica is stands in the Lease of its workload, and everything is read anew before each step.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sidecar.drain import leases
from sidecar.drain.duty import Outcome, Picture
from sidecar.drain.emptying.controller import has_slot, is_under_way, stands_aside
from sidecar.drain.evacuation.undone_io import Undone
from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.lease_io import LeaseWriter
from sidecar.drain.leases import Lease
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.reprovision import candidates, locks, record, steps
from sidecar.drain.reprovision.acts_io import AT_ONCE, Acts
from sidecar.drain.reprovision.candidates import Candidate
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Refusal
from sidecar.drain.reprovision.looks_io import Looks
from sidecar.drain.reprovision.marks import is_marked_by
from sidecar.drain.reprovision.memory import Memory
from sidecar.drain.reprovision.outlook import Looked
from sidecar.drain.reprovision.patience import Conflicts, FairTurns, Turns
from sidecar.drain.reprovision.record import Record, Target
from sidecar.drain.reprovision.steps import Hold
from sidecar.drain.rest import Rest
from sidecar.drain.seen_leases import SeenLeases
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Hindrance
from sidecar.engine.backoff import jittered
from sidecar.eviction.answers import NEXT_PASS
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.kube.errors import ApiError, Conflict
from sidecar.model import names
from sidecar.tools import Tools

_ROOM: Final = "reprovision"
_WHAT: Final = "a replica that is made anew"
_SOON: Final = 0.1
_SPREAD: Final = 0.2
_STRIPPED: Final = "the mark that was written on its claim is not there: a webhook takes it off"
# That one pass looks at: each costs some ten requests.
_MOST_CANDIDATES: Final = 3
_MOST_PASSED: Final = 2
_MOST_STRAY: Final = 3
_PASSES: Final = (
    None,
    Hindrance.REPLICA_NOT_READY,
    Hindrance.REPLICA_NOT_IN_SYNC,
    Hindrance.POD_LEAVING,
    Hindrance.ANOTHER_NODE_FIRST,
    Hindrance.WORKLOAD_TAKEN,
    Hindrance.REPLACEMENT_NOT_READY,
    Hindrance.PDB_BLOCKED,
    Hindrance.PAUSED,
    Hindrance.NOT_KNOWN,
)
"""What keeps a replica here and passes by itself."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The Lease of a workload was taken, and all locks of this replica were open. They are looked at again before anything is done."""

    why: str


@dataclass(frozen=True, slots=True)
class Would:
    """All locks are open, and this is a dry run, or the node has no slot yet."""

    why: str


Told = steps.Decision | Taken | Would | Undone | Rest


class ReprovisionDuty:
    """Before `EmptyingDuty`, which evicts nobody while a replica is on its way: one pod at a time, whichever of the two sends it away."""

    def __init__(self, settings: Settings, tools: Tools, refusals: Refusals, *, evictor: Evictor) -> None:
        self._settings = settings
        self._refusals = refusals
        self._clock, self._wall, self._rng = tools.clock, tools.wall, tools.rng
        self._memory = memory = Memory()
        self._reading = reading = Reading(tools.kube, settings.node, settings.driver, clock=tools.clock)
        self._writer = LeaseWriter(tools.kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._looks = Looks(settings, tools, reading, memory)
        self._acts = Acts(settings, tools, reading, memory, self._writer, looks=self._looks, evictor=evictor, failed=self._failed)
        self._seen = SeenLeases()
        self._candidates, self._last = FairTurns(), FairTurns()
        """Of candidates, and of those that come last."""
        self._others, self._marks = Turns(), Turns()
        """Of Leases that were passed, and of marks without a record."""
        self._came_to_nothing_else = False
        """The last pass had no time for anything but Leases that were passed."""
        self._conflicts = Conflicts()
        self._again = float("-inf")
        self._situation: object = None
        self._failure = ""
        """What the last pass was refused."""
        self._told: Told = Rest("no replica is made anew")
        self._looked: Looked | None = None
        self._shut: dict[str, Hindrance | None] = {}
        """By uid of a pod that is to be made anew: what kept it here when it was looked at; None: nothing, or it has not been."""
        self._stepped: dict[str, Looked] = {}
        """By Lease that this node holds: how its last step was judged."""

    def left(self, snapshot: Snapshot, blocked: bool) -> str:
        """As `Memory.under_way`; and where something blocks, who is late or can be made anew without a person's help."""
        if (why := self._memory.under_way()) or not blocked:
            return why
        if self._memory.own:
            return "a replica that was sent away is not ready yet"
        found, _ = candidates.find(snapshot)
        self._shut = {each.target.pod_uid: self._shut.get(each.target.pod_uid) for each in found}
        return next((f"{each.target.full_name} is to be made anew" for each in found if self._shut[each.target.pod_uid] in _PASSES), "")

    async def perform(self, picture: Picture) -> Outcome:
        goes_on = is_under_way(picture.signals, picture) or stands_aside(picture)
        if picture.snapshot is None or (self._memory.own is not None and not self._memory.own and not goes_on and not self._stray(picture)):
            self._told, self._looked = Rest("no replica is made anew"), None
            return Outcome(picture)
        situation = has_slot(picture), goes_on, picture.node.uid, self._pods_left(picture)
        if self._clock() < self._again and situation == self._situation:
            if self._failure:
                self._refusals.note(_WHAT, self._failure)
            return self._outcome(picture)
        self._situation, self._failure = situation, ""
        rest = NEXT_PASS
        try:
            async with asyncio.timeout(LONGEST_PASS):
                self._told, rest = await self._pass(picture, goes_on)
            if isinstance(self._told, Undone):
                # As soon as a watch shows it too there is another situation.
                rest = self._anew()
            else:
                self._conflicts.none()
        except TimeoutError:
            self._failed(f"no answer within {LONGEST_PASS:g} s")
        except Conflict:
            rest = self._anew()
        except ApiError as error:
            self._failed(str(error))
        self._again = self._clock() + (jittered(rest, self._rng, spread=_SPREAD) if rest >= NEXT_PASS else rest)
        return self._outcome(picture)

    def _anew(self) -> float:
        """What was judged has changed since, so it is judged again: after so many seconds."""
        return AT_ONCE if self._conflicts.one_more() else NEXT_PASS

    def _failed(self, why: str) -> None:
        self._failure = why
        self._refusals.note(_WHAT, why)

    def _outcome(self, picture: Picture) -> Outcome:
        judged = picture.assessment
        if self._looked is not None and judged is not None:
            judged = replace(judged, notes=(*judged.notes, *self._looked.in_words()))
        picture = replace(picture, away=self._memory.under_way(), assessment=judged)
        return Outcome(picture, self._told, about=_ROOM, until=self._wall() + max(_SOON, self._again - self._clock()))

    def _pods_left(self, picture: Picture) -> frozenset[str]:
        there = {pod.uid for pod in picture.snapshot.pods} if picture.snapshot else set()
        wanted = {found.target.pod_uid for found in (self._memory.own or {}).values() if found is not None}
        return frozenset(wanted - there)

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _pass(self, picture: Picture, goes_on: bool) -> tuple[Told, float]:
        """What was decided, and the seconds until the next pass."""
        stored = {lease.name: lease for lease in await self._writer.all(record.selector(self._settings.driver))}
        self._seen.see(stored.values(), now=self._clock())
        me = leases.identity(picture.node.uid, self._settings.driver)
        own = {name: lease for name, lease in stored.items() if lease.holder == me}
        records = {name: record.of(lease, driver=self._settings.driver) for name, lease in own.items()}
        self._memory.see(records)
        self._stepped = {name: looked for name, looked in self._stepped.items() if name in own}
        self._memory.kept.see({pod.uid for pod in picture.snapshot.pods} if picture.snapshot else frozenset())
        if self._settings.dry_run:
            return await self._begin(picture, stored) if goes_on else (Rest("nobody asks for it"), NEXT_PASS)
        undone = "" if goes_on else "the evacuation was undone, or has ended"
        if undone:
            self._memory.returned.clear()
        self._memory.passed |= {name for name, found in records.items() if found is None or self._is_overdue(found)}
        told: list[tuple[Told, float]] = []
        for name in sorted(own.keys() - self._memory.passed):
            told.append(await self._step(picture, own[name], undone))
            if name not in self._memory.passed:
                return told[-1]
        # Those may take all the time that there is, again and again, so every second pass is for others then.
        left, self._came_to_nothing_else = sorted(own.keys() & self._memory.passed), not self._came_to_nothing_else
        for name in self._others.of(left, _MOST_PASSED) if self._came_to_nothing_else else ():
            with self._by_itself(name):
                told.append(await self._step(picture, own[name], undone))
        self._came_to_nothing_else = False
        await self._sweep(picture)
        if goes_on:
            told.append(await self._begin(picture, stored))
        return told[-1] if told else (Rest("no replica is made anew"), NEXT_PASS)

    def _is_overdue(self, found: Record) -> bool:
        return steps.is_overdue(found, now=self._wall(), timeout=self._settings.ready_timeout)

    @contextlib.contextmanager
    def _by_itself(self, whose: str) -> Iterator[None]:
        """What fails keeps nobody else waiting."""
        try:
            yield
        except Conflict:
            pass  # what was judged has changed since, and is judged in a later pass
        except ApiError as error:
            self._failed(f"{whose}: {error}")

    async def _step(self, picture: Picture, lease: Lease, undone: str) -> tuple[Told, float]:
        assert self._memory.own is not None
        found = self._memory.own[lease.name]
        if found is None:
            if undone:
                await self._acts.release(lease, undone)
                return Rest(undone), AT_ONCE
            return Hold(Hindrance.MARK_NOT_UNDERSTOOD, lease.name, f"the record in Lease {lease.name} cannot be read"), NEXT_PASS
        if not lease.is_fresh(self._wall()):
            lease = await self._acts.record(picture, lease, found)
        facts, looked = await self._looks.look(picture, lease.name, found)
        decision = steps.decide(self._looks.view(picture, found, facts, looked, undone))
        if isinstance(decision, steps.Mark):
            # Whoever hears of the mark may have changed the claim.
            facts = await self._acts.mark(picture, decision, facts)
            looked = self._looks.locks_of(picture, found, facts)
            decision = steps.decide(self._looks.view(picture, found, facts, looked, undone))
            if isinstance(decision, steps.Mark):
                return self._acts.refused(lease, found, Refusal(Hindrance.MARK_NOT_UNDERSTOOD, _STRIPPED))
        irrevocable = isinstance(decision, steps.Await | steps.Finish)
        self._looked = self._stepped[lease.name] = Looked(found.target.full_name, decision.why, () if irrevocable else looked)
        return await self._acts.perform(picture, lease, found, decision, facts)

    # --- the next one -------------------------------------------------------------------------------------------------

    async def _begin(self, picture: Picture, stored: Mapping[str, Lease]) -> tuple[Told, float]:
        assert picture.snapshot is not None
        found, refused = candidates.find(picture.snapshot)
        held: list[Told] = [Hold(each.hindrance, each.pod, each.why) for each in refused]
        self._looked = next((Looked(each.pod, each.why, (), each.hindrance) for each in refused), None)
        for each in self._turn(found):
            with self._by_itself(each.target.full_name):
                told = await self._try(picture, each, stored)
                if isinstance(told, Taken | Would):
                    self._candidates.restart()
                    return told, AT_ONCE if isinstance(told, Taken) else NEXT_PASS
                held.insert(0, told)
        return held[0] if held else Rest("no pod here has a volume that is to be made anew"), NEXT_PASS

    def _turn(self, found: Sequence[Candidate]) -> Iterator[Candidate]:
        """Those of a namespace in which one was passed come after all others: no tenant has everybody wait again and again."""
        passed = (of for name, of in (self._memory.own or {}).items() if name in self._memory.passed)
        troubled = {of.target.namespace for of in passed if of is not None}
        calm = [each for each in found if each.target.namespace not in troubled]
        yield from self._candidates.of(calm, _MOST_CANDIDATES, namespace=lambda each: each.target.namespace)
        others = [each for each in found if each.target.namespace in troubled]
        yield from self._last.of(others, 1, namespace=lambda each: each.target.namespace)

    async def _try(self, picture: Picture, each: Candidate, stored: Mapping[str, Lease]) -> Told:
        target = each.target
        name = names.reprovision(target.workload_uid, self._settings.driver)
        lease = stored.get(name)
        if refusal := self._before_the_locks(target, name, lease):
            self._shut[target.pod_uid] = refusal.hindrance
            self._looked = self._stepped.get(name) or Looked(target.full_name, refusal.why, (), refusal.hindrance)
            return Hold(refusal.hindrance, target.full_name, refusal.why)
        # Other nodes that are emptied matter from the moment on in which they can see the Lease.
        facts = await self._looks.facts(picture, target, rivals_matter=False)
        looked = self._looks.locks(picture, target, facts, alone=lease is not None)
        refusal = locks.shut(looked)
        self._shut[target.pod_uid] = None if refusal is None else refusal.hindrance
        self._looked = Looked(target.full_name, "all locks are open" if refusal is None else refusal.why, looked)
        if refusal is not None:
            return Hold(refusal.hindrance, target.full_name, refusal.why)
        if self._settings.dry_run or not has_slot(picture):
            return Would(f"{target.full_name} would be made anew")
        if not await self._acts.take(picture, target, lease):
            why = f"Lease {name} was taken by another one"
            self._looked = Looked(target.full_name, why, (), Hindrance.WORKLOAD_TAKEN)
            return Hold(Hindrance.WORKLOAD_TAKEN, target.full_name, why)
        return Taken(f"{target.full_name} is to be made anew")

    def _before_the_locks(self, target: Target, name: str, lease: Lease | None) -> Refusal | None:
        """What keeps it here whatever the API server says of it now."""
        if self._memory.own and name in self._memory.own:
            return Refusal(Hindrance.REPLACEMENT_NOT_READY, "another replica of its workload is not ready yet")
        if kept := self._memory.kept.why(target.pod_uid, now=self._clock()):
            return kept
        if target.workload_uid in self._memory.returned:
            return Refusal(Hindrance.WOULD_COME_BACK, "a replica of its workload was put on this node again")
        if lease is not None and not self._seen.has_run_out(lease, now=self._clock()):
            return Refusal(Hindrance.WORKLOAD_TAKEN, f"node {lease.node or lease.holder} has Lease {lease.name}")
        return None

    # --- marks without a record ---------------------------------------------------------------------------------------

    def _stray(self, picture: Picture) -> list[tuple[str, str]]:
        """Namespace and name of claims here that bear this node's mark and are in no record of ours.

        Nodes are registered again under their names, with other uids: what the former one has marked nobody else clears away.
        """
        if picture.snapshot is None:
            return []
        known = {claim.uid for found in (self._memory.own or {}).values() if found is not None for claim in found.target.claims}
        found = (claim for claim in picture.snapshot.claims.values() if claim.notes and claim.uid not in known)
        return sorted((claim.namespace, claim.name) for claim in found if is_marked_by(claim.notes, picture.node.name))

    async def _sweep(self, picture: Picture) -> None:
        """A Lease that somebody has deleted leaves its marks behind."""
        for namespace, name in self._marks.of(self._stray(picture), _MOST_STRAY):
            with self._by_itself(f"{namespace}/{name}"):
                found = await self._reading.claim(namespace, name)
                if found is not None and is_marked_by(found.claim.notes, picture.node.name) and not found.claim.deleting:
                    await self._acts.unmark((found,))
