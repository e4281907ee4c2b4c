"""Remembers which claims a pod named a moment ago: whoever made that pod may be about to make it again, for the same volume.

It is not stored. A process that has just begun has seen no pod leave; on a node that somebody empties it therefore takes every claim for
lately used until `LATELY` has passed. On a node in peace it does not, so that a restart changes no verdict there.
"""

from collections.abc import Callable, Iterable
from typing import Final

from sidecar.model.nodes import Pod

LATELY: Final = 60.0
"""Seconds. Controllers make a pod again within seconds; one that is slowed down by many failures takes longer, and its pod is then found
by a list."""
# Names that are kept before the old ones are looked for between two looks at the node.
_MANY: Final = 1000


class RecentUse:
    """One per process."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._named_at: dict[str, float] = {}
        self._evictable_at: dict[str, float] = {}
        """When a pod that drains evict named the claim last."""
        self._began: float | None = None

    def began(self) -> None:
        """From now on pods are seen; told again, nothing changes."""
        self._began = self._clock() if self._began is None else self._began

    def named(self, pod: Pod) -> None:
        """This pod names its claims now, or did until now."""
        now = self._clock()
        if len(self._named_at) > _MANY:
            self._forget(now)
        named = dict.fromkeys(pod.claim_names, now)
        self._named_at |= named
        self._evictable_at |= {} if pod.stays else named

    def among(self, claims: Iterable[str], *, observed: bool) -> frozenset[str]:
        """Those of these claims (`namespace/name`) that count as used. `observed`: somebody empties the node."""
        self._forget(self._clock())
        return self._counted(claims, self._named_at, observed=observed)

    def evicted_among(self, claims: Iterable[str], *, observed: bool) -> frozenset[str]:
        """The same, by pods that drains evict. The claims are named by pods that stay, and these say nothing of the others."""
        return self._counted(claims, self._evictable_at, observed=observed)

    def _counted(self, claims: Iterable[str], at: dict[str, float], *, observed: bool) -> frozenset[str]:
        now, claims = self._clock(), tuple(claims)
        if observed and self._is_new(now):
            return frozenset(claims)
        return frozenset(claim for claim in claims if claim in at and now - at[claim] < LATELY)

    def seconds_left(self, claims: Iterable[str], *, observed: bool) -> dict[str, float]:
        """For how long each of these claims that count as used still does, if nobody names it again."""
        now, new = self._clock(), self._began + LATELY if observed and self._began is not None else 0.0
        return {claim: max(self._named_at.get(claim, -LATELY) + LATELY, new) - now for claim in claims}

    def named_among(self, claims: Iterable[str]) -> frozenset[str]:
        """Those that a pod was really seen to name, whatever this process has not seen yet."""
        return self._counted(claims, self._named_at, observed=False)

    def ends_at(self, claims: Iterable[str], *, observed: bool) -> float | None:
        """When the next of these claims counts no more, by the clock of this process."""
        now = self._clock()
        ends = [self._named_at[claim] + LATELY for claim in claims if claim in self._named_at]
        ends += [self._began + LATELY] if observed and self._began is not None else []
        return min((end for end in ends if end > now), default=None)

    def settled_at(self, claim: str) -> float:
        """Only what was read after this moment shows whether a pod was made again for the claim."""
        named_at = self._named_at.get(claim)
        ended = [] if named_at is None else [named_at + LATELY]
        ended += [self._began + LATELY] if self._began is not None else []
        return max((end for end in ended if end <= self._clock()), default=float("-inf"))

    def _is_new(self, now: float) -> bool:
        return self._began is not None and now - self._began < LATELY

    def _forget(self, now: float) -> None:
        """Twice as long as it counts: until then `settled_at` has to know it."""
        self._named_at = {claim: at for claim, at in self._named_at.items() if now - at < 2 * LATELY}
        self._evictable_at = {claim: at for claim, at in self._evictable_at.items() if now - at < 2 * LATELY}
