"""The themes of worlds, as `hack/fire --worlds` calls them, and the plan of a seed."""

import random
from collections.abc import Collection
from typing import Final

from hack.sim.world.claims_plan import CLAIMS_THEME
from hack.sim.world.drains_plan import DRAINS
from hack.sim.world.network import Weather
from hack.sim.world.plan import Draft, Plan
from hack.sim.world.sets_plan import EMPTYING, NODE_LOSS, REPROVISION

THEMES: Final = {theme.name: theme for theme in (CLAIMS_THEME, DRAINS, EMPTYING, REPROVISION, NODE_LOSS)}


def plan_of(seed: int, theme: str = "claims", *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    """`claims` replaces the drawn number of claims, workloads or sets; `without` leaves out kinds of trouble."""
    of = THEMES[theme]
    dice = random.Random(f"{of.salt} {seed}")
    draft = Draft(tuple(f"n{number}" for number in range(dice.randint(*of.nodes))), claims or dice.randint(*of.claims))
    of.flags(dice, draft)
    drawn = [kind for kind in of.troubles if dice.random() < of.share]
    troubles = tuple(kind for kind in drawn if kind not in without)
    of.people(seed, draft)
    for kind in troubles:
        of.troubles[kind](random.Random(f"{kind} {seed}"), draft)
    return Plan(
        seed,
        draft.nodes,
        theme,
        pool=draft.pool,
        weather=Weather(**draft.weather),
        events=tuple(sorted(draft.events, key=lambda item: item.at)),
        faults=tuple(draft.faults),
        troubles=troubles,
        args=tuple(draft.args),
        placements=tuple(draft.placements.items()),
        settle=of.settle,
    )
