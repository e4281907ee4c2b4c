"""Drain cases B, C and G of declared maintenance: whole stories, with the program on the simulated cluster."""

import asyncio
import itertools
import json
import logging
from typing import Any, Final

import pytest

from hack.sim.clock import EPOCH
from hack.sim.cluster import Call
from hack.sim.world.node import DRIVER
from hack.sim.world.story import Story
from sidecar.drain.maintenance.objects import Maintenance
from sidecar.drain.maintenance.status_io import summary
from sidecar.drain.marks import NodePolicy, read
from sidecar.drain.node_io import Picture, why_undone
from sidecar.drain.settings import Settings
from sidecar.kube.api import (
    BUDGETS,
    CLAIMS,
    DRAIN_RULES,
    EVENTS,
    MAINTENANCES,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    STRATEGIC_MERGE_PATCH,
    VOLUMES,
    find,
)
from sidecar.kube.errors import ApiError, Forbidden, TooManyRequests, Unavailable
from sidecar.model import names, timestamps
from sidecar.model.nodes import Node
from tests.harness import doors, replicas_anew
from tests.harness.drain import samples
from tests.harness.drain.simulated import EVACUATE, JUDGING, Json, Plot, all_of, change, node_of, play, report_of, running, wait
from tests.harness.replicas_anew import ANEW, Seen, Workload, uids

RECORD: Final = names.of_driver(DRIVER, names.MAINTENANCE_RECORD)
UNREADY: Final = [{"type": "Ready", "status": "Unknown"}]
HELD: Final = ["example.com/held"]
ONE: Final = ("n0",)


def told(story: Plot, *more: str, nodes: tuple[str, ...] = ONE, **hooks: Any) -> None:
    play(story, args=(*JUDGING, "--maintenance", *more), nodes=nodes, **hooks)


async def declare(bench: Story, name: str = "m1", **spec: Any) -> None:
    body = {"nodes": ["n0"], "stage": "Drain", "intent": "reboot", **spec}
    await bench.you.create(MAINTENANCES, {"metadata": {"name": name}, "spec": body})


async def move(bench: Story, stage: str, name: str = "m1") -> None:
    await bench.you.patch(MAINTENANCES, name, {"spec": {"stage": stage}}, content_type=MERGE_PATCH)


