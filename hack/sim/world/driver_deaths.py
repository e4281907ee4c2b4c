"""How often a driver may die of one call, whatever drivers, tenants and operators do."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from hack.sim.world.node import Node
from hack.sim.world.plan_rolls import Program

Found = Callable[[str, str], None]

FATAL: Final = "a driver is sent to its death again and again"
_CAP: Final = 300.0


def judge(node: Node, found: Found) -> None:
    """A call of which the driver dies is made again with pauses that double. Each life of the sidecar may die before it has written down
    that the driver was lost."""
    times: dict[str, list[float]] = defaultdict(list)
    for death in [death for death in node.deaths if death.caller is Program.OURS]:
        times[death.call].append(death.at)
    for call, at in times.items():
        seconds = at[-1] - at[0]
        most = math.log2(seconds + 1.0) + seconds / _CAP + 2.0 + node.lives - 1
        if len(at) > most:
            found(FATAL, f"the driver of {node.name} died {len(at)} times in {seconds:.0f} s of {call}")
