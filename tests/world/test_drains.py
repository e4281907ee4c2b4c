"""Stories of drains: a drain waits until what is on the node was given up, and nothing unseen is taken for granted."""

from typing import Any

import pytest
from sidecar.drain.facts.absence_io import Absence
from sidecar.drain.facts.begun_uses import Missed

from hack.sim.cluster import Call
from hack.sim.world.effects import SENDER
from hack.sim.world.plan import GATED, Plan, PlannedEvent
from hack.sim.world.verdicts import DATA_LOST
from hack.sim.world.world import World
from tests.world.playing import at_request, played

APP = PlannedEvent(5.0, "app", "app-0", 1.0, "late")
STOP, START, ACK = ("scale", "app-0", 0.0), ("scale", "app-0", 1.0), ("ack", "app-0")


def quiet(*args: str, moments: tuple[Any, ...] = (), drained_at: float = 100.0) -> Plan:
    """One node, one workload, one drain, and no trouble. The node is gone in the end."""
    events = (APP, *(PlannedEvent(*moment) for moment in moments), PlannedEvent(drained_at, "drain for good", "n0"))
    return Plan(1, ("n0",), "drains", events=events, args=("--node-drain-policy=NoSchedule", *args), settle=300.0)


def test_a_drain_waits_until_the_owners_have_given_up_what_is_on_the_node() -> None:
    report, _ = played(quiet(*GATED))
    assert report.ok, report
    moments = (
        "evicted app-0-0 from n0",
        "give everything up",
        "delete poddisruptionbudgets.policy drain-held",
        "is switched off for good",
    )
    found = [report.transcript.index(moment) for moment in moments]
    assert found == sorted(found)


def test_the_referee_sees_what_is_lost_where_no_gate_holds() -> None:
    report, _ = played(quiet("--drain-report"))
    assert DATA_LOST in report.kinds


def test_a_new_use_voids_an_acknowledgement_that_was_given_a_moment_after_the_last_one() -> None:
    """All within the minute for which a volume still counts as used after its last pod."""
    moments = ((100.0, *STOP), (137.0, *ACK), (155.0, *START), (195.0, *STOP))
    report, _ = played(quiet(*GATED, moments=moments, drained_at=300.0))
    assert report.ok, report
    assert report.transcript.index("comes to rest") < report.transcript.index("is switched off for good")


@pytest.mark.parametrize("asked", [True, False])
def test_a_use_while_the_sidecar_was_away_voids_an_acknowledgement_and_the_referee_knows(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of_nothing(self: Absence, gap: Any) -> Missed:
        return Missed(gap.ended)

    if not asked:
        monkeypatch.setattr(Absence, "_ask", of_nothing)
    away, back = ("sidecar dies", "n0"), ("sidecar lives", "n0")
    moments = ((100.0, *STOP), (170.0, *ACK), (250.0, *away), (252.0, *START), (262.0, *STOP), (270.0, *back))
    report, _ = played(quiet(*GATED, moments=moments, drained_at=400.0))
    assert report.ok is asked, report


def test_a_sidecar_that_is_killed_while_it_waits_for_its_driver_ends_by_that_alone() -> None:
    """What seed 297 of drains found: it was asking for what to undo, and ended with an error of its own."""
    killed: list[float] = []

    def while_it_asks(world: World) -> None:
        async def asked(call: Call) -> None:
            node = world.nodes.get("n0")
            if SENDER.get() == "n0" and node and node.sidecar is None and world.clock() > 62.0 and len(killed) < 5:
                killed.append(world.clock())
                node.kill()

        at_request(world, asked)

    away = ((60.0, "driver away", "n0"), (61.0, "kill", "n0"), (190.0, "driver back", "n0"))
    report, _ = played(quiet(*GATED, moments=away, drained_at=300.0), while_it_asks)
    assert report.ok, report
    assert len(killed) == 5
