"""Worlds in which an admission policy labels claims and nodes watch by these labels: the usual ones, and what may befall the policy."""

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hack.sim.world.label_events import EDITED, GONE, IN_FORCE, RELABELLED, SCOPE, UNBOUND
from hack.sim.world.plan import TROUBLED, Plan, PlannedEvent, plan_of
from hack.sim.world.plan_roster import TROUBLES, LabelledDraft

_TROUBLES: Final = (GONE, UNBOUND, EDITED)

# All claims are listed every half hour, give or take a fifth, and what a list finds takes a moment.
_A_LIST: Final = 2400.0


def labelled_plan_of(seed: int, *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    """The plan of a seed, with labels. Its other troubles are those of `plan_of`, and each of its own has its own dice, too."""
    plan, dice = plan_of(seed, claims=claims, without=without), random.Random(f"labels {seed}")
    events = [*plan.events, *_policy(dice), *_lies(dice, plan)]
    by_label = set(plan.nodes) if dice.random() < 0.7 else {node for node in plan.nodes if dice.random() < 0.5}
    if dice.random() < 0.3:
        events += [PlannedEvent(dice.uniform(1.0, TROUBLED), SCOPE, node, detail=dice.choice(("all", "labelled"))) for node in plan.nodes]
    draft = LabelledDraft(plan.nodes, events, dict(plan.placements), list(plan.upstream), by_label)
    die = random.Random(f"label troubles {seed}")
    troubles = [kind for kind in TROUBLES if die.random() < 0.4 and kind not in without]
    for kind in troubles:
        TROUBLES[kind](random.Random(f"{kind} {seed}"), draft)
    return replace(
        plan,
        events=tuple(sorted(draft.events, key=lambda item: item.at)),
        troubles=(*plan.troubles, *troubles),
        placements=tuple(draft.placements.items()),
        upstream=tuple(draft.upstream),
        by_label=tuple(sorted(draft.by_label)),
        listeners=draft.listeners,
        settle=max(plan.settle, _A_LIST),
    )


def _policy(dice: random.Random) -> list[PlannedEvent]:
    """In force from the start, or late, or never; then it may go and come again."""
    way, at, events = dice.choice(("first", "first", "late", "never")), 0.0, []
    if way == "never":
        return []
    if way == "late":
        at = dice.uniform(1.0, 60.0)
    events.append(PlannedEvent(at, IN_FORCE))
    while dice.random() < 0.5:
        at += dice.choice((0.5, dice.uniform(1.0, 40.0)))
        events.append(PlannedEvent(at, dice.choice(_TROUBLES)))
        if dice.random() < 0.6:
            at += dice.choice((0.5, dice.uniform(1.0, 40.0)))
            events.append(PlannedEvent(at, IN_FORCE))
    return events


def _lies(dice: random.Random, plan: Plan) -> list[PlannedEvent]:
    """Somebody changes labels by hand. While the policy is in force it has the last word."""
    events, values = [], ("waiting", "open.00", "no-value", "", *(f"node.{node}" for node in plan.nodes))
    if dice.random() < 0.4:
        for item in [item for item in plan.events if item.what == "claim"]:
            if dice.random() < 0.4:
                at = item.at + dice.choice((0.1, 1.0, dice.uniform(1.0, 30.0)))
                events.append(PlannedEvent(at, RELABELLED, item.whom, detail=dice.choice(values)))
    return events
