"""Reads certificates and tokens, which a kubelet replaces while we run. A file that is not there is something else than one that cannot be
read: without a CA of its own the program trusts those of the system, so trouble with a file must not look like the file's absence.
"""

import hashlib
from pathlib import Path
from typing import Final

# A kubelet writes all files of a volume into a new folder, points a link to it and deletes the old folder. Whoever has just followed the
# link finds nothing in the old one; the next look goes to the new one.
_LOOKS: Final = 3


def content_of(file: Path, *, looks: int = _LOOKS) -> bytes | None:
    """None if there is no such file. `OSError` if it cannot be read; so also for a link that leads nowhere."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        if not file.is_symlink():
            return None
        if looks == 1:
            raise
        return content_of(file, looks=looks - 1)
    except OSError as error:  # of a read, it does not name the file
        raise OSError(error.errno, error.strerror, str(file)) from error


def digest_of(file: str) -> str:
    """Empty if there is no such file, or nothing in it. `OSError` if it cannot be read.

    Times would not do: a kubelet writes all files anew when one has changed.
    """
    content = content_of(Path(file))
    return hashlib.sha256(content).hexdigest() if content and content.strip() else ""


def token_of(file: Path) -> str | None:
    """None if there is no such file. `OSError` if it cannot be read, `ValueError` if it holds no token."""
    content = content_of(file)
    if content is None:
        return None
    token = content.strip()  # a newline at its end would be refused in a header
    if not token:
        raise ValueError(f"{file} is empty")
    if any(not 0x21 <= byte <= 0x7E for byte in token):
        raise ValueError(f"{file} holds something else than a token")
    return token.decode("ascii")


def trouble(error: OSError) -> str:
    return f"{error.filename} cannot be read: {error.strerror}"
