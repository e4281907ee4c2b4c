"""How late each node hears of what happens: a line that is slow is slow for a while, and nothing overtakes on it.

The delays that are stated are those that are met. Were each event's drawn for itself, in a stream that keeps its order the slow
ones would hold up all behind them, and half of what is said would come many times as late as the stated median.
"""

import math
import random
from typing import Final

from sidecar.simulation.network import Latency

# Longer than any delay, so that what was said before the last change of weather has come when the next one is there.
_SPELL: Final = 1.0
_DRAWN: Final = 1 << 16
_MASK: Final = (1 << 64) - 1


class Lines:
    """The connections of all nodes to the API server. When an event arrives follows from who listens and when it happened."""

    def __init__(self, latency: Latency, dice: random.Random) -> None:
        self._lags = [latency.draw(dice) for _ in range(_DRAWN)]
        self._salt = dice.getrandbits(64)
        self.longest = max(self._lags)
        """Nobody is later than this."""
        self.usual = sum(self._lags) / _DRAWN
        """The mean."""
        self._spell = max(_SPELL, self.longest)

    def heard(self, node: int, at: float) -> float:
        """When that node hears of what happens then."""
        # Each line's weather changes at moments of its own.
        phase = (node * 0.6180339887) % 1.0
        spell = math.floor(at / self._spell + phase)
        began = (spell - phase) * self._spell
        return max(at + self._lag(node, spell), began + self._lag(node, spell - 1))

    def _lag(self, node: int, spell: int) -> float:
        mixed = (self._salt + node * 0x9E3779B97F4A7C15 + spell * 0xD1B54A32D192ED03) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return self._lags[(mixed ^ (mixed >> 31)) % _DRAWN]
