"""Recognises claims and volumes of other nodes and drivers, and claims that have their volume, by the bytes of their JSON, so that most of
what a cluster has need not be parsed.

In doubt it says no: then the object is parsed and judged like every other. A quotation mark inside a JSON string is escaped. So what is
searched for here, with its quotation marks and separators, can only match a key or a whole string, never a part of somebody's text.
"""

import re
from functools import lru_cache
from typing import Final

from sidecar.local.here import Here
from sidecar.model import names
from sidecar.model.topology import Segment

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _annotation(name: str) -> re.Pattern[bytes]:
    """The first match is the object's own annotations, because nothing before them holds maps of maps."""
    return re.compile(rb'"annotations":\{(?:%b:%b,)*?"%b":"([^"\\]+)"' % (_STRING, _STRING, re.escape(name.encode())))


_SELECTED: Final = _annotation(names.SELECTED_NODE)
_PROVISIONER: Final = _annotation(names.STORAGE_PROVISIONER)
_CLONED_FROM: Final = names.CLONE_FINALIZER.encode()
# As API servers write it. No map but the claim's own is called `spec` and begins so: in the managed fields each key begins with `f:`.
_BOUND: Final = re.compile(
    rb'"spec":\{"accessModes":\["[A-Za-z]+"(?:,"[A-Za-z]+")*\],"resources":\{"requests":\{"storage":"[^"\\]+"\}\},"volumeName":"[^"\\]+"'
)
_DRIVER: Final = b'"csi":{"driver":"'
# A longer name, which no driver may have, is read like all else.
_LONGEST_DRIVER: Final = 256
_AFFINITY: Final = b'"nodeAffinity":{"required":{'
_OPERATOR: Final = b'"operator":"'
_IN: Final = b'"operator":"In"'
_TERM: Final = b'"matchExpressions":'
_FIELDS: Final = b'"matchFields":'


def is_foreign_claim(line: bytes, here: Here) -> bool:
    """Another driver is asked, or another node is selected. A claim of this driver with the clone finalizer is never foreign: this node
    might have to take the finalizer off."""
    if (asked := _PROVISIONER.search(line)) is not None and asked[1] != here.driver.name.encode():
        return True
    found = _SELECTED.search(line)
    return found is not None and found[1] != here.node.encode() and _CLONED_FROM not in line


def is_bound_claim(line: bytes) -> bool:
    """It has its volume, and is no source that this node might have to let go."""
    return _BOUND.search(line) is not None and _CLONED_FROM not in line


def is_foreign_volume(line: bytes, here: Here) -> bool:
    """Another driver has the volume, or its affinity asks for values of labels that this node's driver reports, and this node has none of
    these values."""
    at = line.find(_DRIVER)
    if at >= 0:
        begin = at + len(_DRIVER)
        driver, ends, _ = line[begin : begin + _LONGEST_DRIVER].partition(b'"')
        if driver and ends and driver != here.driver.name.encode() and b"\\" not in driver:
            return True
    (keys, values), at = _sought(here.segment), line.find(_AFFINITY)
    if not keys or at < 0:
        return False
    affinity = line[at:]  # it is near the end
    if affinity.count(_OPERATOR) != affinity.count(_IN):
        return False
    # Only one term without fields can be judged by its bytes: of several terms any may hold, and a field may name this node.
    if affinity.count(_TERM) != 1 or _FIELDS in affinity or not any(key in affinity for key in keys):
        return False
    return not any(value in affinity for value in values)


@lru_cache(maxsize=16)
def _sought(segment: Segment) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The keys and the values of its labels, as they stand in an affinity."""
    labels = segment.labels()
    return tuple(f'"key":"{key}"'.encode() for key in labels), tuple(f'"{value}"'.encode() for value in labels.values())
