"""Finds who uses a volume of this node, or is about to. An evicted pod that is made again still uses its volume, wherever it waits."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.wording import LATELY
from sidecar.model import timestamps
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Volume

JUST_BEGUN: Final = "its sidecar has just begun, so it is not known yet whether a pod used it in the last minute"


@dataclass(frozen=True, slots=True)
class Use:
    """Whatever shows that a volume is in use; all of it empty: nothing does."""

    pods: tuple[Pod, ...] = ()
    """Of this node."""
    claimants: tuple[Pod, ...] = ()
    """Without a node, or on another one."""
    attached: bool = False
    lately: bool = False
    """A pod named its claim a moment ago, or may have. Between an eviction and the new pod nobody does."""
    certain: bool = True
    """A pod was seen to name its claim: it is not only not known that none did."""
    until: float | None = None
    """When `lately` ends, as far as that is known."""

    def __bool__(self) -> bool:
        return bool(self.pods or self.claimants or self.attached or self.lately)

    @property
    def seen(self) -> bool:
        """Somebody was seen to use it."""
        return bool(self.pods or self.claimants or self.attached or (self.lately and self.certain))

    @property
    def everybody(self) -> tuple[Pod, ...]:
        return (*self.pods, *self.claimants)

    @property
    def says(self) -> str:
        """Why it counts as in use, if no pod of this node shows it."""
        if self.claimants:
            first, rest = self.claimants[0], len(self.claimants) - 1
            where = f" on node {first.node}" if first.node else ", which waits for a node,"
            more = "" if not rest else f", and {rest} more pod{'s' if rest > 1 else ''}"
            return f"pod {first.full_name}{where} names its claim{more}"
        if self.attached:
            return "it is attached to this node"
        if not self.lately:
            return ""
        if not self.certain:
            return JUST_BEGUN
        ends = f" until {timestamps.to_text(self.until)}" if self.until is not None else " for a minute"
        return f"{LATELY}: it counts as used{ends}, because that pod may be made again"


NOBODY = Use()


class Users:
    """All pods by the claims that they name, and by the claims that are made for them."""

    def __init__(self, snapshot: Snapshot, running: Iterable[Pod]) -> None:
        """`running` are the pods of this node without those counted as gone."""
        here = sorted(running, key=lambda pod: pod.full_name)
        seen = {pod.full_name for pod in here}
        elsewhere = (pod for pod in snapshot.claimants if not pod.ended and pod.full_name not in seen)
        self._here = _by_claim(here)
        self._elsewhere = _by_claim(sorted(elsewhere, key=lambda pod: (pod.full_name, pod.uid)))
        self._ephemeral = {(pod.uid, pod.namespace, claim) for pod in (*snapshot.pods, *snapshot.claimants) for claim in pod.ephemeral}
        self._attached = snapshot.attached
        self._lately = snapshot.lately_used
        self._named = snapshot.lately_named
        self._until = snapshot.lately_until

    def of(self, volume: Volume, claim_name: str) -> Use:
        """`claim_name` is the full name of the claim that it is bound to; empty for none."""
        return Use(
            pods=tuple(self._here.get(claim_name, ())),
            claimants=tuple(self._elsewhere.get(claim_name, ())),
            attached=volume.name in self._attached,
            lately=claim_name in self._lately,
            certain=claim_name in self._named,
            until=self._until.get(claim_name),
        )

    def asks_for(self, claim: Claim) -> bool:
        """A pod asked for it as a generic ephemeral volume. That a pod owns it is not enough: anybody may name a pod as owner."""
        return claim.owner is not None and (claim.owner.uid, claim.namespace, claim.name) in self._ephemeral


def _by_claim(pods: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        for claim in dict.fromkeys(pod.claim_names):
            found[claim].append(pod)
    return found
