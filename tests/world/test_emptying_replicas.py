"""Nodes with pods of replicated sets are emptied at once, by seed: never two replicas are away by our doing, and all that may leave leaves.

`hack/fire --worlds emptying` plays any number. By day 4 of them are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 100. Guards that
are taken away on purpose are tried where much happens at the same moment.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.drains.drain_world import DrainWorld
from hack.sim.drains.emptying_plan import EPHEMERAL, EVACUATE, GIVEN_UP, KEPT, SET, TROUBLES, UNDONE, plan_of
from hack.sim.drains.emptying_world import NOT_EMPTIED, EmptyingWorld, play
from hack.sim.drains.evictions import WRONG_EVICTION
from hack.sim.drains.plan import GATED
from hack.sim.drains.replicas import TWO_AWAY, UNREADY
from hack.sim.world.network import Latency, Weather
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.world import Report
from sidecar.drain.emptying import controller, decisions, rules
from sidecar.drain.emptying.controller import EmptyingDuty
from sidecar.eviction import attempt_io
from sidecar.eviction.attempt_io import Evictor
from sidecar.eviction.rules import May
from sidecar.kube.api import CLAIMS
from sidecar.kube.errors import NotFound
from tests.harness.seeds import ALL_SEEDS

SEEDS = range(100 if ALL_SEEDS else 4)
CROWDED = range(3)
ARRIVES_LATE = 175
"""An eviction that was not answered is carried out half a minute later."""
WAITS_FOR_EVER = 154
"""A pod without a node whose ephemeral volume is on a node that is emptied."""
ARGS = (*GATED, "--node-drain-policy=NoSchedule", "--evacuation-evict", "--max-concurrent-evacuations=0")
SLOW = Latency(0.1, 0.4)
"""Between a look and what follows from it something happens."""
NODES = ("n0", "n1", "n2", "n3")


def crowded(seed: int, *, budget: str = "none", undone: bool = True) -> Plan:
    """Sets of which nobody has budgeted anything, on four nodes, of which three are emptied at the same moment, again and again."""
    dice = random.Random(f"crowded {seed}")
    kinds = (EPHEMERAL, GIVEN_UP, EPHEMERAL, KEPT)
    events = [PlannedEvent(2.0 + number, SET, f"set-{number}", 8.0, f"Parallel {kind} {budget}") for number, kind in enumerate(kinds)]
    at = 100.0
    for _ in range(3):
        emptied = dice.sample(NODES, 3)
        events += [PlannedEvent(at, EVACUATE, node) for node in emptied]
        if undone:
            events += [
                PlannedEvent(at + dice.choice((dice.uniform(3.0, 20.0), dice.uniform(41.0, 80.0))), UNDONE, node) for node in emptied
            ]
        for number in range(3):
            off = at + dice.uniform(20.0, 50.0)
            events.append(PlannedEvent(off, "replica not ready", f"set-{number}", dice.randint(0, 2)))
        at += 120.0 if undone else 600.0
        for number in range(3):
            events += [PlannedEvent(at - 20.0, "replica ready", f"set-{number}", ordinal) for ordinal in range(3)]
        if not undone:
            break
    events += [PlannedEvent(90.0, "lag", node, dice.uniform(5.0, 20.0)) for node in NODES]
    order = tuple(sorted(events, key=lambda event: event.at))
    return Plan(seed, NODES, weather=Weather(read=SLOW, write=SLOW), events=order, args=ARGS, settle=1.0 if undone else 1200.0)


def played(plan: Plan, *, hangs: bool = False) -> tuple[Report, int]:
    """The report, and how many evictions there were."""
    worlds: list[EmptyingWorld] = []

    def watch(world: EmptyingWorld) -> None:
        worlds.append(world)
        if hangs:  # all kubelets, so that who was asked to end stays
            asyncio.get_running_loop().call_later(95.0, world.silent.update, NODES)

    report = play(plan, before=watch)
    return report, worlds[0].evictions.count


@pytest.mark.parametrize("seed", [*SEEDS, ARRIVES_LATE, WAITS_FOR_EVER])
def test_worlds_with_all_kinds_of_trouble(seed: int) -> None:
    report = play(plan_of(seed))
    assert report.ok, str(report)


@pytest.mark.parametrize("seed", CROWDED)
def test_where_much_happens_at_once_each_eviction_is_right(seed: int) -> None:
    report, count = played(crowded(seed))
    assert not report.kinds & {WRONG_EVICTION, TWO_AWAY, UNREADY}, str(report)
    assert count > 0, "nobody was evicted, so nothing was tried"


@pytest.mark.parametrize("budget", ["none", "maxUnavailable=1", "minAvailable=2"])
def test_in_the_end_all_that_may_leave_has_left_and_all_sets_are_whole(budget: str) -> None:
    report, count = played(crowded(0, budget=budget, undone=False))
    assert report.ok, str(report)
    assert count >= 4


def test_the_referee_sees_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(controller, "is_under_way", lambda signals, picture: False)
        assert NOT_EMPTIED in played(crowded(0, undone=False))[0].kinds


def test_the_referee_sees_who_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(EmptyingWorld, "_begin", DrainWorld._begin)
        assert WRONG_EVICTION in played(crowded(0))[0].kinds


def test_the_referee_sees_a_claim_that_a_sidecar_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked for that: what was given up is for its owner to delete."""

    async def evict(self: Evictor, pod: May, *, why: str = "", real: Any = Evictor.evict) -> Any:
        claim = f"data-{pod.name}"
        with contextlib.suppress(NotFound):
            await self._kube.delete(CLAIMS, claim, namespace=pod.namespace)
        return await real(self, pod, why=why)

    with monkeypatch.context() as patch:
        patch.setattr(Evictor, "evict", evict)
        report = played(crowded(0))[0]
    said = " ".join(map(str, report.violations))
    for lock in ("uses it", "does not say the claim's uid", "its mark is None", "not allowed by a flag", "its policy is Ignore"):
        assert lock in said


