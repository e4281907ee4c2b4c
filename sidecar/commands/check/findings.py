"""What `check` has found out, before anything is made of it. That something could not be asked is a finding too."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sidecar.csi.api import DriverInfo
from sidecar.model.objects import Class
from sidecar.rights.rights import Rights

T = TypeVar("T")
_NODE_DEPLOYMENT: Final = re.compile(r"--?node-deployment(=(1|t|T|TRUE|true|True))?")


@dataclass(frozen=True, slots=True)
class NotAsked:
    """An answer that is missing, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags that the sidecar runs with."""

    source: str
    """Where they stand, for people."""
    words: tuple[str, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Server:
    """What the API server says of itself."""

    version: str
    ahead: float | None
    """Seconds by which the clock of this machine is ahead of the server's; None: the server has not said the time."""
    rounded: float
    """How many seconds of that may be the time that the answer took."""


@dataclass(frozen=True, slots=True)
class ClaimPolicy:
    """The admission policy that labels claims."""

    served: tuple[str, ...]
    """The versions of its API that the server has."""
    there: bool
    bound: bool


@dataclass(frozen=True, slots=True)
class NoDriver:
    """The driver's socket leads to nobody."""

    why: str


@dataclass(frozen=True, slots=True)
class DriverObject:
    """A CSIDriver."""

    attaches: bool
    storage_capacity: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node, as the kubelet and the registrar have described it."""

    name: str
    registered: bool
    """Its CSINode lists the driver."""
    keys: tuple[str, ...]
    """The topology keys that stand there."""
    labels: Mapping[str, str] | None
    """None: there is no Node of that name."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another container of the same pod that is told a socket, such as the registrar."""

    container: str
    socket: str
    """Where that is on the node."""


@dataclass(frozen=True, slots=True)
class Provisioner:
    """A container that provisions: ours, or external-provisioner."""

    kind: str
    namespace: str
    name: str
    container: str
    image: str
    ours: bool
    words: tuple[str, ...]
    """Its flags."""
    environ: Mapping[str, str]
    """Of its variables those that the program reads."""
    account: str
    socket: str
    """Where its --csi-address is on the node; empty: in no folder that the pod mounts from there."""
    read_only: bool
    """Of the folder of that socket."""
    neighbours: tuple[Neighbour, ...]
    mentions: frozenset[str]
    """Names of drivers that stand in its pod's description."""
    nodes: tuple[str, ...] = ()
    """Where its pods are, each as often as there are pods."""

    @property
    def workload(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def full_name(self) -> str:
        return f"container {self.container} of {self.workload}"

    @property
    def central(self) -> bool:
        """It provisions for the whole cluster."""
        return not self.ours and not any(_NODE_DEPLOYMENT.fullmatch(word) for word in self.words)

    def serves(self, driver: str) -> bool | None:
        """None: its description names no driver."""
        return driver in self.mentions if self.mentions else None


@dataclass(frozen=True, slots=True)
class Election:
    """A Lease of the name by which instances of external-provisioner elect one that serves the whole cluster."""

    name: str
    holder: str
    age: float | None
    """Seconds since it was renewed; None: it does not say when."""


@dataclass(frozen=True, slots=True)
class Findings:
    on_node: bool
    """Asked from the sidecar's pod or from its node; else from outside, by the API server alone."""
    driver: str
    """Empty: not known."""
    node: str
    """Which one is meant, on a node."""
    program: str
    """The version of this command."""
    flags: Flags | NotAsked
    server: Server | NotAsked
    policy: ClaimPolicy | NotAsked
    socket: DriverInfo | NoDriver | NotAsked
    drivers: Mapping[str, DriverObject] | NotAsked
    """All CSIDriver objects, or the driver's alone, by name."""
    nodes: tuple[NodeFacts, ...] | NotAsked
    """On a node: that one."""
    classes: tuple[Class, ...] | NotAsked
    """All of them."""
    rights: Rights | NotAsked
    asker: str
    """Whose rights these are."""
    provisioners: tuple[Provisioner, ...] | NotAsked
    elections: tuple[Election, ...] | NotAsked
    published: int | NotAsked
    """Capacity objects of the driver."""


def known(found: T | NotAsked) -> T | None:
    return None if isinstance(found, NotAsked) else found
