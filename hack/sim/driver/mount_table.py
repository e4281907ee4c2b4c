"""What is mounted where, read from the text of /proc/self/mountinfo. Pure: who mounts is `mounts`.

A path's mount is found as the kernel finds it, from the root downwards, so that a mount hidden under a later one is not taken for it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.frozen import frozen

_DELETED: Final = "//deleted"
_TOP: Final = Path("/")


class Origin(NamedTuple):
    """A folder by where it is kept. Two paths with the same origin are the same folder."""

    device: str
    path: str

    def holds(self, other: "Origin") -> bool:
        return self.device == other.device and Path(other.path).is_relative_to(self.path)


@frozen
class Mount:
    """One line of the table: `place` shows `root` of the file system on `device`."""

    id: int
    parent: int
    device: str
    root: str
    place: Path
    options: frozenset[str]

    @property
    def readonly(self) -> bool:
        return "ro" in self.options

    @property
    def origin(self) -> Origin:
        # The kernel marks a folder that was removed under its mount. It is still the folder that had this name.
        return Origin(self.device, self.root.removesuffix(_DELETED))


Table = Sequence[Mount]


def parse_table(text: str) -> tuple[Mount, ...]:
    return tuple(_mount(line) for line in text.splitlines())


def covering(table: Table, path: Path) -> Mount:
    """The mount that `path`, absolute and without links, lies on."""
    known = {mount.id for mount in table}
    current = next(mount for mount in table if mount.parent not in known and mount.place == _TOP)
    while above := [mount for mount in table if mount.parent == current.id and path.is_relative_to(mount.place)]:
        current = min(above, key=lambda mount: len(mount.place.parts))
    return current


def mounted_at(table: Table, path: Path) -> Mount | None:
    """The mount one gets to see at exactly this place."""
    mount = covering(table, path)
    return mount if mount.place == path else None


def origin(table: Table, path: Path) -> Origin:
    mount = covering(table, path)
    return Origin(mount.device, str(Path(mount.root) / path.relative_to(mount.place)))


def _mount(line: str) -> Mount:
    identity, parent, device, root, place, options = line.split()[:6]
    return Mount(int(identity), int(parent), device, _unescaped(root), Path(_unescaped(place)), frozenset(options.split(",")))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
