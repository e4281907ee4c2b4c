"""The theme of drains: nodes are drained for good and for reboots, told or not, while owners say and do what they like."""

import random
from typing import Final

from hack.sim.world.people import KURED
from hack.sim.world.plan import FIRM, GATED, KEPT, LATE, LAX, SHARED, Draft, Plan, Theme, stretched
from sidecar.model import names

DRAINING: Final = (150.0, 500.0)
"""Drains begin in this span; workloads before it."""
_SETTLED: Final = 1500.0
"""Within so many seconds after everything was given up both verdicts must be True: a creation that never succeeds blocks for ten minutes,
a request that failed is tried again within five, and the driver's list of volumes is two lists a minute apart."""

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


def _flags(dice: random.Random, draft: Draft) -> None:
    draft.args += [*GATED, f"--node-drain-policy={dice.choice(('NoSchedule', 'Evacuate'))}"]


def _all_of_it(seed: int, draft: Draft) -> None:
    _people(random.Random(f"drain people {seed}"), draft)
    _drainers(random.Random(f"drainers {seed}"), draft)


def slack_of(plan: Plan) -> float:
    """What late requests and watches of this plan add to the time that a verdict may be behind."""
    lags = [item.number for item in plan.events if item.what == "lag"]
    # Where requests fail, what takes back a True is tried again every 10 s.
    late = 60.0 if plan.weather.straying or plan.weather.lost_requests or plan.weather.refused else 0.0
    # Where a third of the requests goes astray and a third is refused, half of all tries fail; a look with two that hang lasts a minute.
    late *= 2.0 if plan.weather.straying + plan.weather.refused > 0.5 else 1.0
    return max(lags, default=0.0) + 3.0 * plan.weather.watch.p99 + late


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


def _scaling(dice: random.Random, draft: Draft) -> None:
    """Workloads are stopped and, some of them, started again."""
    for name in draft.named("app"):
        if dice.random() < 0.6:
            at = dice.uniform(80.0, 400.0)
            draft.add(at, "scale", name, 0)
            if dice.random() < 0.6:
                draft.add(at + dice.choice((3.0, 30.0, dice.uniform(30.0, 300.0))), "scale", name, 1)


def _acks(dice: random.Random, draft: Draft) -> None:
    """A volume is acknowledged while nobody uses it, and some are used again after that."""
    for name in draft.named("app"):
        if dice.random() < 0.7:
            at = dice.uniform(70.0, 300.0)
            draft.add(at, "scale", name, 0)
            draft.add(at + 20.0, "ack", name)
            if dice.random() < 0.6:
                draft.add(at + 60.0, "scale", name, 1)
                draft.add(at + 100.0, "scale", name, 0)


def _new_words(dice: random.Random, draft: Draft) -> None:
    """Owners change their minds."""
    for name in draft.named("app"):
        for _ in range(dice.randint(0, 2)):
            draft.add(dice.uniform(80.0, 600.0), "word", name, detail=dice.choice(WORDS))


def _leaving(dice: random.Random, draft: Draft) -> None:
    for name in draft.named("app"):
        if dice.random() < 0.5:
            draft.add(dice.uniform(80.0, 600.0), "app deleted", name)


def _snapshots(dice: random.Random, draft: Draft) -> None:
    for number in range(dice.randint(1, 2)):
        draft.add(dice.uniform(3.0, 200.0), "snapshot", f"snap-{number}", detail=dice.choice(draft.nodes))


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
    for name in draft.named("app"):
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


def _lying_selections(dice: random.Random, draft: Draft) -> None:
    for number in range(dice.randint(1, 2)):
        draft.add(dice.uniform(3.0, 600.0), "self-selected claim", f"lie-{number}", detail=dice.choice(draft.nodes))


def _dead_drivers(dice: random.Random, draft: Draft) -> None:
    """A driver is dead when its sidecar starts."""
    node, at = dice.choice(draft.nodes), dice.uniform(80.0, 300.0)
    draft.add(at, "driver away", node)
    draft.add(at + 1.0, "kill", node)
    draft.add(at + dice.choice((30.0, 300.0, 900.0)), "driver back", node)
    if dice.random() < 0.6:
        _second_thoughts(dice, draft, at)


_TROUBLES: Final = {
    **{kind: stretched(kind) for kind in SHARED},
    "scaling": _scaling,
    "acks": _acks,
    "new words": _new_words,
    "leaving": _leaving,
    "snapshots": _snapshots,
    "deaths": _deaths,
    "silence": _silence,
    "lying selections": _lying_selections,
    "dead drivers": _dead_drivers,
}
DRAINS: Final = Theme("drains", "drains", (2, 3), (1, 4), 0.3, _flags, _all_of_it, _TROUBLES, _SETTLED)
