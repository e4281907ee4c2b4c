"""Pods that the API server does not let go, or whose claims it does not: for a while others have their turn."""

from collections.abc import Set
from typing import Final

from sidecar.drain.reprovision.lock import Refusal

# After so many refusals, for so many seconds.
_MOST_REFUSALS: Final = 2
_KEPT_FOR: Final = 120.0


class KeptPods:
    """By uid. All times are of the monotonic clock."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[int, float, Refusal]] = {}

    def see(self, there: Set[str]) -> None:
        """Uids of the pods of the node: all others are forgotten."""
        self._refused = {uid: each for uid, each in self._refused.items() if uid in there}

    def note(self, uid: str, refusal: Refusal, *, now: float) -> None:
        times = self._refused[uid][0] if uid in self._refused else 0
        self._refused[uid] = times + 1, now, refusal

    def why(self, uid: str, *, now: float) -> Refusal | None:
        """None: it may be tried, for the first time or again."""
        if uid not in self._refused:
            return None
        times, at, refusal = self._refused[uid]
        if times >= _MOST_REFUSALS and now - at >= _KEPT_FOR:
            del self._refused[uid]
            return None
        return refusal if times >= _MOST_REFUSALS else None
