"""Records how far this process has come with each claim and volume: frozen values, and the table that holds them. No cache shows this.

All of it is lost when the process ends. What the next process has to know is written to the `journal`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from typing import Final

from sidecar.model.objects import Claim, Volume
from sidecar.model.packed import PackedVolume
from sidecar.ownership.rules import Race, waits_for_room
from sidecar.ownership.waiting import Waiting, Want
from sidecar.provisioning.creations.creation_record import CreationRecord, suspect_key
from sidecar.provisioning.needs import Ref

# In seconds. While the API server is away, nothing is wrong with the claim or the volume, and the driver's answer is lost if this process
# ends. So the write is tried again this soon, however long the outage has lasted.
UNSTORED: Final = 15.0
_ENOUGH_FAILURES: Final = 3

# In seconds. The watch shows what was stored within moments, and within a minute where it had to be opened anew. An object that it has not
# shown by then may have come and gone between two of its lists, or be one that this node does not keep.
BELIEVED: Final = 180.0
# In seconds. What was stored while every PersistentVolume was listed is shown by the watch that follows.
_SHOWN_AFTER_A_LIST: Final = 10.0
# Of what is doubted, so many are looked at at a time: each costs a request at least, and new claims must not wait for all of them.
MOST_DOUBTED: Final = 100

# To have one forgotten sooner, as many others have to fail first.
MOST_FAILED: Final = 1000

# The watch shows within moments what was stored. What came and went between two of its lists it never does.
MOST_UNSEEN: Final = 1000


# In bytes, of all PersistentVolumes together that wait for the API server. A container has 128 MiB, of which an instance takes 50 to 60; a
# driver may put 256 KiB into each of them, and the outage of an evening collects hundreds. Beyond this the driver is asked for the volume
# again, which finds it by its name. Of the usual 2 KiB, 8,000 are kept.
MOST_KEPT: Final = 2**24


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The driver is not asked again before that time, unless the class is replaced."""

    until: float
    class_uid: str


@dataclass(frozen=True, slots=True)
class SourceHold:
    """Our finalizer on the source of the volume. It is written before the first creation and needed until the volume is stored."""

    source: Ref | None = None
    """The source. Another claim that is done with the same source must not take our finalizer off it."""
    just_written: bool = False
    """The finalizer was put on a moment ago. If the next look does not find it, something else takes it off again."""
    forbidden: bool = False
    """The API server forbids to put the finalizer on."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was learnt about a claim. It is kept apart from the progress because it stays true when that changes: a claim that cannot
    be handed back still cannot be after the next creation has failed. When the claim is forgotten, only that it failed is remembered."""

    source: SourceHold = SourceHold()
    infeasible: Infeasible | None = None
    hand_back_refused: str = ""
    """Why the API server refused the write that hands the claim back; then the claim is provisioned here. Empty: it did not refuse."""
    hopeless: bool = False
    """The last attempt failed for a reason that another attempt will not change, so no space is reserved until something changes."""
    failures: int = 0
    """How many attempts have failed, of whatever kind, without the driver being away."""
    creating_since: float | None = None
    """When the driver was last asked for the claim's volume."""
    clash: str = ""
    """The handle of which the claim's user was told that it is another's."""
    release_turn: float | None = None
    """When this node may release the claim, a source of clones, in place of the node that has its volume."""

    @property
    def remembered(self) -> "Findings":
        """What is kept of it for the case that the claim comes back: somebody may move it away and back all the time."""
        return Findings(hopeless=self.hopeless, failures=self.failures)


NOTHING_FOUND: Final = Findings()


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


def _want_of(progress: Progress) -> Want | None:
    race = race_of(progress)
    return race.want if race is not None and waits_for_room(race) else None


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


def _takes_claim(progress: Progress) -> Claim | None:
    return progress.claim if isinstance(progress, Bidding) else created_for(progress)


def _handle_of(progress: Progress) -> bytes:
    return progress.handle if isinstance(progress, Creating | Unsaved) else b""


