"""Replicas are made anew on other nodes, by seed: no claim is deleted unless all locks are open at that moment, and never two are away.

`hack/fire --worlds reprovision` plays any number. By day 4 of them are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 100. Locks
that are left out on purpose are tried where somebody shuts them at every turn, and each at its own moment in `test_reprovision_moments`.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.drains.claim_referee import ALLOW, CLAIM_DELETED
from hack.sim.drains.emptying_plan import EVACUATE, REPROVISIONED, SET, UNDONE
from hack.sim.drains.emptying_world import EmptyingWorld
from hack.sim.drains.evictions import WRONG_EVICTION
from hack.sim.drains.plan import GATED
from hack.sim.drains.replicas import TWO_AWAY, UNREADY
from hack.sim.drains.reprovision_world import plan_of, play
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.reprovision import effects_io, locks
from sidecar.drain.reprovision.lock import Name
from sidecar.kube.api import CLAIMS
from tests.harness.seeds import ALL_SEEDS

SEEDS = range(100 if ALL_SEEDS else 4)
CROWDED = range(4)
NODES = ("n0", "n1", "n2", "n3", "n4")
SLOW = Latency(0.1, 0.4)
"""Between a look and what follows from it something happens."""
WRONG = {CLAIM_DELETED, WRONG_EVICTION, TWO_AWAY, UNREADY}


def crowded(seed: int, *, troubled: bool = True, args: tuple[str, ...] = (ALLOW,)) -> Plan:
    """Two nodes are emptied at the same moment, again and again, and what locks look at changes all the time."""
    dice = random.Random(f"anew {seed}")
    events = [PlannedEvent(2.0 + number, SET, f"set-{number}", 5.0, f"Parallel {REPROVISIONED} none") for number in range(3)]
    for at in (100.0, 300.0, 500.0) if troubled else (100.0,):
        emptied = dice.sample(NODES, 2)
        events += [PlannedEvent(at, EVACUATE, node) for node in emptied]
        if not troubled:
            continue
        events += [PlannedEvent(at + dice.uniform(3.0, 150.0), UNDONE, node) for node in emptied]
        for number in range(3):
            name, ordinal, off = f"set-{number}", dice.randint(0, 2), at + dice.uniform(0.0, 60.0)
            events += [PlannedEvent(off, "replica not ready", name, ordinal), PlannedEvent(off + 30.0, "replica ready", name, ordinal)]
            off = at + dice.uniform(0.0, 60.0)
            events += [PlannedEvent(off, "needed", name), PlannedEvent(off + 30.0, "given up", name)]
            events.append(PlannedEvent(at + dice.uniform(0.0, 100.0), "pod deleted", name, dice.randint(0, 2)))
            if dice.random() < 0.3:
                events.append(PlannedEvent(at + dice.uniform(0.0, 100.0), "new revision", name))
    events += [PlannedEvent(90.0, "lag", node, dice.uniform(5.0, 20.0)) for node in NODES if troubled]
    order = tuple(sorted(events, key=lambda event: event.at))
    flags = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", "--max-concurrent-evacuations=0", *args)
    return Plan(seed, NODES, weather=Weather(read=SLOW, write=SLOW), events=order, args=flags, settle=900.0)


def played(plan: Plan) -> tuple[Report, int]:
    """The report, and how many claims sidecars have deleted."""
    worlds: list[EmptyingWorld] = []
    report = play(plan, before=worlds.append)
    return report, len(worlds[0].claims.seen)


@pytest.mark.parametrize("seed", SEEDS)
def test_worlds_with_all_kinds_of_trouble(seed: int) -> None:
    report = play(plan_of(seed))
    assert report.ok, str(report)


@pytest.mark.parametrize("seed", CROWDED)
def test_where_much_happens_at_once_no_claim_goes_while_a_lock_is_shut(seed: int) -> None:
    report, count = played(crowded(seed))
    assert report.ok, str(report)
    assert count > 0, "nothing was made anew, so nothing was tried"


def test_what_can_be_made_anew_is() -> None:
    report, count = played(crowded(0, troubled=False))
    assert report.ok, str(report)
    assert count >= 2


def test_without_the_flag_no_claim_is_deleted() -> None:
    report, count = played(crowded(0, troubled=False, args=()))
    assert not report.kinds & WRONG, str(report)
    assert count == 0


# --- locks that are left out ------------------------------------------------------------------------------------------------


def _without(*left_out: Name) -> Callable[[pytest.MonkeyPatch], None]:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(locks, "LOCKS", tuple((name, check) for name, check in locks.LOCKS if name not in left_out))

    return breaks


def _unguarded(patch: pytest.MonkeyPatch) -> None:
    async def delete(kube: Any, found: Any) -> None:
        await kube.delete(CLAIMS, found.claim.name, namespace=found.claim.namespace)

    patch.setattr(effects_io, "delete", delete)


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the other replicas": _without(Name.REPLICAS),
    "uid and version": _unguarded,
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_lock_that_is_missing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        MUTATIONS[name](patch)
        assert any(WRONG & played(crowded(seed))[0].kinds for seed in CROWDED)
