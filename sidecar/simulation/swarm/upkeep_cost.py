"""What a cluster of n nodes costs the API server in which no volume is made, reckoned: at rest, and when the DaemonSet is rolled.

Constants are of `hack/bench scale`, or those of the program; tests/simulation/swarm/test_upkeep_cost.py holds the sums to measurements.
"""

import math
from typing import Final

from sidecar.frozen import frozen
from sidecar.kube.whole_lists import whole_lists_apart
from sidecar.ownership.shards import is_shared_out
from sidecar.simulation.swarm.server_cost import ALL, LABELLED, MS_REQUEST

_PAGE: Final = 500
_COMPRESSED_FROM: Final = 128.0
"""kB. The server sends what is smaller as it is."""
_COMPRESSION: Final = 12.0
_KB_CLAIM: Final = 1.4
_KB_VOLUME: Final = 1.7
_KB_CONTENDER: Final = 0.58
"""Of a CSINode with one driver."""
_KB_ANYWAY: Final = 4.0
"""Classes, what is served, and lists with nothing in them."""

_MS_START: Final = 75.0
_MS_OBJECT: Final = 0.02
"""CPU for a start whatever it lists, and for each claim and volume in its lists. Of two rolls on a busy machine."""

_WATCHES: Final = {ALL: 4, LABELLED: 5}
"""Of each node: claims, volumes twice, classes; by label claims twice."""
_SECONDS_OF_A_WATCH: Final = 445.0
_BOOKMARKS: Final = 1 / 60.0
"""A second, for each watch."""
_CONTENDERS_EVERY: Final = 660.0
_CONTENDER_LISTS: Final = 2
_WAITING_EVERY: Final = 600.0
_LEFT_EVERY: Final = 300.0
_LISTS_OF_A_START: Final = 2
"""What is served, and classes; claims, volumes and contenders besides."""
_REVIEWS: Final = 1
"""Whether volumes may be patched, where that is allowed."""


@frozen(kw_only=True)
class Rest:
    """For each second, of all nodes together."""

    requests: float
    """Watches that begin again too."""
    events: float
    """Bookmarks."""
    kilobytes: float
    """Of lists, as compressed as they are sent."""
    cores: float
    """Of the server, beside what it takes anyway."""


@frozen(kw_only=True)
class Roll:
    """Of all nodes together."""

    requests: float
    """Without watches."""
    watches: float
    megabytes: float
    """Of lists, as compressed as they are sent."""
    seconds: float
    """Of the server's CPU."""


def rest_cost(nodes: int, *, scope: str, volumes: int, ranked: bool = True) -> Rest:
    """`volumes` with their claims. Only under ranked placement are contenders listed, and open claims shared out."""
    requests, kilobytes, objects = _WATCHES[scope] / _SECONDS_OF_A_WATCH, 0.0, 0.0
    if ranked:
        requests += _CONTENDER_LISTS / _CONTENDERS_EVERY
        kilobytes += _as_sent(nodes * _KB_CONTENDER) / _CONTENDERS_EVERY
        objects += nodes / _CONTENDERS_EVERY
    if scope == LABELLED:
        # All claims come from the server's cache, which knows no pages.
        apart = whole_lists_apart(nodes)
        requests += 1 / _WAITING_EVERY + (1 + _pages(volumes)) / apart + (1 / _LEFT_EVERY if ranked and is_shared_out(nodes) else 0.0)
        kilobytes += (_as_sent(volumes * _KB_CLAIM) + _listed(volumes, _KB_VOLUME)) / apart
        objects += 2 * volumes / apart
    return Rest(
        requests=nodes * requests,
        events=nodes * _WATCHES[scope] * _BOOKMARKS,
        kilobytes=nodes * kilobytes,
        cores=nodes * (requests * MS_REQUEST + objects * _MS_OBJECT) / 1000,
    )


def roll_cost(nodes: int, *, scope: str, volumes: int, ranked: bool = True) -> Roll:
    """`volumes` with their claims. By label a node lists its own, those without a label, and claims that wait."""
    listed = volumes if scope == ALL else math.ceil(volumes / nodes)
    lists = 2 * _pages(volumes) if scope == ALL else 5
    contenders = nodes if ranked else 0
    kilobytes = _KB_ANYWAY + _as_sent(contenders * _KB_CONTENDER) + _listed(listed, _KB_CLAIM) + _listed(listed, _KB_VOLUME)
    requests = _REVIEWS + _LISTS_OF_A_START + (_CONTENDER_LISTS if ranked else 0) + lists
    return Roll(
        requests=nodes * requests,
        watches=nodes * _WATCHES[scope],
        megabytes=nodes * kilobytes / 1000,
        seconds=nodes * (_MS_START + (2 * listed + contenders) * _MS_OBJECT) / 1000,
    )


def _pages(objects: int) -> int:
    return max(1, math.ceil(objects / _PAGE))


def _listed(objects: int, each: float) -> float:
    """kB of a list in pages."""
    whole, rest = divmod(objects, _PAGE)
    return whole * _as_sent(_PAGE * each) + _as_sent(rest * each)


def _as_sent(kilobytes: float) -> float:
    return kilobytes if kilobytes < _COMPRESSED_FROM else kilobytes / _COMPRESSION
