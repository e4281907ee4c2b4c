"""The lines of a journal: what one says, and whether it is as it was written.

Each line is JSON and ends with a checksum of what stands before it. The checksum finds accidents, such as a flipped bit or an edit by
hand: such a line is not acted on, for it would name another volume than the one that was begun. It is no proof of who wrote the line.
Lines of versions before the checksum have none, and are believed as far as the API server confirms them; those versions in turn read
lines with a checksum, since they pass over keys that they do not know.
"""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import BinaryIO, Final

from sidecar.provisioning.creations.creation_record import CreationRecord, from_line, to_line
from sidecar.provisioning.creations.record_checks import oddity

# Bytes. The parameters of a class have at most 256 KiB, and those of a VolumeAttributesClass as many.
LONGEST_LINE: Final = 2**20
_PERSON: Final = "a person"
_SEAL: Final = re.compile(rb',"sum":"([0-9a-f]{8})"\}$')


class Damage(Enum):
    """What can be wrong with a journal; the value is the metric's label."""

    GARBLED = "garbled"
    """A line that says nothing."""
    ALTERED = "altered"
    """A line that is not as it was written."""
    TOO_LARGE = "too-large"
    """A line or a file that no process of ours writes."""
    UNREADABLE = "unreadable"
    """The disk does not give it, or it is no file."""
    UNSIGNED = "unsigned"
    """A line without a checksum: of an older version, or somebody else's. It is used."""
    UNCONFIRMED = "unconfirmed"
    """A line that names a Secret which the class of the claim does not name. The Secret is not used."""


@dataclass(frozen=True, slots=True)
class Ended:
    uid: str
    by_a_person: bool = False


@dataclass(frozen=True, slots=True)
class Damaged:
    kind: Damage
    why: str


@dataclass(slots=True)
class Content:
    """What the lines of one file say."""

    begun: dict[str, CreationRecord] = field(default_factory=dict)
    """By uid, what was begun and not ended."""
    settled: set[str] = field(default_factory=set)
    """By uid, what a person has seen to."""
    size: int = 0
    """The bytes of their lines."""
    damage: dict[Damage, int] = field(default_factory=dict)
    first: str = ""
    """Where the first damage is, and what."""

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage.keys() - {Damage.UNSIGNED})

    def note(self, kind: Damage, where: str = "") -> None:
        self.damage[kind] = self.damage.get(kind, 0) + 1
        self.first = self.first or where


def begin_line(record: CreationRecord) -> bytes:
    return _sealed(to_line(record))


def end_line(uid: str) -> bytes:
    return _sealed(json.dumps({"end": uid}).encode())


def settled_line(uid: str) -> bytes:
    """A person has seen to it. It is in a file of its own, which the process that has the begin takes over."""
    return _sealed(json.dumps({"end": uid, "by": _PERSON}).encode())


def read_line(line: bytes) -> tuple[CreationRecord | Ended | Damaged, bool]:
    """What it says, and whether it has a checksum."""
    seal = _SEAL.search(line.rstrip(b"\n"))
    if seal is not None and _sum(line[: seal.start()] + b"}") != seal[1]:
        return Damaged(Damage.ALTERED, "its checksum does not fit"), True
    try:
        about = json.loads(line)
        if (ended := about.get("end")) is not None:
            return Ended(str(ended), about.get("by") == _PERSON), seal is not None
        record = from_line(line)
        odd = oddity(record)
        return (Damaged(Damage.GARBLED, odd) if odd else record), seal is not None
    except (ValueError, AttributeError, RecursionError) as error:
        return Damaged(Damage.GARBLED, str(error)[:200]), seal is not None


def read_lines(file: BinaryIO, *, largest: int, most_open: int) -> Content:
    """All lines, of which only what is open is kept. What is damaged costs no other line, but a file of more bytes than `largest`, or
    with more than `most_open` in what is open, is not used at all.

    Half a line at the end is no damage: its process died while it wrote it, and had not called the driver yet.
    """
    content, sizes = Content(), dict[str, int]()
    for number, line in enumerate(_lines(file, most=largest + 1), start=1):
        largest -= len(line)
        if largest < 0 or content.size > most_open:
            return too_large(f"line {number}: the file is too large")
        if len(line) > LONGEST_LINE:
            content.note(Damage.TOO_LARGE, f"line {number}: longer than {LONGEST_LINE} bytes")
            continue
        said, is_sealed = read_line(line)
        match said:
            case Damaged(kind, why):
                if line.endswith(b"\n"):
                    content.note(kind, f"line {number}: {why}")
                continue
            case Ended(uid, by_a_person):
                if by_a_person:
                    content.settled.add(uid)
                content.begun.pop(uid, None)
                content.size -= sizes.pop(uid, 0)
            case CreationRecord() as begun:
                content.size += len(line) - sizes.get(begun.uid, 0)
                content.begun[begun.uid], sizes[begun.uid] = begun, len(line)
        if not is_sealed:
            content.note(Damage.UNSIGNED)
    return content


def too_large(where: str) -> Content:
    """Of a file that is not read."""
    content = Content()
    content.note(Damage.TOO_LARGE, where)
    return content


def _lines(file: BinaryIO, *, most: int) -> Iterator[bytes]:
    """At most so many bytes, since somebody may write on while it is read. A line that is too long to be one comes in pieces."""
    while most > 0 and (line := file.readline(min(LONGEST_LINE + 1, most))):
        most -= len(line)
        yield line


def _sealed(line: bytes) -> bytes:
    return line[:-1] + b',"sum":"' + _sum(line) + b'"}'


def _sum(line: bytes) -> bytes:
    return b"%08x" % zlib.crc32(line)
