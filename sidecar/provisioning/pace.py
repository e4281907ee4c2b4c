"""How soon a claim or a volume that fails is tried again, whatever happens to it meanwhile. It has no clock: the time is a parameter.

A failure is followed by a pause. Its end is brought forward by what may have mended the claim: its owner edits it, it comes back from
another node, the driver is back. All of that may happen as often as a tenant likes, so it counts twice at once and then every 15 seconds.
"""

from dataclasses import dataclass, replace
from typing import Final

from sidecar.engine.backoff import Attempts, Backoff

APART: Final = 15.0
"""Seconds between two tries before the end of the pause."""
_AT_ONCE: Final = 2
_FORGIVEN: Final = 2
# In seconds, after the end of the pause, and in keys. To have one forgotten sooner, as many others have to fail first.
_REMEMBERED: Final = 600.0
_MOST_REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one claim, or one volume."""

    failures: int = 0
    due: float = 0.0
    """The end of the pause."""
    spent: float = 0.0
    """The tries before the end of a pause that were made, as the time until which they last: `APART` each."""

    def turn(self) -> float:
        """From when on the next try may be made."""
        return min(self.due, self.spent - (_AT_ONCE - 1) * APART)

    def why_later(self, why: str) -> str:
        """Why it is not tried now."""
        before = f"it has failed {self.failures} times" if self.failures else "it was tried a moment ago"
        return f"{before}; it is tried again later ({why})"

    def tried_early(self, now: float, *, ends_pause: bool) -> "Pace":
        return replace(self, spent=max(self.spent, now) + APART, due=now if ends_pause else self.due)


NO_PACE: Final = Pace()


class PacedAttempts(Attempts[str]):
    """Failures in a row, by the uid of a claim or the name of a volume. Those of a claim that leaves this node, or is done with, are
    remembered for a while, for the case that it comes back; `succeeded` forgets them."""

    def __init__(self) -> None:
        super().__init__()
        self._paces: dict[str, Pace] = {}
        self._left: dict[str, None] = {}
        """Those of claims that this node has nothing to do with any more; the first one goes first."""
        self._outages: dict[str, int] = {}
        """After the API server was away: how many failures are not waited for as long as they count. They may go by themselves: a server
        that has just started forbids everything for a moment."""
        self._made: dict[str, Pace] = {}
        """Of claims that have got their volume a moment ago. A late watch may show one again that is long gone, and then once more."""

    def pace(self, uid: str, now: float) -> Pace:
        pace = self._paces.get(uid) or self._made.get(uid, NO_PACE)
        return pace if uid not in self._left or now < pace.due + _REMEMBERED else NO_PACE

    def failed(self, uid: str, now: float, retry: Backoff) -> float:
        """Returns when to try again."""
        pace = self.pace(uid, now)
        self._left.pop(uid, None)
        self._counts[uid] = pace.failures
        self._paces[uid] = replace(pace, failures=pace.failures + 1, due=now + retry.delay(self.next(uid)))
        return self._paces[uid].due if not self._counts_less(uid) else min(self._paces[uid].due, now + APART)

    def waits(self, uid: str, now: float, retry: Backoff) -> float:
        """As `failed`, for want of the API server: tried again within `APART`, however long it has been away."""
        self._outages[uid] = _FORGIVEN + 1
        return self.failed(uid, now, retry)

    def _counts_less(self, uid: str) -> bool:
        left = self._outages.pop(uid, 0)
        if left > 1:
            self._outages[uid] = left - 1
        return left > 0

    def paused(self, uid: str, now: float, until: float) -> None:
        """Nothing has failed, but there is no reason to try before that time."""
        self._paces[uid] = replace(self.pace(uid, now), due=until)
        self._left.pop(uid, None)

    def leaves(self, uid: str, now: float) -> None:
        """If it comes back soon, that counts as one of the things that happen before the end of a pause."""
        if uid in self._paces:
            pace = self.pace(uid, now)
            self._paces[uid] = replace(pace, due=max(pace.due, now + APART))
        while self._left and self.pace(oldest := next(iter(self._left)), now) == NO_PACE:
            self._drop(oldest)

    def begun(self, uid: str, now: float, *, ends_pause: bool) -> Pace:
        """A try. `ends_pause`: it has more than one step, and each of them may be taken now."""
        pace = self.pace(uid, now)
        if now < pace.due:
            pace = self._paces[uid] = pace.tried_early(now, ends_pause=ends_pause)
        return pace

    def forget(self, key: str) -> None:
        super().forget(key)
        self._outages.pop(key, None)
        if key in self._paces:
            self._left.pop(key, None)
            self._left[key] = None
        if len(self._left) > _MOST_REMEMBERED:
            self._drop(next(iter(self._left)))

    def succeeded(self, uid: str, now: float) -> None:
        """Ends the failures. Making it another volume in the next seconds has the pace of a claim that fails."""
        spent = self.pace(uid, now).spent
        self._drop(uid)
        self._made.pop(uid, None)
        self._made[uid] = Pace(due=now + APART, spent=spent)
        if len(self._made) > _MOST_REMEMBERED:
            del self._made[next(iter(self._made))]

    def _drop(self, uid: str) -> None:
        super().forget(uid)
        self._outages.pop(uid, None)
        self._paces.pop(uid, None)
        self._left.pop(uid, None)
