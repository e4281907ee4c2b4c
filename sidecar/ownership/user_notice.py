"""Decides which node tells a claim's user that no node takes the claim, and when.

Every node would say the same, and a thousand events about one claim help nobody. So the nodes draw lots; that needs no messages
between them.
"""

import math
from typing import Final

from sidecar.ownership.roster import draw

# Seconds that a claim waits before its user is told.
PATIENCE: Final = 30.0
_STEP: Final = 10.0
# Assumed if the number of contenders is not known. Should there really be so many, about one of them has its turn in the first step.
_UNKNOWN: Final = 1024
_MOST_TELLERS: Final = 16


def turn(node: str, uid: str, contenders: int | None) -> float | None:
    """Seconds of silence after which it is this node's turn to tell; None if this node leaves it to others.

    Every node draws a lot for the claim. In the first step, the nodes whose lot is below 1/n tell; in each further step, twice as many.
    So somebody tells soon, and those whose turn comes later find that the user has been told.
    """
    lot = draw(f"tell {uid}", node)
    first = 1.0 / (contenders or _UNKNOWN)
    if contenders and lot > _MOST_TELLERS * first:
        return None
    return PATIENCE + _STEP * max(0, math.ceil(math.log2(lot / first)))
