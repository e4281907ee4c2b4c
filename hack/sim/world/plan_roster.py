"""Troubles of worlds whose nodes watch claims by label: shards that few hear of, machines that come and go, rolls from one program or scope
to another, listeners that are cut off, history that is lost while selectors change. `plan_labels` draws them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hack.sim.world.label_events import (
    ALL,
    IN_FORCE,
    JOINS,
    LABELLED,
    LEAVES,
    POLICY,
    REGISTERED,
    RELABELLED,
    RENAMED,
    ROLLED,
    SCOPE,
    STAYS_LISTED,
    UNREGISTERED,
    UPSTREAM,
)
from hack.sim.world.plan import IMMEDIATE_CLASS, TROUBLED, PlannedEvent
from hack.sim.world.plan_rolls import KILLED, RANKED, STOPPED
from sidecar.ownership.shards import LISTENERS

# Nodes list who contends every ten minutes, and soon after a start.
_LONG: Final = 1500.0
_ROLLS: Final = ((UPSTREAM, LABELLED), (ALL, LABELLED), (LABELLED, ALL), (LABELLED, UPSTREAM), (UPSTREAM, ALL))


@dataclass(slots=True)
class LabelledDraft:
    """What is drawn anew of the plan of a usual world."""

    nodes: tuple[str, ...]
    events: list[PlannedEvent]
    placements: dict[str, str]
    upstream: list[str]
    by_label: set[str]
    listeners: int = LISTENERS

    def add(self, at: float, what: str, whom: str = "", *, detail: str = "") -> None:
        self.events.append(PlannedEvent(at, what, whom, detail=detail))

    def times_of(self, *what: str) -> list[float]:
        """When such a thing happens."""
        return [item.at for item in self.events if item.what in what]


def shared_out(dice: random.Random, draft: LabelledDraft) -> None:
    """Each open claim is heard by one node or two. Mostly all nodes know the contenders; who does not hears of all open claims."""
    draft.listeners = dice.choice((1, 1, 2))
    if dice.random() < 0.8:
        draft.placements = dict.fromkeys(draft.nodes, RANKED)
        draft.events = [item for item in draft.events if item.what != "placement"]


def churn(dice: random.Random, draft: LabelledDraft) -> None:
    """Machines join, leave and are renamed while Immediate claims are made, for so long that nodes which stay learn of it."""
    shared_out(dice, draft)
    if dice.random() < 0.7:  # while labels are not trusted, all nodes hear of all claims
        draft.events = [PlannedEvent(0.0, IN_FORCE), *(item for item in draft.events if item.what not in (*POLICY, RELABELLED, SCOPE))]
    until = dice.choice((TROUBLED, 600.0, _LONG))
    for number in range(dice.randint(4, 16)):
        name, at = f"open-{number}", dice.uniform(2.0, until)
        draft.events.append(PlannedEvent(at, "claim", name, dice.choice((1, 2, 5)), IMMEDIATE_CLASS))
        if dice.random() < 0.25:
            draft.add(at + dice.expovariate(1 / 20.0), "delete", name)
    for number in range(dice.randint(1, 5)):
        _machine(dice, draft, f"m{number}", f"renamed{number}", until)
    for _ in range(dice.randint(0, 3)):
        node, at = dice.choice(draft.nodes), dice.uniform(1.0, until)
        draft.add(at, UNREGISTERED, node)
        draft.add(at + dice.uniform(0.5, until / 2.0), REGISTERED, node)
    for _ in range(dice.randint(0, 4)):  # what starts anew knows who is there now
        draft.add(dice.uniform(1.0, until), dice.choice(("kill", "stop")), dice.choice(draft.nodes))


def _machine(dice: random.Random, draft: LabelledDraft, name: str, other: str, until: float) -> None:
    at = dice.uniform(1.0, until * 0.7)
    draft.add(at, JOINS, name, detail=dice.choice((LABELLED, LABELLED, LABELLED, ALL, UPSTREAM)))
    at += dice.uniform(0.5, until / 2.0)
    what, detail = dice.choice((("", ""), (LEAVES, ""), (LEAVES, STAYS_LISTED), (RENAMED, other)))
    if what:
        draft.add(at, what, name, detail=detail)


def rolls(dice: random.Random, draft: LabelledDraft) -> None:
    """One node after the other goes over to another program or scope, and often back; some rolls stop half-way."""
    before, after = dice.choice(_ROLLS)
    draft.upstream = list(draft.nodes) if before == UPSTREAM else []
    draft.by_label = set(draft.nodes) if before == LABELLED else set()
    at = dice.uniform(2.0, 40.0)
    for program in (after, before) if dice.random() < 0.6 else (after,):
        order = dice.sample(draft.nodes, len(draft.nodes))
        for node in order[: dice.randint(1, len(order))] if dice.random() < 0.25 else order:
            draft.add(at, ROLLED, node, detail=f"{program} {dice.choice((KILLED, STOPPED))}")
            at += dice.uniform(0.5, 12.0)
        at += dice.uniform(0.5, 30.0)


def deaf_listeners(dice: random.Random, draft: LabelledDraft) -> None:
    """Nodes are cut off just before and after Immediate claims are made, for less or more than others need to find what they leave."""
    made = [item.at for item in draft.events if item.what == "claim" and item.detail == IMMEDIATE_CLASS]
    for at in dice.sample(made, min(len(made), dice.randint(1, 4))):
        for node in dice.sample(draft.nodes, dice.randint(1, len(draft.nodes) - 1)):
            cut = max(0.0, at + dice.uniform(-1.0, 1.5))
            draft.add(cut, "partition", node)
            draft.add(cut + dice.choice((dice.uniform(0.5, 10.0), dice.uniform(10.0, 90.0))), "healed", node)


CHANGES: Final = (*POLICY, ROLLED, JOINS, LEAVES, RENAMED, "kill", "stop")
"""After these, selectors change within seconds."""


def lost_history(dice: random.Random, draft: LabelledDraft) -> None:
    """Watches end with 410 while selectors change, and the lists of the new ones may be too old when their watch begins."""
    for at in draft.times_of(*CHANGES):
        if dice.random() < 0.5:
            for _ in range(dice.randint(1, 4)):
                draft.add(at + dice.uniform(0.0, 10.0), "compact")


TROUBLES: Final[dict[str, Callable[[random.Random, LabelledDraft], None]]] = {
    "shared-out shards": shared_out,
    "roster churn": churn,
    "rolls": rolls,
    "deaf listeners": deaf_listeners,
    "lost history": lost_history,
}
"""By the name under which they are reported. Later ones look at what earlier ones have added."""
