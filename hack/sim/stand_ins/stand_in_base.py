"""What every stand-in has: caches to read, and loops that changes wake."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from sidecar.engine.backoff import Backoff
from sidecar.engine.loop import Loop
from sidecar.kube.api import CLAIMS, MERGE_PATCH, PODS, VOLUMES, Change, KubeApi, Resource
from sidecar.kube.errors import ApiError, Conflict, Invalid, NotFound
from sidecar.kube.reflector import Reflector
from sidecar.kube.store import Store
from sidecar.model import names
from sidecar.model.objects import Json

_RETRY: Final = Backoff(0.05, 5.0)

Keys = Callable[[Change[Json]], Iterable[str]]


def claims_of(pod: Json) -> list[str]:
    """`namespace/name` of every claim the pod uses, also of those that are made for it."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append(f"{namespace}/{volume['persistentVolumeClaim']['claimName']}")
        elif volume.get("ephemeral"):
            found.append(f"{namespace}/{name}-{volume['name']}")
    return found


def is_for(pod: Json, claim: Json) -> bool:
    """The claim of a generic ephemeral volume counts only for the pod that owns it, and not for the next one of its name."""
    name = claim["metadata"]["name"]
    asked = any(
        volume.get("ephemeral") and name == f"{pod['metadata']['name']}-{volume['name']}" for volume in pod["spec"].get("volumes") or ()
    )
    owners = claim["metadata"].get("ownerReferences") or ()
    return not asked or any(owner.get("controller") and owner["uid"] == pod["metadata"]["uid"] for owner in owners)


def owners_of(obj: Json, kind: str) -> list[str]:
    """`namespace/name` of what controls it, if that is of this kind."""
    meta = obj["metadata"]
    owners = meta.get("ownerReferences") or ()
    return [f"{meta['namespace']}/{owner['name']}" for owner in owners if owner.get("controller") and owner["kind"] == kind]


def claim_uid(volume: Json) -> list[str]:
    """The claim that the volume is for."""
    uid = (volume["spec"].get("claimRef") or {}).get("uid")
    return [uid] if uid else []


def class_name(claim: Json) -> str:
    """The name of the class; the old annotation wins, as everywhere in Kubernetes."""
    notes = claim["metadata"].get("annotations") or {}
    return str(notes.get(names.STORAGE_CLASS_BETA) or claim["spec"].get("storageClassName") or "")


def sides(change: Change[Json]) -> list[Json]:
    """The object before and after the change, as far as it exists."""
    return [obj for obj in (change.old, change.new) if obj is not None]


_INDEXES: Final[dict[Resource, dict[str, Callable[[Json], Iterable[str]]]]] = {
    CLAIMS: {"uid": lambda claim: (claim["metadata"]["uid"],), "volume": lambda claim: (claim["spec"].get("volumeName", ""),)},
    VOLUMES: {"claim": claim_uid},
    PODS: {"claim": claims_of, "stateful set": lambda pod: owners_of(pod, "StatefulSet")},
}


class StandInBase:
    """The caches that stand-ins share, and their loops. Caches must be asked for before `run`."""

    def __init__(self, api: KubeApi, *, clock: Callable[[], float], rng: random.Random) -> None:
        self.api = api
        self.rng = rng
        self.clock = clock
        self._caches: dict[Resource, Store[Json]] = {}
        self._reflectors: list[Reflector[Json]] = []
        self._wakes: dict[Resource, list[Callable[[Change[Json]], None]]] = {}
        self._loops: list[Loop[str]] = []

    def cache(self, resource: Resource) -> Store[Json]:
        if resource not in self._caches:
            store = self._caches[resource] = Store(_INDEXES.get(resource, {}))

            def changed(change: Change[Json]) -> None:
                for wake in self._wakes.get(resource, ()):
                    wake(change)

            options: dict[str, Any] = {"store": store, "on_change": changed, "clock": self.clock, "rng": self.rng.random}
            self._reflectors.append(Reflector(self.api, resource, project=lambda obj: obj, **options))
        return self._caches[resource]

    def wake(self, loop: Loop[str], resource: Resource, keys: Keys) -> None:
        """A change of that resource wakes these keys of the loop."""

        def changed(change: Change[Json]) -> None:
            for key in keys(change):
                loop.add(key)

        self.cache(resource)
        self._wakes.setdefault(resource, []).append(changed)

    def loop(self, name: str, act: Callable[[str], Awaitable[float | None]]) -> Loop[str]:
        """A loop that calls `act` for each key; `act` says when to look again.

        A write that came too late is dropped, because the watch brings the news. Any other error is tried again.
        """

        async def handle(key: str) -> float | None:
            try:
                return await act(key)
            except (Conflict, NotFound, Invalid):
                return None
            except ApiError:
                return self.clock() + _RETRY.delay(loop.attempts.next(key))

        loop: Loop[str] = Loop(name, handle, workers=50, deadline=120.0, backoff=_RETRY, clock=self.clock)
        self._loops.append(loop)
        return loop

    async def run(self, *loops: Loop[str]) -> None:
        """Runs these loops, or all that were made."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())
            for reflector in self._reflectors:
                await reflector.wait_synced()
            for loop in loops or self._loops:
                group.create_task(loop.run())

    async def patch(self, resource: Resource, obj: Json, patch: Json, **options: Any) -> Json:
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        return await self.api.patch(resource, meta["name"], patch, content_type=MERGE_PATCH, namespace=namespace, **options)
