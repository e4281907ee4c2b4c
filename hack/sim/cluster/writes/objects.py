"""What the writes in this package need of the cluster that they are carried out in."""

from typing import Protocol

from hack.sim.cluster.kinds.kind import Kind
from hack.sim.cluster.storage.history import Stored
from hack.sim.cluster.storage.store import Store
from sidecar.kube.api import Resource
from sidecar.model.objects import Json


class Objects(Protocol):
    """`Cluster`, as far as deletion, eviction and garbage collection use it: a protocol, because `Cluster` imports these three."""

    store: Store

    @property
    def revision(self) -> int: ...
    def now(self) -> str: ...
    def time(self, seconds: float) -> str: ...
    def kind(self, resource: Resource, subresource: str = "") -> Kind: ...
    def get(self, resource: Resource, name: str, *, namespace: str = "", subresource: str = "") -> Stored: ...
    def rewrite(self, kind: Kind, old: Stored, new: Json) -> Stored: ...