async def put(bench: Story, name: str = "web", *, node: str = "n0", labels: Any = None, meta: Any = None, **spec: Any) -> None:
    """A pod without volumes, on that node."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}
    given = {"name": name, "labels": labels or {}, "ownerReferences": [owner], **(meta or {})}
    namespace = given.pop("namespace", "default")
    body = {"containers": [{"name": "main", "image": "none"}], "nodeName": node, **spec}
    await bench.you.create(PODS, {"metadata": given, "spec": body}, namespace=namespace)


async def let_go(bench: Story, name: str) -> None:
    await bench.you.patch(PODS, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH, namespace="default")


async def pods(bench: Story, node: str = "n0") -> list[str]:
    """Those that are not about to go."""
    there = [pod for pod in await all_of(bench, PODS) if pod["spec"].get("nodeName") == node]
    return sorted(pod["metadata"]["name"] for pod in there if "deletionTimestamp" not in pod["metadata"])


async def record(bench: Story, node: str = "n0") -> Json:
    return dict(json.loads((await node_of(bench, node))["metadata"].get("annotations", {}).get(RECORD, "{}")))


async def conditions(bench: Story, node: str = "n0") -> set[str]:
    return {item["type"] for item in (await node_of(bench, node))["status"]["conditions"] if item["type"] in names.LIFECYCLE_CONDITIONS}


async def cordoned(bench: Story, node: str = "n0") -> bool:
    return bool((await node_of(bench, node))["spec"].get("unschedulable"))


async def status(bench: Story, node: str = "n0") -> Json:
    """Of the first maintenance in the report."""
    return dict((await report_of(bench, node))["maintenance"][0])


async def events(bench: Story, reason: str) -> int:
    return sum(event.get("count", 1) for event in await all_of(bench, EVENTS) if event["reason"] == reason)


async def until(bench: Story, time: str, seconds: float) -> None:
    """So many seconds after that time."""
    await wait(bench, (timestamps.to_seconds(time) or 0.0) + seconds - EPOCH - bench.clock())


async def deadline(bench: Story) -> str:
    return str(next(iter((await record(bench))["of"].values()))["deadlineAt"])


async def at_rest(bench: Story, node: str = "n0") -> None:
    """Nothing is left of it."""
    assert await record(bench, node) == {} and not await conditions(bench, node)
    assert "maintenance" not in await report_of(bench, node)


# --- stages -------------------------------------------------------------------------------------------------------------


def test_twenty_that_are_only_announced_keep_none_from_being_carried_out() -> None:
    async def story(bench: Story) -> None:
        await put(bench)
        for number in range(20):
            await declare(bench, f"a{number:02}", stage="Idle")
        await wait(bench, 2)
        await declare(bench, "urgent")
        await wait(bench, 120)
        assert await cordoned(bench) and await pods(bench) == [] and (await status(bench))["name"] == "urgent"

    told(story)


@pytest.mark.parametrize("ends", ["Complete", "deleted"])
def test_drain_B10_C2_C3_C12_a_node_goes_through_all_stages_and_is_as_it_was_before(ends: str) -> None:
    """n1 was cordoned before, and n2 is selected by another one, too."""

    async def story(bench: Story) -> None:
        nodes = ["n0", "n1", "n2"]
        await change(bench, "n1", {"unschedulable": True})
        await wait(bench, 5)
        before = {node: (await node_of(bench, node))["spec"] for node in nodes}
        for node in nodes:
            await put(bench, f"web-{node}", node=node)
        await declare(bench, nodes=nodes, stage="Cordon")
        await declare(bench, "m2", nodes=["n2"], stage="Cordon")
        await wait(bench, 70)
        assert all([await cordoned(bench, node) for node in nodes]) and await pods(bench) == ["web-n0"]
        assert await conditions(bench) == {names.MAINTENANCE_IN_PROGRESS}
        await move(bench, "Drain")
        await wait(bench, 120)
        assert [await pods(bench, node) for node in nodes] == [[], [], []]
        assert await conditions(bench) == {names.MAINTENANCE_IN_PROGRESS, names.DRAINED}
        said = (await bench.you.get(MAINTENANCES, "m1"))["status"]
        assert (said["progress"], said["blocked"], said["conditions"][0]["status"]) == ("3/3 drained", 0, "True")
        assert await events(bench, names.MAINTENANCE_DRAINED) == 3
        await (move(bench, "Complete") if ends == "Complete" else bench.you.delete(MAINTENANCES, "m1"))
        await wait(bench, 150)
        if ends == "Complete":
            after = (await bench.you.get(MAINTENANCES, "m1"))["status"]
            assert after == said | {"observedStage": "Complete"}, "how far it came stays there"
        assert [await cordoned(bench, node) for node in nodes] == [False, True, True], "m2 wants n2 cordoned"
        await bench.you.delete(MAINTENANCES, "m2")
        await wait(bench, 70)
        for node in nodes:
            assert (await node_of(bench, node))["spec"] == before[node]
            await at_rest(bench, node)

    told(story, nodes=("n0", "n1", "n2"))


def test_drain_C2_drain_at_once_cordons_first() -> None:
    asked: list[str] = []

    async def story(bench: Story) -> None:
        await put(bench)
        await declare(bench)
        await wait(bench, 90)
        assert await pods(bench) == [] and await cordoned(bench)
        assert asked == ["patch nodes n0", "create pods web"], "the record and the cordon in one write, then the eviction"

    async def note(call: Call) -> None:
        if call.subresource == "eviction" or (call.verb == "patch" and call.resource == NODES and bench_is_asked(call)):
            asked.append(f"{call.verb} {call.resource} {call.name}")

    def bench_is_asked(call: Call) -> bool:
        return call.subresource == "" and not asked

    told(story, delay=note)


@pytest.mark.parametrize(
    ("meta", "spec"),
    [
        ({"annotations": {names.KURED_REBOOTS: "2026-01-01T00:00:00Z"}}, None),
        ({"annotations": {names.DRAIN_INTENT: "retire"}}, None),
        ({}, {"taints": [EVACUATE]}),
    ],
)
def test_drain_C12_whoever_else_empties_the_node_keeps_it_cordoned_until_he_has_done(meta: Json, spec: Any) -> None:
    async def story(bench: Story) -> None:
        await declare(bench, stage="Cordon")
        await wait(bench, 70)
        await change(bench, "n0", spec, **meta)
        await wait(bench, 10)
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 120)
        assert await cordoned(bench)
        await change(bench, "n0", {"taints": None} if spec else None, **{key: dict.fromkeys(each) for key, each in meta.items()})
        await wait(bench, 120)
        assert not await cordoned(bench)
        await at_rest(bench)

    told(story)


def test_drain_C12_a_taint_that_a_late_watch_has_not_shown_yet_keeps_the_node_cordoned() -> None:
    async def story(bench: Story) -> None:
        await declare(bench, stage="Cordon")
        await wait(bench, 70)
        bench.network.local_delay("n0", 30.0, of=str(NODES))
        await change(bench, "n0", {"taints": [EVACUATE]})
        await bench.you.delete(MAINTENANCES, "m1")
        for _ in range(60):
            await wait(bench, 1)
            assert await cordoned(bench)
        await change(bench, "n0", {"taints": None})
        await wait(bench, 120)
        assert not await cordoned(bench)

    told(story)


def test_drain_C11_somebody_uncordons_three_times_it_is_cordoned_each_time_and_told_once() -> None:
    async def story(bench: Story) -> None:
        await declare(bench, stage="Cordon")
        await wait(bench, 70)
        for _ in range(5):
            assert await cordoned(bench)
            await change(bench, "n0", {"unschedulable": None})
            await wait(bench, 30)
        assert await cordoned(bench) and await events(bench, names.CORDON_UNDONE) == 1
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 70)
        assert not await cordoned(bench)

    told(story)


def test_one_that_is_deleted_and_made_again_under_its_name_begins_anew() -> None:
    async def story(bench: Story) -> None:
        await declare(bench, deadline="10m")
        await wait(bench, 200)
        first = (await record(bench))["of"]
        await bench.you.delete(MAINTENANCES, "m1")
        await declare(bench, deadline="10m")
        await wait(bench, 70)
        second = (await record(bench))["of"]
        assert len(first) == len(second) == 1 and not first.keys() & second.keys()
        assert next(iter(first.values()))["deadlineAt"] < next(iter(second.values()))["deadlineAt"]
        assert await cordoned(bench) and (await record(bench))["prior"] is False

    told(story)


# --- several nodes and maintenances ---------------------------------------------------------------------------------------


def entries(*priorities: int) -> list[Json]:
    return [{"maxPriority": priority} for priority in priorities]


async def three_of(bench: Story, node: str, *, held: str = "") -> None:
    for priority in (5000, 10000, 15000):
        meta = {"finalizers": HELD} if held == f"{priority}" else {}
        await put(bench, f"p{priority}-{node}", node=node, meta=meta, priority=priority)


async def left(bench: Story, node: str) -> list[int]:
    return sorted(int(name[1:].partition("-")[0]) for name in await pods(bench, node))


def test_conditions_that_cannot_be_written_keep_no_pod_and_no_other_node_waiting() -> None:
    async def story(bench: Story) -> None:
        for node in ("n0", "n1"):
            await three_of(bench, node)
        await declare(bench, nodes=["n0", "n1"], drainPlan=entries(5000, 10000))
        await wait(bench, 200)
        assert [await left(bench, node) for node in ("n0", "n1")] == [[], []] and not await conditions(bench)

    def refuse(call: Call) -> ApiError | None:
        return Forbidden("no") if (call.verb, call.resource, call.subresource) == ("patch", NODES, "status") else None

    told(story, nodes=("n0", "n1"), refuse=refuse)


def test_where_nobody_may_list_maintenances_it_is_asked_once_a_minute_and_with_the_right_all_is_done() -> None:
    forbidden, asked = [True], list[float]()

    async def story(bench: Story) -> None:
        await put(bench)
        await declare(bench)
        await wait(bench, 600)
        assert 18 <= len(asked) <= 24, "by whoever carries them out, and whoever sums them up"
        assert await pods(bench) == ["web"] and not await cordoned(bench)
        forbidden.clear()
        await wait(bench, 90)
        assert await pods(bench) == [] and await cordoned(bench)

    def refuse(call: Call) -> ApiError | None:
        if not forbidden or (call.verb, call.resource) != ("list", MAINTENANCES):
            return None
        asked.append(0.0)
        return Forbidden("no")

    told(story, refuse=refuse)


def test_drain_C10_a_node_without_a_sidecar_is_named_and_waited_for_until_somebody_says_that_it_does_not_count() -> None:
    async def story(bench: Story) -> None:
        bench.nodes["n1"].lay_down()
        await three_of(bench, "n0")
        await declare(bench, nodes=["n0", "n1"], drainPlan=entries(5000))
        await wait(bench, 900)
        assert await left(bench, "n0") == [10000, 15000]
        assert [each["node"] for each in (await status(bench))["waitingFor"]] == ["n1"]
        said = (await bench.you.get(MAINTENANCES, "m1"))["status"]
        assert "n1: silent since 2026-" in said["message"] and names.IGNORED_BY_MAINTENANCE in said["message"] and said["blocked"] == 2
        await change(bench, "n1", annotations={names.IGNORED_BY_MAINTENANCE: "its board is broken"})
        await wait(bench, 120)
        assert await left(bench, "n0") == []

    told(story, nodes=("n0", "n1"))


def test_one_that_is_selected_later_is_waited_for_before_the_next_entry() -> None:
    async def story(bench: Story) -> None:
        await put(bench, "u1", node="n1", meta={"finalizers": HELD})
        await put(bench, "c0", priority=1_500_000_000, meta={"finalizers": HELD})
        await put(bench, "d0", priority=2_000_000_500)
        for node in ("n0", "n1"):
            await change(bench, node, labels={"rack": "r"})
        await declare(bench, nodes=[], nodeSelector={"matchLabels": {"rack": "r"}})
        await wait(bench, 150)
        assert await pods(bench) == ["c0", "d0"]
        await let_go(bench, "u1")
        await wait(bench, 100)
        assert await pods(bench) == ["d0"], "n0 waits for nobody, and has to look who is there all the same"
        await put(bench, "u2", node="n2", meta={"finalizers": HELD})
        await change(bench, "n2", labels={"rack": "r"})
        await wait(bench, 60)
        await let_go(bench, "c0")
        await wait(bench, 100)
        assert await pods(bench) == ["d0"] and [each["node"] for each in (await status(bench))["waitingFor"]] == ["n2"]
        await let_go(bench, "u2")
        await wait(bench, 100)
        assert await pods(bench) == []

    told(story, nodes=("n0", "n1", "n2"))


# --- rules and pods that do not go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", [{"intent": "reboot"}, {"nodes": ["n9"]}, {"stage": "Complete"}])
def test_drain_C3_nothing_is_done_for_a_retire_that_no_maintenance_wants_any_more(then: Json) -> None:
    """Asked right before what cannot be undone, while the record of the Node says what was wanted a moment ago."""

    async def story(bench: Story) -> None:
        await running(bench, "db")
        await declare(bench, intent="retire")
        await wait(bench, 100)
        tools = doors.tools(kube=bench.you, clock=bench.clock, wall=lambda: EPOCH + bench.clock())
        settings = Settings("n0", DRIVER, "default", "1", policy=NodePolicy.NO_SCHEDULE)
        node = Node.of(await node_of(bench))
        before = read(node, DRIVER, now=tools.wall(), policy=settings.policy)
        picture = Picture(node, before, samples.snapshot(), samples.judged())
        assert await why_undone(tools, settings, picture, asked_at=bench.clock()) == ""
        await bench.you.patch(MAINTENANCES, "m1", {"spec": then}, content_type=MERGE_PATCH)
        assert "PlannedMaintenance" in await why_undone(tools, settings, picture, asked_at=bench.clock())

    told(story)


@pytest.mark.parametrize("then", [{"stage": "Complete"}, {"intent": "retire"}])
def test_drain_C2_one_that_says_something_else_while_its_record_is_on_its_way_evicts_nobody_after_that(then: Json) -> None:
    slow: list[bool] = []

    async def story(bench: Story) -> None:
        await running(bench, "db", priority=9000)
        await declare(bench, stage="Cordon", drainPlan=entries(5000))
        await wait(bench, 70)
        slow.append(True)
        await move(bench, "Drain")
        await wait(bench, 40)
        assert (await record(bench))["reached"] == [0, 5000, 1], "that the next entry is reached is on its way"
        await bench.you.patch(MAINTENANCES, "m1", {"spec": then}, content_type=MERGE_PATCH)
        await wait(bench, 100)
        assert await pods(bench) == ["db"] and await cordoned(bench) is ("stage" not in then)

    async def late(call: Call) -> None:
        """Each write of how far it is."""
        if call.verb == "patch" and call.resource == NODES and not call.subresource and slow:
            await asyncio.sleep(8.0)

    told(story, delay=late)


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("answers_after", [0.0, 40.0, 1000.0])
def test_drain_C3_nothing_is_evicted_or_told_by_what_was_judged_before_the_drain_began(answers_after: float, runs: bool) -> None:
    """In peace a namespace is read every ten minutes. It had a laxer word, which was taken back before; the server answers late."""
    slow: list[bool] = []

    async def story(bench: Story) -> None:
        for text in ("Ignore", None):
            notes = {"metadata": {"name": "default", "annotations": {names.DRAIN_POLICY: text}}}
            if text and await find(bench.you, NAMESPACES, "default") is None:
                await bench.you.create(NAMESPACES, notes)
            await bench.you.patch(NAMESPACES, "default", notes, content_type=MERGE_PATCH)
            if text:
                await running(bench, "db")
                await wait(bench, 100)
                assert (await report_of(bench))["verdicts"]["retire"]["status"] == "True", (await report_of(bench))["verdicts"]
        if not runs:
            await bench.you.delete(PODS, "db", namespace="default", grace_period_seconds=0)
            await wait(bench, 100)
        slow.append(True)
        await declare(bench, intent="retire")
        for _ in range(600):
            await wait(bench, 1)
            assert await pods(bench) == ["db"][: int(runs)] and names.DRAINED not in await conditions(bench)
        assert await cordoned(bench)

    async def late(call: Call) -> None:
        if call.verb == "list" and call.resource == NAMESPACES and slow:
            await asyncio.sleep(answers_after)

    told(story, delay=late)


def test_drain_C15_a_pod_that_comes_back_three_times_is_named_and_left() -> None:
    tolerates = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    made: list[int] = []

    async def controller(bench: Story) -> None:
        while True:
            if await find(bench.you, PODS, "bouncing", namespace="default") is None:
                made.append(1)
                await put(bench, "bouncing", tolerations=tolerates)
            await asyncio.sleep(1.0)

    async def story(bench: Story) -> None:
        bench.spawn(controller(bench))
        await wait(bench, 5)
        await declare(bench)
        await wait(bench, 300)
        assert len(made) == 4 and await pods(bench) == ["bouncing"]
        said = await status(bench)
        assert said["undrainable"] == ["default/bouncing"] and said["drained"] and await events(bench, names.POD_UNDRAINABLE) == 1
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 70)
        await declare(bench, "m2")
        await wait(bench, 100)
        assert len(made) > 4, "it is tried again in another drain"

    told(story)


def test_drain_C15_many_pods_of_one_owner_that_come_back_once_are_sent_away_again() -> None:
    async def story(bench: Story) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
        for made in range(2):
            for number in range(5):
                await put(bench, f"web-{made}-{number}", meta={"ownerReferences": [owner]})
            if not made:
                await declare(bench)
            await wait(bench, 90)
            assert await pods(bench) == []
        assert await events(bench, names.POD_UNDRAINABLE) == 0

    told(story)


def test_drain_B7_a_budget_at_zero_is_asked_again_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[float] = []

    async def story(bench: Story) -> None:
        spec = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 0}
        await bench.you.create(BUDGETS, {"metadata": {"name": "none"}, "spec": spec}, namespace="default")
        await allow(bench, 0)
        await put(bench, labels={"app": "web"})
        await wait(bench, 5)
        await declare(bench)
        await wait(bench, 120)
        why = (await status(bench))["pods"][0]["why"]
        assert await pods(bench) == ["web"] and "it is evicted" in why and "refused: The disruption budget none" in why
        assert len(asked) > 3 and all(later - earlier >= 4.9 for earlier, later in itertools.pairwise(asked))
        await allow(bench, 1)
        await wait(bench, 30)
        assert await pods(bench) == []
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]

    async def allow(bench: Story, count: int) -> None:
        now = {"observedGeneration": 1, "disruptionsAllowed": count, "currentHealthy": 1, "desiredHealthy": 1 - count}
        await bench.you.patch(BUDGETS, "none", {"status": now}, namespace="default", content_type=MERGE_PATCH, subresource="status")

    async def note(call: Call) -> None:
        if call.subresource == "eviction":
            asked.append(asyncio.get_running_loop().time())

    told(story, delay=note)


def test_drain_B7_a_virtual_machine_that_only_a_busy_server_has_refused_is_asked_for_again() -> None:
    """Nothing tells the 429 of the server from that of whoever moves the machine: both are believed for five minutes of one drain."""
    asked: list[float] = []

    async def story(bench: Story) -> None:
        vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": "uid-vm", "controller": True}
        await put(bench, "launcher", meta={"ownerReferences": [vmi]})
        await declare(bench)
        await wait(bench, 300)
        assert len(asked) == 1
        await wait(bench, 100)
        assert len(asked) == 2
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 70)
        await declare(bench, "m2")
        await wait(bench, 100)
        assert len(asked) == 3 and await pods(bench) == []

    def refuse(call: Call) -> ApiError | None:
        if call.subresource != "eviction":
            return None
        asked.append(0.0)
        return TooManyRequests("please try again later", retry_after=1.0) if len(asked) < 3 else None

    told(story, refuse=refuse)


def test_drain_B6_two_hundred_pods_behind_a_slow_server_leave_in_passes_of_ten_seconds() -> None:
    passes: list[list[float]] = []

    async def story(bench: Story) -> None:
        for number in range(200):
            await put(bench, f"web-{number}")
        await declare(bench)
        await wait(bench, 400)
        assert await pods(bench) == [] and len(passes) > 8
        assert max(one[-1] - one[0] for one in passes) <= 10.0

    async def slow(call: Call) -> None:
        if call.verb == "list" and call.resource == DRAIN_RULES:
            passes.append([asyncio.get_running_loop().time()])
        if call.subresource == "eviction":
            await asyncio.sleep(0.7)
            passes[-1].append(asyncio.get_running_loop().time())

    told(story, delay=slow)


def test_drain_B9_a_pod_that_ends_for_five_minutes_on_a_node_that_is_away_holds_nobody() -> None:
    async def story(bench: Story) -> None:
        await put(bench, "stuck", meta={"finalizers": HELD})
        await wait(bench, 5)
        await declare(bench)
        await wait(bench, 70)
        await bench.you.patch(NODES, "n0", {"status": {"conditions": UNREADY}}, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        await until(bench, (await bench.you.get(PODS, "stuck", namespace="default"))["metadata"]["deletionTimestamp"], 299.0)
        assert not (await status(bench))["drained"]
        await wait(bench, 40)
        assert (await status(bench))["drained"]

    told(story)


# --- beside the evacuation ------------------------------------------------------------------------------------------------

MAINTAINED: Final = (*ANEW, "--maintenance")


async def retire(bench: Story, **spec: Any) -> None:
    """db-0 has to leave n0 and has a place elsewhere."""
    await change(bench, "n0", labels={"for-db-0": None})
    await declare(bench, intent="retire", **spec)


def is_taken(did: list[str]) -> bool:
    return bool({"evict db-0", "delete data-db-0"} & set(did))


@pytest.mark.parametrize("policy", ["Reprovision", "Ignore"])
@pytest.mark.parametrize("keeps", ["Skip", "WaitCompleted", "order", "n1"])
def test_drain_C13_what_keeps_a_pod_in_a_maintenance_keeps_the_evacuation_from_sending_it_away(policy: str, keeps: str) -> None:
    """By a rule of its team, behind another pod of a lower order, or behind another node that has not done the first entry."""
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        notes = {"metadata": {"annotations": {names.DRAIN_POLICY_RETIRE: policy}}}
        await bench.you.patch(CLAIMS, "data-db-0", notes, namespace="default", content_type=MERGE_PATCH)
        first = {"podSelector": {"matchLabels": {"app": "first"}}}
        await put(bench, "first", node="n0" if keeps == "order" else "n1", labels={"app": "first"}, meta={"finalizers": HELD})
        if keeps != "n1":
            spec: Json = {"podSelector": {"matchLabels": {"app": "db"}}}
            spec |= {"order": 5} if keeps == "order" else {"behavior": keeps}
            await bench.you.create(DRAIN_RULES, {"metadata": {"name": "db"}, "spec": spec}, namespace="default")
        both = keeps == "n1"
        await retire(bench, nodes=["n0", "n1"] if both else ["n0"], drainPlan=[{**first, "maxPriority": 0}] if both else [])
        await wait(bench, 200)
        assert not is_taken(seen.did)
        await let_go(bench, "first")
        await wait(bench, 200)
        assert is_taken(seen.did) is (keeps in ("order", "n1"))
        assert ("delete data-db-0" in seen.did) is (is_taken(seen.did) and policy == "Reprovision")

    replicas_anew.play(story, seen, args=MAINTAINED)


@pytest.mark.parametrize("skips", [True, False])
def test_drain_C13_where_rules_cannot_be_read_any_more_the_evacuation_goes_by_no_earlier_ones(skips: bool) -> None:
    """A budget holds the replica until a rule of its team has been made, which nobody may read."""
    broken: list[bool] = []

    async def story(bench: Story, _: Workload) -> None:
        spec: Json = {"selector": {"matchLabels": {"app": "db"}}, "maxUnavailable": 1}
        await bench.you.create(BUDGETS, {"metadata": {"name": "db"}, "spec": spec}, namespace="default")
        await allow(bench, 0)
        await retire(bench)
        await wait(bench, 100)
        assert not is_taken(seen.did) and (await record(bench))["intent"] == "retire"
        if skips:
            broken.append(True)
            spec = {"podSelector": {"matchLabels": {"app": "db"}}, "behavior": "Skip"}
            await bench.you.create(DRAIN_RULES, {"metadata": {"name": "db"}, "spec": spec}, namespace="default")
            await wait(bench, 15)
        await allow(bench, 1)
        await wait(bench, 300)
        assert is_taken(seen.did) is not skips

    async def allow(bench: Story, count: int) -> None:
        now = {"observedGeneration": 1, "disruptionsAllowed": count, "currentHealthy": 3, "desiredHealthy": 3 - count, "expectedPods": 3}
        await bench.you.patch(BUDGETS, "db", {"status": now}, namespace="default", content_type=MERGE_PATCH, subresource="status")

    seen = Seen(lambda call: Forbidden("no") if broken and call.verb == "list" and call.resource == DRAIN_RULES else None)
    replicas_anew.play(story, seen, args=MAINTAINED)


@pytest.mark.parametrize("then", [{"intent": "reboot"}, {"nodes": ["n9"]}])
@pytest.mark.parametrize("step", ["note data-db-0", "evict db-0"])
def test_drain_C3_a_retire_that_is_taken_back_in_the_middle_deletes_no_data(step: str, then: Json) -> None:
    seen = Seen()

    async def story(bench: Story, _: Workload) -> None:
        before = await uids(bench)
        undo = {"spec": then}
        seen.at(step, lambda: bench.cluster.patch(MAINTENANCES, "m1", undo, content_type=MERGE_PATCH), after=True)
        await retire(bench)
        await wait(bench, 200)
        assert step in seen.did and "delete data-db-0" not in seen.did and await uids(bench) == before

    replicas_anew.play(story, seen, args=MAINTAINED)


# --- deadlines ----------------------------------------------------------------------------------------------------------


async def blocked(bench: Story, **spec: Any) -> None:
    """A retire that a volume blocks."""
    await running(bench, "db")
    await declare(bench, intent="retire", deadline="10m", **spec)


async def is_lost(bench: Story) -> bool:
    """Something was deleted."""
    return len(await all_of(bench, CLAIMS)) < 1 or len(await all_of(bench, VOLUMES)) < 1


def test_drain_B2_the_deadline_is_not_reset_by_a_restart_and_its_override_deletes_nothing() -> None:
    async def story(bench: Story) -> None:
        await blocked(bench, onDeadline="Override")
        await wait(bench, 360)
        ends = await deadline(bench)
        bench.nodes["n0"].kill()
        await until(bench, ends, -1.0)
        assert await pods(bench) == ["db"] and await events(bench, names.MAINTENANCE_LATE) == 0 and await gates(bench) == 1
        await wait(bench, 30)
        assert await pods(bench) == [] and await events(bench, names.MAINTENANCE_LATE) == 1 and await gates(bench) == 0
        assert await deadline(bench) == ends
        assert not await is_lost(bench) and not (await status(bench))["drained"], "the volume is there, so the node may not go"
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 90)
        await at_rest(bench)

    async def gates(bench: Story) -> int:
        return len([each for each in await all_of(bench, BUDGETS) if "guard" in str(each["spec"])])

    told(story, "--drain-gate-image=pause")


def test_drain_B2_one_that_was_drained_in_time_is_not_late_after_a_restart() -> None:
    """Before its node is judged again nobody knows whether it may go yet."""

    async def story(bench: Story) -> None:
        await put(bench)
        await declare(bench, intent="retire", deadline="10m")
        await wait(bench, 120)
        assert (await status(bench))["drained"] and names.DRAINED in await conditions(bench)
        await until(bench, await deadline(bench), 60.0)
        for _ in range(3):
            bench.nodes["n0"].kill()
            for _ in range(40):
                await wait(bench, 2)
                assert not (await status(bench))["late"]
        assert await events(bench, names.MAINTENANCE_LATE) == 0 and (await status(bench))["drained"]

    told(story)


@pytest.mark.parametrize(
    ("what", "restarts"),
    [("everything", False), ("drainrules", False), ("plannedmaintenances", False), ("plannedmaintenances", True), ("pods", False)],
)
def test_drain_B3_no_failing_request_puts_the_override_off(what: str, restarts: bool) -> None:
    failing: list[bool] = []

    async def story(bench: Story) -> None:
        await blocked(bench, onDeadline="Override")
        await wait(bench, 100)
        ends = await deadline(bench)
        await until(bench, ends, -30.0)
        failing.append(True)
        if restarts:
            bench.nodes["n0"].kill()
        await until(bench, ends, 15.0)
        if what == "everything":
            assert "forced" not in await record(bench)
            failing.clear()
            await wait(bench, 15)
        assert "forced" in await record(bench)
        failing.clear()
        await wait(bench, 60)
        assert await pods(bench) == [] and await events(bench, names.MAINTENANCE_LATE) == 1 and not await is_lost(bench)

    def refuse(call: Call) -> ApiError | None:
        return Unavailable("no route") if failing and what in ("everything", str(call.resource).partition(".")[0]) else None

    told(story, refuse=refuse)


def test_drain_G8_clocks_five_minutes_apart_make_nobody_silent() -> None:
    one = Maintenance.of({"metadata": {"name": "m", "uid": "u"}, "spec": {"nodes": ["n1"], "stage": "Drain"}})
    assert one is not None
    for skew, silent in ((300.0, False), (-300.0, False), (601.0, True)):
        reports = {"n1": {"nodeUID": "uid-n1", "observedAt": samples.stamp(skew), "maintenance": [{"uid": "u", "drained": False}]}}
        assert ("silent" in summary(one, [samples.node()], reports, now=samples.NOW)["message"]) is silent


@pytest.mark.parametrize(("finished", "says"), [(0, "n1: goes on with its next step"), (4, "n1: may not be retired yet")])
def test_a_node_that_waits_for_nothing_is_called_late_for_retiring_only_when_all_its_pods_are_gone(finished: int, says: str) -> None:
    one = Maintenance.of({"metadata": {"name": "m", "uid": "u"}, "spec": {"nodes": ["n1"], "stage": "Drain"}})
    assert one is not None and len(one.plan) == 4
    said = {"uid": "u", "drained": False, "finished": finished}
    reports = {"n1": {"nodeUID": "uid-n1", "observedAt": samples.stamp(0), "maintenance": [said]}}
    assert summary(one, [samples.node()], reports, now=samples.NOW)["message"] == says


def test_one_that_is_complete_shows_yet_how_far_it_came_and_nobody_in_its_way() -> None:
    async def story(bench: Story) -> None:
        await put(bench, "held", meta={"finalizers": HELD})
        await declare(bench)
        await wait(bench, 120)
        before = await bench.you.get(MAINTENANCES, "m1")
        assert before["status"]["blocked"] == 1
        await move(bench, "Complete")
        await wait(bench, 600)
        after = await bench.you.get(MAINTENANCES, "m1")
        assert after["status"] == before["status"] | {"observedStage": "Complete", "blocked": 0, "message": ""}

    told(story)


# --- trouble ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["Idle", "Cordon", "Drain"])
def test_drain_B10_a_kill_at_any_write_of_any_stage_changes_nothing_of_how_it_ends(stage: str) -> None:
    async def story(bench: Story) -> None:
        await wait(bench, 30)
        before = (await node_of(bench))["spec"]
        for crossing in range(1, 13):
            if not await pods(bench):
                await put(bench)
            bench.nodes["n0"].doom(crossing)
            await declare(bench, stage=stage)
            await wait(bench, 100)
            assert await cordoned(bench) is (stage != "Idle") and await pods(bench) == ([] if stage == "Drain" else ["web"])
            bench.nodes["n0"].doom(crossing)
            await bench.you.delete(MAINTENANCES, "m1")
            await wait(bench, 150)
            assert (await node_of(bench))["spec"] == before
            await at_rest(bench)
        assert bench.nodes["n0"].lives > 10, "it was killed again and again"

    told(story)


def test_drain_B8_G1_a_node_that_goes_and_is_registered_again_is_drained_from_the_beginning() -> None:
    async def story(bench: Story) -> None:
        await put(bench, "held", meta={"finalizers": HELD})
        await declare(bench, deadline="10m")
        await wait(bench, 100)
        stored, noted = await node_of(bench), await record(bench)
        await bench.you.delete(NODES, "n0")
        await wait(bench, 100)
        meta = {key: stored["metadata"][key] for key in ("name", "labels", "annotations")}
        await bench.you.create(NODES, {"metadata": meta, "spec": {}})
        await wait(bench, 100)
        again = await record(bench)
        assert again["uid"] != noted["uid"] and again["prior"] is False and again["of"] != noted["of"]
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 70)
        assert not await cordoned(bench) and await record(bench) == {}

    told(story)


def test_drain_G4_others_write_the_node_all_the_while_and_find_what_they_wrote() -> None:
    foreign = {"type": names.MAINTENANCE_PLANNED, "status": "True", "reason": "SomebodyElse", "message": "theirs"}

    async def others(bench: Story) -> None:
        for number in range(400):
            await change(bench, "n0", labels={"example.com/number": str(number)}, annotations={"example.com/note": str(number)})
            await asyncio.sleep(0.25)

    async def story(bench: Story) -> None:
        patch = {"status": {"conditions": [foreign]}}
        await bench.you.patch(NODES, "n0", patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        await change(bench, "n0", {"taints": [{"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}]})
        await put(bench)
        bench.spawn(others(bench))
        await declare(bench)
        await declare(bench, "m2", stage="Idle")
        await wait(bench, 150)
        assert await pods(bench) == [] and await cordoned(bench)
        for name in ("m1", "m2"):
            await bench.you.delete(MAINTENANCES, name)
        await wait(bench, 70)
        node = await node_of(bench)
        assert node["metadata"]["labels"]["example.com/number"] == node["metadata"]["annotations"]["example.com/note"] == "399"
        assert node["spec"] == {"taints": [{"key": "example.com/theirs", "value": "x", "effect": "NoSchedule"}]}
        assert [item for item in node["status"]["conditions"] if item["type"] == foreign["type"]] == [foreign]

    told(story)


def test_for_a_reboot_pods_with_volumes_leave_and_come_back_to_their_data() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "db")
        volume = (await bench.you.get(CLAIMS, "db", namespace="default"))["spec"]["volumeName"]
        await declare(bench)
        await wait(bench, 120)
        assert await pods(bench) == [] and (await status(bench))["drained"]
        pod: Json = {"containers": [{"name": "main", "image": "none"}]}
        pod |= {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "db"}}]}
        await bench.you.create(PODS, {"metadata": {"name": "db"}, "spec": pod}, namespace="default")
        await wait(bench, 60)
        assert await pods(bench) == [], "it waits for the node"
        await move(bench, "Complete")
        await wait(bench, 70)
        assert await pods(bench) == ["db"]
        assert (await bench.you.get(CLAIMS, "db", namespace="default"))["spec"]["volumeName"] == volume

    told(story)


def test_a_retire_that_joins_a_reboot_holds_volumes_before_the_watch_has_told_what_is_noted() -> None:
    async def story(bench: Story) -> None:
        await running(bench, "db", priority=9000)
        await put(bench, "first", meta={"finalizers": HELD})
        await declare(bench, drainPlan=entries(5000))
        await wait(bench, 70)
        assert await pods(bench) == ["db"], "the first entry is not done yet"
        bench.network.local_delay("n0", 30.0)
        await declare(bench, "m2", intent="retire", drainPlan=entries(5000))
        while (await record(bench))["intent"] != "retire":
            await wait(bench, 1)
        await let_go(bench, "first")
        await wait(bench, 300)
        assert await pods(bench) == ["db"]

    told(story)


@pytest.mark.parametrize("args", [(), ("--maintenance",)])
def test_at_rest_nothing_is_asked_but_a_list_a_minute_and_without_the_flag_nothing(args: tuple[str, ...]) -> None:
    asked: list[str] = []

    async def story(bench: Story) -> None:
        await declare(bench, nodes=["n0"], stage="Idle")
        await wait(bench, 120)
        await bench.you.delete(MAINTENANCES, "m1")
        await wait(bench, 120)
        asked.clear()
        await wait(bench, 600)
        assert {"list plannedmaintenances"} >= set(asked) and len(asked) <= 2 * 10 + 11, "each node, and who looks after their status"
        assert bool(asked) is bool(args)

    async def note(call: Call) -> None:
        kind = str(call.resource).partition(".")[0]
        if kind in ("plannedmaintenances", "drainrules"):
            asked.append(f"{call.verb} {kind}")

    play(story, args=(*JUDGING, *args), delay=note)
