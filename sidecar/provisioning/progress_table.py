"""Which claim and which volume this process has brought how far. No cache shows this.

All of it is lost when the process ends. What the next process has to know is written to the `journal`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from sidecar.model.objects import Claim, Volume
from sidecar.ownership.rules import Race, waits_for_room
from sidecar.ownership.waiting import Waiting, Want
from sidecar.provisioning.creations.record_table import RecordTable
from sidecar.provisioning.findings import NOTHING_FOUND, Findings
from sidecar.provisioning.needs import Ref
from sidecar.provisioning.progress import (
    NOT_BEGUN,
    Bidding,
    Creating,
    NotBegun,
    Progress,
    Racing,
    RemovalStep,
    Stored,
    Unsaved,
    created_for,
    mark,
    race_of,
    volume_exists,
)

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
        self.records = RecordTable()
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
        if before.in_vain != findings.in_vain:
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
        return race_of(self.progress(uid)) is not None or self.may_have_begun(uid)

    def may_have_begun(self, uid: str) -> bool:
        """Whether a creation may be running here: so that whether the claim is there or gone decides about a volume."""
        return created_for(self.progress(uid)) is not None or uid in self.records or uid in self._in_hand

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
        return not (self.findings(uid).in_vain or isinstance(progress, Stored) or volume_exists(progress))

    def fills_from(self, source: Ref) -> bool:
        """Whether a claim's volume is being filled from this source, or is about to be."""
        return any(findings.source.source == source for findings in self._findings.values())

    def under_way(self) -> list[str]:
        """Claims for which a creation may have been begun, whether or not they are still in the cache."""
        return [
            *self.records,
            *(uid for uid, progress in self._claims.items() if created_for(progress) is not None and uid not in self.records),
        ]

    def stored(self, name: str, handle: str) -> None:
        """Notes a PersistentVolume that the API server has accepted. This is kept apart from the progress, because the claim may be bound
        and forgotten before the watch shows its volume."""
        self._unseen[name] = handle
        if len(self._unseen) > MOST_UNSEEN:
            self.seen(next(iter(self._unseen)))

    def seen(self, name: str, volume: Volume | None = None) -> None:
        """The cache has shown the PersistentVolume, or it is gone."""
        self._unseen.pop(name, None)
        if volume is not None:
            self.records.show(volume)

    def unseen(self) -> Mapping[str, str]:
        """By name of a stored PersistentVolume that the cache has yet to show: its handle."""
        return self._unseen

    def unanswered(self, *, besides: str) -> list[str]:
        """The volumes that an earlier process has begun and whose handles this one has not heard. Some may be stored by now, for a request
        can arrive when its sender is dead."""
        left = self.records.from_file()
        return sorted(record.request.name for record in left if record.uid != besides and not _handle_of(self.progress(record.uid)))

    def holder(self, handle: str, *, besides: str) -> str:
        """Whose volume with that handle this process is about to store, or has the driver delete."""
        for uid in self._by_handle.get(mark(handle), ()):
            if uid != besides:
                return f"the volume of claim {uid}"
        deleted = self.records.deleting(handle, besides=besides)
        return f"the volume of claim {deleted.full_name}, which is being deleted" if deleted else ""

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


def _want_of(progress: Progress) -> Want | None:
    race = race_of(progress)
    return race.want if race is not None and waits_for_room(race) else None


def _takes_claim(progress: Progress) -> Claim | None:
    return progress.claim if isinstance(progress, Bidding) else created_for(progress)


def _handle_of(progress: Progress) -> bytes:
    return progress.handle if isinstance(progress, Creating | Unsaved) else b""


def _size(progress: Progress) -> int:
    return len(progress.body.text) + len(progress.body.handle) if isinstance(progress, Unsaved) else 0