def _size(progress: Progress) -> int:
    return len(progress.body.text) + len(progress.body.handle) if isinstance(progress, Unsaved) else 0


def _is_in_vain(findings: Findings) -> bool:
    return findings.hopeless or findings.failures >= _ENOUGH_FAILURES


def _deletes(record: CreationRecord, handle: str) -> bool:
    return record.deletion is not None and record.deletion.handle == handle


class ProgressTable:
    """The progress of claims, by uid, and of volumes that are being removed, by name."""

    def __init__(self) -> None:
        self._claims: dict[str, Progress] = {}
        self.waiting = Waiting()
        """The claims that this node competes for and found no room for so far."""
        self._by_handle: dict[bytes, dict[str, None]] = {}
        """By the mark of a handle that the driver has given: the claims. A thousand claims may be stored at once, and each asks."""
        self._findings: dict[str, Findings] = {}
        self._failed: dict[str, Findings] = {}
        """Of claims that have failed and were forgotten. The first one goes first."""
        self._in_hand: set[str] = set()
        """Claims whose creation a worker is busy with, from the call of the driver to what follows from its answer. This is not part of the
        progress because it ends when the worker does, however that ends."""
        self._removal_steps: dict[str, tuple[str, RemovalStep]] = {}
        self._doubted: set[str] = set()
        self._records: dict[str, CreationRecord] = {}
        self._deleting: set[str] = set()
        """Those of the records that tell of a deletion: few, and each new volume asks them."""
        self._from_file: set[str] = set()
        """Those of the records that an earlier process has left: few as well."""
        self._suspects: dict[str, CreationRecord] = {}
        """By key."""
        self._unseen: dict[str, str] = {}
        self._kept = 0
        self.on_change: Callable[[str], None] = lambda uid: None
        """Called when the progress of a claim has changed, or what was found out about it says otherwise whether it takes space."""

    def progress(self, uid: str) -> Progress:
        return self._claims.get(uid, NOT_BEGUN)

    def advance(self, uid: str, progress: Progress) -> None:
        before = self._claims.pop(uid, NOT_BEGUN)
        self.waiting.change(uid, _want_of(before), _want_of(progress))
        if isinstance(before, NotBegun | Racing) and isinstance(progress, Racing):
            self._claims[uid] = progress  # nothing is promised, kept or named by a race: most claims that are looked at go elsewhere
            return
        self._kept -= _size(before)
        if isinstance(progress, Unsaved) and self._kept + _size(progress) > MOST_KEPT:
            progress = progress.unpacked()
        if not isinstance(progress, NotBegun):
            self._claims[uid] = progress
            self._kept += _size(progress)
        self._note_handle(uid, _handle_of(before), _handle_of(progress))
        self.on_change(uid)

    def _note_handle(self, uid: str, before: bytes, after: bytes) -> None:
        if before and before != after:
            del self._by_handle[before][uid]
            if not self._by_handle[before]:
                del self._by_handle[before]
        if after and before != after:
            self._by_handle.setdefault(after, {})[uid] = None

    def kept(self) -> int:
        """The bytes of the PersistentVolumes that wait for the API server; at most MOST_KEPT."""
        return self._kept

    def findings(self, uid: str) -> Findings:
        return self._findings.get(uid) or self._failed.get(uid, NOTHING_FOUND)

    def learn(self, uid: str, findings: Findings) -> None:
        before, self._findings[uid] = self.findings(uid), findings
        self._failed.pop(uid, None)
        if _is_in_vain(before) != _is_in_vain(findings):
            self.on_change(uid)

    @contextmanager
    def in_hand(self, uid: str) -> Iterator[None]:
        """While a worker is busy with the claim's creation, the claim concerns this node, whatever its progress says."""
        self._in_hand.add(uid)
        try:
            yield
        finally:
            self._in_hand.discard(uid)

    def forget(self, uid: str) -> None:
        self.advance(uid, NOT_BEGUN)
        if (left := self._findings.pop(uid, NOTHING_FOUND).remembered) != NOTHING_FOUND:
            self._failed[uid] = left
            if len(self._failed) > MOST_FAILED:
                del self._failed[next(iter(self._failed))]
        self._in_hand.discard(uid)
        self._doubted.discard(uid)
        self.on_change(uid)

    def keep_record(self, record: CreationRecord) -> None:
        """Keeps a record, because a volume may exist from now on. It stays when the claim is forgotten: the volume would be left behind."""
        self._records[record.uid] = record
        (self._deleting.discard if record.deletion is None else self._deleting.add)(record.uid)
        (self._from_file.add if record.from_file else self._from_file.discard)(record.uid)
        # Under another name it stays: what may still be deleted must be given to nobody, also not to the claim itself.
        self._suspects.pop(suspect_key(record.uid, record.request.name), None)

    def keep_suspect(self, record: CreationRecord) -> None:
        """Keeps what is left to people, apart from what this program sees to."""
        own = self._records.get(record.uid)
        if own is not None and own.request.name == record.request.name:
            self.drop_record(record.uid)
        self._suspects[record.key] = record

    def drop_suspect(self, key: str) -> list[str]:
        """Returns which were dropped: of what an older version has written the key is a uid."""
        found = [each for each, suspect in self._suspects.items() if key in (each, suspect.uid)]
        for each in found:
            del self._suspects[each]
        return found

    def suspect(self, uid: str, volume_name: str) -> CreationRecord | None:
        return self._suspects.get(suspect_key(uid, volume_name))

    def suspects(self) -> int:
        return len(self._suspects)

    def record(self, uid: str) -> CreationRecord | None:
        return self._records.get(uid)

    def drop_record(self, uid: str) -> bool:
        """Drops the record of a creation of which nothing is left, or whose PersistentVolume is stored. Returns whether there was one."""
        self._deleting.discard(uid)
        self._from_file.discard(uid)
        return self._records.pop(uid, None) is not None

    def doubt(self, uid: str) -> None:
        """Notes that the claim's PersistentVolume is gone. Either the claim went first and its watch is late, or a new volume is needed."""
        self._doubted.add(uid)

    def doubts(self, uid: str) -> bool:
        return uid in self._doubted

    def settle_doubt(self, uid: str) -> None:
        """Ends the doubt: the claim exists and is unbound, so what was stored for it is gone and is created again."""
        self._doubted.discard(uid)
        if isinstance(self.progress(uid), Stored):
            self.advance(uid, NOT_BEGUN)

    def doubt_stored(self, now: float, *, shown: Callable[[str], bool]) -> None:
        """A list of all PersistentVolumes is complete: what is stored and was not shown may be asked for in a moment."""
        for uid, progress in self._claims.items():
            if isinstance(progress, Stored) and progress.doubt_from > now + _SHOWN_AFTER_A_LIST and not shown(uid):
                self._claims[uid] = replace(progress, doubt_from=now + _SHOWN_AFTER_A_LIST)

    def doubtful(self, now: float, *, shown: Callable[[str], bool]) -> list[str]:
        """The claims whose PersistentVolume is stored, was not shown, and is to be doubted by now; not all at once, the longest first."""
        stored = ((progress.doubt_from, uid) for uid, progress in self._claims.items() if isinstance(progress, Stored))
        unseen = sorted((since, uid) for since, uid in stored if since <= now and not shown(uid))
        return [uid for _, uid in unseen[:MOST_DOUBTED]]

    def concerns(self, uid: str) -> bool:
        """Whether something is under way for the claim."""
        progress = self.progress(uid)
        under_way = race_of(progress) is not None or created_for(progress) is not None
        return under_way or uid in self._records or uid in self._in_hand

    def pending_of(self, uid: str) -> Claim | None:
        """The claim if it will take space, whatever the cache says: this node bids for it, or its creation may be running."""
        return _takes_claim(self.progress(uid))

    def hindered_races(self, uids: Iterable[str]) -> list[tuple[str, Race]]:
        """Those of these claims that this node could not take so far, the longest waiting first."""
        races = ((uid, race_of(self.progress(uid))) for uid in uids)
        hindered = [(race.hindered_since, uid, race) for uid, race in races if race is not None and race.hindered_since is not None]
        return [(uid, race) for _, uid, race in sorted(hindered, key=lambda item: item[0])]

    def blind_races(self) -> list[str]:
        """The claims whose turn was drawn while the contenders were not known."""
        return [uid for uid, progress in self._claims.items() if (race := race_of(progress)) is not None and race.blind]

    def takes_space(self, uid: str) -> bool:
        """Whether space has to be reserved for the claim. Once its volume exists, the driver's own figure includes it; an attempt that is
        hopeless takes none; and what has failed a few times may fail for ever, while others wait for the space."""
        progress = self.progress(uid)
        return not (_is_in_vain(self.findings(uid)) or isinstance(progress, Stored) or volume_exists(progress))

    def fills_from(self, source: Ref) -> bool:
        """Whether a claim's volume is being filled from this source, or is about to be."""
        return any(findings.source.source == source for findings in self._findings.values())

    def under_way(self) -> list[str]:
        """Claims for which a creation may have been begun, whether or not they are still in the cache."""
        return [
            *self._records,
            *(uid for uid, progress in self._claims.items() if created_for(progress) is not None and uid not in self._records),
        ]

    def stored(self, name: str, handle: str) -> None:
        """Notes a PersistentVolume that the API server has accepted. This is kept apart from the progress, because the claim may be bound
        and forgotten before the watch shows its volume."""
        self._unseen[name] = handle
        if len(self._unseen) > MOST_UNSEEN:
            self.seen(next(iter(self._unseen)))

    def seen(self, name: str) -> None:
        """The cache has shown the PersistentVolume, or it is gone."""
        self._unseen.pop(name, None)

    def unseen(self) -> Mapping[str, str]:
        """By name of a stored PersistentVolume that the cache has yet to show: its handle."""
        return self._unseen

    def unanswered(self, *, besides: str) -> list[str]:
        """The volumes that an earlier process has begun and whose handles this one has not heard. Some may be stored by now, for a request
        can arrive when its sender is dead."""
        unknown = (uid for uid in self._from_file if uid != besides and not _handle_of(self.progress(uid)))
        return sorted(self._records[uid].request.name for uid in unknown)

    def holder(self, handle: str, *, besides: str) -> str:
        """Whose volume with that handle this process is about to store, or has the driver delete."""
        for uid in self._by_handle.get(mark(handle), ()):
            if uid != besides:
                return f"the volume of claim {uid}"
        others = [self._records[uid] for uid in self._deleting if uid != besides]
        others += [suspect for suspect in self._suspects.values() if suspect.uid == besides]
        return next(
            (f"the volume of claim {record.full_name}, which is being deleted" for record in others if _deletes(record, handle)), ""
        )

    def in_progress(self) -> int:
        """The number of claims whose creation may still be running in the driver."""
        return sum(created_for(progress) is not None for progress in self._claims.values()) - self.unsaved()

    def unsaved(self) -> int:
        """The number of volumes that exist and whose PersistentVolume the API server has not accepted yet."""
        return sum(map(volume_exists, self._claims.values()))

    def removal_step(self, volume: Volume) -> RemovalStep:
        """How far the removal of this volume has come. The uid is compared, so a new volume with an old name starts from the beginning."""
        uid, progress = self._removal_steps.get(volume.name, ("", RemovalStep.NOT_YET))
        return progress if volume.uid == uid else RemovalStep.NOT_YET

    def reach_removal_step(self, volume: Volume, step: RemovalStep) -> None:
        """Records that this step is done."""
        self._removal_steps[volume.name] = (volume.uid, step)

    def forget_volume(self, name: str) -> None:
        self._removal_steps.pop(name, None)
