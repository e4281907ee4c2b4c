"""Who tells the user of a claim that nobody takes: one node of many, found without talking to the others.

All of them would have the same to say, and a thousand events about one claim help nobody.
"""

import math
from typing import Final

from sidecar.ownership.roster import draw

# A claim that found no room is not worth a word before this.
PATIENCE: Final = 30.0
_STEP: Final = 10.0
# Of so many contenders one or two have their turn in the first step where it is not known how many there are.
_UNKNOWN: Final = 1024
_MOST_TELLERS: Final = 16


def turn(node: str, uid: str, contenders: int | None) -> float | None:
    """Seconds of silence after which it is this node's turn; None when it is one of those that leave it to others.

    Every node draws a lot for the claim. In the first step those tell whose lot is among the first 1/n, in each further one
    twice as many: somebody tells soon, and whoever comes later finds that it has been told.
    """
    lot = draw(f"tell {uid}", node)
    first = 1.0 / (contenders or _UNKNOWN)
    if contenders and lot > _MOST_TELLERS * first:
        return None
    return PATIENCE + _STEP * max(0, math.ceil(math.log2(lot / first)))
