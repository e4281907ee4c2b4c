"""The records of creations that were begun, as they stand in the journal: those that this program sees to, and suspects, which are left to
people.
"""

from collections.abc import Iterator
from dataclasses import replace

from sidecar.model.objects import Volume
from sidecar.provisioning.creations.creation_record import CreationRecord, suspect_key


class RecordTable:
    """The records by the uid of their claim."""

    def __init__(self) -> None:
        self._records: dict[str, CreationRecord] = {}
        self._deleting: set[str] = set()
        """Those of the records that tell of a deletion: few, and each new volume asks them."""
        self._from_file: set[str] = set()
        """Those of the records that an earlier process has left: few as well."""
        self._suspects: dict[str, CreationRecord] = {}
        """By key."""

    def keep(self, record: CreationRecord) -> None:
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
            self.drop(record.uid)
        self._suspects[record.key] = record

    def show(self, volume: Volume) -> None:
        """A PersistentVolume is stored. Of one that the driver was asked for meanwhile its handle is noted."""
        record = self._records.get(volume.claim.uid) if volume.claim else None
        if record is not None and record.seeks and not record.shown and record.request.name == volume.name:
            self._records[record.uid] = replace(record, shown=volume.handle)

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

    def get(self, uid: str) -> CreationRecord | None:
        return self._records.get(uid)

    def drop(self, uid: str) -> bool:
        """Drops the record of a creation of which nothing is left, or whose PersistentVolume is stored. Returns whether there was one."""
        self._deleting.discard(uid)
        self._from_file.discard(uid)
        return self._records.pop(uid, None) is not None

    def from_file(self) -> list[CreationRecord]:
        """Those that an earlier process has left."""
        return [self._records[uid] for uid in self._from_file]

    def deleting(self, handle: str, *, besides: str) -> CreationRecord | None:
        """One of another claim whose volume with that handle is being deleted. What is left to people of this claim's counts too."""
        others = [self._records[uid] for uid in self._deleting if uid != besides]
        others += [suspect for suspect in self._suspects.values() if suspect.uid == besides]
        return next((record for record in others if record.deletion is not None and record.deletion.handle == handle), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __contains__(self, uid: object) -> bool:
        return uid in self._records
