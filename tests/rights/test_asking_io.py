"""When the API server is asked what the role allows, how often, and what is said of the answers."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.sim.clock import run_virtual
from sidecar.engine.health import Health
from sidecar.kube.api import ACCESS_REVIEWS, LEASES, NODES, Resource
from sidecar.kube.errors import Forbidden, NotFound, Unavailable
from sidecar.rights.asking_io import RightsKnown, ask
from sidecar.rights.rights import NOT_KNOWN, PATCH_VOLUMES, UPDATE_VOLUMES, FinalizerWrites, Right, finalizer_writes
from tests.harness.doors import tools
from tests.harness.virtual import virtual

PATCH, UPDATE = "patch", "update"


@pytest.fixture(autouse=True)
def hears_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@dataclass
class Authorizer:
    """An API server that answers access reviews. `granted` are the verbs on PersistentVolumes."""

    granted: set[str] = field(default_factory=set)
    failing: Exception | None = None
    answer: Any = None
    """Something else than a review."""
    seconds: float = 0.01
    asked: list[tuple[float, Mapping[str, Any]]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Any:
        assert resource == ACCESS_REVIEWS and namespace == ""
        wanted = body["spec"]["resourceAttributes"]
        self.asked.append((asyncio.get_running_loop().time(), wanted))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        if self.failing is not None:
            raise self.failing
        return self.answer if self.answer is not None else {**body, "status": {"allowed": wanted["verb"] in self.granted}}

    def verbs(self) -> list[str]:
        return [wanted["verb"] for _, wanted in self.asked]


@dataclass
class Scene:
    server: Authorizer
    known: RightsKnown
    health: Health
    changes: list[float]

    def writes(self) -> FinalizerWrites:
        return finalizer_writes(self.known.rights())

    def scope(self) -> str:
        return next(str(row) for row in self.health.rows() if "rights" in row.path)


def play(server: Authorizer, then: Callable[[Scene], Awaitable[None]]) -> None:
    async def life() -> None:
        clock = asyncio.get_running_loop().time
        health, changes = Health(), list[float]()
        known = RightsKnown(tools(server, health=health, clock=clock), on_change=lambda: changes.append(clock()))
        task = asyncio.create_task(known.run())
        try:
            await then(Scene(server, known, health, changes))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(life())


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [f"{record.getMessage()} {record.__dict__.get('fields')}" for record in caplog.records if record.levelno >= level]


def test_in_health_one_request_is_sent_and_none_ever_again(caplog: pytest.LogCaptureFixture) -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(7 * 86400.0)
        assert scene.server.verbs() == [PATCH]
        assert scene.writes() is FinalizerWrites.BY_PATCH and scene.changes == [] and scene.scope().endswith("OK")

    play(Authorizer({PATCH, UPDATE}), then)
    assert lines(caplog, logging.INFO) == []


def test_without_patch_and_update_one_line_says_what_is_off_and_what_brings_it_back(caplog: pytest.LogCaptureFixture) -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(1.0)
        assert scene.server.verbs() == [PATCH, UPDATE]
        assert scene.writes() is FinalizerWrites.NEVER and len(scene.changes) == 1
        assert "grant patch on persistentvolumes" in scene.scope()
        await asyncio.sleep(86400.0)

    play(Authorizer(), then)
    (line,) = lines(caplog)
    assert "no finalizer" in line and "grant patch on persistentvolumes" in line


@pytest.mark.parametrize("granted", [set(), {UPDATE}], ids=["nothing", "update"])
def test_what_is_refused_is_asked_again_ever_less_often_and_noticed_within_ten_minutes(granted: set[str]) -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(86400.0)
        times = [at for at, wanted in scene.server.asked if wanted["verb"] == PATCH]
        pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert pauses[0] <= 20.0, "a server that has just started may refuse everything"
        assert max(pauses) <= 600.0 and len(times) < 86400 / 450
        scene.server.granted = {PATCH}
        await asyncio.sleep(601.0)
        assert scene.writes() is FinalizerWrites.BY_PATCH and scene.scope().endswith("OK") and len(scene.changes) == 2

    play(Authorizer(granted), then)


@pytest.mark.parametrize("error", [Unavailable("away"), Forbidden("no reviews", status=403), NotFound("no such API", status=404)], ids=repr)
def test_a_server_that_does_not_answer_leaves_all_as_if_nobody_had_asked(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(86400.0)
        assert scene.known.rights() == NOT_KNOWN and scene.writes() is FinalizerWrites.BY_PATCH and scene.changes == []
        assert len(scene.server.asked) < 86400 / 450
        scene.server.failing, scene.server.granted = None, {UPDATE}
        await asyncio.sleep(601.0)
        assert scene.writes() is FinalizerWrites.BY_UPDATE

    play(Authorizer(failing=error), then)
    assert len([line for line in lines(caplog, logging.INFO) if "not known" in line]) == 1


def test_what_is_known_stays_known_while_the_server_is_away() -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(1.0)
        scene.server.failing = Unavailable("away")
        await asyncio.sleep(3600.0)
        assert scene.writes() is FinalizerWrites.NEVER and len(scene.changes) == 1

    play(Authorizer(), then)


def test_an_answer_that_is_no_answer_tells_nothing_and_is_not_asked_for_without_end() -> None:
    for answer in [{}, {"status": None}, {"status": {"allowed": "yes"}}, {"status": []}]:

        async def then(scene: Scene) -> None:
            await asyncio.sleep(86400.0)
            assert scene.known.rights() == NOT_KNOWN and len(scene.server.asked) < 86400 / 450

        play(Authorizer(answer=answer), then)


def test_a_write_that_is_forbidden_is_followed_by_a_question_once_in_a_minute_at_most() -> None:
    async def then(scene: Scene) -> None:
        await asyncio.sleep(3600.0)
        scene.server.granted = set()
        scene.known.doubt()
        await asyncio.sleep(1.0)
        assert scene.writes() is FinalizerWrites.NEVER, "a right that was taken away is noticed at once"

    play(Authorizer({PATCH}), then)

    async def for_ever(scene: Scene) -> None:
        for _ in range(3600):
            scene.known.doubt()
            await asyncio.sleep(1.0)
        assert 50 <= len(scene.server.asked) <= 62, "a webhook forbids what the role allows"

    play(Authorizer({PATCH}), for_ever)


def test_all_of_a_table_is_asked_some_at_once_and_each_as_the_request_would_be() -> None:
    wanted = [
        PATCH_VOLUMES,
        UPDATE_VOLUMES,
        Right("patch", NODES, "status"),
        Right("get", LEASES, own_namespace=True),
        *(Right(f"verb{number}", LEASES) for number in range(30)),
    ]
    server = Authorizer({PATCH, "get"})

    async def main() -> None:
        found = await ask(server, wanted, namespace="drivers")  # type: ignore[arg-type]
        assert found.allowed == {PATCH_VOLUMES, Right("patch", NODES, "status"), Right("get", LEASES, own_namespace=True)}
        assert found.allowed | found.refused == set(wanted)

    run_virtual(main())
    asked = [dict(each) for _, each in server.asked]
    assert {"verb": "patch", "resource": "nodes", "subresource": "status"} in asked
    assert {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "drivers"} in asked
    assert {"verb": "patch", "resource": "persistentvolumes"} in asked
    assert 1 < server.most_at_once <= 8


@pytest.mark.parametrize("turns", range(6))
@virtual
async def test_who_is_cancelled_while_an_answer_fails_ends(turns: int) -> None:
    """So many turns of the event loop after the failure. A task group hands on the failure of its task and forgets that it was cancelled:
    the process would then not end at SIGTERM."""
    server = Authorizer(failing=Unavailable("no"), seconds=0.0)
    task = asyncio.create_task(RightsKnown(tools(server), on_change=lambda: None).run())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=30)
    assert done and task.cancelled()
