"""Cuts a stream into lines. Of a line that is longer than any object only the beginning is kept, which names its object."""

from dataclasses import dataclass
from typing import Final

LONGEST_LINE: Final = 10 * 2**20
"""Bytes. etcd stores no object above 1.5 MiB, and JSON takes up to six bytes for one of text."""
_BEGINNING: Final = 4096


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line that was not kept."""

    beginning: bytes
    size: int


class LineReader:
    """`feed` it what arrives. A reader in which `within` is true at the end of the stream has been given a part of a line."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._size = 0

    @property
    def within(self) -> bool:
        return self._size > 0

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that are complete now, without their ends."""
        *ends, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for end in ends:
            self._keep(end)
            lines.append(TooLong(bytes(self._kept), self._size) if self._size > self._longest else bytes(self._kept))
            self._kept, self._size = bytearray(), 0
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._longest:
            self._kept += piece
        else:
            self._kept += piece[: max(0, _BEGINNING - len(self._kept))]
            del self._kept[_BEGINNING:]
