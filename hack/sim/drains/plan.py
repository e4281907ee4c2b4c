"""What happens in a drain world and when, drawn from a seed and from nothing else.

As in `world.plan`, each kind of trouble has its own dice. The trouble of other worlds (kills, outages, late watches and so on) comes from
there, stretched: drains take minutes, not seconds.
"""

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from hack.sim.drains.drainer import KURED
from hack.sim.world import plan as plans
from hack.sim.world.plan import Draft, Plan, planned
from sidecar.model import names

DRAINING: Final = (150.0, 500.0)
"""Drains begin in this span; workloads before it."""
TROUBLED: Final = 700.0
_STRETCH: Final = 6.0
_SETTLED: Final = 1500.0
"""Within so many seconds after everything was given up both verdicts must be True: a creation that never succeeds blocks for ten minutes,
a request that failed is tried again within five, and the driver's list of volumes is two lists a minute apart."""

LATE: Final = "late"
LAX: Final = "lax"
FIRM: Final = "firm"
KEPT: Final = "kept"
CLASSES: Final = {
    LATE: ("Delete", {}),
    LAX: ("Delete", {names.DRAIN_POLICY: "AllowIdle"}),
    FIRM: ("Delete", {names.DRAIN_POLICY: "Block"}),
    KEPT: ("Retain", {}),
}
"""By name of a class: reclaim policy and annotations."""
WORDS: Final = (
    "",
    "",
    f"{names.DRAIN_POLICY}=AllowIdle",
    f"{names.DRAIN_POLICY}=Block",
    f"{names.DRAIN_POLICY}=Ignore",
    f"{names.DRAIN_POLICY_RETIRE}=AllowIdle",
    f"{names.DRAIN_POLICY_RETIRE}=Ignore",
    f"{names.DRAIN_POLICY_REBOOT}=Block",
)
UNHEEDED: Final = "--drain-tenant-policies=example.com/trusted=yes"
"""No namespace has that label."""
GATED: Final = ("--drain-report", "--drain-gate", "--drain-gate-image=pause")


def plan_of(seed: int, *, claims: int = 0, without: Collection[str] = ()) -> Plan:
    """The plan of a seed. `claims` is the number of workloads."""
    dice = random.Random(f"drains {seed}")
    draft = Draft(tuple(f"n{number}" for number in range(dice.randint(2, 3))), claims or dice.randint(1, 4))
    draft.args += [*GATED, f"--node-drain-policy={dice.choice(('NoSchedule', 'Evacuate'))}"]
    drawn = [kind for kind in TROUBLES if dice.random() < 0.3]
    troubles = tuple(kind for kind in drawn if kind not in without)
    _people(random.Random(f"drain people {seed}"), draft)
    _drainers(random.Random(f"drainers {seed}"), draft)
    for kind in troubles:
        TROUBLES[kind](random.Random(f"{kind} {seed}"), draft)
    return planned(seed, draft, troubles, settle=_SETTLED)


def slack_of(plan: Plan) -> float:
    """What late requests and watches of this plan add to the time that a verdict may be behind."""
    lags = [item.number for item in plan.events if item.what == "lag"]
    # Where requests fail, what takes back a True is tried again every 10 s. What is not watched is then read within five minutes.
    unwatched = any(item.what == "unplaced volume" for item in plan.events)
    late = (300.0 if unwatched else 60.0) if plan.weather.straying or plan.weather.lost_requests or plan.weather.refused else 0.0
    # Where a third of the requests goes astray and a third is refused, half of all tries fail; a look with two that hang lasts a minute.
    late *= 2.0 if plan.weather.straying + plan.weather.refused > 0.5 else 1.0
    return max(lags, default=0.0) + 3.0 * plan.weather.watch.p99 + late


def apps(draft: Draft) -> list[str]:
    return [item.whom for item in draft.events if item.what == "app"]


def _people(dice: random.Random, draft: Draft) -> None:
    for number in range(draft.claims):
        word, class_ = dice.choice(WORDS), dice.choice((LATE, LATE, LAX, FIRM, KEPT))
        draft.add(dice.uniform(2.0, 60.0), "app", f"app-{number}", dice.uniform(0.0, 5.0), detail=f"{class_} {word}".strip())


def _drainers(dice: random.Random, draft: Draft) -> None:
    """One after the other or at once, for good or for a reboot, told or not."""
    for node in dice.sample(draft.nodes, dice.randint(1, len(draft.nodes) - 1)):
        reboots = dice.random() < 0.4
        said = dice.choice((names.DRAIN_INTENT, KURED, "taint", "")) if reboots else dice.choice(("", "", names.DRAIN_INTENT, "taint"))
        draft.add(dice.uniform(*DRAINING), "drain for reboot" if reboots else "drain for good", node, detail=said)


