"""Who uses a volume of this node, or is about to. An evicted pod that is made again still uses its volume, wherever it waits.

Between an eviction and the new pod nobody names the claim, for some seconds. So a claim that a pod has named counts as used for a minute
after (`RecentUse`). That is not stored: a process that has just begun takes every claim for lately used for its first minute.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sidecar.drain.snapshot import Snapshot
from sidecar.drain.words import first_few
from sidecar.model.nodes import Pod
from sidecar.model.objects import Claim, Volume

LATELY: Final = 60.0
"""Seconds. Controllers make a pod again within seconds; one that takes longer is found by the list of pods without a node."""
MADE_AGAIN_WITHIN: Final = 30.0
_MANY: Final = 1000
"""Names that are kept before those that count no more are looked for: tenants may make pods without end."""


class RecentUse:
    """One per process: by claim, when a pod that drains evict named it last."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._named_at: dict[str, float] = {}
        self._began: float | None = None

    def began(self) -> None:
        """From now on this process sees which pods name which claims; told again, nothing changes."""
        self._began = self._clock() if self._began is None else self._began

    def named(self, pod: Pod) -> None:
        """This pod names its claims now, or did until now."""
        now = self._clock()
        if len(self._named_at) > _MANY:
            self._named_at = {claim: at for claim, at in self._named_at.items() if now - at < 2 * LATELY}
        if not (pod.stays or pod.ended):
            self._named_at |= dict.fromkeys(pod.claim_names, now)

    def among(self, claims: Iterable[str], *, listed_at: float = float("inf")) -> frozenset[str]:
        """Those of these claims (`namespace/name`) that count as used, whoever uses them now.

        `listed_at`: when the pods without a node were listed last. One that was made again since would not be among them.
        """
        now = self._clock()
        if self._began is None or now - self._began < LATELY:
            return frozenset(claims)
        named = {claim: self._named_at[claim] for claim in claims if claim in self._named_at}
        return frozenset(claim for claim, at in named.items() if now - at < LATELY or listed_at < at + MADE_AGAIN_WITHIN)


@dataclass(frozen=True, slots=True)
class Use:
    """Whatever shows that a volume is in use; all of it empty: nothing does."""

    pods: tuple[Pod, ...] = ()
    """Of this node."""
    claimants: tuple[Pod, ...] = ()
    """Without a node, or on another one."""
    attached: bool = False
    lately: bool = False

    def __bool__(self) -> bool:
        return bool(self.pods or self.claimants or self.attached or self.lately)

    @property
    def everybody(self) -> tuple[Pod, ...]:
        return (*self.pods, *self.claimants)

    @property
    def evicts_nobody(self) -> bool:
        """All who use it are pods that no drain evicts. One that was evicted a moment ago is none, and it is not known who that was."""
        return bool(self.everybody) and not self.lately and all(pod.stays for pod in self.everybody)

    @property
    def says(self) -> str:
        """Why it counts as in use; empty: it does not."""
        if self.pods:
            return f"used by {first_few([pod.full_name for pod in self.pods], 1)}"
        if self.claimants:
            first = self.claimants[0]
            where = f"on node {first.node}" if first.node else "which waits for a node"
            return f"pod {first_few([pod.full_name for pod in self.claimants], 1)}, {where}, names its claim"
        if self.attached:
            return "it is attached to this node"
        return "a pod used it until a moment ago, or may have: that counts for a minute" if self.lately else ""


NOBODY: Final = Use()


class Users:
    """All pods by the claims that they name, and by the claims that are made for them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._here = _by_claim(sorted(snapshot.running, key=lambda pod: pod.full_name))
        self._elsewhere = _by_claim(sorted(snapshot.claimants, key=lambda pod: (pod.full_name, pod.uid)))
        self._ephemeral = {(pod.uid, pod.namespace, claim) for pod in (*snapshot.pods, *snapshot.claimants) for claim in pod.ephemeral}
        self._attached, self._lately = snapshot.attached, snapshot.own.lately_used

    def of(self, volume: Volume, claim_name: str) -> Use:
        """`claim_name` is the full name of the claim that it is bound to; empty for none."""
        return Use(
            pods=tuple(self._here.get(claim_name, ())),
            claimants=tuple(self._elsewhere.get(claim_name, ())),
            attached=volume.name in self._attached,
            lately=claim_name in self._lately,
        )

    def asks_for(self, claim: Claim) -> bool:
        """A pod asked for it as a generic ephemeral volume. That a pod owns it is not enough: anybody may name a pod as owner."""
        return claim.owner is not None and (claim.owner.uid, claim.namespace, claim.name) in self._ephemeral


def _by_claim(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        for claim in dict.fromkeys(pod.claim_names):
            found[claim].append(pod)
    return found