def test_every_trouble_is_drawn_by_some_of_the_first_seeds() -> None:
    assert {kind for seed in range(60) for kind in plan_of(seed).troubles} == set(TROUBLES)


def test_the_same_seed_is_the_same_world() -> None:
    assert play(crowded(1)).transcript == play(crowded(1)).transcript


# --- guards that are missing -----------------------------------------------------------------------------------------------


def _others_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def among(each: Any, view: Any) -> decisions.Evict:
        return decisions.Evict(each.may, each.workload, 0, frozenset(), (), "whatever the others are")

    patch.setattr(rules, "_among", among)


def _undo_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, picture: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(EmptyingDuty, "_undone", nothing)


def _whatever_the_state(patch: pytest.MonkeyPatch) -> None:
    _undo_is_not_looked_for(patch)
    patch.setattr(controller, "is_under_way", lambda signals, picture: True)


def _every_volume_may_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_may_leave", lambda item: True)


def _without_uid(patch: pytest.MonkeyPatch) -> None:
    def body(pod: May) -> dict[str, Any]:
        return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace}}

    patch.setattr(attempt_io, "body", body)


def _the_next_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_leaves", lambda pod, view: False)


MUTATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "the other replicas are not looked at": (_others_are_not_looked_at, {TWO_AWAY, UNREADY}),
    "an undo is not looked for": (_undo_is_not_looked_for, {WRONG_EVICTION}),
    "nobody need ask": (_whatever_the_state, {WRONG_EVICTION}),
    "every volume may leave": (_every_volume_may_leave, {WRONG_EVICTION}),
    "the uid is left out": (_without_uid, {WRONG_EVICTION}),
    "the next one does not wait": (_the_next_does_not_wait, {WRONG_EVICTION}),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_that_is_missing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, kinds = MUTATIONS[name]
    hangs = breaks is _the_next_does_not_wait
    with monkeypatch.context() as patch:
        breaks(patch)
        assert any(kinds & played(crowded(seed), hangs=hangs)[0].kinds for seed in CROWDED)
