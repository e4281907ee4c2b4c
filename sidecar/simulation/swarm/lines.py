"""How late each node receives watch events. A slow connection is slow for a while, and no event overtakes another on it.

So the stated delays are the ones that occur. If the delay of each event were drawn separately, the slow ones would hold up all events
behind them, and half of all events would be many times as late as the stated median.
"""

import math
import random
from typing import Final

from sidecar.simulation.world.network import Latency

# Longer than any delay, so that all events of one delay have arrived before the delay changes twice.
_SPELL: Final = 1.0
_DRAWN: Final = 1 << 16
_MASK: Final = (1 << 64) - 1


class Lines:
    """The connections of all nodes to the API server. Node and time of an event determine when it arrives."""

    def __init__(self, latency: Latency, dice: random.Random) -> None:
        self._lags = [latency.draw(dice) for _ in range(_DRAWN)]
        self._salt = dice.getrandbits(64)
        self.longest = max(self._lags)
        """No event is later than this."""
        self.usual = sum(self._lags) / _DRAWN
        """The mean delay."""
        self._spell = max(_SPELL, self.longest)

    def heard(self, node: int, at: float) -> float:
        """When that node receives an event of that time."""
        # Each connection changes its delay at moments of its own.
        phase = (node * 0.6180339887) % 1.0
        spell = math.floor(at / self._spell + phase)
        began = (spell - phase) * self._spell
        return max(at + self._lag(node, spell), began + self._lag(node, spell - 1))

    def _lag(self, node: int, spell: int) -> float:
        mixed = (self._salt + node * 0x9E3779B97F4A7C15 + spell * 0xD1B54A32D192ED03) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return self._lags[(mixed ^ (mixed >> 31)) % _DRAWN]
