"""What storage and cluster show, in three values: True, False, and None, which is not known and permits nothing.

A node that is not Ready, a silent Lease, an abnormal volume: these choose how to act, and never whether. What permits to act on another
node is proof of exclusion alone: the storage itself refuses a second writer at this moment, or somebody has cut the power.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from sidecar.model.names import POWERED_OFF
from sidecar.model.nodes import TRUE, Node

MOST_AGE: Final = 12.0  # seconds: what was read before counts no more


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known, or not."""

    value: bool | None
    says: str  # why, as a sentence without its full stop
    source: str = ""  # who has shown it: `drbd`, the label's key, the Node
    age: float = 0.0  # seconds since it was read

    @property
    def holds(self) -> bool:
        return self.value is True and self.age <= MOST_AGE


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of one connection, as this node sees it."""

    name: str  # as the storage names it: the Node's name, or that of a pod there
    connected: bool | None
    cut_by_hand: bool = False  # StandAlone, Disconnecting: an administrator's word, or a split brain
    up_to_date: bool | None = None  # its disk is known to have all data


@dataclass(frozen=True, slots=True)
class Resource:
    """One replicated resource, as this node's kernel sees it. All of it was read within `MOST_AGE`, or it is not here."""

    name: str
    at: float  # by the clock that all processes of a machine share: the older one of the reads that agree
    primary: bool | None = None
    open: bool | None = None
    suspended: frozenset[str] | None = frozenset()  # of user, no-data, fencing, quorum; None: not known
    failing_io: bool | None = None
    may_promote: bool | None = None
    has_quorum: bool | None = None  # every device
    forbids_second: bool | None = None  # its quorum is a majority: two sides never have it at once
    up_to_date: bool | None = None  # this node's own disk, every device
    peers: Mapping[str, Peer] = field(default_factory=lambda: MappingProxyType({}))
    unknown: str = ""  # why it is not known: two reads disagree, or one cannot be read


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All resources of this node's storage."""

    at: float
    complete: bool  # every read that this needs has come, and has named every resource
    resources: Mapping[str, Resource] = field(default_factory=lambda: MappingProxyType({}))
    disagreements: int = 0  # resources whose reads contradict each other
    why: str = ""  # why it is not complete


def resource_of(handle: str) -> str:
    """The resource of a volume's handle: volumes of one consistency group are `RESOURCE/NUMBER`."""
    return handle.partition("/")[0]


def excluded(resource: Resource | None, peer: str, now: float) -> Fact:
    """Whether this peer cannot write, at this moment: the storage would let this node write, and with it nobody else."""
    if resource is None:
        return Fact(None, "this node's storage does not know the volume", "drbd")
    age = now - resource.at
    their = resource.peers.get(peer)

    def said(value: bool | None, says: str) -> Fact:
        return Fact(value, f"{resource.name}: {says}", "drbd", age)

    if age > MOST_AGE:
        return said(None, f"it was read {age:.0f} s ago, which is too long")
    if resource.unknown:
        return said(None, resource.unknown)
    if their is None:
        return said(None, f"it has no connection to {peer}")
    if their.cut_by_hand:
        return said(None, f"the connection to {peer} was cut by an administrator, or after a split brain")
    rows: tuple[tuple[bool | None, bool, str, str], ...] = (
        (their.connected, False, f"{peer} is connected", f"whether {peer} is connected is not known"),
        (resource.forbids_second, True, "its quorum does not keep a second writer out", "its quorum option is not known"),
        (resource.has_quorum, True, "this side has no quorum", "whether this side has quorum is not known"),
        (resource.failing_io, False, "it fails I/O here", "whether it fails I/O here is not known"),
        (resource.up_to_date, True, "this node's disk is not UpToDate", "the state of this node's disk is not known"),
        (resource.may_promote, True, "it may not become Primary here", "whether it may become Primary here is not known"),
    )
    for value, wanted, otherwise, unknown in rows:
        if value is None:
            return said(None, unknown)
        if value is not wanted:
            return said(False, otherwise)
    return said(True, f"may_promote here, with quorum, and no connection to {peer}")


def only_copy(resource: Resource, now: float) -> bool | None:
    """Whether no other node is known to have a copy that is up to date; None: not known."""
    if now - resource.at > MOST_AGE or resource.unknown:
        return None
    if any(peer.connected and peer.up_to_date for peer in resource.peers.values()):
        return False
    return True if resource.up_to_date else None  # what is outdated here may be the last there is


def powered_off(node: Node, boot_id: str) -> Fact:
    """By the word of whoever cut its power: a label with the boot that has ended. An empty bootID is unknown."""
    said = node.labels.get(POWERED_OFF, "")
    if not said:
        return Fact(None, f"no label {POWERED_OFF}", POWERED_OFF)
    if not boot_id:
        return Fact(None, "the Node has no bootID", POWERED_OFF)
    if said != boot_id:
        return Fact(False, f"{POWERED_OFF} names another boot than the Node has", POWERED_OFF)
    if node.ready == TRUE:
        return Fact(False, f"the Node is Ready, whatever {POWERED_OFF} says", POWERED_OFF)
    return Fact(True, f"somebody says that its power was cut ({POWERED_OFF})", POWERED_OFF)


def either(*facts: Fact) -> Fact:
    """One proof is enough; without one, the reason that says most."""
    return next((fact for fact in facts if fact.holds), next((fact for fact in facts if fact.value is False), facts[0]))
