"""A cluster whose volumes have labels, and a reflector that watches them by these. On virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

from hack.sim.clock import run_virtual
from hack.sim.cluster import InProcessApi
from sidecar.kube.api import MERGE_PATCH, VOLUMES, Change, KubeApi
from sidecar.kube.errors import NotFound
from sidecar.kube.reflector import Reflector
from sidecar.kube.reflector_state import ReflectorState
from sidecar.kube.store import Store
from sidecar.model.objects import Json
from tests.contract.objects import volume
from tests.harness.held_watches import Api, a_cluster, now

LABEL = "example.com/node"
OWN, NONE = f"{LABEL} in (n1,several)", f"!{LABEL}"
MINE, OTHER = "n1", "n2"
HELD = {"mine", "shared", "plain"}
VOLUMES_OF_ALL = (("mine", MINE), ("shared", "several"), ("plain", None), ("theirs", OTHER, "foreign"))


class People:
    """A cluster that people change, and the client of a reflector."""

    def __init__(self) -> None:
        self.cluster = a_cluster()
        self.people = InProcessApi(self.cluster)
        self.api = Api(self.cluster)
        self.changes: list[tuple[str, bool]] = []
        """Which object, and whether it is there."""
        self.states: list[ReflectorState] = []

    async def make(self, name: str, label: str | None, handle: str = "handle") -> None:
        body = volume(name, handle=handle)
        body["metadata"]["labels"] = {} if label is None else {LABEL: label}
        await self.people.create(VOLUMES, body)

    async def label(self, name: str, value: str | None, note: str | None = None) -> None:
        meta = {"labels": {LABEL: value}} | ({} if note is None else {"annotations": {"n": note}})
        await self.people.patch(VOLUMES, name, {"metadata": meta}, content_type=MERGE_PATCH)

    async def edit(self, name: str, note: str) -> None:
        await self.people.patch(VOLUMES, name, {"metadata": {"annotations": {"n": note}}}, content_type=MERGE_PATCH)

    async def delete(self, name: str) -> None:
        await self.people.delete(VOLUMES, name)
        try:
            await self.people.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        except NotFound:
            pass


class Scene(People):
    """With one reflector that keeps the volumes whose handle does not begin with `foreign`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.reflector: Reflector[str] = Reflector(
            cast(KubeApi, self.api),
            VOLUMES,
            **{
                "watch_selectors": (OWN, NONE),
                "project": self._project,
                "store": Store[str](),
                "on_change": self._note,
                "on_state": self.states.append,
                "clock": now,
                "rng": random.Random(1).random,
                **options,
            },
        )

    def _project(self, obj: Json) -> str | None:
        handle = obj["spec"]["csi"]["volumeHandle"]
        return None if handle.startswith("foreign") else f"{obj['metadata']['uid']} {obj['metadata'].get('annotations', {}).get('n', '')}"

    def _note(self, change: Change[str]) -> None:
        self.changes.append((change.key, change.new is not None))

    @property
    def held(self) -> set[str]:
        return set(self.reflector.store.keys())


def played(
    scene_of: Callable[[], Any], story: Callable[[Any], Awaitable[None]], volumes: Any = VOLUMES_OF_ALL, *, settled: float = 1.0
) -> Any:
    """The scene at its end, after a story that begins when the reflector has run for so long."""
    scenes: list[Any] = []

    async def main() -> None:
        scene = scene_of()
        scenes.append(scene)
        for each in volumes:
            await scene.make(*each)
        running = asyncio.create_task(scene.reflector.run())
        try:
            await asyncio.sleep(settled)
            await story(scene)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert not +Counter(scene.api.open), "a reflector that ends closes its watches"

    run_virtual(main())
    return scenes[0]
