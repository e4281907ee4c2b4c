"""What a local volume is made of: nothing but its journal entry (`targets`), or a folder that is mounted where pods want it (`folders`).

Every method may fail with an OSError, or with NotOurs where it would touch something that is not this driver's.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol


class NotOurs(Exception):
    """Something else is where the driver would put, or take away, something of its own."""


class Backing(Protocol):
    """Each method is idempotent. The driver writes its journal between them, and may be killed in every gap.

    A creation is `make`, then the journal. A deletion is `retire`, which decides it, then the journal, then `discard`.
    """

    def refuses(self, *, block: bool, mount_flags: Sequence[str]) -> str:
        """The reason why a volume cannot be used like this; empty if it can."""

    def retired(self) -> Iterable[str]:
        """Ids of volumes whose deletion was decided but not completed."""

    def tidy(self, known: Iterable[str]) -> list[str]:
        """After a start: removes what nobody was told of, and returns what else does not agree with the journal."""

    def highest_serial(self) -> int:
        """No volume may get a number up to this one: something lies under it."""

    def make(self, volume_id: str) -> None: ...

    def unmake(self, volume_id: str) -> None:
        """Removes what was made but could not be recorded in the journal."""

    def retire(self, volume_id: str) -> None: ...

    def discard(self, volume_id: str) -> None: ...

    def publish(self, target: Path, volume_id: str, *, block: bool, readonly: bool) -> None:
        """The folder around the target must exist: whoever runs the node has made it."""

    def unpublish(self, target: Path, volume_id: str) -> None: ...

    def lasting(self, target: Path, volume_id: str) -> bool:
        """Whether what was published there is still there. Mounts end with the machine, the journal does not."""

    def in_use(self, volume_id: str, recorded: Sequence[str]) -> Sequence[str]:
        """Where the volume is in use: as the kernel says for real mounts, else as recorded."""

    def used(self, volume_id: str, target: Path) -> int:
        """Bytes that the pods have written."""

    def room(self, promised: Mapping[str, int]) -> int:
        """Bytes that are neither written nor promised to a volume; `promised` is each volume's size by its id."""
