"""Remembers which writes the API server forbids, and when each may be tried again. It has no clock: the time is a parameter."""

from dataclasses import dataclass

from sidecar.engine.backoff import Backoff


@dataclass(frozen=True, slots=True)
class _Refusal:
    count: int
    until: float
    why: str


class ForbiddenWrites:
    """By class and kind of write. Missing rights do not come by asking, so the pauses grow to the cap of the back-off: a poll does not end
    them, nor does a change of the figure. The first are short, for a server that has just started may forbid everything for a moment."""

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._refusals: dict[tuple[str, str], _Refusal] = {}

    def until(self, class_name: str, write: str) -> float:
        """When it may be tried again; 0.0 if it was not forbidden."""
        refusal = self._refusals.get((class_name, write))
        return refusal.until if refusal else 0.0

    def refused(self, class_name: str, write: str, why: str, now: float) -> bool:
        """Notes a refusal, and says whether it is news."""
        before = self._refusals.get((class_name, write))
        count = before.count if before else 0
        self._refusals[class_name, write] = _Refusal(count + 1, now + self._retry.delay(count), why)
        return before is None or before.why != why

    def allowed(self, class_name: str, write: str) -> bool:
        """Notes a success, and says whether it is news."""
        return self._refusals.pop((class_name, write), None) is not None

    def forget(self, class_name: str) -> None:
        self._refusals = {key: value for key, value in self._refusals.items() if key[0] != class_name}

    def classes(self) -> int:
        """Of how many classes something may not be written."""
        return len({class_name for class_name, _ in self._refusals})
