"""Remembers since when claims wait here for a volume. Nothing in a claim says when it was given to this node.

It is not stored: a process that has just begun counts from its own beginning.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from sidecar.model.objects import Claim


class WaitingClaims:
    """One per process."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def seconds(self, claims: Iterable[Claim]) -> Mapping[str, float]:
        """By uid: how long it has waited, as far as this process has seen. Claims that are not among these are forgotten."""
        now = self._clock()
        self._since = {claim.uid: self._since.get(claim.uid, now) for claim in claims if not claim.volume_name}
        return MappingProxyType({uid: now - since for uid, since in self._since.items()})
