"""Data that somebody kept while the sidecar was away: a line that it had left never leads to its deletion."""

import pytest

from hack.sim.world import doors, hostile_actions
from hack.sim.world.bounds import DESTROYED
from hack.sim.world.network import Weather
from hack.sim.world.plan import Plan, PlannedEvent
from hack.sim.world.plan_hostile import OTHER_UID
from hack.sim.world.world import Report, World, play
from sidecar.provisioning.creations.creation_record import BegunDeletion


def away_for(seconds: float) -> tuple[Report, World]:
    """Its process died right after it had stored the volume. The class says Delete; the volume was patched to Retain."""
    worlds: list[World] = []
    events = (
        PlannedEvent(2.0, "claim", "data", 1, "late"),
        PlannedEvent(60.0, "retained", "n0"),
        PlannedEvent(60.0 + seconds, "gets up", "n0"),
    )
    return play(Plan(1, ("n0",), events=events), before=worlds.append), worlds[0]


@pytest.mark.parametrize("seconds", [400.0, 90 * 86_400.0 / 100])
def test_a_line_left_long_ago_makes_a_suspect_and_nothing_is_deleted(seconds: float) -> None:
    report, made = away_for(seconds)
    assert report.ok, report
    (suspect,) = made.nodes["n0"].folder.begun.values()
    assert "may have come and gone since" in suspect.suspect
    assert len(made.retained) == 1


def test_a_suspect_stays_one_in_later_lives() -> None:
    worlds: list[World] = []
    events = [PlannedEvent(2.0, "claim", "data", 1, "late"), PlannedEvent(60.0, "retained", "n0"), PlannedEvent(500.0, "gets up", "n0")]
    kills = [PlannedEvent(520.0 + 30.0 * number, "kill", "n0") for number in range(4)]
    report = play(Plan(1, ("n0",), events=(*events, *kills)), before=worlds.append)
    assert report.ok, report
    assert [begun.suspect != "" for begun in worlds[0].nodes["n0"].folder.begun.values()] == [True]


def test_nor_does_a_deletion_that_was_begun_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim was given the volume anew since, by whoever ran here."""
    record = hostile_actions.CreationRecord

    def with_deletion(uid: str, *rest: object) -> object:
        return record(uid, *rest, deletion=BegunDeletion("n0-vol-1"))  # type: ignore[arg-type]

    monkeypatch.setattr(hostile_actions, "CreationRecord", with_deletion)
    report, made = away_for(400.0)
    assert report.ok, report
    assert made.retained == {"n0-vol-1"}


def test_believing_such_a_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "SILENCE", float("inf"))
    report, _ = away_for(400.0)
    assert DESTROYED in report.kinds


def test_a_suspect_that_finds_no_room_on_the_disk_is_written_down_later() -> None:
    events = (
        PlannedEvent(2.0, "claim", "data", 1, "late"),
        PlannedEvent(21.0, "forged line", "n0", detail=OTHER_UID),
        PlannedEvent(54.0, "disk full", "n0"),
        PlannedEvent(66.0, "disk free", "n0"),
    )
    worlds: list[World] = []
    report = play(Plan(1, ("n0",), events=events), before=worlds.append)
    assert report.ok, report
    assert [begun.suspect != "" for begun in worlds[0].nodes["n0"].folder.begun.values()] == [True]
    assert [volume.name for volume in worlds[0].nodes["n0"].driver.volumes()], "the forged line names a volume that is in use"


@pytest.mark.parametrize("seed", range(5))
def test_a_volume_that_is_on_its_way_to_the_server_once_more_is_kept_by_nobody(seed: int) -> None:
    """It would come back and say Delete, as when it was sent, with its claim gone. That is the API server's word, and is followed."""
    events = (PlannedEvent(2.0, "claim", "data", 1, "late"), PlannedEvent(45.0, "retained", "n0"), PlannedEvent(400.0, "gets up", "n0"))
    report = play(Plan(seed, ("n0",), weather=Weather(straying=0.7), events=events))
    assert report.ok, report
