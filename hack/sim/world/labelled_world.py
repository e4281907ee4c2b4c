"""Worlds whose nodes watch claims by label, as `hack/fire --worlds labelled` plays them."""

from collections.abc import Callable
from typing import Final

from hack.sim.world import world
from hack.sim.world.plan import Plan
from hack.sim.world.plan_labels import labelled_plan_of as plan_of
from hack.sim.world.world import Report, World

WORLDS: Final = "labelled"

__all__ = ["WORLDS", "plan_of", "play"]


def play(plan: Plan, *, before: Callable[[World], None] = lambda _: None) -> Report:
    report = world.play(plan, before=before)
    report.worlds = WORLDS
    return report
