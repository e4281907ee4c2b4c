"""What somebody who may write into the folder of the driver's socket can leave there for the next process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack.benchmarks.hostile.objects import DRIVER
from sidecar.csi.api import Capability, CreateRequest
from sidecar.provisioning.creations.creation_record import CreationRecord, to_line

FILLER: Final = "filler"
"""What takes the room of the full disk."""
_PREFIX: Final = f".csi-node-sidecar.{DRIVER}."
_SPARSE: Final = 3_000_000_000
VICTIM: Final = "victim"


def sparse_journal(folder: Path) -> None:
    """One line of 3 GB that takes no space."""
    with _journal(folder).open("wb") as file:
        file.truncate(_SPARSE)


def links_elsewhere(folder: Path) -> Path:
    """Under names of the journal, links to a file that is none. Returns that file."""
    victim = folder / VICTIM
    victim.write_text("somebody else's\n")
    for suffix in ("journal", "new"):
        _journal(folder, suffix).symlink_to(victim)
    return victim


def forged_line(folder: Path, volume: str) -> None:
    """As if a process had died while it made this volume, for a claim that is no more, with a Secret that no class names."""
    request = CreateRequest(volume, 2**30, (Capability("SINGLE_NODE_WRITER"),))
    record = CreationRecord(str(uuid.uuid4()), "others", "gone", "late", request, secret=("kube-system", "of-others"))
    _journal(folder).write_bytes(to_line(record) + b"\n")


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A file system without a free byte; as root only."""
    place = folder / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], check=True)
    try:
        with contextlib.suppress(OSError), (place / FILLER).open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def _journal(folder: Path, suffix: str = "journal") -> Path:
    return folder / f"{_PREFIX}{os.urandom(8).hex()}.{suffix}"
