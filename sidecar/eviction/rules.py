"""Decides whether this program may evict a pod at all. Whether it should is for the room that asks."""

from collections.abc import Set
from dataclasses import dataclass

from sidecar.model import names
from sidecar.model.nodes import Pod


@dataclass(frozen=True, slots=True)
class May:
    """It may be evicted: this pod, with this uid, and no other one of its name."""

    namespace: str
    name: str
    uid: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class MayNot:
    """It is left where it is."""

    why: str


Decision = May | MayNot


def may_evict(pod: Pod, *, node: str, ours: Set[str] = frozenset()) -> Decision:
    """`node` is this program's own, `ours` the full names of its own pods."""
    if not node or pod.node != node:
        return MayNot(f"it runs on {pod.node}, not on {node}" if pod.node else "it runs on no node")
    why = objection(pod, ours=ours)
    return MayNot(why) if why else May(pod.namespace, pod.name, pod.uid)


def objection(pod: Pod, *, ours: Set[str] = frozenset()) -> str:
    """Why it is not evicted wherever it is; empty: no reason."""
    if not pod.uid:
        return "it has no uid, so an eviction could hit another pod of its name"
    if _is_ours(pod, ours):
        return "it is one of our own"
    if pod.static:
        return "it is a static pod, which its kubelet would start again"
    if pod.of_daemon_set:
        return "a DaemonSet would create it again on this node"
    if pod.ended:
        return "it has ended"
    return "it is being deleted already" if pod.deleting_since else ""


def _is_ours(pod: Pod, ours: Set[str]) -> bool:
    """A guard is where this program runs. Anybody may give the label to a pod elsewhere, and to nobody's use but ours."""
    namespaces = {name.partition("/")[0] for name in ours}
    return pod.full_name in ours or (names.GUARDED_NODE in pod.labels and (not namespaces or pod.namespace in namespaces))