def stretched(kind: str) -> Callable[[random.Random, Draft], None]:
    def draw(dice: random.Random, draft: Draft) -> None:
        before = len(draft.events)
        plans.TROUBLES[kind](dice, draft)
        draft.events[before:] = [replace(item, at=60.0 + _STRETCH * item.at) for item in draft.events[before:]]

    return draw


def _scaling(dice: random.Random, draft: Draft) -> None:
    """Workloads are stopped and, some of them, started again."""
    for name in apps(draft):
        if dice.random() < 0.6:
            at = dice.uniform(80.0, 400.0)
            draft.add(at, "scale", name, 0)
            if dice.random() < 0.6:
                draft.add(at + dice.choice((3.0, 30.0, dice.uniform(30.0, 300.0))), "scale", name, 1)


def _acks(dice: random.Random, draft: Draft) -> None:
    """A volume is acknowledged while nobody uses it, and some are used again after that."""
    for name in apps(draft):
        if dice.random() < 0.7:
            at = dice.uniform(70.0, 300.0)
            draft.add(at, "scale", name, 0)
            draft.add(at + 20.0, "ack", name)
            if dice.random() < 0.6:
                draft.add(at + 60.0, "scale", name, 1)
                draft.add(at + 100.0, "scale", name, 0)


def _new_words(dice: random.Random, draft: Draft) -> None:
    """Owners change their minds."""
    for name in apps(draft):
        for _ in range(dice.randint(0, 2)):
            draft.add(dice.uniform(80.0, 600.0), "word", name, detail=dice.choice(WORDS))


def _leaving(dice: random.Random, draft: Draft) -> None:
    for name in apps(draft):
        if dice.random() < 0.5:
            draft.add(dice.uniform(80.0, 600.0), "app deleted", name)


def _shared(dice: random.Random, draft: Draft) -> None:
    """A volume that two nodes reach, and both may be drained. Often it is the only thing that holds them."""
    pair = dice.sample(draft.nodes, 2)
    if dice.random() < 0.5:
        draft.events = [item for item in draft.events if item.what != "app"]
    draft.add(dice.uniform(3.0, 30.0), "shared volume", "shared-0", dice.uniform(0.0, 5.0), detail=" ".join(pair))
    if dice.random() < 0.7:
        at, apart = dice.uniform(*DRAINING), dice.choice((0.0, 1.0, 20.0, 60.0))
        draft.events = [item for item in draft.events if not item.what.startswith("drain") or item.whom not in pair]
        draft.add(at, "drain for good", pair[0])
        draft.add(at + apart, "drain for good", pair[1])


def _unplaced(dice: random.Random, draft: Draft) -> None:
    """A PersistentVolume made by hand, without node affinity."""
    draft.add(dice.uniform(3.0, 30.0), "unplaced volume", "unplaced-0", dice.uniform(0.0, 5.0), detail=dice.choice(draft.nodes))


def _snapshots(dice: random.Random, draft: Draft) -> None:
    for number in range(dice.randint(1, 2)):
        draft.add(dice.uniform(3.0, 200.0), "snapshot", f"snap-{number}", detail=dice.choice(draft.nodes))


def _renames(dice: random.Random, draft: Draft) -> None:
    node = dice.choice(draft.nodes)
    at = dice.uniform(90.0, 200.0)
    draft.events = [item for item in draft.events if not item.what.startswith("drain") or item.whom != node]
    draft.add(at, "rename", node, detail=f"{node}x")
    if dice.random() < 0.6:
        draft.add(at + dice.uniform(60.0, 300.0), "drain for good", f"{node}x")


def _deaths(dice: random.Random, draft: Draft) -> None:
    """A sidecar does not come back for a long time, so neighbours look after its gate."""
    for node in dice.sample(draft.nodes, dice.randint(1, len(draft.nodes) - 1)):
        at = dice.uniform(70.0, 400.0)
        draft.add(at, "sidecar dies", node)
        draft.add(at + dice.choice((120.0, 600.0, 3000.0)), "sidecar lives", node)
        if dice.random() < 0.6:
            _second_thoughts(dice, draft, at)
            _drained_only(draft, node, at + dice.uniform(100.0, 200.0))


def _second_thoughts(dice: random.Random, draft: Draft, at: float) -> None:
    """What could be lost when nobody saw it any more, must not be lost any longer."""
    for name in apps(draft):
        if dice.random() < 0.7:
            draft.add(63.0, "word", name, detail=f"{names.DRAIN_POLICY}=Ignore")
            draft.add(at + 30.0, "word", name, detail=f"{names.DRAIN_POLICY}=Block")


