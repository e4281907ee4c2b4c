"""One request that crashes its driver: the driver is not sent to its death again and again, and other claims of the node go on."""

import pytest

from hack.sim.world.driver_deaths import FATAL
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.plan_hostile import CRASHES
from hack.sim.world.world import Report, World, play
from sidecar.csi.losses import Loss, Losses

MAKING, DELETING = CRASHES["CreateVolume"], CRASHES["DeleteVolume"]


def world(
    *events: tuple[float, str, str, str], spared: float = 1500.0, nodes: tuple[str, ...] = ("n0",), seed: int = 1
) -> tuple[Report, World]:
    """The driver of n0 crashes until it is spared. Each event: when, what, to whom and how."""
    worlds: list[World] = []
    planned = [PlannedEvent(at, what, whom, 1, how) for at, what, whom, how in (*events, (spared, "manner", "n0", ""))]
    report = play(Plan(seed, nodes, events=tuple(planned)), before=worlds.append)
    return report, worlds[0]


def deaths(made: World) -> int:
    return len(made.nodes["n0"].deaths)


def bound_at(report: Report, name: str) -> float:
    """When the PersistentVolume of a claim was stored, by the transcript, in which claims are named by their uid: the nth to be stored."""
    stored = [float(line.split()[0]) for line in report.transcript.splitlines() if "create persistentvolumes" in line]
    return stored[int(name)]


@pytest.mark.parametrize("class_", ["late", "immediate"])
def test_the_driver_dies_no_more_often_than_its_back_off_says_and_others_go_on(class_: str) -> None:
    others = [(20.0 + 10.0 * number, "claim", f"other-{number}", class_) for number in range(5)]
    report, made = world((3.0, "manner", "n0", MAKING), (4.0, "claim", "poison", class_), *others)
    assert report.ok, report
    assert 5 <= deaths(made) <= 14
    assert bound_at(report, "4") < 150.0


def test_also_after_its_claim_is_gone_and_then_a_leak_is_suspected() -> None:
    report, made = world((3.0, "manner", "n0", MAKING), (4.0, "claim", "poison", "late"), (9.0, "delete", "poison", ""))
    assert report.ok, report
    assert deaths(made) == 10
    (suspect,) = made.nodes["n0"].folder.begun.values()
    assert "10 times" in suspect.suspect
    assert "create events" in report.transcript


def test_also_when_the_sidecar_is_killed_again_and_again() -> None:
    kills = [(30.0 + 40.0 * number, "kill", "n0", "") for number in range(8)]
    report, made = world((3.0, "manner", "n0", MAKING), (4.0, "claim", "poison", "late"), (9.0, "delete", "poison", ""), *kills)
    assert report.ok, report
    assert deaths(made) <= 10


def test_also_of_a_deletion() -> None:
    report, made = world((4.0, "claim", "poison", "late"), (20.0, "manner", "n0", DELETING), (25.0, "delete", "poison", ""))
    assert report.ok, report
    assert 5 <= deaths(made) <= 14


def test_what_was_under_way_beside_it_is_made_meanwhile() -> None:
    """Ten claims at the same moment: at first nobody knows which of them it was. In a third of all worlds one has bad luck twice."""
    crowd = [(4.0, "claim", f"one-of-{number}", "late") for number in range(10)]
    report, _ = world((3.0, "manner", "n0", MAKING), *crowd, seed=2)
    assert report.ok, report
    assert bound_at(report, "8") < 60.0


def test_without_the_pause_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Losses, "remember", lambda self, call, count, now: Loss(count, now))
    report, _ = world((3.0, "manner", "n0", MAKING), (4.0, "claim", "poison", "late"), spared=60.0)
    assert FATAL in report.kinds
