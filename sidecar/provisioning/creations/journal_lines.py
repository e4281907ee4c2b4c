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
from typing import BinaryIO, Final, Generic, TypeVar

from sidecar.provisioning.creations.creation_record import CreationRecord, from_line, to_line
from sidecar.provisioning.creations.record_checks import oddity

T = TypeVar("T")

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
    key: str
    """As of `CreationRecord`."""
    by_a_person: bool = False


@dataclass(frozen=True, slots=True)
class Alive:
    """The process whose file it is was alive."""

    at: int
    """On the wall clock."""


@dataclass(frozen=True, slots=True)
class Damaged:
    kind: Damage
    why: str


class OpenLines(Generic[T]):
    """What was begun and not ended, by key, as lines say it one after the other. Each volume is there once."""

    def __init__(self) -> None:
        self.by_key: dict[str, T] = {}
        self.size = 0
        """The bytes of the lines."""
        self._about: dict[str, tuple[str, int]] = {}
        """By key: the volume's name, and how long the line is."""
        self._suspects: dict[str, dict[str, None]] = {}
        """By uid, the keys."""

    def has(self, record: CreationRecord) -> bool:
        """Whether there is a line of that volume."""
        return self._is_of(record.key, record) or self._is_of(record.other_key, record)

    def put(self, record: CreationRecord, content: T, *, size: int) -> None:
        if self._is_of(record.other_key, record):
            self._drop(record.other_key)
        self.size += size - self._about.get(record.key, ("", 0))[1]
        self.by_key[record.key], self._about[record.key] = content, (record.request.name, size)
        if record.suspect:
            self._suspects.setdefault(record.uid, {})[record.key] = None

    def end(self, key: str) -> bool:
        """Returns whether there was one."""
        if key not in self.by_key:
            return False
        self._drop(key)
        return True

    def end_suspects(self, uid: str) -> None:
        """As versions do in which a claim has one line: by the claim's uid."""
        for key in [*self._suspects.get(uid, ())]:
            self._drop(key)

    def _is_of(self, key: str, record: CreationRecord) -> bool:
        return self._about.get(key, ("", 0))[0] == record.request.name

    def _drop(self, key: str) -> None:
        del self.by_key[key]
        self.size -= self._about.pop(key)[1]
        uid = key.partition(" ")[0]
        if (suspects := self._suspects.get(uid)) is not None:
            suspects.pop(key, None)
            if not suspects:
                del self._suspects[uid]


@dataclass(slots=True, eq=False, repr=False)
class Content:
    """What the lines of one file say."""

    begun: dict[str, CreationRecord] = field(default_factory=dict)
    """By key, what was begun and not ended."""
    settled: set[str] = field(default_factory=set)
    """By key, or of older versions by uid, what a person has seen to."""
    alive: int | None = None
    """When its process was alive, as the file itself says. Those of older versions do not."""
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


def end_line(key: str) -> bytes:
    return _sealed(json.dumps({"end": key}).encode())


def settled_line(key: str) -> bytes:
    """A person has seen to it. It is in a file of its own, which the process that has the begin takes over."""
    return _sealed(json.dumps({"end": key, "by": _PERSON}).encode())


def alive_line(at: float) -> bytes:
    """The first line, which is written over in its place: all are of one length. Versions that do not know it read an end of nothing."""
    return _sealed(json.dumps({"end": "", "alive": f"{int(at):012}"}).encode())


def read_line(line: bytes) -> tuple[CreationRecord | Ended | Alive | Damaged, bool]:
    """What it says, and whether it has a checksum."""
    seal = _SEAL.search(line.rstrip(b"\n"))
    if seal is not None and _sum(line[: seal.start()] + b"}") != seal[1]:
        return Damaged(Damage.ALTERED, "its checksum does not fit"), True
    try:
        about = json.loads(line)
        if (alive := about.get("alive")) is not None:
            return Alive(int(alive)), seal is not None
        if (ended := about.get("end")) is not None:
            return Ended(str(ended), about.get("by") == _PERSON), seal is not None
        record = from_line(line)
        odd = oddity(record)
        return (Damaged(Damage.GARBLED, odd) if odd else record), seal is not None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Damaged(Damage.GARBLED, str(error)[:200]), seal is not None


def read_lines(file: BinaryIO, *, largest: int, most_open: int) -> Content:
    """All lines, of which only what is open is kept. What is damaged costs no other line, but a file of more bytes than `largest`, or
    with more than `most_open` in what is open, is not used at all.

    Half a line at the end is no damage: its process died while it wrote it, and had not called the driver yet.
    """
    content, open_ = Content(), OpenLines[CreationRecord]()
    for number, line in enumerate(_lines(file, most=largest + 1), start=1):
        largest -= len(line)
        if largest < 0 or open_.size > most_open:
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
            case Alive(at):
                content.alive = at
            case Ended(key, by_a_person):
                if by_a_person:
                    content.settled.add(key)
                if not open_.end(key):
                    open_.end_suspects(key)
            case CreationRecord() as begun:
                open_.put(begun, begun, size=len(line))
        if not is_sealed:
            content.note(Damage.UNSIGNED)
    content.begun, content.size = open_.by_key, open_.size
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
