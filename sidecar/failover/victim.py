"""Decides what this node does about its own storage: fails frozen I/O for pods that are ending, evicts pods whose disk fails, keeps new
ones away by a taint, and takes that off once its storage is whole again.

What it knows of itself is no proof for anybody else, and is enough for this: its kubelet ends the pods.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.failover.brakes import DEBOUNCE
from sidecar.failover.evidence import Resource, Snapshot, resource_of
from sidecar.model.nodes import Pod, Taint
from sidecar.model.objects import Volume

PERSISTS: Final = 30.0  # seconds that trouble has to last
OFF: Final = "powered-off-"  # the taint's value begins so, where somebody has said that the power was cut; the boot follows
APART: Final = 5.0  # seconds between the two looks that find the storage whole
EMPTY_FOR: Final = 300.0  # the same where it has no resources at all: a node that boots has none yet


@dataclass(frozen=True, slots=True)
class Release:
    """Fail the frozen I/O of a resource, so that the pods that use it can end."""

    resource: str
    volume: Volume
    pods: tuple[Pod, ...]  # all that use it
    why: str


@dataclass(frozen=True, slots=True)
class Evict:
    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class AddTaint:
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class RemoveTaint:
    why: str


Act = Release | Evict | AddTaint | RemoveTaint


@dataclass(frozen=True, slots=True)
class Own:
    """This node, as it was read just now."""

    snapshot: Snapshot
    volumes: Sequence[Volume]  # of this driver, that are resources here
    pods: Sequence[Pod]  # all of this node that have claims
    taint: Taint | None  # ours, if it is there
    boot_id: str  # that of this machine now


class Memory:
    """Since when what lasts has lasted, by this process's own clock: a restart begins anew."""

    def __init__(self) -> None:
        self.was_whole: set[str] = set()  # resources: one that has never been whole is new, and not lost
        self.bad_since: dict[str, float] = {}  # by resource
        self.whole_since: float | None = None
        self.ending_since: dict[str, float] = {}  # by uid of a pod that is being deleted

    def see(self, snapshot: Snapshot, ours: Container[str] | None, now: float) -> None:
        """Each new reading. `ours`: the resources that are volumes of Kubernetes, of which alone the storage has to be whole; None: they
        are not known yet. What is not known neither begins nor ends anything."""
        for resource in snapshot.resources.values():
            match is_whole(resource):
                case True:
                    self.was_whole.add(resource.name)
                    self.bad_since.pop(resource.name, None)
                case False if "user" in (resource.suspended or ()):
                    self.bad_since.pop(resource.name, None)  # what is left once the user goes on begins anew
                case False if resource.name in self.was_whole or resource.failing_io or (resource.primary and resource.suspended):
                    self.bad_since.setdefault(resource.name, now)
                case _:
                    pass
        whole = ours is not None and snapshot.complete
        whole = whole and all(is_whole(resource) for name, resource in snapshot.resources.items() if name in (ours or ()))
        self.whole_since = (self.whole_since or snapshot.at) if whole else None
        if snapshot.complete:
            self.bad_since = {name: at for name, at in self.bad_since.items() if name in snapshot.resources}
            self.was_whole &= snapshot.resources.keys()

    def see_pods(self, pods: Iterable[Pod], now: float) -> None:
        ending = {pod.uid for pod in pods if pod.deleting_since}
        self.ending_since = {uid: self.ending_since.get(uid, now) for uid in ending}


def is_whole(resource: Resource) -> bool | None:
    """None: not known. A user's own suspension, as for a snapshot, is no trouble."""
    if resource.unknown or resource.suspended is None:
        return None
    facts = (resource.has_quorum, None if resource.failing_io is None else not resource.failing_io, not resource.suspended - {"user"})
    return False if False in facts else None if None in facts else True


