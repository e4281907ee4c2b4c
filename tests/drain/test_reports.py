"""The report as others find it, and its writes: late answers, a kill between two of them, what an earlier process has said, held pods."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from hack.sim.cluster import Call
from sidecar.drain import report
from sidecar.drain.assess import Assessment
from sidecar.drain.gate import MOST_HELD, HeldPods
from sidecar.drain.marks import Marks
from sidecar.drain.node_io import HEARTBEAT, OwnNode, ReportWriter, take_back
from sidecar.drain.report import LISTS_BYTES, MOST, told_of
from sidecar.drain.settings import Settings
from sidecar.drain.words import Intent, Policy, Status
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, NODES
from sidecar.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unavailable
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.objects import Json
from tests.harness.drain.own_node import Bench
from tests.harness.drain.samples import DRIVER, NAMESPACE, NODE, NOW, content, idle, judged, marks, pod, snapshot, stamp, used, volume
from tests.harness.virtual import virtual

NAME = names.drain_report(NODE, DRIVER)
TRUE, FALSE, UNKNOWN = Status.TRUE, Status.FALSE, Status.UNKNOWN
HELD = HeldPods(("apps/db-0",), "retire is announced", "retire, annotation")
RETIRING = marks(annotations={names.DRAIN_INTENT: "retire"})


def body(found: Assessment, told: Marks | None = None, *, previous: Json | None = None, course: Json | None = None) -> Json:
    return report.body(found, told or marks(), agent="1", course=course or {}, held=HeldPods(), gate=None, previous=previous)


# --- what it says -----------------------------------------------------------------------------------------------------


def test_it_says_what_blocks_what_to_do_and_what_becomes_of_the_pods() -> None:
    status = body(judged())["status"]
    (blocker,), (fate,) = status["blockers"], status["pods"]
    assert (blocker["kind"], blocker["namespace"], blocker["name"]) == ("PersistentVolumeClaim", "apps", "data-0")
    assert (blocker["volume"], blocker["reason"], blocker["blocks"], blocker["policy"]) == ("pv-0", "VolumeInUse", ["retire"], "Block")
    assert blocker["remedy"] and (fate["name"], fate["reboot"], fate["retire"]) == (
        "db-0",
        "ReturnsAfterUncordon",
        "StrandedUntilUncordon",
    )
    assert status["bytes"] == {"total": 10 * 2**30, "remaining": 10 * 2**30}
    assert {key: item["status"] for key, item in status["verdicts"].items()} == {"drain": "True", "retire": "False"}
    assert [item["type"] for item in status["conditions"]] == [names.DRAIN_READY, names.RETIRE_READY]


def test_it_is_the_nodes_and_of_a_node_that_leaves_it_is_nobodys_and_says_its_volumes() -> None:
    stays, leaves = body(judged()), body(judged(), RETIRING)
    assert [ref["uid"] for ref in stays["metadata"]["ownerReferences"]] == ["uid-n1"] and "leaving" not in stays["status"]
    assert leaves["metadata"]["ownerReferences"] == [] and leaves["metadata"]["labels"] == {names.NODE_LOSS_FOR: DRIVER}
    assert leaves["status"]["leaving"] == {"nodeUID": "uid-n1", "volumes": ["uid-pv-0"]}
    stored = {**leaves, "metadata": {**leaves["metadata"], "resourceVersion": "7"}}
    assert report.head_patch(stored, leaves) is None
    undone = report.head_patch(stored, stays)
    assert undone is not None and undone["metadata"]["resourceVersion"] == "7"
    assert undone["metadata"]["labels"] == {names.NODE_LOSS_FOR: None} and undone["metadata"]["ownerReferences"]


def test_since_when_a_verdict_is_as_it_is_is_kept_and_not_that_of_an_earlier_machine() -> None:
    first = body(judged(idle()))
    later = judged(idle(now=NOW + 60))
    assert body(later, previous=first)["status"]["verdicts"]["retire"]["lastTransitionTime"] == stamp(0)
    changed = body(judged(idle(now=NOW + 60), retire=UNKNOWN), previous=first)["status"]["verdicts"]
    assert (changed["retire"]["lastTransitionTime"], changed["drain"]["lastTransitionTime"]) == (stamp(-60), stamp(0))
    assert body(replace(later, node_uid="uid-2"), previous=first)["status"]["verdicts"]["drain"]["lastTransitionTime"] == stamp(-60)


def test_another_time_alone_can_wait_and_another_word_cannot() -> None:
    stored = body(judged(idle()))
    assert not report.differs(stored, body(judged(idle(now=NOW + 60)), previous=stored)["status"])
    assert report.differs(stored, body(judged(idle(volumes=())), previous=stored)["status"])
    assert report.differs(stored, body(judged(idle()), RETIRING, previous=stored)["status"])


def test_lists_are_cut_to_what_the_api_server_stores_and_say_how_much_is_missing() -> None:
    many = tuple(volume(f"pv-{number:04}", f"data-{number:04}") for number in range(MOST + 5))
    status = body(judged(snapshot(volumes=many)))["status"]
    assert (len(status["blockers"]), status["blockersTruncated"]) == (MOST, 5)
    fat = tuple(volume(f"pv-{number:04}", "d" * 9000 + str(number)) for number in range(MOST))
    status = body(judged(snapshot(volumes=fat)))["status"]
    assert len(json.dumps(status["blockers"])) <= LISTS_BYTES and status["blockersTruncated"] == MOST - len(status["blockers"])
    held = HeldPods(tuple(f"a/{number}" for number in range(MOST_HELD + 1))).as_json()
    assert (len(held["held"]), held["heldCount"]) == (MOST_HELD, MOST_HELD + 1)


def test_bytes_in_the_way_count_each_volume_once() -> None:
    bare = judged(used(pods=(pod("db-0", "data-0", owner=None),)))
    assert len(bare.blockers) == 2 and report.bytes_in_the_way(bare) == 10 * 2**30
    assert report.bytes_in_the_way(bare, Intent.REBOOT) == 10 * 2**30
    assert report.as_json(judged(snapshot(contents=(content(),))))["bytes"]["remaining"] == 2**30


def test_the_course_is_told_while_there_is_one() -> None:
    assert "evacuation" not in body(judged())["status"]
    told = body(judged(), RETIRING, course={"state": "InProgress"})["status"]
    assert told["evacuation"] == {"state": "InProgress"}
    assert (told["intent"], told["intentSource"]) == ("retire", "annotation")


def test_for_what_a_drain_was_told_to_be_held_is_known_after_a_restart_and_of_this_machine_alone() -> None:
    for held, uid, told in [(HELD, "uid-n1", "retire, annotation"), (HELD, "uid-2", ""), (HeldPods(purpose="retire"), "uid-n1", "")]:
        stored = body(judged())
        assert told_of({"status": {**stored["status"], **held.as_json()}}, uid) == told
    assert told_of(None, "uid-n1") == ""


def test_policies_that_differ_by_intent_are_both_told() -> None:
    by_default = report.as_json(judged(idle()))["volumes"][0]
    assert [item["policy"] for item in by_default["policies"]] == [Policy.ALLOW_IDLE, Policy.BLOCK] and "policy" not in by_default
    same = report.as_json(judged(idle(volumes=(volume(policy="Ignore"),))))["volumes"][0]
    assert (same["policy"], same["policySource"]) == ("Ignore", "PersistentVolume")


# --- its writes -------------------------------------------------------------------------------------------------------


class Desk:
    """A writer, and requests of it that are lost and may be carried out later."""

    def __init__(self, bench: Bench, **settings: Any) -> None:
        self.bench = bench
        self.settings = Settings(NODE, DRIVER, NAMESPACE, "1", **{"judges": True, **settings})
        self.writer = ReportWriter(bench.kube, self.settings, clock=bench.clock)
        self.held = HeldPods()
        self.lost: list[Any] = []
        self.loses = False
        self._patch = bench.kube.patch
        bench.kube.patch = self._lossy  # type: ignore[method-assign]

    async def _lossy(self, *args: Any, **options: Any) -> Json:
        if self.loses:
            self.loses = False
            self.lost.append((args, options))
            raise Unavailable("no answer in time")
        return await self._patch(*args, **options)

    async def arrive(self) -> None:
        for args, options in self.lost:
            await self._patch(*args, **options)

    async def tell(self, status: Status = FALSE, told: Marks | None = None) -> None:
        await self.writer.recall()
        uid = (await self.bench.node()).uid
        found = judged(used(now=self.bench.wall()), uid=uid, drain=status, retire=status)
        self.bench.calls.clear()
        new = body(found, told, previous=self.writer.stored)
        await self.writer.write(new, held=lambda: self.held)

    async def stored(self) -> Json:
        found: Json = await self.bench.you.get(DRAIN_REPORTS, NAME)
        return found

    async def said(self) -> set[str]:
        return {item["status"] for item in (await self.stored())["status"]["verdicts"].values()}


async def desk(**settings: Any) -> Desk:
    bench = Bench()
    await bench.node()
    return Desk(bench, **settings)


@virtual
async def test_it_is_made_and_written_when_it_says_something_else_and_as_a_sign_of_life() -> None:
    it = await desk()
    await it.tell()
    await asyncio.sleep(HEARTBEAT - 1)
    await it.tell()
    assert it.bench.asked("patch", "create") == [], "at rest nothing is written"
    await it.tell(TRUE)
    assert it.bench.asked("patch", "create") == ["patch nodedrainreports"] and await it.said() == {"True"}
    await asyncio.sleep(HEARTBEAT)
    await it.tell(TRUE)
    assert it.bench.asked("patch") == ["patch nodedrainreports"]


@virtual
async def test_a_write_that_arrives_late_does_not_bring_an_old_true_back() -> None:
    it = await desk()
    await it.tell(UNKNOWN)
    await asyncio.sleep(1)
    it.loses = True
    with pytest.raises(Unavailable):
        await it.tell(TRUE)
    await asyncio.sleep(1)
    await it.tell(UNKNOWN)
    with pytest.raises(Conflict):
        await it.arrive()
    assert await it.said() == {"Unknown"}


@virtual
async def test_an_answer_that_is_lost_is_read_and_what_somebody_else_has_stored_is_seen_with_the_next_heartbeat() -> None:
    it = await desk()
    it.bench.lose = lambda call: call.subresource == "status"
    with pytest.raises(Unavailable):
        await it.tell()
    it.bench.lose = lambda _: False
    await asyncio.sleep(1)
    await it.tell(TRUE)
    assert await it.said() == {"True"}
    await it.bench.you.delete(DRAIN_REPORTS, NAME)
    await asyncio.sleep(HEARTBEAT)
    await it.tell(TRUE)
    assert await it.said() == {"True"}


@pytest.mark.parametrize("killed_after", ["create", "head"], ids=["it was made", "it was made the node's"])
@virtual
async def test_a_kill_between_two_writes_leaves_nothing_that_says_more(killed_after: str) -> None:
    it = await desk()
    if killed_after == "head":
        await it.tell(FALSE, RETIRING)
        await asyncio.sleep(1)
    it.bench.refuse = lambda call: Unavailable("killed") if call.subresource == "status" else None
    with pytest.raises(Unavailable):
        await it.tell(TRUE)
    stored = await it.stored()
    assert {item["status"] for item in ((stored.get("status") or {}).get("verdicts") or {}).values()} <= {"False"}
    it.bench.refuse = lambda _: None
    await asyncio.sleep(1)
    again = Desk(it.bench)
    await again.tell(TRUE)
    assert await again.said() == {"True"} and (await again.stored())["metadata"]["ownerReferences"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        pytest.param(lambda call: NotFound("x", status=404), "NodeDrainReports are not served: install", id="the type is missing"),
        pytest.param(
            lambda call: NotFound("x", status=404) if call.subresource else None, "have no status of their own: install", id="an old type"
        ),
    ],
)
@virtual
async def test_a_type_that_is_not_served_is_named_with_what_to_install(error: Any, says: str) -> None:
    it = await desk()
    it.bench.refuse = lambda call: error(call) if call.resource == DRAIN_REPORTS else None
    with pytest.raises(NotFound, match=says):
        await it.tell()


@virtual
async def test_which_pods_are_held_is_written_at_once_and_a_report_that_was_made_before_does_not_overtake_it() -> None:
    it = await desk()
    await it.tell()
    it.held = HELD
    await it.writer.write_held(lambda: it.held)
    assert (await it.stored())["status"]["held"] == ["apps/db-0"]
    it.bench.asked()
    await it.writer.write_held(lambda: it.held)
    assert it.bench.asked() == [], "it says so already"
    await asyncio.sleep(1)
    await it.tell(TRUE)
    assert (await it.stored())["status"]["held"] == ["apps/db-0"]

    def announced(call: Call) -> ApiError | None:
        if call.verb == "create":
            it.held = HELD
        return None

    it.held, it.bench.refuse = HeldPods(), announced
    await it.bench.you.delete(DRAIN_REPORTS, NAME)
    await asyncio.sleep(HEARTBEAT)
    await it.tell(TRUE)
    assert (await it.stored())["status"]["held"] == ["apps/db-0"], "a drain began while the report was being written"


@virtual
async def test_in_a_dry_run_and_where_nothing_is_stored_nothing_is_held() -> None:
    it = await desk(dry_run=True)
    await it.writer.write_held(lambda: HELD)
    it.writer.stored = {"status": {}, "metadata": {"resourceVersion": "1"}}
    await it.writer.write_held(lambda: HELD)
    assert it.bench.asked("patch", "create") == []


# --- what an earlier process has said ---------------------------------------------------------------------------------


async def said_true(bench: Bench) -> Desk:
    """An earlier process has said that the node may go."""
    it = Desk(bench)
    await it.tell(TRUE)
    own = OwnNode(bench.kube, Store(), Settings(NODE, DRIVER, "default", "1"), clock=bench.clock, wall=bench.wall)
    await own.write_conditions(judged(uid=(await bench.node()).uid, drain=TRUE, retire=TRUE))
    return it


async def all_said(it: Desk) -> list[str]:
    conditions = (await it.bench.you.get(NODES, NODE))["status"]["conditions"]
    return [item["status"] for item in conditions if item["type"] != "Ready"] + sorted(await it.said())


@pytest.mark.parametrize(("judges", "why"), [(True, "has just started"), (False, "--drain-report is switched off")])
@virtual
async def test_at_the_start_all_that_is_stored_becomes_unknown(judges: bool, why: str) -> None:
    bench = Bench()
    await bench.node()
    it = await said_true(bench)
    settings = replace(it.settings, judges=judges)
    await take_back(bench.kube, settings, wall=bench.wall)
    assert await all_said(it) == ["Unknown", "Unknown", "Unknown"]
    assert why in (await it.stored())["status"]["verdicts"]["drain"]["message"]
    bench.calls.clear()
    await take_back(bench.kube, settings, wall=bench.wall)
    assert bench.asked("patch", "create") == [], "the second start finds nothing that says more"


@virtual
async def test_a_start_that_is_cut_off_between_its_two_writes_is_ended_by_the_next() -> None:
    bench = Bench()
    await bench.node()
    it = await said_true(bench)
    bench.refuse = lambda call: Forbidden("no", status=403) if call.verb == "patch" and call.resource == DRAIN_REPORTS else None
    with pytest.raises(Forbidden):
        await take_back(bench.kube, it.settings, wall=bench.wall)
    assert await all_said(it) == ["Unknown", "Unknown", "True"]
    bench.refuse = lambda _: None
    await take_back(bench.kube, it.settings, wall=bench.wall)
    assert await all_said(it) == ["Unknown", "Unknown", "Unknown"]


@virtual
async def test_what_an_earlier_machine_of_the_name_has_said_stays_and_a_node_of_which_nothing_was_said_gets_nothing() -> None:
    bench = Bench()
    await bench.node()
    await take_back(bench.kube, Desk(bench).settings, wall=bench.wall)
    assert bench.asked("patch", "create") == []
    it = await said_true(bench)
    stored = await it.stored()
    other = {**stored["status"], "nodeUID": "uid-of-another"}
    patch = report.status_patch(other, version=stored["metadata"]["resourceVersion"])
    await bench.you.patch(DRAIN_REPORTS, NAME, patch, content_type=JSON_PATCH, subresource="status")
    await take_back(bench.kube, it.settings, wall=bench.wall)
    assert await it.said() == {"True"}, "the next look replaces it whole"
