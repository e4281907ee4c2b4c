"""Which placement and which program nodes run, and how operators replace one by another under load. `plan` draws it."""

import random
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hack.sim.world.plan import Draft

RANDOM: Final = "random"
RANKED: Final = "ranked"
PLACEMENTS: Final = {RANDOM: (), RANKED: ("--node-deployment-placement=ranked",)}
"""By name: the flags."""


class Program(Enum):
    """What a life of a node runs."""

    OURS = "ours"
    UPSTREAM = "upstream"


KILLED: Final = "killed"
STOPPED: Final = "stopped"


def placements(dice: random.Random, draft: "Draft") -> None:
    """Every world has one: all nodes the same, each its own, or one after the other goes over while claims arrive."""
    way = dice.choice((RANDOM, RANKED, "mixed", "rolled"))
    if way in PLACEMENTS:
        draft.placements = dict.fromkeys(draft.nodes, way)
        return
    if way == "mixed":
        draft.placements = {node: dice.choice((RANDOM, RANKED)) for node in draft.nodes}
        return
    before, after = dice.sample((RANDOM, RANKED), 2)
    draft.placements = dict.fromkeys(draft.nodes, before)
    at = dice.uniform(3.0, 50.0)
    for node in draft.nodes:
        draft.add(at, "placement", node, detail=after)
        at += dice.uniform(1.0, 12.0)


def mixed(dice: random.Random, draft: "Draft") -> None:
    """Upstream on some nodes, from the start or from some moment on, for a while or to the end. Some nodes join while claims arrive."""
    draft.settle = max(draft.settle, _TWO_RESYNCS)
    chosen = dice.sample(draft.nodes, dice.randint(1, len(draft.nodes)))
    for node in chosen:
        program, at = dice.choice((Program.OURS, Program.UPSTREAM)), 0.0
        swaps = dice.randint(1, 4) if program is Program.OURS else dice.randint(0, 3)
        if program is Program.UPSTREAM:
            draft.upstream.append(node)
        if dice.random() < 0.25:
            at = draft.joins[node] = dice.uniform(1.0, 30.0)
        for _ in range(swaps):
            at += dice.uniform(2.0, 30.0)
            program = Program.OURS if program is Program.UPSTREAM else Program.UPSTREAM
            draft.add(at, "swap", node, detail=f"{program.value} {dice.choice((KILLED, STOPPED))}")


# Upstream looks at a claim that nobody had room for again after a quarter of an hour, or later.
_TWO_RESYNCS: Final = 2400.0
