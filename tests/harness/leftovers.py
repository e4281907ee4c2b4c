"""A journal with a volume that may be left behind."""

import asyncio
from dataclasses import replace
from pathlib import Path

from sidecar.csi.api import CreateRequest
from sidecar.provisioning.creations.creation_record import CreationRecord
from sidecar.provisioning.creations.journal import FileJournal
from tests.harness import samples

REQUEST = CreateRequest("pvc-u1", 100, ())
SUSPECT = CreationRecord("u1", "ns", "data", "fast", REQUEST, suspect="somebody may want it")
OPEN = replace(SUSPECT, uid="u2", name="other", request=replace(REQUEST, name="pvc-u2"), suspect="")


def written(folder: Path, *records: CreationRecord) -> FileJournal:
    """A journal whose process runs."""

    async def write() -> FileJournal:
        journal = FileJournal(folder, samples.DRIVER, on_state=print)
        for record in records:
            await journal.begin(record)
        return journal

    return asyncio.run(write())