def decide(own: Own, memory: Memory, grace: Mapping[str, float], now: float) -> list[Act]:
    """`grace`: by uid of a pod that is being deleted, the seconds that it was given. The taint comes before the evictions: a pod that is
    made again is not to come back."""
    releases, bad, evictions = list[Act](), list[Resource](), dict[str, Act]()
    sees_others = any(peer.connected for resource, _ in _with_volumes(own) for peer in resource.peers.values())
    for resource, volumes in _with_volumes(own):
        claims = {volume.claim_name for volume in volumes}
        users = [pod for pod in own.pods if claims.intersection(pod.claim_names)]
        if _may_release(resource, users, memory, grace, now):
            why = f"it is frozen ({', '.join(sorted(resource.suspended or ()))}), and all its pods are past their grace period"
            releases.append(Release(resource.name, volumes[0], tuple(users), why))
        if not _is_lost(resource, memory, now):
            continue
        # A copy that nobody uses here has lost its quorum with another node: that is no reason to keep pods of other volumes away.
        if any(not pod.ended for pod in users) or resource.primary or resource.failing_io or not sees_others:
            bad.append(resource)
        for pod in users if resource.peers else ():  # what only this node has is left where it is
            if _may_evict(pod) and not (own.taint is not None and pod.tolerates([own.taint])):
                evictions[pod.uid] = Evict(pod, f"{resource.name} {_trouble(resource)} here for {PERSISTS:.0f} s or more")
    taints = list[Act]()
    if own.taint is not None:
        taints = [RemoveTaint(why)] if (why := _is_back(own, memory, now)) else []
    elif bad:
        first = min(bad, key=lambda resource: resource.name)
        taints = [AddTaint("io-error" if first.failing_io else "no-quorum", f"{first.name} {_trouble(first)} here")]
    return [*releases, *taints, *evictions.values()]


def _is_lost(resource: Resource, memory: Memory, now: float) -> bool:
    """By this node, and not by all: what has no quorum although it reaches another node has none there either, and a person decides."""
    if is_whole(resource) is not False or "user" in (resource.suspended or ()):
        return False
    if not resource.failing_io and any(peer.connected is not False for peer in resource.peers.values()):
        return False
    return now - memory.bad_since.get(resource.name, now) >= PERSISTS


def _trouble(resource: Resource) -> str:
    return "fails I/O" if resource.failing_io else "is frozen" if resource.suspended else "has no quorum"


def _may_evict(pod: Pod) -> bool:
    return pod.owner is not None and not (pod.stays or pod.ended or pod.deleting_since)


def _may_release(resource: Resource, users: Sequence[Pod], memory: Memory, grace: Mapping[str, float], now: float) -> bool:
    """Never beside a pod that is not ending, in whatever phase, and never what a user has suspended."""
    if resource.unknown or not resource.suspended or "user" in resource.suspended:
        return False
    if resource.primary is not True or resource.failing_io is not False or now - memory.bad_since.get(resource.name, now) < DEBOUNCE:
        return False

    def is_overdue(pod: Pod) -> bool:
        return now - memory.ending_since.get(pod.uid, now) >= grace.get(pod.uid, float("inf"))

    return bool(users) and all(pod.deleting_since and is_overdue(pod) for pod in users)


def _is_back(own: Own, memory: Memory, now: float) -> str:
    """Why the taint goes; empty: it stays. A volume in use of which no pod is here any more is a pod's that was removed."""
    value = own.taint.value if own.taint is not None else ""
    if value.startswith(OFF):
        return "the node was switched on again" if own.boot_id and value != f"{OFF}{own.boot_id}" else ""
    if (
        not own.snapshot.complete
        or memory.whole_since is None
        or own.snapshot.at - memory.whole_since < (APART if own.snapshot.resources else EMPTY_FOR)
    ):
        return ""
    used = {claim for pod in own.pods for claim in pod.claim_names}
    for resource, volumes in _with_volumes(own):
        in_use = None if resource.primary is None or resource.open is None else resource.primary or resource.open
        if is_whole(resource) is not True or in_use is None or (in_use and used.isdisjoint(volume.claim_name for volume in volumes)):
            return ""
    return f"its storage is whole again ({value})"


def _with_volumes(own: Own) -> Iterable[tuple[Resource, list[Volume]]]:
    """Each resource with all its volumes: those of a consistency group are frozen, and released, together."""
    volumes = dict[str, list[Volume]]()
    for volume in own.volumes:
        volumes.setdefault(resource_of(volume.handle), []).append(volume)
    return ((resource, volumes[name]) for name, resource in own.snapshot.resources.items() if name in volumes)
