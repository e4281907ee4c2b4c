"""The provisioning room between doors with a memory: an API server that keeps what is written, a driver that tells what it was given."""

import base64
import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.csi.api import CREATE_DELETE_VOLUME, NOTHING, CreatedVolume, CreateRequest
from sidecar.kube.api import Page, Resource
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.local.here import Here
from sidecar.model.objects import Claim, Volume
from tests.harness import samples
from tests.harness.doors import ScriptedDriver, ScriptedKube
from tests.harness.provisioning.bench import Bench
from tests.harness.provisioning.journal import JournalInMemory, with_journal

Json = dict[str, Any]
ABLE = (CREATE_DELETE_VOLUME, "CREATE_DELETE_SNAPSHOT", "CLONE_VOLUME", "MODIFY_VOLUME")
# The parameters of a class that name secrets, as upstream spells them.
KINDS = ["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand", "controller-modify"]
PREFIX = "csi.storage.k8s.io/"
DEFAULT_NAME, DEFAULT_NAMESPACE = f"{PREFIX}secret-name", f"{PREFIX}secret-namespace"
NAME, NAMESPACE = f"{PREFIX}provisioner-secret-name", f"{PREFIX}provisioner-secret-namespace"
OLD_NAME, OLD_NAMESPACE = "csiProvisionerSecretName", "csiProvisionerSecretNamespace"


class KeepingKube(ScriptedKube):
    """What is written can be read again. A name can be taken once, and an object is found in its own namespace only."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Json:
        found = await super().get(resource, name, namespace=namespace)
        if found["metadata"].get("namespace", "") != namespace:
            raise NotFound(f"get {resource} {namespace}/{name}: not found", status=404)
        return copy.deepcopy(found)

    async def list_page(self, resource: Resource, *, namespace: str = "", **_: Any) -> Page:
        self._ask("list", resource, "", None)
        items = [obj for (plural, _), obj in self.objects.items() if plural == resource.plural]
        return Page([obj for obj in items if namespace in ("", obj["metadata"].get("namespace", ""))], "1", "")

    async def create(self, resource: Resource, body: Mapping[str, Any], *, namespace: str = "") -> Json:
        await super().create(resource, body, namespace=namespace)
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise AlreadyExists("taken", status=409)
        self.objects[resource.plural, body["metadata"]["name"]] = copy.deepcopy(dict(body))
        return dict(body)

    async def replace(self, resource: Resource, body: Mapping[str, Any] | bytes, *, name: str, **rest: Any) -> Json:
        await super().replace(resource, body, name=name, **rest)
        obj: Json = json.loads(body) if isinstance(body, bytes) else dict(body)
        obj["metadata"]["resourceVersion"] = str(int(obj["metadata"].get("resourceVersion", 0)) + 1)
        self.objects[resource.plural, name] = obj
        return copy.deepcopy(obj)

    def wrote_volume(self) -> Json:
        """The one PersistentVolume that was stored."""
        (body,) = self.wrote("create")
        assert isinstance(body, dict)
        return body


@dataclass
class OpenDriver(ScriptedDriver):
    """Writes down the secrets of each call, and lets a test look around while it is at work."""

    given: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    own_handles: bool = False
    """Each name gets a volume of its own, and not the same one."""

    async def create_volume(self, request: CreateRequest, *, secrets: Mapping[str, str] = NOTHING) -> CreatedVolume:
        self.given.append(("create", dict(secrets)))
        self.meanwhile()
        made = await super().create_volume(request, secrets=secrets)
        return replace(made, volume_id=f"{made.volume_id}-{request.name}") if self.own_handles else made

    async def delete_volume(self, volume_id: str, *, secrets: Mapping[str, str] = NOTHING) -> None:
        self.given.append(("delete", dict(secrets)))
        self.meanwhile()
        await super().delete_volume(volume_id, secrets=secrets)


@dataclass
class Room(Bench):
    """A Bench on such doors, with a journal and with the command line's options in a test's hand."""

    driver: OpenDriver = field(default_factory=OpenDriver)
    kube: KeepingKube = field(default_factory=KeepingKube)
    options: dict[str, Any] = field(default_factory=dict)
    paper: JournalInMemory = field(default_factory=JournalInMemory)

    def __post_init__(self) -> None:
        super().__post_init__()
        with_journal(self, self.paper)

    def look_around(self) -> Here:
        return samples.here(self.driver.info, **self.options)

    def add(self, plural: str, *objects: Json) -> "Room":
        for obj in objects:
            self.kube.objects[plural, obj["metadata"]["name"]] = obj
        return self

    def show(self, obj: Json) -> "Room":
        """A claim, to the server and to the cache."""
        self.add("persistentvolumeclaims", obj)
        self.see(claim=Claim.of(obj, keep_whole=True))
        return self

    def delete_claim(self) -> None:
        self.kube.objects.pop(("persistentvolumeclaims", "fake-pvc"), None)
        self.forget_claim()

    def said(self) -> str:
        """The text of the last event."""
        return self.told.events[-1][3]

    def untouched(self) -> bool:
        """No driver was called for a volume, none may exist, and nobody remembers one."""
        called = self.driver.count("create") + self.driver.count("delete")
        return not called and self.table.in_progress() == 0 and not self.paper.lines


def room_for(claim: Json | None = None, *, parameters: Mapping[str, str] = NOTHING, **doors: Any) -> Room:
    """A claim that is selected for this node, and its class."""
    obj = samples.claim_json() if claim is None else claim
    obj["metadata"]["annotations"].setdefault("volume.kubernetes.io/selected-node", samples.NODE)
    room = Room(**doors).show(obj)
    room.see(class_=samples.class_(parameters=dict(parameters)))
    return room


def settle(room: Room, looks: int = 20) -> float | None:
    """Looks as often as the room says that it is to be done at once."""
    for _ in range(looks):
        until = room.claim()
        if until is None or until > room.now:
            return until
    raise AssertionError(f"it was looked at {looks} times without a pause")


def secret(name: str, namespace: str, /, **data: str) -> Json:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": encoded}


def provisioner(name: str = "a", namespace: str = "b") -> dict[str, str]:
    return {NAME: name, NAMESPACE: namespace}


def every_kind() -> dict[str, str]:
    """Parameters that give each kind of secret a reference of its own."""
    return {f"{PREFIX}{kind}-secret-{half}": f"{kind}-{half}" for kind in KINDS for half in ("name", "namespace")}


def able(**doors: Any) -> OpenDriver:
    """A driver that can do all that a claim may ask for, and says that it filled the volume."""
    return OpenDriver(samples.info(controller=ABLE), **({"creates": [CreatedVolume("test-volume-id", 100, has_source=True)]} | doors))


def released(obj: Json | None = None, *, parameters: dict[str, str] | None = None, **doors: Any) -> Room:
    """A volume that has been released, and the class it was made of unless `parameters` is None."""
    room = Room(**doors)
    if parameters is not None:
        room.see(class_=samples.class_(parameters=parameters))
    return show(room, obj or samples.volume_json())


def show(room: Room, obj: Json) -> Room:
    """A volume, to the server and to the cache."""
    room.add("persistentvolumes", obj)
    room.see(volume=Volume.of(obj))
    return room
