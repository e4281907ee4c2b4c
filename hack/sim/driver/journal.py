"""A file of JSON lines that survives kill -9 at any moment. Each line is one fact, written completely before anybody is told of it.

A line counts once its newline is written. Text after the last newline is a write that was cut off, and is dropped: nobody was told of it.
A complete line that is no JSON cannot come from a crash, so nothing after it can be trusted: `Corrupt`.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

Line = Mapping[str, Any]

_PLAIN_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Corrupt(ValueError):
    """The file holds something that no crash can have left."""


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Reads every complete line; none if there is no file yet. Safe while somebody writes."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_parsed(line, path, number) for number, line in enumerate(text.split(b"\n")[:-1], start=1)]


class Journal:
    """The one writer of such a file. Opening it cuts off a torn tail, so that the next line does not grow onto it."""

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self._path = path
        self._fsync = fsync
        self._file = os.open(path, _PLAIN_APPEND, 0o600)
        self._cut_torn_tail()

    def append(self, line: Line) -> None:
        """On return the line is in the file (and on the disk, with fsync); on an exception it is not."""
        data = _encoded(line)
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes fitted into {self._path}")
            self._sync(self._file)
        except OSError:
            os.ftruncate(self._file, size)
            raise

    def rewrite(self, lines: Iterable[Line]) -> None:
        """Replace the whole file in one step: a reader, or a crash, sees the old one or the new one."""
        draft = self._path.with_name(self._path.name + ".tmp")
        with draft.open("wb") as file:
            file.writelines(_encoded(line) for line in lines)
            file.flush()
            self._sync(file.fileno())
        draft.replace(self._path)
        os.close(self._file)
        self._file = os.open(self._path, _PLAIN_APPEND, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def _sync(self, descriptor: int) -> None:
        # Without fsync a crash of the process loses nothing, a crash of the machine may. Tests only kill processes, and there are many.
        if self._fsync:
            os.fsync(descriptor)

    def _cut_torn_tail(self) -> None:
        text = self._path.read_bytes()
        if text and not text.endswith(b"\n"):
            os.ftruncate(self._file, text.rfind(b"\n") + 1)


def _encoded(line: Line) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Corrupt(f"{path}, line {number}: {error}") from error
    if not isinstance(value, dict):
        raise Corrupt(f"{path}, line {number}: not an object but {type(value).__name__}")
    return value
