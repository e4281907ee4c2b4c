"""Stories of drains: a drain waits until what is on the node was given up, and nothing unseen is taken for granted."""

from typing import Any

from hack.sim.world.plan import GATED, Plan, PlannedEvent
from tests.world.playing import played

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


def test_a_new_use_voids_an_acknowledgement_that_was_given_a_moment_after_the_last_one() -> None:
    """All within the minute for which a volume still counts as used after its last pod."""
    moments = ((100.0, *STOP), (137.0, *ACK), (155.0, *START), (195.0, *STOP))
    report, _ = played(quiet(*GATED, moments=moments, drained_at=300.0))
    assert report.ok, report
    assert report.transcript.index("comes to rest") < report.transcript.index("is switched off for good")


def test_a_sidecar_that_is_killed_while_it_waits_for_its_driver_ends_by_that_alone() -> None:
    away = ((60.0, "driver away", "n0"), *((at, "kill", "n0") for at in (61.0, 90.0, 120.0)), (190.0, "driver back", "n0"))
    report, _ = played(quiet(*GATED, moments=away, drained_at=300.0))
    assert report.ok, report
    assert report.transcript.count("starts, life") == 4
