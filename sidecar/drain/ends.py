"""What becomes of each pod when its node is rebooted, and when it is retired."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.drain.assessment import Place
from sidecar.drain.volumes import Held, stays
from sidecar.drain.words import NOT_YET, End, Intent, Policy
from sidecar.model.nodes import Pod

_GONE_FOR_LONG: Final = (End.RETURNS, End.STRANDED, End.LOST)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both ends of a pod."""

    reboot: End
    retire: End
    why: str

    @property
    def stranded(self) -> bool:
        """Its place in the application stays empty for as long as the node is away, or for good."""
        return self.reboot in _GONE_FOR_LONG or self.retire in _GONE_FOR_LONG


def outcome_of(pod: Pod, held: Sequence[Held], place: Place | None) -> Outcome:
    """`held` are the volumes of ours it uses, `place` where those could go that may go, if that was looked at."""
    if stays(pod):
        kind = "a static pod" if pod.static else "a DaemonSet's pod"
        return Outcome(End.STAYS, End.STAYS, f"{kind}: nobody evicts it")
    pinned = tuple(item for item in held if item.pinned)
    if pod.owner is None:
        return Outcome(End.LOST, End.LOST, "nothing would make it again after an eviction")
    if not pinned:
        return Outcome(End.MOVES_FREE, End.MOVES_FREE, "nothing of ours keeps it on this node")
    return _moved(pinned, place) or _kept(pinned)


def bare(pod: Pod) -> bool:
    """Evicting it would be its end, and nobody has asked for that yet."""
    return pod.owner is None and not stays(pod) and not pod.deleting_since


def _moved(pinned: tuple[Held, ...], place: Place | None) -> Outcome | None:
    policies = {item.fixed_policy for item in pinned}
    if place is None or not place.node or not policies <= set(NOT_YET):
        return None
    if Policy.MIGRATE in policies:
        return Outcome(End.MIGRATED, End.MIGRATED, f"{_names(pinned)} would move with it to {place.node}, which cannot be done yet")
    why = f"{_names(pinned)} would be made anew, empty, on {place.node}, which cannot be done yet"
    return Outcome(End.REPROVISIONED, End.REPROVISIONED, why)


def _kept(pinned: tuple[Held, ...]) -> Outcome:
    waits = f"{_names(pinned)} can be reached on this node alone: a reboot it sits out"
    if all(_ignored(item) for item in pinned):
        return Outcome(End.RETURNS, End.LOST, f"{waits}; with the node's disks its data goes, as the policy Ignore permits")
    return Outcome(End.RETURNS, End.STRANDED, f"{waits}; without the node it can run nowhere while its claims exist")


def _ignored(held: Held) -> bool:
    resolved = held.policy(Intent.RETIRE)
    return resolved is not None and resolved.policy is Policy.IGNORE


def _names(held: tuple[Held, ...]) -> str:
    return ", ".join(item.name for item in held)
