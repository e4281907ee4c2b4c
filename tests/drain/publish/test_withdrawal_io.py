"""What an earlier process has said of the node does not count any more: at the start, while the driver is silent, past its time."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.node import DRIVER as WORLD_DRIVER
from sidecar.config.config import Config
from sidecar.config.parse import Parsed, parse
from sidecar.doors import Instruments
from sidecar.drain.publish import on_node, report
from sidecar.drain.publish.events import events
from sidecar.drain.publish.last_served_io import FileLastServed
from sidecar.drain.publish.report import ReportContext
from sidecar.drain.publish.stored import Held
from sidecar.drain.publish.validity import VALID_FOR, as_it_counts, counts, overdue
from sidecar.drain.publish.withdrawal_io import Withdrawal
from sidecar.drain.publish.withdrawn import JUST_STARTED, NOT_JUDGED, SILENT, report_status
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Reason, Status
from sidecar.kube.api import (
    DRAIN_REPORTS,
    JSON_PATCH,
    MERGE_PATCH,
    NODES,
    STRATEGIC_MERGE_PATCH,
)
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from sidecar.start import before_the_driver
from tests.harness import planted
from tests.harness.cluster_tools import new_cluster
from tests.harness.doors import tools
from tests.harness.drain.judgements import DRIVER, NODE, NOW, UID, blocked, later, ready, verdict
from tests.harness.drain.simulated import JUDGING, Bench, Json, node_of, play, report_of, wait

KEY, WORLD_KEY = (names.of_driver(driver, names.DRAIN_SUMMARY) for driver in (DRIVER, WORLD_DRIVER))
Refuse = Callable[[Call], ApiError | None]


class Start:
    """A node of which an earlier process has said that it may go."""

    def __init__(self, refuse: Refuse = lambda _: None) -> None:
        self.asked: list[str] = []

        async def before(call: Call) -> None:
            self.asked.append(call.verb)
            if error := refuse(call):
                raise error

        cluster = new_cluster(clock=lambda: NOW)
        self.you, self.kube = InProcessApi(cluster), InProcessApi(cluster, before=before)

    async def said(self) -> None:
        uid = (await self.you.create(NODES, {"metadata": {"name": NODE}}))["metadata"]["uid"]
        judged = ready(node_uid=uid)
        patch = on_node.conditions_patch(on_node.conditions(judged, []), node_uid=uid)
        await self.you.patch(NODES, NODE, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        node = Node.of(await self.you.get(NODES, NODE))
        await self.you.patch(NODES, NODE, on_node.patch(node, on_node.summary_mark(judged, {})) or {}, content_type=MERGE_PATCH)
        whole = report.body(judged, previous=None, agent="1")
        await self.you.create(DRAIN_REPORTS, whole)
        name = whole["metadata"]["name"]
        await self.you.patch(DRAIN_REPORTS, name, report.status_patch(whole), content_type=JSON_PATCH, subresource="status")

    def withdrawal(self, **changes: Any) -> Withdrawal:
        settings = Settings(NODE, DRIVER, "default", "1", **{"judges": True, **changes})
        return Withdrawal(self.kube, settings, retry=tools(self.kube).retry, wall=lambda: NOW + 60)

    async def stored(self) -> list[tuple[str, str]]:
        """Status and message of all that is stored: two conditions, and both verdicts of the report."""
        node, found = await self.you.get(NODES, NODE), await self.you.get(DRAIN_REPORTS, names.drain_report(NODE, DRIVER))
        verdicts = found["status"]["verdicts"]
        told = [*node["status"]["conditions"], verdicts["drain"], verdicts["retire"]]
        return [(item["status"], item["message"]) for item in told]

    async def summary(self) -> str:
        return str((await self.you.get(NODES, NODE))["metadata"]["annotations"][KEY])


def test_all_that_is_stored_becomes_unknown() -> None:
    def case(judges: bool, why: str) -> None:
        async def story() -> None:
            start = Start()
            await start.said()
            await start.withdrawal(judges=judges).run()
            stored = await start.stored()
            assert [status for status, _ in stored] == ["Unknown"] * 4
            assert all(why in message for _, message in stored)
            assert "True" not in await start.summary()
            del start.asked[:]
            await start.withdrawal(judges=judges).run()
            assert "patch" not in start.asked, "the second start finds nothing that says more"

        run_virtual(story())

    for judges, why in [(True, "has just started"), (False, "--drain-report is switched off")]:
        case(judges, why)


def test_what_fails_is_tried_again() -> None:
    failures: list[ApiError] = [Unavailable("no answer"), Forbidden("no role yet", status=403)]

    async def story() -> None:
        start = Start(lambda _: failures.pop() if failures else None)
        await start.said()
        await start.withdrawal().run()
        assert {status for status, _ in await start.stored()} == {"Unknown"}

    run_virtual(story())


def test_what_this_process_has_judged_is_not_taken_back() -> None:
    async def story() -> None:
        start = Start()
        await start.said()
        withdrawal = start.withdrawal()
        await asyncio.gather(withdrawal.end(), withdrawal.run())
        assert {status for status, _ in await start.stored()} == {"True"}

    run_virtual(story())


def test_a_true_of_an_earlier_process_does_not_stand_while_the_driver_is_dead() -> None:
    def case(lists: bool) -> None:
        broken: list[str] = []

        def refuse(call: Call) -> ApiError | None:
            return Unavailable("no answer") if broken and not lists and call.verb == "list" else None

        async def story(bench: Bench) -> None:
            await wait(bench, 20)
            assert await statuses(bench) == {"True"}
            broken.append("broken")
            bench.nodes["n0"].link.go_down()
            bench.nodes["n0"].kill()
            await wait(bench, 20)
            assert await statuses(bench) == {"Unknown"}
            summary = (await node_of(bench))["metadata"]["annotations"][WORLD_KEY]
            assert '"Unknown"' in summary and '"True"' not in summary
            broken.clear()
            bench.nodes["n0"].driver_back()
            await wait(bench, 120)
            assert await statuses(bench) == {"True"}

        play(story, nodes=("n0",), args=JUDGING, refuse=refuse)

    for lists in [
        True,  # lists
        False,  # refused lists
    ]:
        case(lists)


class Note:
    """What is remembered of the driver that was served last."""

    def __init__(self, driver: str) -> None:
        self.driver = driver

    async def read(self) -> str:
        return self.driver

    async def write(self, driver: str) -> None:
        self.driver = driver


def config(*args: str) -> Config:
    parsed = parse(["--node-deployment", *args], {"NODE_NAME": NODE, "NAMESPACE": "default"})
    assert isinstance(parsed, Parsed), parsed
    return parsed.config


def test_while_the_driver_is_silent_only_its_own_sidecars_verdicts_are_withdrawn() -> None:
    def case(remembered: str, args: tuple[str, ...], after: set[str]) -> None:
        async def story() -> None:
            start = Start()
            await start.said()
            async with before_the_driver(config(*args), start.kube, Instruments(wall=lambda: NOW + 60), lambda: Note(remembered)):
                await asyncio.sleep(60)
                assert {status for status, _ in await start.stored()} == after

        run_virtual(story())

    for remembered, args, after in [
        (DRIVER, JUDGING, {"Unknown"}),  # its own
        ("another.example.com", JUDGING, {"True"}),  # of another driver's sidecar
        ("", JUDGING, {"True"}),  # nothing is remembered
        (DRIVER, (), {"True"}),  # no drain decisions
        (DRIVER, (*JUDGING, "--dry-run"), {"True"}),  # dry run
    ]:
        case(remembered, args, after)


async def statuses(bench: Bench) -> set[str]:
    """Of the conditions and the report."""
    told: list[Json] = [item for item in (await node_of(bench))["status"]["conditions"] if item["type"].startswith(WORLD_DRIVER)]
    return {item["status"] for item in (*told, *(await report_of(bench))["verdicts"].values())}


def test_who_judges_nothing_and_may_not_even_read_has_said_nothing() -> None:
    async def story() -> None:
        start = Start(lambda _: Forbidden("no role", status=403))
        await start.said()
        await start.withdrawal(judges=False).run()
        assert start.asked == ["get"]

    run_virtual(story())


# --- What a restart tells, and until when a stored verdict counts ---


SETTLING = ReportContext(settling=True)
UNKNOWN = verdict(Status.UNKNOWN, Reason.NOT_KNOWN, "pods are not listed yet")


def stored_report(judged: on_node.Assessment, previous: Json | None = None, context: ReportContext = report.NORMAL_LIFE) -> Json:
    return report.body(judged, previous=previous, agent="1", context=context)


def withdrawn(of: Json) -> Json:
    status = report_status(of, JUST_STARTED, node_uid=UID, at=NOW + 9)
    assert status is not None
    return {**of, "status": status}


def told(before: Json, after: on_node.Assessment, *, settling: bool) -> list[str]:
    return [event.reason for event in events(before["status"], after, observed=False, settling=settling)]


def test_a_restart_is_no_news() -> None:
    """True, taken back, not known yet, True again: nobody hears of it."""
    started = withdrawn(stored_report(ready()))
    unknown = later(ready(drain=UNKNOWN, retire=UNKNOWN))
    assert told(started, later(ready()), settling=True) == []
    assert told(started, unknown, settling=True) == []
    looked = stored_report(unknown, started, SETTLING)
    assert told(looked, later(ready()), settling=False) == []
    assert "formerStatus" not in str(stored_report(later(ready()), looked))


def test_over_a_restart_a_drain_stays_held_and_where_nobody_judges_it_is_not() -> None:
    stored = stored_report(blocked(), context=ReportContext(held=Held(("apps/db-0",), "n1 is drained", "retire, assumed")))
    assert withdrawn(stored)["status"]["held"] == ["apps/db-0"]
    let_go = report_status(withdrawn(stored), NOT_JUDGED, node_uid=UID, at=NOW + 9)
    assert let_go is not None and (let_go["held"], let_go["heldBecause"]) == ([], "")


def test_a_change_over_a_restart_is_told_at_once() -> None:
    started = withdrawn(stored_report(ready()))
    assert told(started, later(blocked()), settling=True) == [names.NODE_RETIRE_BLOCKED]
    assert told(stored_report(later(blocked()), started, SETTLING), later(blocked()), settling=True) == []


TRUE: Json = {"status": "True", "reason": "NothingBlocks", "message": "nothing blocks", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def test_past_its_time_a_verdict_is_not_known_any_more() -> None:
    for valid_until, counted in [
        (NOW + 1, True),
        (NOW, False),
        (NOW - 1, False),
        (None, False),
        (NOW + 2 * VALID_FOR, True),
        (NOW + 2 * VALID_FOR + 1, False),
    ]:
        assert counts(valid_until, now=NOW) is counted
        told = as_it_counts(TRUE, valid_until=valid_until, now=NOW)
        assert told == (TRUE if counted else {**TRUE, "status": "Unknown", "reason": "AgentUnavailable", "message": SILENT.message})


def condition(status: str, *, age: float | None, driver: str = DRIVER) -> Json:
    heartbeat = {} if age is None else {"lastHeartbeatTime": timestamps.to_text(NOW - age)}
    return {"type": names.condition(driver, names.RETIRE_READY), "status": status, **heartbeat}


def test_a_condition_that_nobody_renews_is_overdue() -> None:
    for found, is_overdue in [
        (condition("True", age=899), False),
        (condition("True", age=900), True),
        (condition("False", age=900), True),
        (condition("Unknown", age=900), False),
        (condition("True", age=None), True),
        (condition("True", age=900, driver="other.example.com"), False),
        ({"type": "Ready", "status": "True"}, False),
    ]:
        assert overdue([{"type": "MemoryPressure", "status": "False"}, found], DRIVER, now=NOW) is is_overdue


# --- The name beside the socket, as one process writes it and the next one reads it ---


def read(socket: Path) -> str:
    return asyncio.run(FileLastServed(socket).read())


def write(socket: Path, driver: str) -> None:
    asyncio.run(FileLastServed(socket).write(driver))


@pytest.mark.parametrize("kind", planted.KINDS)
def test_nothing_that_lies_beside_it_is_written_through(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    name = folder / ".csi-node-sidecar.csi.sock.driver"
    planted.plant(kind, name.with_name(f"{name.name}.new"), victim=tmp_path / "victim")
    write(folder / "csi.sock", "zfs.example.com")
    assert planted.unharmed(kind, tmp_path / "victim")
    assert read(folder / "csi.sock") == "zfs.example.com"
    found = name.lstat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o600)
