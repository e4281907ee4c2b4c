"""How often a driver may be asked for its free space, whatever it answers."""

from collections.abc import Callable
from typing import Final

from hack.sim.world.node import Node

Found = Callable[[str, str], None]

HOT: Final = "a driver is asked for its free space in a hot loop"
_WINDOW: Final = 10.0
_EACH_SECOND: Final = 1
"""For each class: one figure is published, and claims that wait for room are woken."""
_AT_ONCE: Final = 40
"""Claims of a world that are new or due in the same seconds."""


def judge(node: Node, classes: int, found: Found) -> None:
    asked = sorted(call.at for call in node.reception.record.calls if call.method == "GetCapacity")
    most = classes * _EACH_SECOND * _WINDOW + _AT_ONCE
    first = 0
    for number, at in enumerate(asked):
        while asked[first] < at - _WINDOW:
            first += 1
        if number - first + 1 > most:
            found(HOT, f"{node.name} asked {number - first + 1} times in {_WINDOW:.0f} s, until {at:.0f} s")
            return
