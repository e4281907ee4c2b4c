"""How far this process has come with a claim or a volume: frozen values, and what follows one after another. Which claim has come how far
is in `progress_table`.
"""

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from typing import Final

from sidecar.model.objects import Claim
from sidecar.model.packed import PackedVolume
from sidecar.ownership.rules import Race

# In seconds. While the API server is away, nothing is wrong with the claim or the volume, and the driver's answer is lost if this process
# ends. So the write is tried again this soon, however long the outage has lasted.
UNSTORED: Final = 15.0

# In seconds. The watch shows what was stored within moments, and within a minute where it had to be opened anew. An object that it has not
# shown by then may have come and gone between two of its lists, or be one that this node does not keep.
BELIEVED: Final = 180.0


class RemovalStep(Enum):
    """The steps in which a volume is removed."""

    NOT_YET = 0
    EMPTIED = 1
    """The driver has said that its volume is gone."""
    REMOVED = 2
    """The API server has accepted the deletion of the PersistentVolume."""
    UNFINALIZED = 3
    """The API server has accepted the removal of our finalizer too."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Nothing is under way here. The state of the claim is in the cache."""


@dataclass(frozen=True, slots=True)
class Racing:
    """This node waits for its turn to bid for the claim, or to tell its user why nobody takes it."""

    race: Race


@dataclass(frozen=True, slots=True)
class Bidding:
    """The write by which this node takes the claim is under way."""

    claim: Claim
    race: Race | None
    """The race that goes on if the write fails; None for a node whose turn came at the first look."""


@dataclass(frozen=True, slots=True)
class Creating:
    """The driver was asked for the volume, and it is not known whether one exists. Meanwhile the journal holds a `CreationRecord`."""

    claim: Claim
    """The claim as it was when the driver was asked. It may be deleted meanwhile; the creation goes on all the same."""
    handle: bytes = b""
    """The mark of the handle that the driver has answered with, if its PersistentVolume was not stored and there was no room to keep it."""
    refusals: int = 0
    """As in `Unsaved`."""


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The volume exists, and the API server has not accepted its PersistentVolume yet."""

    claim: Claim
    body: PackedVolume = field(repr=False)
    handle: bytes
    refusals: int = 0
    """How often the API server has refused the PersistentVolume."""

    @classmethod
    def of(cls, claim: Claim, body: PackedVolume, refusals: int = 0) -> "Unsaved":
        return cls(claim, body, mark(body.handle), refusals)

    def unpacked(self) -> Creating:
        """Without the PersistentVolume: it is made anew from what the driver answers when it is asked again."""
        return Creating(self.claim, self.handle, self.refusals)


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The claim was handed back and no answer came. While the claim has this resourceVersion, the write may still succeed. So nothing may
    be created here: another node might create the volume too."""

    resource_version: str
    before: NotBegun | Racing | Creating
    """The progress that holds if the write did not succeed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The PersistentVolume is stored. The watch may not have shown it yet, and without this the driver would be asked once more."""

    handle: bytes
    """The mark of its handle."""
    since: float
    doubt_from: float
    """From then on, if the watch has not shown it, the API server is asked whether it is still there."""

    @classmethod
    def at(cls, now: float, handle: str) -> "Stored":
        return cls(mark(handle), now, now + BELIEVED)

    def found(self, now: float) -> float:
        """When to doubt it next, after it was there: ever more seldom."""
        return now + max(BELIEVED, now - self.since)

    def lost(self, claim: Claim) -> Creating:
        """The driver made the volume, and its PersistentVolume is gone without having been bound."""
        return Creating(claim, self.handle)


Progress = NotBegun | Racing | Bidding | Creating | Unsaved | HandedBack | Stored
NOT_BEGUN: Final = NotBegun()


def race_of(progress: Progress) -> Race | None:
    """Where this node stands in the race for the claim."""
    match progress:
        case Racing(race) | Bidding(race=race):
            return race
        case HandedBack(before=before):
            return race_of(before)
        case _:
            return None


def created_for(progress: Progress) -> Claim | None:
    """The claim for which a volume may exist without a PersistentVolume."""
    match progress:
        case Creating(claim) | Unsaved(claim):
            return claim
        case HandedBack(before=before):
            return created_for(before)
        case _:
            return None


def mark(handle: str) -> bytes:
    """Tells handles apart, and is short however long they are."""
    return sha256(handle.encode()).digest()


def volume_exists(progress: Progress) -> bool:
    """The driver has answered with a volume, and its PersistentVolume is not stored."""
    return isinstance(progress, Unsaved) or (isinstance(progress, Creating) and bool(progress.handle))


def refusals_of(progress: Progress) -> int:
    return progress.refusals if isinstance(progress, Creating | Unsaved) else 0


def asked(progress: Progress, claim: Claim) -> Creating:
    """The progress while the driver is asked for the volume, and after it has given no answer."""
    match progress:
        case Creating(_, handle, refusals):
            return Creating(claim, handle, refusals)
        case HandedBack(before=before):
            return asked(before, claim)
        case _:
            return Creating(claim)


def refused(progress: Progress) -> Progress:
    """The progress after the API server has refused the PersistentVolume."""
    return replace(progress, refusals=progress.refusals + 1) if isinstance(progress, Creating | Unsaved) else progress


def without_bid(progress: Progress) -> Progress:
    """The progress after a bid that failed: the race goes on as it was."""
    if not isinstance(progress, Bidding):
        return progress
    return NOT_BEGUN if progress.race is None else Racing(progress.race)


def with_race(progress: Progress, race: Race) -> Progress:
    """The progress with another race. A bid that is under way stays under way."""
    return replace(progress, race=race) if isinstance(progress, Bidding) else Racing(race)


def after_unanswered_hand_back(progress: Progress, resource_version: str) -> Progress:
    """The progress after a hand-back without an answer. A claim whose volume exists is never handed back, so its progress stays."""
    match progress:
        case HandedBack(before=before):
            return HandedBack(resource_version, before)
        case NotBegun() | Racing() | Creating():
            return HandedBack(resource_version, progress)
        case _:
            return progress


def competes(progress: Progress) -> bool:
    """Whether this node will bid for the claim. A node that may not bid has a race too, in which it waits to tell the claim's user."""
    race = race_of(progress)
    return race is not None and math.isfinite(race.bid_at)
