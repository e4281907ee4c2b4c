"""What was seen of each held object of a kind that several watches by label bring: how lately, and whether a watch still shows it.

A server tells of an object that a watch no longer selects as of one that is gone: DELETED. So one of the two, a *departure*, becomes known
by asking for the object alone. One that is there and that no watch selects is a *stray*: it is asked for by name now and then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.kube.api import WatchEvent
from sidecar.model.objects import Json
from sidecar.model.selectors import parse_selector

# Between two questions about a stray, on average, at first. While it stays as it is, each pause is twice the one before.
ASKED_EVERY: Final = 30.0
_LONGEST: Final = 480.0
_SPREAD: Final = 0.2
SOONEST: Final = ASKED_EVERY * (1.0 - _SPREAD)
# What a slow watch brings of an object is older than what a quick one has brought of its end, for as long as it is behind.
_MOST_GONE: Final = 1000


@dataclass(frozen=True, slots=True)
class Sighting:
    """An object as a list, a watch or a question has shown it."""

    key: str
    name: str
    namespace: str
    uid: str
    version: str

    def gone(self) -> WatchEvent:
        """As a watch would tell it. Nothing is known of the version at which it went."""
        meta = {"name": self.name, "uid": self.uid, "resourceVersion": self.version}
        return WatchEvent("DELETED", {"metadata": meta | ({"namespace": self.namespace} if self.namespace else {})})


def sighting_of(key: str, obj: Json) -> Sighting:
    meta = obj["metadata"]
    return Sighting(key, meta["name"], meta.get("namespace") or "", meta.get("uid") or "", meta.get("resourceVersion") or "")


@dataclass(frozen=True, slots=True)
class _Question:
    """About a stray: when it is due, and how long after the one before, on average."""

    due: float
    pause: float


class Sightings:
    """`holds`: whether the store has a record with that key."""

    def __init__(
        self, selectors: Sequence[str], *, holds: Callable[[str], bool], clock: Callable[[], float], rng: Callable[[], float]
    ) -> None:
        self._selectors = tuple(parse_selector(text) for text in selectors)
        self._holds = holds
        self._clock = clock
        self._rng = rng
        self._seen: dict[str, Sighting] = {}
        self._gone: dict[str, None] = {}
        """The uids of what is gone, the latest ones last."""
        self._strays: dict[str, _Question] = {}

    def seen(self, key: str) -> Sighting | None:
        return self._seen.get(key)

    def is_old(self, told: Sighting) -> bool:
        """As new or newer is known already: one watch may be behind another."""
        known = self._seen.get(told.key)
        return told.uid in self._gone or (known is not None and is_not_after(told.version, known.version))

    def shown(self, told: Sighting, obj: Json) -> None:
        """It is there, and the store has been told."""
        key = told.key
        if not self._holds(key):
            self._forget(key)
            return
        before, self._seen[key] = self._seen.get(key), told
        if self._is_selected(obj):
            self._strays.pop(key, None)
        elif before != told or key not in self._strays:
            self._strays[key] = self._question(ASKED_EVERY)

    def is_gone(self, told: Sighting) -> None:
        """The server has said so, and the store has been told. Of what was never held nothing is noted: it may enter another selector."""
        if told.key not in self._seen:
            return
        self._forget(told.key)
        if told.uid:
            self._gone[told.uid] = None
        while len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def listed(self) -> None:
        """A list is complete: what the store does not have now is not there. A server that was restored may have what was gone before."""
        self._gone.clear()
        for key in [key for key in self._seen if not self._holds(key)]:
            self._forget(key)

    def next_stray(self) -> tuple[Sighting, float] | None:
        """The one to be asked for first, and when."""
        if not self._strays:
            return None
        key = min(self._strays, key=lambda each: self._strays[each].due)
        return self._seen[key], self._strays[key].due

    def asked_for(self, key: str) -> None:
        """Whatever the answer is, not again for a while."""
        self._postpone(key, 1.0)

    def stays(self, key: str) -> None:
        """The answer has shown nothing new."""
        self._postpone(key, 2.0)

    def _postpone(self, key: str, factor: float) -> None:
        if (last := self._strays.get(key)) is not None:
            self._strays[key] = self._question(min(factor * last.pause, _LONGEST))

    @property
    def strays(self) -> int:
        return len(self._strays)

    def _forget(self, key: str) -> None:
        self._seen.pop(key, None)
        self._strays.pop(key, None)

    def _is_selected(self, obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return any(all(each.holds(labels) for each in selector) for selector in self._selectors)

    def _question(self, pause: float) -> "_Question":
        return _Question(next_question(self._clock(), self._rng, pause), pause)


def next_question(now: float, rng: Callable[[], float], pause: float = ASKED_EVERY) -> float:
    """When a stray that was asked for is to be asked for again, after that pause on average."""
    return now + pause * (1.0 - _SPREAD + 2.0 * _SPREAD * rng())


def is_not_after(version: str, other: str) -> bool:
    """Where versions cannot be compared, nothing is called old: each event then counts, as from a single watch."""
    return version.isdecimal() and other.isdecimal() and int(version) <= int(other)
