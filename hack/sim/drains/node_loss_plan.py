"""What happens in a world whose nodes are lost and when, drawn from a seed: announced or not, with their disks back or not, and again.

As in `plan`, each kind of trouble has its own dice, and kills, outages, late watches and so on are those of other worlds, stretched.
"""

import random
from collections.abc import Callable, Collection
from typing import Final

from hack.sim.drains.plan import KEPT, LATE, SHARED, stretched
from hack.sim.world.plan import Draft, Plan, planned

SET: Final = "lost set"
LOST: Final = "node lost"
HOLDER: Final = "holder"
"""Instead of a node's name: the one whose sidecar looks after gone nodes at that moment."""
BACK: Final = "node back"
DIES: Final = "dies at an effect"
ACKNOWLEDGED: Final = "loss acknowledged"
CLEANUP, ORPHAN = "--node-delete-policy=Cleanup", "--node-delete-policy=Orphan"
UNPLACED: Final = "--feature-gates=Topology=false"
"""Volumes get no node affinity."""
_BEGIN: Final = 150.0
_SETTLED: Final = 3000.0
"""Seconds until all that may go is gone: a Lease whose holder is dead is taken after 1,400, looks that failed come again within 600, and a
look takes one step with each thing."""


def plan_of(seed: int, *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    """The plan of a seed. `claims` is the number of sets."""
    dice = random.Random(f"node loss {seed}")
    draft = Draft(tuple(f"n{number}" for number in range(dice.randint(3, 4))), claims or dice.randint(3, 5))
    draft.args += ["--drain-report", "--node-drain-policy=NoSchedule", CLEANUP if dice.random() < 0.85 else ORPHAN]
    draft.args.append(f"--node-gone-after={dice.choice(('0s', '0s', '1m', '5m'))}")
    draft.args += [UNPLACED] if dice.random() < 0.2 else []
    drawn = [kind for kind in TROUBLES if dice.random() < 0.25]
    troubles = tuple(kind for kind in drawn if kind not in without)
    _people(random.Random(f"node loss people {seed}"), draft)
    _losses(random.Random(f"losses {seed}"), draft)
    for kind in troubles:
        TROUBLES[kind](random.Random(f"{kind} {seed}"), draft)
    return planned(seed, draft, troubles, settle=_SETTLED)


def _people(dice: random.Random, draft: Draft) -> None:
    """Sets make their claims again; what is called an app has a claim that nobody makes again, which its owner may give up."""
    for number in range(draft.claims):
        draft.add(dice.uniform(2.0, 30.0), SET, f"set-{number}", dice.randint(2, 3), detail=dice.choice((LATE, LATE, LATE, LATE, KEPT)))
    for number in range(dice.randint(1, 3)):
        name = f"app-{number}"
        draft.add(dice.uniform(2.0, 30.0), "app", name, 1.0, detail=dice.choice((LATE, LATE, KEPT)))
        if dice.random() < 0.6:
            draft.add(dice.uniform(_BEGIN, 1200.0), "app deleted", name)


def _losses(dice: random.Random, draft: Draft) -> None:
    """Two nodes at least are never named; the holder of the Lease may be any."""
    for node in dice.sample(draft.nodes, dice.randint(1, len(draft.nodes) - 2)):
        at, whom = dice.uniform(_BEGIN, 700.0), HOLDER if dice.random() < 0.3 else node
        if dice.random() < 0.85:
            draft.add(at, "evacuate", whom)
            if dice.random() < 0.2:
                draft.add(at + dice.uniform(1.0, 200.0), "evacuation undone", whom)
        at += dice.choice((dice.uniform(1.0, 60.0), dice.uniform(60.0, 300.0), dice.uniform(60.0, 300.0)))
        draft.add(at, LOST, whom, dice.choice((0.0, 0.0, dice.uniform(0.0, 120.0))), detail=dice.choice(("Node", "CSINode")))
        while dice.random() < 0.3:
            at += dice.choice((dice.uniform(2.0, 120.0), dice.uniform(120.0, 900.0)))
            draft.add(at, BACK, node)
            at += dice.uniform(30.0, 600.0)
            if dice.random() < 0.5:
                draft.add(at - dice.uniform(1.0, 25.0), "evacuate", node)
            draft.add(at, LOST, node)
        if dice.random() < 0.3:
            draft.add(at + dice.uniform(2.0, 900.0), BACK, node)
        if dice.random() < 0.4:
            draft.add(at + dice.uniform(100.0, 1500.0), ACKNOWLEDGED, node)


# --- trouble --------------------------------------------------------------------------------------------------------------


def _deaths_at_effects(dice: random.Random, draft: Draft) -> None:
    """Who clears up is killed at its next effect: before that is carried out, or after it and before its answer."""
    for _ in range(dice.randint(1, 6)):
        draft.add(dice.uniform(_BEGIN, 1500.0), DIES, detail=dice.choice(("before", "after")))


def _back_at_effects(dice: random.Random, draft: Draft) -> None:
    """A node registers again right before something that it has left is touched."""
    for _ in range(dice.randint(1, 3)):
        draft.add(dice.uniform(_BEGIN, 1200.0), DIES, detail="back")


def _clocks(dice: random.Random, draft: Draft) -> None:
    """Up to five minutes apart."""
    for node in draft.nodes:
        draft.add(dice.uniform(1.0, 300.0), "clock jumps", node, dice.uniform(-150.0, 150.0))


def _scaled(dice: random.Random, draft: Draft) -> None:
    for item in [item for item in draft.events if item.what == SET]:
        at = dice.uniform(_BEGIN, 900.0)
        draft.add(at, "scale", item.whom, dice.randint(0, 3))


def _errors(dice: random.Random, draft: Draft) -> None:
    """The API server answers some requests with 500, 409 or, where lists are asked for, 410."""
    at = dice.uniform(100.0, 600.0)
    draft.add(at, "errors", number=dice.choice((0.05, 0.2, 0.5)))
    draft.add(at + dice.uniform(60.0, 900.0), "errors", number=0.0)


def _deaths(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 3)):
        node, at = dice.choice(draft.nodes), dice.uniform(100.0, 900.0)
        draft.add(at, "sidecar dies", node)
        draft.add(at + dice.uniform(10.0, 1500.0), "sidecar lives", node)


def _former_notes(dice: random.Random, draft: Draft) -> None:
    """People and old machines leave words on volumes: notes that go, and garbage."""
    for _ in range(dice.randint(1, 4)):
        draft.add(dice.uniform(100.0, 600.0), "note taken", detail=dice.choice(("none", "garbage")))


TROUBLES: Final[dict[str, Callable[[random.Random, Draft], None]]] = {
    **{kind: stretched(kind) for kind in SHARED},
    "deaths at effects": _deaths_at_effects,
    "nodes back at effects": _back_at_effects,
    "clocks apart": _clocks,
    "scaled sets": _scaled,
    "server errors": _errors,
    "deaths": _deaths,
    "notes taken": _former_notes,
}