def _drained_only(draft: Draft, node: str, at: float) -> None:
    draft.events = [item for item in draft.events if not item.what.startswith("drain") or item.whom != node]
    draft.add(at, "drain for good", node)


def _silence(dice: random.Random, draft: Draft) -> None:
    """A node stops answering, and its kubelet does nothing."""
    node, at = dice.choice(draft.nodes), dice.uniform(80.0, 300.0)
    draft.add(at, "node silent", node)
    draft.add(at + dice.choice((100.0, 500.0, 900.0)), "node answers", node)
    if dice.random() < 0.5:
        _drained_only(draft, node, at + dice.uniform(20.0, 400.0))


def _lying_owners(dice: random.Random, draft: Draft) -> None:
    """A claim whose owner is a pod, which made it for others; so do Spark's drivers for their executors."""
    draft.add(1.0, "driver pod", "spark")
    for name in apps(draft):
        if dice.random() < 0.6:
            draft.add(dice.uniform(62.0, 140.0), "owned by pod", name, detail="spark")


def _unheeded_tenants(dice: random.Random, draft: Draft) -> None:
    """Tenants may not hold up nodes, and say all the same that they do."""
    draft.args.append(UNHEEDED)
    for name in apps(draft):
        if dice.random() < 0.5:
            draft.add(
                dice.uniform(62.0, 400.0),
                "word",
                name,
                detail=dice.choice((f"{names.DRAIN_POLICY}=Block", f"{names.DRAIN_POLICY_REBOOT}=Block")),
            )


def _lying_selections(dice: random.Random, draft: Draft) -> None:
    for number in range(dice.randint(1, 2)):
        draft.add(dice.uniform(3.0, 600.0), "self-selected claim", f"lie-{number}", detail=dice.choice(draft.nodes))


def _orphans(dice: random.Random, draft: Draft) -> None:
    """A PersistentVolume of a node that is not there, or that asks for a label which no node has any more."""
    at = dice.uniform(1.0, 300.0)
    draft.add(at, "orphan", "orphan-0", detail=dice.choice(("n-that-never-was", "example.com/rack=r-9")))


def _forgotten(dice: random.Random, draft: Draft) -> None:
    """Words that announce a reboot stay on the node, or are there without a cordon; later the node is drained for good."""
    node, at = dice.choice(draft.nodes), dice.uniform(80.0, 120.0)
    key = dice.choice((names.DRAIN_INTENT, KURED))
    draft.events = [item for item in draft.events if not item.what.startswith("drain") or item.whom != node]
    draft.add(at, "announce", node, detail=key)
    if dice.random() < 0.5:
        draft.add(at + 2.0, "cordon", node)
        draft.add(at + 40.0, "uncordon", node)
        draft.add(at + dice.uniform(100.0, 400.0), "drain for good", node)


def _refusals(dice: random.Random, draft: Draft) -> None:
    """A right is taken away, the sidecar starts again, and what was known is no longer seen."""
    node, at = dice.choice(draft.nodes), dice.uniform(70.0, 300.0)
    draft.add(at, "forbid", node, detail=dice.choice(("persistentvolumeclaims", "persistentvolumes", "pods")))
    draft.add(at + 1.0, "kill", node)
    draft.add(at + dice.uniform(100.0, 500.0), "allow", node)
    if dice.random() < 0.6:
        _second_thoughts(dice, draft, at)


def _dead_drivers(dice: random.Random, draft: Draft) -> None:
    """A driver is dead when its sidecar starts."""
    node, at = dice.choice(draft.nodes), dice.uniform(80.0, 300.0)
    draft.add(at, "driver away", node)
    draft.add(at + 1.0, "kill", node)
    draft.add(at + dice.choice((30.0, 300.0, 900.0)), "driver back", node)
    if dice.random() < 0.6:
        _second_thoughts(dice, draft, at)


SHARED: Final = (
    "kills",
    "dooms",
    "stops",
    "outages",
    "partitions",
    "410 storms",
    "cuts",
    "losses",
    "strays",
    "overload",
    "slow watches",
    "lags",
)
TROUBLES: Final[dict[str, Callable[[random.Random, Draft], None]]] = {
    **{kind: stretched(kind) for kind in SHARED},
    "scaling": _scaling,
    "acks": _acks,
    "new words": _new_words,
    "leaving": _leaving,
    "shared volumes": _shared,
    "unplaced volumes": _unplaced,
    "snapshots": _snapshots,
    "renames": _renames,
    "deaths": _deaths,
    "silence": _silence,
    "lying owners": _lying_owners,
    "lying selections": _lying_selections,
    "orphans": _orphans,
    "forgotten reboots": _forgotten,
    "refusals": _refusals,
    "dead drivers": _dead_drivers,
    "unheeded tenants": _unheeded_tenants,
}
