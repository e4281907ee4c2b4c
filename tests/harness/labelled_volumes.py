"""A cluster whose volumes have labels, and one reflector that watches them by these."""

import random
from typing import Any, cast

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


class Scene:
    """A cluster that people change, and one reflector that keeps the volumes whose handle does not begin with `foreign`."""

    def __init__(self, **options: Any) -> None:
        self.cluster = a_cluster()
        self.people = InProcessApi(self.cluster)
        self.api = Api(self.cluster)
        self.changes: list[tuple[str, bool]] = []
        """Key, and whether it is there."""
        self.states: list[ReflectorState] = []
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

    async def make(self, name: str, label: str | None, handle: str = "handle") -> None:
        body = volume(name, handle=handle)
        if label is not None:
            body["metadata"]["labels"] = {LABEL: label}
        await self.people.create(VOLUMES, body)

    async def label(self, name: str, value: str | None) -> None:
        await self.people.patch(VOLUMES, name, {"metadata": {"labels": {LABEL: value}}}, content_type=MERGE_PATCH)

    async def edit(self, name: str, note: str) -> None:
        await self.people.patch(VOLUMES, name, {"metadata": {"annotations": {"n": note}}}, content_type=MERGE_PATCH)

    async def delete(self, name: str) -> None:
        await self.people.delete(VOLUMES, name)
        try:
            await self.people.patch(VOLUMES, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        except NotFound:
            pass
