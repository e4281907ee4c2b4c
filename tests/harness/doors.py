"""Scripted doors for unit tests of controllers: they do what the test says and write down what was asked. No behaviour of a server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.csi.api import NOTHING, CapacityAnswer, CapacityQuery, CreatedVolume, CreateRequest, DriverInfo
from sidecar.csi.careful_io import CarefulDriver
from sidecar.csi.losses import Losses
from sidecar.engine.backoff import Backoff
from sidecar.engine.health import Health
from sidecar.kube.api import Page, Resource, always
from sidecar.kube.errors import NotFound
from sidecar.kube.events.correlator import ObjectRef
from sidecar.observe.decisions import Decisions
from sidecar.observe.metrics import Metrics
from sidecar.observe.narrator import Narrator
from sidecar.tools import Tools
from tests.harness import samples

Json = dict[str, Any]


@dataclass
class ScriptedDriver:
    """Answers are taken from the lists in turn, the last one for ever; an exception is raised."""

    info: DriverInfo = field(default_factory=samples.info)
    creates: list[CreatedVolume | Exception] = field(default_factory=lambda: [CreatedVolume("test-volume-id", 100)])
    deletes: list[Exception | None] = field(default_factory=lambda: [None])
    capacities: list[CapacityAnswer | Exception] = field(default_factory=lambda: [CapacityAnswer(2**40)])
    lists: list[tuple[str, ...] | Mapping[str, bool] | Exception] = field(default_factory=lambda: [()])
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.asked.append(("create", request))
        return _next(self.creates)

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        self.asked.append(("delete", volume_id))
        _next(self.deletes)

    async def get_capacity(self, query: CapacityQuery) -> CapacityAnswer:
        self.asked.append(("capacity", query))
        return _next(self.capacities)

    async def list_volumes(self) -> Mapping[str, bool]:
        """What is no mapping says nothing about where its volumes are."""
        self.asked.append(("list", None))
        found = _next(self.lists)
        return found if isinstance(found, Mapping) else dict.fromkeys(found, False)

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.asked)


@dataclass
class ScriptedKube:
    """Writes succeed unless `failures` holds something for that verb; reads answer from `objects` by (plural, name)."""

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    failures: dict[str, list[Exception | None]] = field(default_factory=dict)
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    answers: dict[str, Json] = field(default_factory=dict)
    """What a write answers, by verb; otherwise nothing."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        self._ask("get", resource, name, None)
        if (resource.plural, name) not in self.objects:
            raise NotFound(f"get {resource} {name}: not found", status=404)
        return self.objects[resource.plural, name]

    async def list_page(self, resource: Resource, **_: Any) -> Page:
        self._ask("list", resource, "", None)
        return Page([obj for (plural, _name), obj in self.objects.items() if plural == resource.plural], "1", "")

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        self._ask("create", resource, str(body["metadata"].get("name") or ""), dict(body))
        return dict(body)

    async def replace(
        self,
        resource: Resource,
        body: Mapping[str, Any] | bytes,
        *,
        name: str,
        namespace: str = "",
        subresource: str = "",
        is_current: Callable[[], bool] = always,
    ) -> Json:
        self._ask("replace", resource, name, body)
        return self.answers.get("replace", {})

    async def patch(
        self, resource: Resource, name: str, patch: Any, *, content_type: str, namespace: str = "", subresource: str = ""
    ) -> Json:
        self._ask("patch", resource, name, patch)
        return {}

    async def delete(self, resource: Resource, name: str, *, namespace: str = "", uid: str = "", **_: Any) -> None:
        self._ask("delete", resource, name, uid)

    async def resource_for(self, api_version: str, kind: str) -> Resource:
        group, _, version = api_version.rpartition("/")
        return Resource(group, version, f"{kind.lower()}s", kind, True)

    def wrote(self, verb: str) -> list[Any]:
        """The bodies of all requests of that verb."""
        return [body for asked, _, _, body in self.asked if asked == verb]

    def _ask(self, verb: str, resource: Resource, name: str, body: Any) -> None:
        self.asked.append((verb, resource.plural, name, body))
        if self.failures.get(verb):
            error = self.failures[verb].pop(0)
            if error is not None:
                raise error


@dataclass
class Told:
    """A recorder that remembers."""

    events: list[tuple[str, str, str, str]] = field(default_factory=list)

    def record(self, ref: ObjectRef, type_: str, reason: str, message: str, *, once: str = "") -> None:
        self.events.append((ref.name, type_, reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, _, reason, _ in self.events]


def tools(kube: Any = None, driver: Any = None, **changes: Any) -> Tools:
    """What a room is handed: scripted doors, a clock that stands still, unless the test has its own."""
    metrics = changes.setdefault("metrics", Metrics("test"))
    decisions = changes.pop("decisions", Decisions())
    usual = {
        "recorder": Told(),
        "health": Health(),
        "retry": Backoff(1.0, 300.0),
        "clock": lambda: 0.0,
        "wall": lambda: 0.0,
        "rng": lambda: 0.5,
    }
    given = {**usual, **changes}
    given.setdefault("narrator", Narrator(decisions, metrics, given["wall"]))
    losses = given.setdefault("losses", Losses(given["retry"]))
    careful = CarefulDriver(driver or ScriptedDriver(), losses, clock=given["clock"])
    return Tools(kube=kube or ScriptedKube(), driver=careful, **given)


def _next(answers: list[Any]) -> Any:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, Exception):
        raise answer
    return answer
