"""What becomes of each pod if its node is rebooted, and if it is retired; and what a drain may do to a pod."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assessment import Place
from sidecar.drain.judgement.volumes import LocalItem
from sidecar.drain.vocabulary import NOT_AVAILABLE_YET, Fate, Intent, Policy
from sidecar.model import nodes
from sidecar.model.nodes import Pod
from sidecar.model.timestamps import to_seconds

_GONE_FOR_LONG: Final = (Fate.RETURNS, Fate.STRANDED, Fate.LOST)


@dataclass(frozen=True, slots=True)
class Fates:
    """What becomes of one pod, for each intent."""

    reboot: Fate
    retire: Fate
    why: str

    @property
    def stranded(self) -> bool:
        """The application lacks this pod for as long as the node is away, or for good."""
        return self.reboot in _GONE_FOR_LONG or self.retire in _GONE_FOR_LONG


def fates_of(pod: Pod, held: Sequence[LocalItem], place: Place | None, *, anew: bool = False) -> Fates:
    """`held` are the volumes of this driver that it uses; `place` is where they could move to, if that was checked. `anew`: the node's
    sidecar makes replicas anew."""
    if pod.stays:
        kind = "a static pod" if pod.static else "a DaemonSet's pod"
        return Fates(Fate.STAYS, Fate.STAYS, f"{kind}: no drain evicts it")
    in_use = tuple(item for item in held if item.in_use)
    if pod.owner is None:
        return Fates(Fate.LOST, Fate.LOST, "no controller owns it, so an eviction would delete it for good")
    if not in_use:
        return Fates(Fate.MOVES_FREE, Fate.MOVES_FREE, "no volume keeps it on this node")
    kept = _stays_here(in_use)
    if place is None or not place.node:
        return kept
    # For a reboot nobody moves data or gives it up: the disks come back.
    retire = _moves(in_use, place, anew=anew) or kept
    return Fates(kept.reboot, retire.retire, "; ".join(dict.fromkeys((kept.why, retire.why))))


def overdue_seconds(pod: Pod, now: float) -> float:
    """How many seconds ago it should have ended; negative while it has time, or if nobody asked it to end."""
    due = to_seconds(pod.deleting_since)
    return -1.0 if due is None else now - due


def counts_as_gone(pod: Pod, snapshot: Snapshot) -> bool:
    """Its node does not answer, so nobody will ever report that it has ended; waiting for that would block for ever."""
    unanswered = snapshot.node is not None and snapshot.node.ready == nodes.UNKNOWN
    return unanswered and overdue_seconds(pod, snapshot.now) > snapshot.skip_terminating_after


def running(snapshot: Snapshot) -> list[Pod]:
    """Pods of the node that have not ended and do not count as gone."""
    return [pod for pod in snapshot.pods if not pod.ended and not counts_as_gone(pod, snapshot)]


def is_bare(pod: Pod) -> bool:
    """Nothing creates it again after an eviction, and nobody has asked it to end yet."""
    return pod.owner is None and not pod.stays and not pod.deleting_since


def _moves(in_use: tuple[LocalItem, ...], place: Place, *, anew: bool) -> Fates | None:
    policies = {resolved.policy for item in in_use if (resolved := item.policy(Intent.RETIRE))}
    if not policies <= set(NOT_AVAILABLE_YET):
        return None
    if Policy.MIGRATE in policies:
        return Fates(Fate.MIGRATED, Fate.MIGRATED, f"{_names(in_use)} would move with it to {place.node}, which this release cannot do yet")
    undone = "as soon as its locks are open" if anew else "which this sidecar does not do"
    why = f"{_names(in_use)} would be created again, empty, on {place.node}, {undone}"
    return Fates(Fate.REPROVISIONED, Fate.REPROVISIONED, why)


def _stays_here(in_use: tuple[LocalItem, ...]) -> Fates:
    waits = f"only this node has {_names(in_use)}: rebooted, the pod stays Pending until the node is uncordoned"
    if all(_ignored(item) for item in in_use):
        return Fates(Fate.RETURNS, Fate.LOST, f"{waits}; retired, its data is lost, as the policy Ignore permits")
    return Fates(Fate.RETURNS, Fate.STRANDED, f"{waits}; retired, it stays Pending for as long as its claims exist")


def _ignored(held: LocalItem) -> bool:
    resolved = held.policy(Intent.RETIRE)
    return resolved is not None and resolved.policy is Policy.IGNORE


def _names(held: tuple[LocalItem, ...]) -> str:
    return ", ".join(item.name for item in held)
