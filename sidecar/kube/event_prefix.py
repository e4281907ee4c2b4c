"""Recognises by its first bytes a watch event that need not be parsed, and what of another need not be.

In a cluster of N nodes, all but one in N of the events are about objects of other nodes, and parsing JSON is most of what an event costs.
API servers write an object's fields in a fixed order, so the first bytes of an event name its object. A line that begins otherwise is
parsed like any other.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

_METADATA: Final = (
    rb'"metadata":\{"name":"(?P<name>[^"\\\x80-\xff]+)",(?:"generateName":"[^"\\]*",)?(?:"namespace":"(?P<namespace>[^"\\\x80-\xff]*)",)?'
    rb'"uid":"(?P<uid>[^"\\\x80-\xff]+)","resourceVersion":"(?P<version>[0-9]+)"'
)
_BEGINNING: Final = re.compile(
    rb'\{"type":"(?P<type>ADDED|MODIFIED|DELETED)","object":\{"kind":"[A-Za-z]+","apiVersion":"[a-z0-9./]+",' + _METADATA
)
_ITEM: Final = re.compile(rb"\{" + _METADATA)


class EventPrefix(NamedTuple):
    """What the first bytes of a line, or of an object in a list, tell about the object."""

    name: str
    uid: str
    version: str


_MANAGED_FIELDS: Final = b',"managedFields":['
_AFTER_MANAGED_FIELDS: Final = b']},"spec":'

Skip = Callable[[EventPrefix, bytes], bool]
"""Whether an event, or an object in a list, may be left unparsed: it does not concern this node, and no store holds it."""


def reads_all(prefix: EventPrefix, line: bytes) -> bool:
    """Every event is parsed."""
    return False


def read_prefix(line: bytes) -> EventPrefix | None:
    """None for a line that must be parsed: another type of event, or one that begins otherwise."""
    found = _BEGINNING.match(line)
    return None if found is None or found["type"] == b"DELETED" else _as_prefix(found)


def read_item_prefix(item: bytes) -> EventPrefix | None:
    """The same of an object in a list, where it stands without its kind."""
    found = _ITEM.match(item)
    return None if found is None else _as_prefix(found)


def _as_prefix(found: re.Match[bytes]) -> EventPrefix:
    return EventPrefix(*map(bytes.decode, found.group("name", "uid", "version")))


def read_metadata(line: bytes) -> tuple[str, dict[str, str]] | None:
    """The type of an event and what identifies its object, from the first bytes of its line; None if they say something else."""
    found = _BEGINNING.match(line)
    if found is None:
        return None
    meta = {"name": found["name"], "namespace": found["namespace"] or b"", "uid": found["uid"], "resourceVersion": found["version"]}
    return found["type"].decode(), {field: value.decode() for field, value in meta.items()}


def without_managed_fields(line: bytes) -> bytes:
    """The same event, for one that `read_prefix` knows. Who has set which field nobody here asks, and it is a third of an event's text.

    In what is written in that order they are the last of the metadata. Neither mark can stand in a string, where quotes are escaped, and
    there is no list within them.
    """
    begin = line.find(_MANAGED_FIELDS)
    end = line.find(_AFTER_MANAGED_FIELDS, begin)
    return line if begin < 0 or end < 0 else line[:begin] + line[end + 1 :]
