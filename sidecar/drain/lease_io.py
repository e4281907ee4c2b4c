"""Reads and writes Leases, for everything of this room that keeps one; what to do with one: `leases`.

Several nodes may write one lease at the same moment. The API server lets one of them through, by the resourceVersion or by the name;
the others are told here that they were overtaken, which is no failure: they look again and see who has it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sidecar.drain import leases
from sidecar.drain.leases import Hold, Lease, LeaseView, Leave, NotWanted, Release, Renew, Take, Terms
from sidecar.kube.api import LEASES, KubeApi, find, records
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound

# How old what is known of stored objects may be: somebody may have deleted or changed them.
TRUSTED: Final = 60.0


@dataclass(frozen=True, slots=True)
class Written:
    """It is as decided."""

    lease: Lease | None
    """As it is stored now; None: it is deleted."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Nothing was written: what is stored is not what was seen."""

    name_taken: bool
    """It was to be created, and there is one of its name."""


@dataclass(frozen=True, slots=True)
class Untouched:
    """There was nothing to write, or this is a dry run."""


Outcome = Written | Overtaken | Untouched


class LeaseWriter:
    """For one namespace. Whatever fails for another reason than being overtaken is raised as ApiError."""

    def __init__(self, kube: KubeApi, *, namespace: str, dry_run: bool) -> None:
        self._kube = kube
        self._namespace = namespace
        self._dry_run = dry_run

    async def find(self, name: str) -> Lease | None:
        stored = await find(self._kube, LEASES, name, namespace=self._namespace)
        return Lease.of(stored) if stored else None

    async def all(self, label_selector: str, *, cached: bool = False) -> list[Lease]:
        listed = records(self._kube, LEASES, lambda obj: obj, namespace=self._namespace, label_selector=label_selector, cached=cached)
        return [Lease.of(obj) async for obj in listed]

    async def perform(self, decision: leases.Decision) -> Outcome:
        if self._dry_run:
            return Untouched()
        try:
            match decision:
                case Take(_, body, replaces=False):
                    return Written(Lease.of(await self._kube.create(LEASES, body, namespace=self._namespace)))
                case Take(name, body) | Renew(name, body):
                    return Written(Lease.of(await self._kube.replace(LEASES, body, name=name, namespace=self._namespace)))
                case Release(name, uid, version):
                    await self._kube.delete(LEASES, name, namespace=self._namespace, uid=uid, resource_version=version)
                    return Written(None)
                case Hold() | Leave() | NotWanted():
                    return Untouched()
        except (AlreadyExists, Conflict, NotFound) as error:
            return Overtaken(name_taken=isinstance(error, AlreadyExists))


class OwnLease:
    """The one lease that this process keeps about its own node, for as long as something wants it."""

    def __init__(self, writer: LeaseWriter, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self._wall = wall
        self._stored: Lease | None = None
        self._read_at: float | None = None
        """None: what is stored is not known, for the last request about it has failed."""
        self._node_uid = ""
        self.failure = ""
        """Why it could not be kept; whoever needs it tells of it, and goes on."""

    @property
    def may_be_there(self) -> bool:
        """As far as it is known."""
        return self._stored is not None or self._read_at is None

    async def keep(self, terms: Terms, *, wanted: bool, needed: bool) -> None:
        """One look. It raises nothing, for what the lease stands for holds without it too.

        Not `needed`: what it is for is switched off, so that it is only given back where an earlier process had it.
        """
        self.failure = ""
        try:
            await self._read(terms)
            # Two steps: a lease that a neighbour holds is taken back before it is deleted.
            for _ in range(2):
                view = LeaseView(self._wall(), terms, wanted=wanted, stored=self._stored, own=True)
                match await self._writer.perform(leases.decide(view)):
                    case Written(lease):
                        self._stored = lease
                    case Overtaken():
                        self._read_at = None
                        return
                    case Untouched():
                        pass
        except ApiError as error:
            self._read_at = None
            if needed:
                self.failure = str(error)
            elif isinstance(error, Forbidden):
                self._stored, self._read_at = None, self._clock()  # without the right to read one this node has never had one

    async def _read(self, terms: Terms) -> None:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= TRUSTED or self._node_uid != terms.node_uid:
            self._stored = await self._writer.find(terms.name)
            self._read_at, self._node_uid = now, terms.node_uid
