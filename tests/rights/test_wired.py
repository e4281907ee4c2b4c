"""That the program asks what its role allows at the start, once, and what a change of that sets in motion."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sidecar.config.parse import Parsed, parse
from sidecar.doors import Doors, Instruments
from sidecar.engine.health import Health
from sidecar.kube.api import ACCESS_REVIEWS, Resource
from sidecar.kube.errors import Unavailable
from sidecar.kube.events.recorder import EventRecorder
from sidecar.model.names import VOLUME_FINALIZER
from sidecar.start import assemble
from sidecar.wiring import Sidecar
from tests.harness import samples
from tests.harness.doors import ScriptedDriver
from tests.harness.loops import until
from tests.harness.sidecar import ListedKube, running

REVIEWS = ACCESS_REVIEWS.plural


class WithRoles(ListedKube):
    """`granted` are verbs on PersistentVolumes."""

    def __init__(self, *granted: str, away: bool = False, **listed: list[dict[str, Any]]) -> None:
        super().__init__(**listed)
        self.granted = set(granted)
        self.away = away

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> dict[str, Any]:
        found = await super().create(resource, body, namespace=namespace)
        if resource != ACCESS_REVIEWS:
            return found
        if self.away:
            raise Unavailable("away")
        return {**found, "status": {"allowed": body["spec"]["resourceAttributes"]["verb"] in self.granted}}

    def reviews(self) -> list[str]:
        return [body["spec"]["resourceAttributes"]["verb"] for _, plural, _, body in self.asked if plural == REVIEWS]


def program(kube: ListedKube, *args: str) -> Sidecar:
    parsed = parse(["--node-deployment", *args], {"NODE_NAME": samples.NODE})
    assert isinstance(parsed, Parsed)

    class Opened:
        config = parsed.config
        tools = Instruments(health=Health())
        doors = staticmethod(lambda: Doors(kube, kube, ScriptedDriver()))  # type: ignore[arg-type]
        recorder = staticmethod(lambda: EventRecorder(kube, component="test"))  # type: ignore[arg-type]

    return assemble(Opened())  # type: ignore[arg-type]


UNPROTECTED = samples.volume_json(meta={"finalizers": []}, status={"phase": "Bound"})


def test_one_question_in_health_and_the_finalizer_is_put_on_where_it_is_missing() -> None:
    kube = WithRoles("patch", persistentvolumes=[UNPROTECTED])

    async def then(_: Sidecar) -> None:
        await until(lambda: kube.wrote("patch"))

    running(lambda: program(kube), then)
    assert kube.reviews() == ["patch"]
    assert kube.asked[0][1] == REVIEWS, "before all else"


def test_a_right_that_is_granted_later_sets_all_volumes_right(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = WithRoles()

    async def then(sidecar: Sidecar) -> None:
        assert sidecar._rights is not None
        await until(lambda: kube.reviews() == ["patch", "update"])
        kube.tell("persistentvolumes", "ADDED", UNPROTECTED)
        await until(lambda: len(sidecar.caches.volumes) == 1)
        await asyncio.sleep(0.05)
        assert kube.wrote("patch") == []
        kube.granted = {"patch"}
        sidecar._rights.doubt()
        await until(lambda: kube.wrote("patch"))

    monkeypatch.setattr("sidecar.rights.asking_io._SOONEST", 0.0)
    running(lambda: program(kube), then)
    patch, *_ = kube.wrote("patch")
    assert patch["metadata"]["finalizers"] == [VOLUME_FINALIZER]


def test_the_start_waits_for_no_answer() -> None:
    kube = WithRoles(away=True, persistentvolumes=[UNPROTECTED])

    async def then(_: Sidecar) -> None:
        await until(lambda: kube.wrote("patch"))

    running(lambda: program(kube), then)
    assert kube.reviews() == ["patch"], "as if nobody had asked"


def test_a_dry_run_asks_nothing() -> None:
    kube = WithRoles("patch", persistentvolumes=[UNPROTECTED])

    async def then(sidecar: Sidecar) -> None:
        await until(lambda: len(sidecar.caches.volumes) == 1)
        await asyncio.sleep(0.05)

    running(lambda: program(kube, "--dry-run"), then)
    assert kube.reviews() == []
