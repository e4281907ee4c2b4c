"""Things that somebody has put where a file of ours is to be written."""

import os
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
KINDS: Final = ("file of somebody else", "link", "dangling link", "folder", "full folder", "FIFO")


def plant(kind: str, at: Path, *, victim: Path) -> None:
    """Puts it there. Whoever writes through it writes to `victim`, or to a file that others may read."""
    match kind:
        case "file of somebody else":
            at.write_text("theirs")
            at.chmod(0o666)
            if os.geteuid() == 0:
                os.chown(at, NOBODY, NOBODY)
        case "link":
            victim.write_text("precious")
            at.symlink_to(victim)
        case "dangling link":
            at.symlink_to(victim)
        case "folder":
            at.mkdir()
        case "full folder":
            (at / "inner").mkdir(parents=True)
        case _:
            os.mkfifo(at)


def unharmed(kind: str, victim: Path) -> bool:
    return victim.read_text() == "precious" if kind == "link" else not victim.exists()
