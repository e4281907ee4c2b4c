"""The theme of claims: users make claims and delete them again, while everything goes wrong that can."""

import random
from typing import Any, Final

from hack.sim.driver.faults import Fault
from hack.sim.world.plan import IMMEDIATE_CLASS, LATE, LATE_TOO, SHARED, TROUBLED, Draft, Theme, Trouble, spans
from sidecar.csi.outcome import Code

RANDOM: Final = "random"
RANKED: Final = "ranked"
HUGE: Final = "huge"
WITHOUT_CLASS: Final = "without class"
SELF_SELECTED: Final = "self-selected"
NOWHERE: Final = "nowhere"
ODD: Final = (HUGE, WITHOUT_CLASS, SELF_SELECTED, NOWHERE)


def _all_of_it(seed: int, draft: Draft) -> None:
    _people(random.Random(f"people {seed}"), draft)
    _placements(random.Random(f"placements {seed}"), draft)


def _people(dice: random.Random, draft: Draft) -> None:
    """Users: they create claims and often delete them again."""
    for number in range(draft.claims):
        name, at = f"data-{number}", dice.uniform(1.0, 60.0)
        draft.add(at, "claim", name, dice.choice((1, 2, 5)), detail=dice.choice((LATE, LATE_TOO, IMMEDIATE_CLASS, IMMEDIATE_CLASS)))
        if dice.random() < 0.4:
            draft.add(at + dice.expovariate(1 / 20.0), "delete", name)


def _placements(dice: random.Random, draft: Draft) -> None:
    """Every world has one: all nodes the same, each its own, or one after the other goes over while claims arrive."""
    way = dice.choice((RANDOM, RANKED, "mixed", "rolled"))
    if way in (RANDOM, RANKED):
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


def _driver_faults(dice: random.Random, draft: Draft) -> None:
    for _ in range(dice.randint(1, 6)):
        method = dice.choice(("CreateVolume", "CreateVolume", "DeleteVolume", "GetCapacity"))
        draft.faults.append((dice.choice(draft.nodes), Fault(method=method, times=dice.randint(1, 6), **dice.choice(_FAULTS))))


# Without RESOURCE_EXHAUSTED: pools run full by themselves, and no driver may answer it for a volume that it has made.
_FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"fail": Code.INTERNAL},
    {"fail": Code.UNAVAILABLE},
    {"hang": 60.0},
    {"delay": 30.0},
    {"delay": 12.0},
    {"delay": 3.0},
    {"linger": 12.0},
    {"lose": Code.DEADLINE_EXCEEDED},
    {"lose": Code.INTERNAL},
)


def _namesakes(dice: random.Random, draft: Draft) -> None:
    """A claim is deleted and created again under the same name, as a StatefulSet would."""
    for item in [item for item in draft.events if item.what == "claim"]:
        if dice.random() < 0.3:
            at = item.at + dice.expovariate(1 / 15.0)
            draft.add(at, "delete", item.whom)
            draft.add(at + dice.choice((0.0, 0.5, 10.0)), "claim", item.whom, item.number, detail=item.detail)


def _full_pools(dice: random.Random, draft: Draft) -> None:
    draft.pool = dice.choice(("3Gi", "5Gi", "10Gi"))


def _hostile_tenants(dice: random.Random, draft: Draft) -> None:
    """Their claims are deleted again: nobody could say which of them must be bound."""
    for number in range(dice.randint(1, 8)):
        name, at = f"odd-{number}", dice.uniform(1.0, 60.0)
        draft.add(at, "odd claim", name, dice.choice((1, 2)), detail=f"{dice.choice(ODD)}/{dice.choice(draft.nodes)}")
        draft.add(at + dice.choice((0.1, 3.0, 25.0)), "odd claim gone", name)


def _direct_deletions(dice: random.Random, draft: Draft) -> None:
    """Somebody deletes PersistentVolumes: in use, before their claim, or in the middle of their deletion."""
    for item in [item for item in draft.events if item.what in ("claim", "delete")]:
        if dice.random() < 0.3:
            draft.add(item.at + dice.choice((0.5, 2.0, dice.uniform(2.0, 40.0))), "volume deleted", item.whom)


def _kept_data(dice: random.Random, draft: Draft) -> None:
    node, at = dice.choice(draft.nodes), dice.uniform(20.0, TROUBLED)
    draft.add(at, "retained", node, float(dice.randint(0, 9)))
    draft.add(at + dice.uniform(310.0, 900.0), "sidecar lives", node)


_ORDER: Final = ("kills", "dooms", "stops", "driver restarts", "driver faults", *tuple(SHARED)[3:])
_OWN: Final[dict[str, Trouble]] = {
    "driver restarts": spans("driver away", "driver back", 3, longest=40.0),
    "driver faults": _driver_faults,
    "namesakes": _namesakes,
    "full pools": _full_pools,
    "full disks": spans("disk full", "disk free", 2, longest=40.0),
    "hostile tenants": _hostile_tenants,
    "direct deletions": _direct_deletions,
    "kept data": _kept_data,
}
_TROUBLES: Final = {kind: (SHARED | _OWN)[kind] for kind in dict.fromkeys((*_ORDER, *_OWN))}
CLAIMS_THEME: Final = Theme("claims", "plan", (2, 5), (6, 24), 0.4, lambda dice, draft: None, _all_of_it, _TROUBLES)
