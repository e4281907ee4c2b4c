"""Writes down which creations were begun and which have ended, for this process and for the one after it."""

from dataclasses import replace

from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import Journal
from sidecar.provisioning.progress import ProgressTable


class CreationLog:
    """The table is what this process knows, the journal what it leaves behind. Both are changed here, so that they cannot disagree."""

    def __init__(self, *, table: ProgressTable, journal: Journal) -> None:
        self._table = table
        self.journal = journal

    async def begin(self, record: CreationRecord) -> None:
        """Returns when the record is on the disk, or cannot get there."""
        self._table.keep_record(record)
        await self.journal.begin(record)

    def end(self, uid: str) -> None:
        """Nothing is left of the creation, or its PersistentVolume is stored."""
        if self._table.drop_record(uid):
            self.journal.end(uid)

    async def take_over(self) -> list[str]:
        """The claims for which processes that are gone have begun a creation."""
        found = await self.journal.take_over()
        for record in found:
            if self._table.record(record.uid) is None:
                self._table.keep_record(replace(record, inherited=True))
        return [record.uid for record in found]
