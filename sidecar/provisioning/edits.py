"""Decides when a claim that has failed is tried again because somebody has edited it. It has no clock: the time is a parameter."""

from typing import Final

APART: Final = 15.0
"""Seconds between two tries of a claim that edits lead to."""
_MANY: Final = 1000


class Edits:
    """The first edit counts at once, and those that follow together: a tenant may edit a claim as often as it likes."""

    def __init__(self) -> None:
        self._turns: dict[str, float] = {}
        """By uid: when an edit has led to a look last, or will."""
        self._many = _MANY

    def turn(self, uid: str, now: float) -> float:
        """When to look at that claim."""
        last = self._turns.get(uid)
        if last is not None and last > now:
            return last
        at = now if last is None else max(now, last + APART)
        self._turns[uid] = at
        if len(self._turns) > self._many:
            self._turns = {uid: at for uid, at in self._turns.items() if at + APART > now}
            self._many = max(_MANY, 2 * len(self._turns))  # so what is looked through was put in since the last time
        return at
