"""The folders that stand in for mounts. Nothing is mounted: a published volume is a new folder with a marker inside, or, for a
block volume, a plain file. What is inside goes with it. Only what carries this volume's marker is ever removed.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.sim.driver.folders import NotOurs

MARKER: Final = ".local-volume"


class StandIns:
    """The backing that needs no rights: before it is published a volume is nothing but its entry in the journal."""

    def refuses(self, *, block: bool, mount_flags: Sequence[str]) -> str:
        return ""

    def retired(self) -> list[str]:
        return []

    def tidy(self, known: Iterable[str]) -> list[str]:
        return []

    def highest_serial(self) -> int:
        return 0

    def make(self, volume_id: str) -> None:
        pass

    def unmake(self, volume_id: str) -> None:
        pass

    def retire(self, volume_id: str) -> None:
        pass

    def discard(self, volume_id: str) -> None:
        pass

    def publish(self, target: Path, volume_id: str, *, block: bool, readonly: bool) -> None:
        make(target, volume_id, block=block)

    def unpublish(self, target: Path, volume_id: str) -> None:
        remove(target, volume_id)

    def lasting(self, target: Path, volume_id: str) -> bool:
        return True

    def in_use(self, volume_id: str, recorded: Sequence[str]) -> Sequence[str]:
        return recorded

    def used(self, volume_id: str, target: Path) -> int:
        return bytes_in(target)

    def room(self, promised: Mapping[str, int]) -> int:
        raise NotImplementedError("an entry in a journal takes no room; a budget says how much there is")


def make(target: Path, volume_id: str, *, block: bool) -> None:
    """Idempotent. The folder around the target must exist: whoever runs the node has made it."""
    if target.exists() and not (_is_of(target, volume_id) or (target.is_dir() and not any(target.iterdir()))):
        raise NotOurs(f"{target} is there already and does not carry the marker of {volume_id}")
    if not block:
        target.mkdir(exist_ok=True)
    _marker(target, block=block).write_text(volume_id + "\n")


def remove(target: Path, volume_id: str) -> None:
    """Idempotent: a target that is not there counts as removed."""
    if not target.exists():
        return
    if not _is_of(target, volume_id):
        raise NotOurs(f"{target} does not carry the marker of {volume_id}")
    if target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()


def bytes_in(target: Path) -> int:
    """What the pod has written there; the marker does not count."""
    return sum(path.lstat().st_size for path in target.rglob("*") if path.is_file() and path.name != MARKER)


def _marker(target: Path, *, block: bool) -> Path:
    return target if block else target / MARKER


def _is_of(target: Path, volume_id: str) -> bool:
    marker = _marker(target, block=target.is_file())
    return marker.is_file() and marker.read_text(errors="replace").strip() == volume_id
