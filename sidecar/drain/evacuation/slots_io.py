"""Takes, renews and gives back this node's slot for being evacuated; when: `evacuation/slots`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.drain import leases
from sidecar.drain.evacuation import slots
from sidecar.drain.evacuation.slots import SlotsView, WaitFor
from sidecar.drain.lease_io import LeaseWriter, Overtaken, Untouched
from sidecar.drain.leases import Hold, Lease, NotWanted, Release, Renew, Take
from sidecar.drain.settings import Settings
from sidecar.kube.api import NODES, KubeApi, records
from sidecar.kube.errors import AlreadyExists, ApiError, Forbidden
from sidecar.model import names
from sidecar.model.nodes import Node

# Each step is one write. After a conflict the leases are read again, and another node may be faster again.
_MOST_STEPS: Final = 4


@dataclass(slots=True, eq=False, repr=False)
class _Seen:
    version: str
    since: float


class SlotController:
    """One per process. It remembers since when it has seen what, so that it need not trust the clock of another node."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._writer = LeaseWriter(kube, namespace=settings.namespace, dry_run=settings.dry_run)
        self._seen: dict[str, _Seen] = {}
        self._free_since: float | None = None
        self._foreign: set[str] = set()
        """Names of slots under which somebody else's Lease is stored, as far as it is known: each look reads them again."""
        self.maybe_held = bool(settings.namespace)
        """Whether this node may have a slot: an earlier process may have taken one."""

    async def step(self, node: Node, *, wanted: bool) -> slots.Decision:
        """Whether this node has a slot now. Raises ApiError if that is not known, or if it waits because others use the names of slots."""
        if self._settings.limit > 0:
            return await self._settle(node, wanted=wanted)
        if self.maybe_held:
            await self._give_back(node)
        return slots.NoLimit()

    async def _give_back(self, node: Node) -> None:
        """An earlier process may have taken a slot under a limit. Without a limit no node waits for it, so a failure is told to nobody."""
        try:
            await self._settle(node, wanted=False)
        except Forbidden:
            self.maybe_held = False  # it cannot be given back without these rights, and runs out by itself
        except ApiError:
            pass  # the next look tries again

    async def _settle(self, node: Node, *, wanted: bool) -> slots.Decision:
        """Looks and writes until there is nothing more to write."""
        decision: slots.Decision = NotWanted()
        for _ in range(_MOST_STEPS):
            view = await self._look(node, wanted=wanted)
            decision = slots.decide(view)
            self._note(decision)
            if isinstance(decision, slots.NoLimit | WaitFor) or not await self._perform(decision):
                break
        else:
            decision = slots.decide(await self._look(node, wanted=wanted))  # the last write may have been the one that was missing
        if self._foreign and isinstance(decision, WaitFor):
            raise self._foreign_leases()
        return decision

    async def _look(self, node: Node, *, wanted: bool) -> SlotsView:
        settings = self._settings
        stored = await self._writer.all(slots.selector(settings.driver))
        self._foreign = {name for name in self._foreign if await self._is_foreign(name)}
        label = names.of_driver(settings.driver, names.EVACUATION_STATE)
        found = records(self._kube, NODES, Node.of, label_selector=label, cached=True)
        marked = [node async for node in found] if wanted else []
        now = self._clock()
        return SlotsView(
            now=self._wall(),
            driver=settings.driver,
            node=node.name,
            node_uid=node.uid,
            namespace=settings.namespace,
            limit=settings.limit,
            wanted=wanted,
            leases=(*stored, *(_foreign_slot(name) for name in self._foreign)),
            contenders=slots.contenders(marked, settings.driver),
            unchanged_for=self._unchanged(stored, now),
            free_for=0.0 if self._free_since is None else now - self._free_since,
        )

    def _unchanged(self, stored: list[Lease], now: float) -> Mapping[str, float]:
        for lease in stored:
            seen = self._seen.get(lease.name)
            if seen is None or seen.version != lease.resource_version:
                self._seen[lease.name] = _Seen(lease.resource_version, now)
        return MappingProxyType({name: now - seen.since for name, seen in self._seen.items()})

    def _note(self, decision: slots.Decision) -> None:
        free = isinstance(decision, WaitFor) and decision.free
        self._free_since = (self._clock() if self._free_since is None else self._free_since) if free else None
        self.maybe_held = isinstance(decision, Take | Hold | Renew | Release)

    async def _perform(self, decision: leases.Decision) -> bool:
        """Whether something was written, or another node was faster: then another look may show something else."""
        outcome = await self._writer.perform(decision)
        if isinstance(decision, Take) and isinstance(outcome, Overtaken) and outcome.name_taken:
            self._foreign.add(decision.name)  # or another node was faster: the next look tells which
        return not isinstance(outcome, Untouched)

    async def _is_foreign(self, name: str) -> bool:
        stored = await self._writer.find(name)
        return stored is not None and stored.labels.get(names.SLOT_FOR) != self._settings.driver

    def _foreign_leases(self) -> ApiError:
        taken = ", ".join(f"{self._settings.namespace}/{name}" for name in sorted(self._foreign))
        label = f"{names.SLOT_FOR}={self._settings.driver}"
        remedy = "delete it, or have its owner rename it, or raise --max-concurrent-evacuations"
        return AlreadyExists(f"Lease {taken} has the name of a slot and is not ours (no label {label}): {remedy}", status=409)


def _foreign_slot(name: str) -> Lease:
    """A slot under whose name somebody else's lease is stored: for the rule it is held, and never given back."""
    return Lease(name, "", "", "somebody else", "", "", renewed=0.0, duration=float("inf"))
