"""What is another node's beyond doubt, by the bytes of its JSON: whatever leaves a doubt is parsed, and judged like everything else.

In JSON a quotation mark within a text is escaped. So what is looked for here with the marks around it, and what separates it from the
one before, can be nothing but a key or a whole text.
"""

import re
from typing import Final

from sidecar.model import names
from sidecar.provisioning.view import Here

# The first map of this name is the object's own: nothing before it holds maps of maps. One whose texts have braces is not recognised.
_SELECTED: Final = re.compile(rb'"annotations":\{(?:[^{}]*,)?"%b":"([^"\\]+)"' % re.escape(names.SELECTED_NODE.encode()))
_CLONED_FROM: Final = names.CLONE_FINALIZER.encode()
_AFFINITY: Final = b'"nodeAffinity":{"required":{'
_OPERATOR: Final = b'"operator":"'
_IN: Final = b'"operator":"In"'
_TERM: Final = b'"matchExpressions":'
_FIELDS: Final = b'"matchFields":'


def is_foreign_claim(line: bytes, here: Here) -> bool:
    """Another node is selected, and nothing is cloned from it, which might be ours to release."""
    found = _SELECTED.search(line)
    return found is not None and found[1] != here.node.encode() and _CLONED_FROM not in line


def is_foreign_volume(line: bytes, here: Here) -> bool:
    """It lies where a label that this node's driver reports, and maybe others, have certain values, and this node has none of these."""
    labels = here.segment.labels()
    if not labels or _AFFINITY not in line or line.count(_OPERATOR) != line.count(_IN):
        return False
    if line.count(_TERM) != 1 or _FIELDS in line or not any(f'"key":"{key}"'.encode() in line for key in labels):
        return False
    return not any(f'"{value}"'.encode() in line for value in labels.values())
