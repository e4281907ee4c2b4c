"""Which nodes look at an open claim, and when: in the order of their delays, computed only as far as needed.

In a cluster of thousands the claim has an owner long before most nodes have had their turn.
"""

import heapq
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from sidecar.ownership.placement import SINGLE_STEPS, RandomDelay, Ranked
from sidecar.ownership.roster import Roster

N = TypeVar("N")

Turn = tuple[float, N]
"""Seconds after the node has heard of the claim, and the node."""


def random_turns(nodes: Sequence[N], placement: RandomDelay, dice: random.Random) -> Iterator[Turn[N]]:
    """Each node draws its delay for itself; here the shortest of so many is drawn first, then the next one."""
    waiting, spent = list(nodes), 0.0
    for left in range(len(waiting), 0, -1):
        spent += (1.0 - spent) * (1.0 - dice.random() ** (1.0 / left))
        pick = int(dice.random() * left)
        node, waiting[pick] = waiting[pick], waiting[left - 1]
        yield placement.delay(0, 1.0 - spent), node


def ranked_turns(
    nodes: Mapping[str, N], roster: Roster, placement: Ranked, dice: random.Random, *, uid: str, needed: int
) -> Iterator[Turn[N]]:
    """By rank in the roster that all these nodes have."""
    order = roster.order(uid, needed)
    first = order[:SINGLE_STEPS]
    for rank, name in enumerate(first):
        if name in nodes:
            yield placement.delay(rank, dice.random()), nodes[name]
    early = set(first)
    late = (name for name in nodes if name not in early)
    ranks = ((roster.rank(name, uid, needed, exact=SINGLE_STEPS), name) for name in late)
    yield from _by_delay([(placement.delay(rank, dice.random()), nodes[name]) for rank, name in ranks])


def merged(turns: Sequence[Iterator[Turn[N]]]) -> Iterator[Turn[N]]:
    """Several kinds of nodes in one race."""
    return turns[0] if len(turns) == 1 else heapq.merge(*turns, key=lambda turn: turn[0])


def _by_delay(turns: list[Turn[N]]) -> list[Turn[N]]:
    return sorted(turns, key=lambda turn: turn[0])
