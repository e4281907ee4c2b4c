"""Looks at one replica: reads what the locks need, from the API server, and puts it before the rules. It writes nothing."""

from types import MappingProxyType

from sidecar.drain.duty import Picture
from sidecar.drain.emptying.rules import users_of
from sidecar.drain.machine_mark import Machine
from sidecar.drain.reprovision import locks, steps
from sidecar.drain.reprovision.facts import Facts
from sidecar.drain.reprovision.facts_io import Reading
from sidecar.drain.reprovision.lock import Lock, LocksView
from sidecar.drain.reprovision.memory import Memory
from sidecar.drain.reprovision.record import Record, Target
from sidecar.drain.reprovision.steps import StepView
from sidecar.drain.settings import Settings
from sidecar.tools import Tools


def machine_of(picture: Picture) -> Machine:
    return Machine(picture.node.name, picture.node.uid)


class Looks:
    def __init__(self, settings: Settings, tools: Tools, reading: Reading, memory: Memory) -> None:
        self._settings = settings
        self._clock, self._wall = tools.clock, tools.wall
        self._reading = reading
        self._memory = memory

    async def look(self, picture: Picture, name: str, found: Record) -> tuple[Facts, tuple[Lock, ...]]:
        if name in self._memory.deleted:
            return await self._reading.replacement(found.target), ()
        facts = await self.facts(picture, found.target)
        return facts, self.locks_of(picture, found, facts)

    def locks_of(self, picture: Picture, found: Record, facts: Facts) -> tuple[Lock, ...]:
        left = steps.left_of(found, facts)
        deleted = frozenset(claim.name for claim in found.target.claims) - {claim.name for claim in left.claims}
        return self.locks(picture, left, facts, deleted=deleted)

    async def facts(self, picture: Picture, target: Target, *, rivals_matter: bool = True) -> Facts:
        assert picture.snapshot is not None
        users = frozenset(pod.uid for pod, _ in users_of(picture.snapshot))
        found = await self._reading.facts(target, users=users, rivals_matter=rivals_matter)
        self._memory.leavers.see(found.leaving, now=self._clock())
        return found

    async def again(self, picture: Picture, found: Record, facts: Facts) -> steps.Decision:
        """What is decided with the replicas and their StatefulSet as they are now, and all else as it was.

        For the last moment before what cannot be taken back: a whole look takes long enough for a set to be scaled to nothing meanwhile.
        """
        now = await self._reading.newer(found.target, facts)
        return steps.decide(self.view(picture, found, now, self.locks_of(picture, found, now), ""))

    def locks(
        self, picture: Picture, target: Target, facts: Facts, *, deleted: frozenset[str] = frozenset(), alone: bool = False
    ) -> tuple[Lock, ...]:
        assert picture.snapshot is not None
        found = picture.assessment.places if picture.assessment else ()
        places = MappingProxyType({volume: place for place in found for volume in place.volumes})
        slow = self._memory.leavers.slow(now=self._clock(), patience=picture.snapshot.terminating_too_long)
        machine = machine_of(picture)
        view = LocksView(
            self._settings.reprovisions,
            machine,
            picture.snapshot,
            places,
            target,
            facts,
            deleted,
            slow,
            now=self._wall(),
            pause=self._settings.reprovision_pause,
            alone=alone,
        )
        return locks.look(view)

    def view(self, picture: Picture, found: Record, facts: Facts, looked: tuple[Lock, ...], undone: str) -> StepView:
        pod = facts.pod(found.target.pod)
        if pod is not None and pod.ready:
            self._memory.ready_since.setdefault(pod.uid, self._clock())
        elif pod is not None:
            self._memory.ready_since.pop(pod.uid, None)
        since = self._memory.ready_since.get(pod.uid) if pod is not None else None
        return StepView(
            found,
            facts,
            looked,
            machine=machine_of(picture),
            undone=undone,
            now=self._wall(),
            ready_for=0.0 if since is None else self._clock() - since,
            timeout=self._settings.ready_timeout,
            kept=self._memory.kept.why(found.target.pod_uid, now=self._clock()),
            ours=self._settings.own_pods,
        )
