"""Until when something that is under way goes on at the latest. Only what has a fixed end is told: nothing is estimated."""

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.drain.facts.assembly import LONGEST_WAIT
from sidecar.drain.judgement.assessment import Blocker
from sidecar.drain.publish.as_json import named
from sidecar.drain.publish.own_word import OwnWord
from sidecar.drain.vocabulary import Reason
from sidecar.model import timestamps
from sidecar.model.objects import Claim, Json


@dataclass(frozen=True, slots=True)
class End:
    """Something that is over at that time at the latest."""

    what: str
    at: float

    def as_json(self) -> Json:
        return {"what": self.what, "at": timestamps.to_text(self.at)}

    def __str__(self) -> str:
        return f"{self.what}: until {timestamps.to_text(self.at)}"


def ends(word: OwnWord | None, blockers: Iterable[Blocker], claims: Iterable[Claim], now: float) -> tuple[End, ...]:
    """Those that are still to come, the first one first. `claims` are those that wait for a volume."""
    found = (*_of_word(word), *_of_creations(blockers, claims))
    return tuple(sorted((end for end in found if end.at > now), key=lambda end: (end.at, end.what)))


def _of_creations(blockers: Iterable[Blocker], claims: Iterable[Claim]) -> Iterable[End]:
    """From outside nothing is known to have begun, so a creation counts for so long and no longer."""
    made = {claim.uid: timestamps.to_seconds(claim.created) for claim in claims}
    for blocker in blockers:
        at = made.get(blocker.uid) if blocker.reason is Reason.PROVISIONING_IN_FLIGHT else None
        if at is not None:
            yield End(f"{named(blocker)}: {blocker.reason}, if nothing has begun", at + LONGEST_WAIT)


def _of_word(word: OwnWord | None) -> Iterable[End]:
    if word is None:
        return
    if word.deadline is not None and word.evacuation:
        yield End(f"evacuation {word.evacuation}", word.deadline)
    if word.valid_until is not None:
        yield End("what its own sidecar says holds", word.valid_until)
