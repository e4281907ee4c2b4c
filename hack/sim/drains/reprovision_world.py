"""Worlds of emptying in which replicas are made anew on other nodes (`--allow-reprovision`).

`hack/fire --worlds reprovision` plays any number.
"""

from collections.abc import Callable, Collection
from typing import Final

from hack.sim.drains import emptying_plan, emptying_world
from hack.sim.drains.claim_referee import ALLOW
from hack.sim.drains.emptying_plan import EPHEMERAL, KEPT, REPROVISIONED
from hack.sim.drains.emptying_world import EmptyingWorld
from hack.sim.world.plan import Plan
from hack.sim.world.world import Report

__all__ = ["plan_of", "play"]

WORLDS: Final = "reprovision"
_KINDS: Final = (REPROVISIONED, REPROVISIONED, REPROVISIONED, EPHEMERAL, KEPT)


def plan_of(seed: int, *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    return emptying_plan.plan_of(seed, claims=claims, without=without, kinds=_KINDS, args=(ALLOW,))


def play(plan: Plan, *, before: Callable[[EmptyingWorld], None] = lambda _: None) -> Report:
    report = emptying_world.play(plan, before=before)
    report.worlds = WORLDS
    return report
