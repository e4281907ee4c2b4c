"""Until when something that is under way goes on at the latest. Only what has a fixed end is told: nothing is estimated."""

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.drain.publish.own_word import OwnWord
from sidecar.model import timestamps
from sidecar.model.objects import Json


@dataclass(frozen=True, slots=True)
class End:
    """Something that is over at that time at the latest."""

    what: str
    at: float

    def as_json(self) -> Json:
        return {"what": self.what, "at": timestamps.to_text(self.at)}

    def __str__(self) -> str:
        return f"{self.what}: until {timestamps.to_text(self.at)}"


def ends(word: OwnWord | None, now: float) -> tuple[End, ...]:
    """Those that are still to come."""
    return tuple(sorted((end for end in _of_word(word) if end.at > now), key=lambda end: end.at))


def _of_word(word: OwnWord | None) -> Iterable[End]:
    if word is None:
        return
    if word.deadline is not None and word.evacuation:
        yield End(f"evacuation {word.evacuation}", word.deadline)
    if word.valid_until is not None:
        yield End("what its own sidecar says holds", word.valid_until)
