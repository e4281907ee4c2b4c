"""At the start, before anything is listed: what an earlier process has said of the node does not count any more."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from hack.sim.cluster import Call, InProcessApi
from hack.sim.world.node import DRIVER as WORLD_DRIVER
from hack.sim.world.node import EPOCH
from sidecar.config.config import Config
from sidecar.config.parse import Parsed, parse
from sidecar.doors import Instruments
from sidecar.drain.publish import on_node, report, validity
from sidecar.drain.publish.withdrawal_io import Withdrawal
from sidecar.drain.settings import Settings
from sidecar.errors import Fatal
from sidecar.kube.api import (
    DRAIN_REPORTS,
    JSON_PATCH,
    MERGE_PATCH,
    NODES,
    STRATEGIC_MERGE_PATCH,
)
from sidecar.kube.errors import ApiError, Forbidden, Unavailable
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.start import before_the_driver
from tests.harness.cluster_tools import new_cluster
from tests.harness.doors import tools
from tests.harness.drain.judgements import DRIVER, NODE, NOW, ready
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
            bench.nodes["n0"].driver_away()
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


def test_while_the_driver_is_silent_the_words_of_its_own_sidecar_are_taken_back_and_no_others() -> None:
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


class SlowStart(Start):
    """The API server takes its time for each answer."""

    def __init__(self, seconds: float) -> None:
        super().__init__()

        async def before(_: Call) -> None:
            await asyncio.sleep(seconds)

        self.kube = InProcessApi(self.you.cluster, before=before)


def test_a_driver_that_fails_at_once_leaves_time_to_take_back_what_was_said() -> None:
    """Each process of a crash loop ends before its first request is answered; then a True would stand until its time is over."""

    def case(seconds: float, after: str, ends: BaseException) -> None:
        async def story() -> None:
            start, clock = SlowStart(seconds), asyncio.get_running_loop().time
            await start.said()
            begun = clock()
            with pytest.raises((ExceptionGroup, asyncio.CancelledError)):
                async with before_the_driver(config(*JUDGING), start.kube, Instruments(wall=lambda: NOW + 60), lambda: Note(DRIVER)):
                    raise ends
            assert {status for status, _ in await start.stored()} == {after}
            assert clock() - begun < 10.0, "nor does an API server that hangs keep the process"

        run_virtual(story())

    for seconds, after in [
        (0.2, "Unknown"),  # answers
        (60.0, "True"),  # hangs
    ]:
        for ends in [
            Fatal("the driver failed NodeGetInfo"),  # fails
            asyncio.CancelledError(),  # cancelled
        ]:
            case(seconds, after, ends)


def test_where_another_driver_answers_than_before_the_words_for_the_former_one_are_taken_back_all_the_same() -> None:
    answers: list[str] = []

    def refuse(call: Call) -> ApiError | None:
        return None if answers else Unavailable("no answer")

    async def story() -> None:
        start, note = Start(refuse), Note(DRIVER)
        await start.said()
        async with before_the_driver(config(*JUDGING), start.kube, Instruments(wall=lambda: NOW + 60), lambda: note) as meet:
            await meet("another.example.com")
            answers.append("yes")
            await asyncio.sleep(600)
            assert {status for status, _ in await start.stored()} == {"Unknown"}
        assert note.driver == "another.example.com"

    run_virtual(story())


async def statuses(bench: Bench) -> set[str]:
    """Of the conditions and the report."""
    told: list[Json] = [item for item in (await node_of(bench))["status"]["conditions"] if item["type"].startswith(WORLD_DRIVER)]
    return {item["status"] for item in (*told, *(await report_of(bench))["verdicts"].values())}


def test_what_is_stored_is_renewed_long_before_its_time_is_over() -> None:
    async def story(bench: Bench) -> None:
        await wait(bench, 20)
        for _ in range(60):
            await wait(bench, 60)
            now, node = EPOCH + bench.clock(), await node_of(bench)
            ends = [validity.of_report(await report_of(bench)), validity.of_summary(node["metadata"]["annotations"][WORLD_KEY])]
            ends += [validity.of_condition(item) for item in validity.ours(node["status"]["conditions"], WORLD_DRIVER)]
            assert len(ends) == 4
            assert all(end is not None and end - now >= validity.VALID_FOR / 3 for end in ends), ends

    play(story, nodes=("n0",))
