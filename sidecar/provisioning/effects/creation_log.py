"""Writes down which creations were begun and which have ended, for this process and for the one after it."""

from dataclasses import replace

from sidecar.csi.losses import Losses
from sidecar.provisioning.creations.creation_record import BegunDeletion, CreationRecord, OpenCall
from sidecar.provisioning.creations.journal import Journal
from sidecar.provisioning.progress_table import ProgressTable


class CreationLog:
    """The table is what this process knows, the journal what it leaves behind. Both are changed here, so that they cannot disagree."""

    def __init__(self, *, table: ProgressTable, journal: Journal, losses: Losses) -> None:
        self._table = table
        self._losses = losses
        self.journal = journal

    async def begin(self, record: CreationRecord) -> str:
        """Returns when the record is on the disk; or why it cannot get there. Then the record is what it was before, and nothing may be
        begun; what was left to people under that name stays so."""
        before, suspect = self._table.records.get(record.uid), self._table.records.suspect(record.uid, record.request.name)
        self._table.records.keep(record)
        why = await self.journal.begin(record)
        if why and before is not None:
            self._table.records.keep(before)
        elif why:
            self.end(record.uid)
            if suspect is not None:
                await self.suspect(suspect)
        return why

    async def deleting(self, uid: str, deletion: BegunDeletion | None) -> None:
        """Returns when it is on the disk, or cannot get there, that a deletion was begun; or with None, that it has failed for certain."""
        record = self._table.records.get(uid)
        if record is not None and record.deletion != deletion:
            record = replace(record, deletion=deletion)
            self._table.records.keep(record)
            await self.journal.begin(record)

    async def seeks(self, uid: str) -> None:
        """Returns when it is on the disk, or cannot get there, that the driver is asked for a volume that the claim has no use for, and
        which handle its PersistentVolume has had since."""
        record = self._table.records.get(uid)
        if record is not None and (not record.seeks or record.shown):
            record = replace(record, seeks=True)
            self._table.records.keep(record)
            await self.journal.begin(record)

    def shown(self, uid: str) -> str:
        """That handle; empty: no PersistentVolume was shown since the driver was asked."""
        record = self._table.records.get(uid)
        return record.shown if record is not None else ""

    async def count_losses(self, uid: str) -> None:
        """Writes down how often the driver was lost in the call that is to be made again, for the next process."""
        record = self._table.records.get(uid)
        if record is None or (count := self._losses.of(record.call).count) == record.losses:
            return
        record = replace(record, losses=count)
        self._table.records.keep(record)
        await self.journal.begin(record)

    def left_open(self, uid: str) -> None:
        """The driver was asked for the volume, and nobody knows how that ended."""
        if (record := self._table.records.get(uid)) is not None:
            self._table.records.keep(replace(record, open_call=OpenCall()))

    def denied(self, uid: str, now: float, timeout: float) -> None:
        """The driver says that there is no volume. It is believed at once, unless an earlier call may still make one."""
        record = self._table.records.get(uid)
        if record is not None and (left := record.denied(now, timeout)) is not None:
            self._table.records.keep(replace(record, open_call=left))
        else:
            self.end(uid)

    async def suspect(self, suspect: CreationRecord) -> None:
        """It is not seen to any more, and stays written down for people."""
        self._table.records.keep_suspect(suspect)
        await self.journal.begin(suspect)

    def end(self, uid: str) -> None:
        """Nothing is left of the creation, or its PersistentVolume is stored."""
        if self._table.records.drop(uid):
            self.journal.end(uid)

    async def take_over(self) -> list[str]:
        """The claims for which processes that are gone have begun a creation."""
        found = await self.journal.take_over()
        for record in [record for record in found if record.suspect]:
            found.remove(record)
            own = self._table.records.get(record.uid)
            if own is None or own.request.name != record.request.name:
                self._table.records.keep_suspect(replace(record, inherited=True, from_file=True))
        for key in self.journal.settled():
            for dropped in self._table.records.drop_suspect(key):
                self.journal.end(dropped)
        for record in found:
            begun = self._table.records.get(record.uid)
            if begun is None:
                self._table.records.keep(replace(record, inherited=True, open_call=OpenCall(), from_file=True))
            elif record.deletion is not None:
                # This process has begun a creation for the same claim since, and may have been given the volume that is being deleted.
                self._table.records.keep(replace(begun, from_file=True))
                await self.deleting(record.uid, record.deletion)
        return [record.uid for record in found]
