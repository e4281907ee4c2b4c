"""What is remembered of former looks, and what is kept as it is until that is known."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sidecar.drain.facts.snapshot import Snapshot
from sidecar.drain.judgement.assess import assess
from sidecar.drain.judgement.assessment import Assessment
from sidecar.drain.publish.controller import ReportWriter
from sidecar.drain.publish.report import MOST, NORMAL_LIFE
from sidecar.drain.settings import Settings
from sidecar.kube.errors import NotFound, Unavailable
from sidecar.simulation.cluster import InProcessApi
from tests.harness.cluster_tools import new_cluster
from tests.harness.drain import samples
from tests.harness.drain.samples import NOW

HOUR = 3600.0


class Desk:
    """A scribe where no reports are served; where it is `broken`, not even that can be learnt."""

    def __init__(self) -> None:
        self.broken = False

        async def before(call: Any) -> None:
            if self.broken:
                raise Unavailable("no answer")
            raise NotFound("no such resource", status=404)

        kube = InProcessApi(new_cluster(clock=lambda: NOW), before=before)
        self.scribe = ReportWriter(kube, Settings(samples.NODE, samples.DRIVER, "ns", "1"), clock=lambda: 0.0)

    def look(self, snapshot: Snapshot) -> Assessment:
        found = assess(replace(snapshot, since=self.scribe.since(now=snapshot.now)))
        with pytest.raises(NotFound):
            asyncio.run(self.scribe.write_report(found, NORMAL_LIFE, now=snapshot.now))
        return found


def many(first: int = 0, **changes: Any) -> Snapshot:
    """More than the report lists; of as many bytes each, they are listed by name."""
    volumes = tuple(samples.volume(f"pv-{number:03}", f"data-{number:03}") for number in range(first, MOST + 5))
    return samples.snapshot(volumes=volumes, **changes)


def test_since_when_it_blocks_is_known_of_those_too_that_the_report_has_no_room_for() -> None:
    desk = Desk()
    asyncio.run(desk.scribe.recall(samples.node()))
    desk.look(many())
    later = desk.look(many(first=5, now=NOW + HOUR))
    assert {blocker.since for blocker in later.blockers} == {NOW}
    assert desk.scribe.since(now=NOW - 1) == {}, "a clock that was set back"


def test_a_blocker_that_could_not_be_seen_for_a_while_keeps_its_time() -> None:
    desk, unread = Desk(), frozenset({"namespace apps"})
    asyncio.run(desk.scribe.recall(samples.node()))
    desk.look(samples.idle())
    for minutes in (1, 2):
        ignorant = samples.idle(now=NOW + 60 * minutes, unread=unread, ignorance=("namespace apps: no answer",))
        assert desk.look(ignorant).blockers == ()
    assert [blocker.since for blocker in desk.look(samples.idle(now=NOW + HOUR)).blockers] == [NOW]
    desk.look(samples.idle(now=NOW + HOUR, volumes=()))
    assert [blocker.since for blocker in desk.look(samples.idle(now=NOW + 2 * HOUR)).blockers] == [NOW + 2 * HOUR]


def test_what_is_stored_is_known_once_it_was_read_or_there_is_none_and_of_another_machine_anew() -> None:
    desk = Desk()
    desk.broken = True
    with pytest.raises(Unavailable):
        asyncio.run(desk.scribe.recall(samples.node()))
    assert not desk.scribe.recalled
    desk.broken = False
    asyncio.run(desk.scribe.recall(samples.node()))
    assert desk.scribe.recalled
    desk.look(samples.idle())
    desk.broken = True
    with pytest.raises(Unavailable):
        asyncio.run(desk.scribe.recall(samples.node(uid="uid-new")))
    assert not desk.scribe.recalled and desk.scribe.since(now=NOW) == {}
