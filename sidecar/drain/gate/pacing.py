"""Decides how long a sidecar waits between two looks at the gates of other nodes.

From the moment a sidecar dies until its gate may be opened by a neighbour, in the worst case, with up to a hundred gates:

    72 s    a usual pause with its spread: until the lease is seen as it is left (a running sidecar renews it every 300 s)
    1,050 s until it may be taken (`takeover`): the lease's 900 s, 90 s of patience, up to 60 s of chance; 151 s with a lease of one second
    5 s     the shortest pause: the look that takes the lease comes no later after that, and judges the gate too
    65 s    until a second judgement confirms the first: 60 s and the shortest pause; `force-drain` and the deadline need none

That is so as long as requests are answered. A look that fails is soon followed by another, because all neighbours get their time again
after a gap in which this process saw nothing (`takeover_io`), and requests that are refused now and then must not look like one.
"""

from collections.abc import Iterable
from typing import Final

from sidecar.drain.leases import RENEWED_EVERY

# Between two looks, and as long again for every so many gates: so the load on the API server grows with the gates, not with their square.
_USUAL: Final = 60.0
_GATES_A_MINUTE: Final = 100.0
# Of the usual pause: when very many leases run out together, nobody lists them every few seconds.
_SHORTEST: Final = 1 / 12


def usual(gates: int) -> float:
    """Short enough to renew in time the leases of the neighbours that this process looks after."""
    return min(_USUAL * max(1.0, gates / _GATES_A_MINUTE), RENEWED_EVERY)


def after_failures(usual_one: float, in_a_row: int) -> float:
    """Seconds until the next look: the shortest pause at first, twice as long after each further failure, and never above the usual one."""
    return min(usual_one * _SHORTEST * 2.0 ** min(in_a_row - 1, 16), usual_one)


def pause(usual_one: float, *, spread: float, due: Iterable[float], now: float) -> float:
    """Until the usual pause is over, or something is due before that. `spread` is the usual one with its chance in it.

    What is due has a chance of its own in it (`takeover.responsible`), so not all neighbours come at once.
    """
    soonest = min(due, default=now + spread)
    return min(spread, max(soonest - now, usual_one * _SHORTEST))
