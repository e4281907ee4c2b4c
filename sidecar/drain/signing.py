"""Gives this node's sign of life, and ends it. When it is due says `lifesign`."""

from collections.abc import Callable
from typing import Final

from sidecar.drain import lifesign
from sidecar.drain.leases import Lease
from sidecar.drain.settings import Settings
from sidecar.kube.api import LEASES, KubeApi, find
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from sidecar.model.nodes import Node

# How old what is known of stored objects may be: somebody may have deleted or changed them.
TRUSTED: Final = 60.0


class Sign:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._lease: Lease | None = None
        self._read_at: float | None = None
        """None: it is not known, for the last request about it has failed."""
        self._lease_of = ""
        self.failure = ""
        """Why it could not be given: should this node die, nobody else looks after its gate."""

    @property
    def may_be_there(self) -> bool:
        """As far as it is known."""
        return self._lease is not None or self._read_at is None

    async def give(self, node: Node, *, stands: bool) -> None:
        """A gate without one holds as well, so that it cannot be given keeps nothing from happening."""
        self.failure = ""
        try:
            await self._read(node)
            # Whose lease a neighbour has takes it back before it gives it up: nobody deletes what another one holds.
            for _ in range(2):
                view = lifesign.SignView(self._wall(), node, self._settings.driver, self._settings.namespace, stands, self._lease)
                await self._perform(lifesign.decide(view))
        except (AlreadyExists, Conflict, NotFound):
            self._read_at = None  # somebody else was faster; the next look shows who
        except ApiError as error:
            self._read_at = None
            if self._settings.gate:
                self.failure = str(error)
            elif isinstance(error, Forbidden):
                self._lease, self._read_at = None, self._clock()  # who has no gates and may not even look has no lease either

    async def _read(self, node: Node) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < TRUSTED and self._lease_of == node.uid:
            return
        stored = await find(self._kube, LEASES, lifesign.name(node.uid, self._settings.driver), namespace=self._settings.namespace)
        self._lease, self._read_at, self._lease_of = Lease.of(stored) if stored else None, now, node.uid

    async def _perform(self, decision: lifesign.Decision) -> None:
        namespace = self._settings.namespace
        if self._settings.dry_run:
            return
        match decision:
            case lifesign.Give(body, False):
                self._lease = Lease.of(await self._kube.create(LEASES, body, namespace=namespace))
            case lifesign.Give(body):
                self._lease = Lease.of(await self._kube.replace(LEASES, body, name=body["metadata"]["name"], namespace=namespace))
            case lifesign.End(lease):
                await self._kube.delete(LEASES, lease.name, namespace=namespace, uid=lease.uid)
                self._lease = None
            case lifesign.Rest():
                pass
