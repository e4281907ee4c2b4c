"""Measures how far this node lags behind: the longest time that it lately waited for a write, for its turn, or for its watch of claims.

A node cannot measure the other nodes, so it assumes that they lag as much as itself. If a step of the race is shorter than the time in
which a write is done and seen, the second node bids against the first. Each such bid slows everything down further; on an overloaded
machine or API server this ends in a storm of conflicts. And while its watch is late, each claim seems to be open long after somebody has
taken it. How late it is, each answer tells that the watch has yet to show: a node's own bids, and what it found when it asked.
"""

from collections.abc import Callable
from typing import Final

# Seconds after which a measurement counts half: a load that has passed must not delay bids for long. A write or a watch that is later than
# this tells so more seldom, because it is no measurement before it has come.
_HALF_LIFE: Final = 5.0
# In seconds. A longer wait had other reasons than load, so no measurement counts for more than this.
_MOST: Final = 10.0
_MOST_OF_WRITE: Final = 30.0
_MOST_OF_WATCH: Final = 60.0
# Whose turns were late, of so many at most. A turn that is late now tells so itself, whoever was forgotten.
_MOST_PARTIES: Final = 1000
# Seconds after which a write that was refused is not on its way any more. It is tried again sooner (`pace.APART`), unless somebody else has
# done it, or it is put off because this node lags; and then it must not be what this node lags by.
_GIVEN_UP: Final = 20.0


class LocalDelay:
    """The lag of this node. What is under way counts with the time it has taken so far: a write that hangs is seen before it ends."""

    def __init__(self, *, watched: Callable[[], str] = lambda: "") -> None:
        """`watched`: the resourceVersion to which the watch of claims has come; empty while it is down."""
        self._watched = watched
        self._told: tuple[int, float] | None = None
        """What an answer has shown, and when: a resourceVersion that the watch had yet to come to."""
        self._come_to = 0
        """Where the watch was when it was last looked at, or something was told."""
        self._begun: dict[str, float] = {}
        """When writes were first tried that are under way, or are to be tried again. A dict keeps the order: the oldest comes first."""
        self._refused: dict[str, float] = {}
        """Those that are to be tried again, and when they were refused."""
        self._turns: dict[str, _Fading] = {}
        """By namespace: how late its turns were. One whose claims wait in a long line must not have the others put off theirs: each has a
        line of its own, on the other nodes too. The one that was late last comes last."""
        self._write = _Fading(_MOST_OF_WRITE, lasts=True)
        self._watch = _Fading(_MOST_OF_WATCH, lasts=True)

    def began(self, key: str, now: float) -> None:
        """A write that was refused has been under way since its first try."""
        self._refused.pop(key, None)
        self._begun.setdefault(key, now)

    def refused(self, key: str, now: float) -> None:
        """The API server did not take it, for now."""
        if key in self._begun:
            self._refused[key] = now

    def ended(self, key: str, now: float) -> None:
        """It has been answered, unless it was refused."""
        if key in self._begun and key not in self._refused:
            begun = self._begun.pop(key)
            before = self._write.now(now) if begun < self._write.at else 0.0
            self._write.set(max(before, now - begun), now)

    def dropped(self, key: str) -> None:
        """It is not going to be tried again."""
        if self._refused.pop(key, None) is not None:
            del self._begun[key]

    def late(self, seconds: float, now: float, namespace: str = "") -> None:
        """Records that a claim of that namespace had its turn this many seconds after it was due."""
        turns = self._turns.pop(namespace, None) or _Fading(_MOST)
        turns.set(max(turns.now(now), seconds), now)
        self._turns[namespace] = turns
        if len(self._turns) > _MOST_PARTIES:
            del self._turns[next(iter(self._turns))]

    def told(self, version: str, now: float) -> None:
        """Records what an answer has shown of what this node or others have written; the watch may have yet to show it."""
        watched = self._watched()
        if self._told is None and version.isdecimal() and watched.isdecimal():
            self._told, self._come_to = (int(version), now), int(watched)

    def now(self, now: float, namespace: str = "") -> float:
        """Seconds by which this node lags behind, with claims of that namespace."""
        if self._told is not None:
            self._look_at_watch(*self._told, now)
        told = now if self._told is None else self._told[1]
        turns, under_way = self._turns.get(namespace), now - self._oldest(now)
        return max(turns.now(now) if turns else 0.0, self._write.now(now), under_way) + max(self._watch.now(now), now - told)

    def _oldest(self, now: float) -> float:
        """When the oldest of those was first tried that are not done. What it took until one was given up is measured."""
        while (key := next(iter(self._begun), None)) is not None:
            refused = self._refused.get(key, now)
            if now - refused <= _GIVEN_UP:
                return self._begun[key]
            self._write.set(max(self._write.now(refused), refused - self._begun[key]), refused)
            self.dropped(key)
        return now

    def _look_at_watch(self, version: int, since: float, now: float) -> None:
        """While the watch has not come to what was told, it is late for as long as that has been known. When it came there is not known,
        but it has not taken longer than until now. One that has gone back, as after a restore from a backup, may never come there."""
        watched, passed, before = self._watched(), now - since, self._watch.now(now)
        if watched.isdecimal() and int(watched) < self._come_to:
            self._told = None
            return
        if watched.isdecimal() and int(watched) < version:
            self._watch.set(max(before, passed), now)
            self._come_to = int(watched)
            return
        self._told = None
        if watched.isdecimal() and passed < before:
            self._watch.set(passed, now)


class _Fading:
    """A measurement that counts less the older it is, and never for more than `most` seconds. One that `lasts` is not made anew before as
    many seconds have passed as it says."""

    def __init__(self, most: float, *, lasts: bool = False) -> None:
        self._most = most
        self._lasts = lasts
        self._seconds = 0.0
        self.at = 0.0

    def set(self, seconds: float, now: float) -> None:
        self._seconds, self.at = min(seconds, self._most), now

    def now(self, now: float) -> float:
        half_life = max(_HALF_LIFE, self._seconds) if self._lasts else _HALF_LIFE
        return float(self._seconds * 0.5 ** (max(now - self.at, 0.0) / half_life))
