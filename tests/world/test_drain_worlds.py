"""Nodes are drained, by seed: no verdict is True while data would be lost, and none is False or Unknown for ever.

`hack/fire --worlds drains` plays any number of them. By day 24 seeds are played, with CSI_NODE_SIDECAR_SEEDS=all, as at night, 200.
"""

from typing import Any

import pytest

from hack.sim.drains.drain_world import play
from hack.sim.drains.plan import GATED, TROUBLES, plan_of
from hack.sim.drains.referee import DATA_LOST
from hack.sim.world.plan import Plan, PlannedEvent
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.begun_uses import Missed
from sidecar.model import names
from tests.harness.seeds import ALL_SEEDS

QUICK = 8
ALL = 200 if ALL_SEEDS else 24
CHUNK = 8
QUIET = (PlannedEvent(5.0, "app", "app-0", 1.0, "late"), PlannedEvent(100.0, "drain for good", "n0"))


def quiet(*args: str) -> Plan:
    """One node, one workload, one drain, and no trouble. The node is gone in the end."""
    return Plan(1, ("n0",), events=QUIET, args=("--node-drain-policy=NoSchedule", *args), settle=300.0)


def assert_all_hold(seeds: range) -> None:
    failed = [report for seed in seeds if not (report := play(plan_of(seed))).ok]
    assert not failed, "\n" + "\n".join(map(str, failed))


@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_the_first_seeds(first: int):
    assert_all_hold(range(first, first + CHUNK))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, ALL, CHUNK))
def test_the_other_seeds(first: int):
    assert_all_hold(range(first, first + CHUNK))


def test_a_drain_waits_until_the_owners_have_given_up_what_is_on_the_node():
    report = play(quiet(*GATED))
    assert report.ok, str(report)
    moments = ("evicted app-0-0 from n0", "app-0: ", "delete poddisruptionbudgets.policy drain-guard", "n0 is switched off for good")
    found = [report.transcript.index(moment) for moment in moments]
    assert found == sorted(found)


def test_the_referee_sees_what_is_lost_where_no_gate_holds():
    report = play(quiet("--drain-report"))
    assert DATA_LOST in report.kinds
    assert str(report).startswith("hack/fire --worlds drains --seed 1\n")


def test_a_new_use_voids_an_acknowledgement_that_was_given_a_moment_after_the_last_one():
    """All within the minute for which a volume still counts as used after its last pod."""
    scale, ack = ("scale", "app-0"), ("ack", "app-0")
    moments = ((100.0, *scale, 0.0), (137.0, *ack, 0.0), (155.0, *scale, 1.0), (195.0, *scale, 0.0))
    events = (QUIET[0], *(PlannedEvent(*moment) for moment in moments), PlannedEvent(300.0, "drain for good", "n0"))
    report = play(Plan(1, ("n0",), events=events, args=("--node-drain-policy=NoSchedule", *GATED), settle=300.0))
    assert report.ok, str(report)
    assert report.transcript.index("comes to rest") < report.transcript.index("n0 is switched off for good")


@pytest.mark.parametrize("asked", [True, False])
def test_a_use_while_the_sidecar_was_away_voids_an_acknowledgement_and_the_referee_knows(asked: bool, monkeypatch: pytest.MonkeyPatch):
    async def of_nothing(self: Absence, gap: Any) -> Missed:
        return Missed(gap.ended)

    if not asked:
        monkeypatch.setattr(Absence, "_ask", of_nothing)
    stop, start, ack = ("scale", "app-0", 0.0), ("scale", "app-0", 1.0), ("ack", "app-0")
    away, back = ("sidecar dies", "n0"), ("sidecar lives", "n0")
    moments = ((100.0, *stop), (170.0, *ack), (250.0, *away), (252.0, *start), (262.0, *stop), (270.0, *back))
    events = (QUIET[0], *(PlannedEvent(*moment) for moment in moments), PlannedEvent(400.0, "drain for good", "n0"))
    report = play(Plan(1, ("n0",), events=events, args=("--node-drain-policy=NoSchedule", *GATED), settle=300.0))
    assert report.ok is asked, str(report)


def test_nobody_is_blamed_where_a_reboot_was_announced_and_the_node_went_for_good():
    announced = PlannedEvent(90.0, "announce", "n0", detail=names.DRAIN_INTENT)
    args = ("--node-drain-policy=NoSchedule", *GATED)
    report = play(Plan(1, ("n0",), events=(QUIET[0], announced, QUIET[1]), args=args, settle=300.0))
    assert report.ok, str(report)
    assert report.transcript.index("n0 is switched off for good") < report.transcript.index("comes to rest")


@pytest.mark.parametrize("unseen", [False, True])
def test_a_forgotten_reboot_is_held_against_a_sidecar_only_if_it_could_see_the_cordon_it_was_for(unseen: bool):
    # After an outage a watch tells of what happened meanwhile, unless the server has forgotten it.
    outage = (PlannedEvent(85.0, "outage"), PlannedEvent(134.0, "compact"), PlannedEvent(135.0, "recovery")) if unseen else ()
    cordons = (PlannedEvent(92.0, "cordon", "n0"), PlannedEvent(130.0, "uncordon", "n0"))
    announced = PlannedEvent(90.0, "announce", "n0", detail=names.KURED_REBOOTS)
    events = sorted((QUIET[0], announced, *outage, *cordons, PlannedEvent(400.0, "drain for good", "n0")), key=lambda item: item.at)
    report = play(Plan(1, ("n0",), events=tuple(events), args=("--node-drain-policy=NoSchedule", *GATED), settle=300.0))
    assert report.ok, str(report)
    held = report.transcript.index("comes to rest") < report.transcript.index("n0 is switched off for good")
    assert held is not unseen


def test_the_same_seed_is_the_same_world():
    for seed in range(2):
        assert play(plan_of(seed)).transcript == play(plan_of(seed)).transcript


def test_every_trouble_is_drawn_by_some_of_the_first_seeds():
    assert {kind for seed in range(60) for kind in plan_of(seed).troubles} == set(TROUBLES)
