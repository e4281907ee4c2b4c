"""Whether a workload can spare one pod now: all its other pods are there, and ready."""

from collections.abc import Iterable, Sequence
from typing import Final

from sidecar.drain.vocabulary import Hindrance
from sidecar.model import names
from sidecar.model.nodes import Pod
from sidecar.model.objects import Owner

_COUNTED: Final = (names.STATEFUL_SET, names.REPLICA_SET)


def says_how_many(owner: Owner) -> bool:
    """The object that makes these pods has `spec.replicas`, and may be read."""
    return owner.kind in _COUNTED and owner.api_version.startswith(f"{names.APPS_GROUP}/")


def replicas_of(pod: Pod, peers: Iterable[Pod]) -> tuple[Pod, ...]:
    """`peers` are all pods of its namespace. It is one of them, unless the API server does not have it any more."""
    assert pod.owner is not None
    return tuple(peer for peer in peers if peer.owner is not None and peer.owner.uid == pod.owner.uid and not peer.ended)


def not_ready(pod: Pod, replicas: Sequence[Pod]) -> tuple[Hindrance, str] | None:
    """Which of those that are there keeps it from going."""
    others = [peer for peer in replicas if peer.uid != pod.uid]
    if len(others) == len(replicas):
        return Hindrance.NOT_KNOWN, "the API server does not have it any more"
    for peer in sorted(others, key=lambda peer: peer.full_name):
        if not peer.ready or peer.deleting_since:
            where = f" on {peer.node}" if peer.node else ", which waits for a node,"
            return Hindrance.REPLICA_NOT_READY, f"{peer.full_name}{where} is not ready"
    return None


def too_few(pod: Pod, replicas: Sequence[Pod], *, wanted: int | None, before: int) -> tuple[Hindrance, str] | None:
    """Some are not there. `wanted` is what the controller says; where nobody says it, what this process saw `before` it evicted one."""
    assert pod.owner is not None
    if wanted is None and len(replicas) < before:
        return Hindrance.REPLICA_NOT_READY, f"{pod.owner.kind} {pod.owner.name} has not made its last pod again yet"
    if wanted is not None and len(replicas) < wanted:
        return Hindrance.REPLICA_NOT_READY, f"{pod.owner.kind} {pod.owner.name} has {len(replicas)} of {wanted} pods"
    return None
