"""Takes, keeps and gives back this node's place among those that are evacuated at a time. Whose turn it is says `slots`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidecar.drain import slots
from sidecar.drain.leases import Lease
from sidecar.drain.settings import Settings
from sidecar.drain.slots import Hold, Release, Renew, SlotsView, Take, WaitFor
from sidecar.kube.api import LEASES, NODES, KubeApi, every, find
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# Each step is one write; after a conflict the leases are read again.
_MOST_STEPS: Final = 4


@dataclass(slots=True)
class _Seen:
    version: str
    since: float


class Turns:
    """One per process. What it remembers is only since when things were seen, so that no other node's clock has to be trusted."""

    def __init__(self, kube: KubeApi, settings: Settings, *, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._wall = wall
        self._seen: dict[str, _Seen] = {}
        self._free_since: float | None = None
        self._strangers: set[str] = set()
        """Names of slots that could not be created and whose Lease is not ours, as far as it is known: each look reads them again."""
        self.maybe_held = bool(settings.namespace)
        """Whether this node may have a slot: an earlier process may have taken one."""

    async def turn(self, node: Node, *, wanted: bool) -> slots.Decision:
        """Where this node stands now. Raises ApiError when that could not be found out, or strangers have slots' names and it waits."""
        if self._settings.limit > 0:
            return await self._play(node, wanted=wanted)
        if self.maybe_held:
            await self._give_back(node)
        return slots.NoLimit()

    async def _give_back(self, node: Node) -> None:
        """A slot that an earlier process took under a limit. Without one nobody waits, so nobody waits for this either."""
        try:
            await self._play(node, wanted=False)
        except Forbidden:
            self.maybe_held = False  # who may not look, or not delete, can give nothing back: it runs out by itself
        except ApiError:
            pass  # the next look tries again

    async def _play(self, node: Node, *, wanted: bool) -> slots.Decision:
        decision: slots.Decision = slots.NotWanted()
        for _ in range(_MOST_STEPS):
            view = await self._look(node, wanted=wanted)
            decision = slots.decide(view)
            self._note(decision, view.now)
            if not await self._perform(decision):
                break
        else:
            decision = slots.decide(await self._look(node, wanted=wanted))  # the last step may have done it
        if self._strangers and isinstance(decision, WaitFor):
            raise self._narrowed()
        return decision

    async def _look(self, node: Node, *, wanted: bool) -> SlotsView:
        settings, now = self._settings, self._wall()
        selector = slots.selector(settings.driver)
        leases = [Lease.of(obj) async for obj in every(self._kube, LEASES, namespace=settings.namespace, label_selector=selector)]
        self._strangers = {name for name in self._strangers if await self._is_strangers(name)}
        label = names.of_driver(settings.driver, names.EVACUATION_STATE)
        marked = [Node.of(obj) async for obj in every(self._kube, NODES, label_selector=label, cached=True)] if wanted else []
        return SlotsView(
            now=now,
            driver=settings.driver,
            node=node.name,
            node_uid=node.uid,
            namespace=settings.namespace,
            limit=settings.limit,
            wanted=wanted,
            leases=(*leases, *(_kept(name) for name in self._strangers)),
            contenders=slots.contenders(marked, settings.driver),
            unchanged_since=self._unchanged(leases, now),
            free_since=self._free_since,
        )

    def _unchanged(self, leases: list[Lease], now: float) -> Mapping[str, float]:
        for lease in leases:
            seen = self._seen.get(lease.name)
            if seen is None or seen.version != lease.resource_version:
                self._seen[lease.name] = _Seen(lease.resource_version, now)
        return MappingProxyType({name: seen.since for name, seen in self._seen.items()})

    def _note(self, decision: slots.Decision, now: float) -> None:
        free = isinstance(decision, WaitFor) and decision.free
        self._free_since = (now if self._free_since is None else self._free_since) if free else None
        self.maybe_held = isinstance(decision, Take | Hold | Renew | Release)

    async def _perform(self, decision: slots.Decision) -> bool:
        """Whether something was done, or came in between, so that it has to be looked again."""
        namespace = self._settings.namespace
        if self._settings.dry_run:
            return False
        try:
            match decision:
                case Take(name, body, False):
                    await self._create(name, body)
                case Take(name, body) | Renew(name, body):
                    await self._kube.replace(LEASES, body, name=name, namespace=namespace)
                case Release(lease):
                    version = lease.resource_version
                    await self._kube.delete(LEASES, lease.name, namespace=namespace, uid=lease.uid, resource_version=version)
                case _:
                    return False
        except (AlreadyExists, Conflict, NotFound):
            pass  # another node was faster; the next look shows who
        return True

    async def _create(self, name: str, body: Json) -> None:
        try:
            await self._kube.create(LEASES, body, namespace=self._settings.namespace)
        except AlreadyExists:
            self._strangers.add(name)  # perhaps: the next look tells it from another node that was faster
            raise

    async def _is_strangers(self, name: str) -> bool:
        stored = await find(self._kube, LEASES, name, namespace=self._settings.namespace)
        return stored is not None and (stored["metadata"].get("labels") or {}).get(names.SLOT_FOR) != self._settings.driver

    def _narrowed(self) -> ApiError:
        leases = ", ".join(f"{self._settings.namespace}/{name}" for name in sorted(self._strangers))
        label = f"{names.SLOT_FOR}={self._settings.driver}"
        remedy = "delete it, or have its owner name it otherwise, or raise --max-concurrent-evacuations"
        return AlreadyExists(f"Lease {leases} has the name of a slot and is not ours (no label {label}): {remedy}", status=409)


def _kept(name: str) -> Lease:
    """A slot whose name a stranger has, as the rule is to see it: held, and never given back."""
    return Lease(name, "", "", "a stranger", "", "", renewed=float("inf"), duration=0.0)
