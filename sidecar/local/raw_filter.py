"""Recognises claims and volumes of other nodes, and claims that have their volume, by the bytes of their JSON, so that most events of a
cluster need not be parsed.

In doubt it says no: then the object is parsed and judged like every other. A quotation mark inside a JSON string is escaped. So what is
searched for here, with its quotation marks and separators, can only match a key or a whole string, never a part of somebody's text.
"""

import re
from typing import Final

from sidecar.local.here import Here
from sidecar.model import names

# The first match is the object's own annotations, because nothing before them holds maps of maps. If an annotation before the one that is
# searched for has braces in its text, nothing is recognised, and the claim is parsed.
_SELECTED: Final = re.compile(rb'"annotations":\{(?:[^{}]*,)?"%b":"([^"\\]+)"' % re.escape(names.SELECTED_NODE.encode()))
_CLONED_FROM: Final = names.CLONE_FINALIZER.encode()
# As API servers write it. No map but the claim's own is called `spec` and begins so: in the managed fields each key begins with `f:`.
_BOUND: Final = re.compile(
    rb'"spec":\{"accessModes":\["[A-Za-z]+"(?:,"[A-Za-z]+")*\],"resources":\{"requests":\{"storage":"[^"\\]+"\}\},"volumeName":"[^"\\]+"'
)
_AFFINITY: Final = b'"nodeAffinity":{"required":{'
_OPERATOR: Final = b'"operator":"'
_IN: Final = b'"operator":"In"'
_TERM: Final = b'"matchExpressions":'
_FIELDS: Final = b'"matchFields":'


def is_foreign_claim(line: bytes, here: Here) -> bool:
    """Another node is selected. A claim with the clone finalizer is never foreign: this node might have to take the finalizer off."""
    found = _SELECTED.search(line)
    return found is not None and found[1] != here.node.encode() and _CLONED_FROM not in line


def is_bound_claim(line: bytes) -> bool:
    """It has its volume, and is no source that this node might have to let go."""
    return _BOUND.search(line) is not None and _CLONED_FROM not in line


def is_foreign_volume(line: bytes, here: Here) -> bool:
    """The volume's affinity asks for values of labels that this node's driver reports, and this node has none of these values."""
    labels = here.segment.labels()
    if not labels or _AFFINITY not in line or line.count(_OPERATOR) != line.count(_IN):
        return False
    # Only one term without fields can be judged by its bytes: of several terms any may hold, and a field may name this node.
    if line.count(_TERM) != 1 or _FIELDS in line or not any(f'"key":"{key}"'.encode() in line for key in labels):
        return False
    return not any(f'"{value}"'.encode() in line for value in labels.values())
