"""A model of external-provisioner with `--node-deployment`, as far as worlds can tell it from our program. Written from what it does.

It races for Immediate claims with delays, looks for free space once before its bid, gives a claim back when its driver is full, and tries
again whatever else fails. What it has begun and not stored it remembers in this process and nowhere else: there is no journal, and SIGTERM
ends it at once. So it leaks a volume when it dies between the driver's work and the PersistentVolume and the claim is deleted; when the
driver fails finally for a volume that it has made; and when it stores a volume under a name that is still being deleted.

Left out: events, metrics, request limits and the number of workers, sources, topology that a class allows, Secrets' templates, migration.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from hack.sim.world.upstream_capacity import Capacity
from hack.sim.world.upstream_objects import request_for, secret_of, volume_of
from hack.sim.world.upstream_parts import Cache, Queue, key_of
from sidecar.csi.api import CapacityQuery, Driver
from sidecar.csi.outcome import Code, DriverError
from sidecar.kube.api import CLAIMS, CLASSES, SECRETS, STRATEGIC_MERGE_PATCH, VOLUMES, KubeApi
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, LATE, Json, claim_provisioner, selected_node
from sidecar.model.topology import accessible, terms_of
from sidecar.provisioning.requests.secrets import data_of

_RETRY: Final = {"start": 1.0, "cap": 300.0}
_UNSAVED: Final = {"start": 0.005, "cap": 1000.0}
_RESYNC: Final = 900.0
_SLOW: Final = 300.0
_BASE_DELAY: Final = 20.0
_MAX_DELAY: Final = 60.0
_TICK: Final = 0.2
_IN_BACKGROUND: Final = frozenset({Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE, Code.ABORTED})


class Upstream:
    """One process. `run` works until it is cancelled or killed."""

    def __init__(
        self,
        kube: KubeApi,
        driver: Driver,
        *,
        node: str,
        namespace: str,
        volume_name: Callable[[str], str],
        clock: Callable[[], float],
        wall: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        """`volume_name`: as its flags call the volume of the claim with that uid."""
        self._kube = kube
        self._driver = driver
        self._node = node
        self._namespace = namespace
        self._volume_name = volume_name
        self._clock = clock
        self._chance = chance
        self._identity = f"{wall() * 1000:.0f}-{chance() * 10_000:.0f}-{driver.info.name}-{node}"
        self._in_progress: dict[str, Json] = {}
        """By uid: claims of which the driver may be at work, as they were."""
        self._slow: dict[str, tuple[float, str]] = {}
        """By uid of infeasible claims: until when they wait, and the class of which that was said."""
        self._tries: dict[str, int] = {}
        """By uid: how often this process has waited for its turn."""
        self._unsaved: dict[str, Json] = {}
        """PersistentVolumes that the API server has not taken, by name."""
        self._begun = False
        """Its caches are complete, and it works."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._claims_queue = Queue(self._sync_claim, group, **_RETRY)
            self._volumes_queue = Queue(self._sync_volume, group, **_RETRY)
            self._unsaved_queue = Queue(self._save_again, group, **_UNSAVED)
            self._claims = Cache(self._kube, CLAIMS, self._claim_seen)
            self._volumes = Cache(self._kube, VOLUMES, self._volume_seen)
            self._classes = Cache(self._kube, CLASSES, self._class_seen)
            self._capacity = Capacity(self._kube, self._driver, self._classes, group, node=self._node, namespace=self._namespace)
            caches = (self._claims, self._volumes, self._classes, self._capacity.objects)
            for cache in caches:
                group.create_task(cache.run(self._chance))
            for cache in caches:
                await cache.synced.wait()
            self._begun = True
            group.create_task(self._capacity.poll())
            while True:
                for claim in list(self._claims.items.values()):
                    self._claims_queue.add(claim["metadata"]["uid"])
                for name in list(self._volumes.items):
                    self._volumes_queue.add(name)
                await asyncio.sleep(_RESYNC)

    # --- what the watches bring -------------------------------------------------------------------------------------

    def _claim_seen(self, old: Json | None, new: Json | None) -> None:
        if new is None and old is not None:
            self._tries.pop(old["metadata"]["uid"], None)
        elif new is not None and self._begun:
            self._claims_queue.add(new["metadata"]["uid"])

    def _volume_seen(self, _: Json | None, new: Json | None) -> None:
        if new is not None and self._begun:
            self._volumes_queue.add(new["metadata"]["name"])

    def _class_seen(self, old: Json | None, new: Json | None) -> None:
        if self._begun:
            self._capacity.class_seen(old, new)

    # --- a claim ----------------------------------------------------------------------------------------------------

    async def _sync_claim(self, uid: str) -> bool:
        """Whether it is to be tried again."""
        claim = self._by_uid(uid) or self._in_progress.get(uid)
        if claim is None:
            return False
        if self._is_held_back(uid, claim):
            return True
        wanted = await self._should_provision(claim)
        if wanted is None:
            return True
        if not wanted:
            self._in_progress.pop(uid, None)
            return False
        return await self._provision(uid, claim)

    def _by_uid(self, uid: str) -> Json | None:
        return next((claim for claim in self._claims.items.values() if claim["metadata"]["uid"] == uid), None)

    def _is_held_back(self, uid: str, claim: Json) -> bool:
        until, class_uid = self._slow.get(uid, (0.0, ""))
        class_ = self._class_of(claim)
        if self._clock() < until and class_ is not None and class_["metadata"]["uid"] == class_uid:
            return True
        self._slow.pop(uid, None)
        return False

    async def _should_provision(self, claim: Json) -> bool | None:
        """None: that cannot be said now."""
        if claim["spec"].get("volumeName") or claim_provisioner(claim) != self._driver.info.name:
            return False
        if await self._is_ours(claim) is False:
            return False
        class_ = self._class_of(claim)
        if class_ is None:
            return None
        return class_.get("volumeBindingMode") != LATE or bool(selected_node(claim))

    async def _is_ours(self, claim: Json) -> bool | None:
        """Whether this node provisions the claim. It may bid on the way, and then the next event decides. None: something failed."""
        if selected := selected_node(claim):
            return selected == self._node
        class_ = self._class_of(claim)
        if class_ is None:
            return None
        if class_.get("volumeBindingMode") != IMMEDIATE:
            return False
        return False if await self._become_owner(claim, class_) else None

    async def _provision(self, uid: str, claim: Json) -> bool:
        class_ = self._class_of(claim)
        if f"pvc-{uid}" in self._volumes.items:
            return False
        if class_ is None:
            return True
        if class_["provisioner"] != self._driver.info.name:
            return False
        ours = await self._is_ours(claim)
        if not ours:
            return ours is None
        request = request_for(self._volume_name(claim["metadata"]["uid"]), claim, class_, self._driver.info)
        try:
            secrets = await self._secrets(secret_of(class_))
        except ApiError:
            return True
        try:
            created = await self._driver.create_volume(request, secrets=secrets)
        except DriverError as error:
            return await self._failed(uid, claim, class_, error)
        self._in_progress.pop(uid, None)
        await self._save(volume_of(claim, class_, request, created, driver=self._driver.info.name, identity=self._identity))
        return False

    async def _failed(self, uid: str, claim: Json, class_: Json, error: DriverError) -> bool:
        self._capacity.renew(class_["metadata"]["name"])
        if error.code in _IN_BACKGROUND:
            self._in_progress[uid] = claim
            return True
        self._in_progress.pop(uid, None)
        if error.code is Code.INVALID_ARGUMENT:
            self._slow.setdefault(uid, (self._clock() + _SLOW, class_["metadata"]["uid"]))
        if error.code is Code.RESOURCE_EXHAUSTED and selected_node(claim):
            return not await self._write_owner(claim, "")
        return True

    # --- the race ---------------------------------------------------------------------------------------------------

    async def _become_owner(self, claim: Json, class_: Json) -> bool:
        """Whether nothing failed; who has won is told by the watch."""
        uid = claim["metadata"]["uid"]
        while True:
            tries = self._tries.get(uid, 0)
            self._tries[uid] = tries + 1
            delay = max(min(_BASE_DELAY * 2.0 ** min(tries, 10), _MAX_DELAY) - _BASE_DELAY * self._chance(), 0.0)
            current = await self._wait(uid, self._clock() + delay)
            if current is None:
                return False
            if selected_node(current):
                self._tries.pop(uid, None)
                return True
            if not await self._has_room(current, class_):
                return True
            try:
                await self._put_owner(current, self._node)
            except Conflict:
                continue
            except ApiError:
                return False
            self._tries.pop(uid, None)
            return True

    async def _wait(self, uid: str, until: float) -> Json | None:
        """The claim as it is at that time, or as soon as it is somebody's. None: it is gone."""
        while (claim := self._by_uid(uid)) is not None:
            if selected_node(claim) or self._clock() >= until:
                return claim
            await asyncio.sleep(max(min(_TICK, until - self._clock()), 0.001))
        return None

    async def _has_room(self, claim: Json, class_: Json) -> bool:
        """An error counts as yes, so that somebody owns the claim and its user is told."""
        request = request_for(self._volume_name(claim["metadata"]["uid"]), claim, class_, self._driver.info)
        try:
            await self._secrets(secret_of(class_))
            query = CapacityQuery(request.parameters, self._driver.info.segment, request.capabilities)
            return (await self._driver.get_capacity(query)).available >= request.required_bytes
        except (ApiError, DriverError):
            return True

    async def _write_owner(self, claim: Json, node: str) -> bool:
        try:
            await self._put_owner(claim, node)
        except ApiError:
            return False
        return True

    async def _put_owner(self, claim: Json, node: str) -> None:
        """All of the object, as the cache has it: the API server refuses it if that is old."""
        body = copy.deepcopy(claim)
        notes = body["metadata"].setdefault("annotations", {})
        if notes.get(names.SELECTED_NODE, "") == node:
            return
        if node:
            notes[names.SELECTED_NODE] = node
        else:
            del notes[names.SELECTED_NODE]
        meta = claim["metadata"]
        stored = await self._kube.replace(CLAIMS, body, name=meta["name"], namespace=meta["namespace"])
        if not node and key_of(stored) in self._claims.items:
            self._claims.items[key_of(stored)] = stored

    # --- its object ---------------------------------------------------------------------------------------------------

    async def _save(self, volume: Json) -> None:
        if not await self._is_saved(volume):
            self._unsaved[volume["metadata"]["name"]] = volume
            self._unsaved_queue.add(volume["metadata"]["name"])
        self._capacity.renew_all()

    async def _save_again(self, name: str) -> bool:
        volume = self._unsaved.get(name)
        if volume is not None and not await self._is_saved(volume):
            return True
        self._unsaved.pop(name, None)
        return False

    async def _is_saved(self, volume: Json) -> bool:
        """Also where there is one of that name, whatever that says."""
        try:
            await self._kube.create(VOLUMES, volume)
        except AlreadyExists:
            return True
        except ApiError:
            return False
        return True

    # --- a PersistentVolume -----------------------------------------------------------------------------------------

    async def _sync_volume(self, name: str) -> bool:
        volume = self._volumes.items.get(name)
        if volume is None or not self._is_responsible(volume):
            return False
        meta, spec = volume["metadata"], volume["spec"]
        phase, finalizers = (volume.get("status") or {}).get("phase"), meta.get("finalizers") or ()
        deletes, has_ours = spec.get("persistentVolumeReclaimPolicy") == "Delete", names.VOLUME_FINALIZER in finalizers
        if deletes and not meta.get("deletionTimestamp") and phase == "Bound" and not has_ours:
            return not await self._succeeds(self._patch_finalizers(volume, {"finalizers": [names.VOLUME_FINALIZER]}))
        if not deletes and has_ours and not await self._succeeds(self._take_off(volume)):
            return True
        if not deletes or phase != "Released" or (meta.get("deletionTimestamp") and not has_ours):
            return False
        required = (spec.get("nodeAffinity") or {}).get("required")
        if required is not None and not accessible(terms_of(required), self._driver.info.segment):
            return False
        return not await self._delete(name, volume)

    def _is_responsible(self, volume: Json) -> bool:
        csi = volume["spec"].get("csi") or {}
        notes = volume["metadata"].get("annotations") or {}
        return str(notes.get(names.PROVISIONED_BY, csi.get("driver", ""))) == self._driver.info.name and bool(csi)

    async def _delete(self, name: str, volume: Json) -> bool:
        notes = volume["metadata"].get("annotations") or {}
        where = (notes.get(names.DELETION_SECRET_NAMESPACE, ""), notes.get(names.DELETION_SECRET_NAME, ""))
        try:
            secrets = await self._secrets(where)
        except ApiError:
            secrets = {}
        try:
            await self._driver.delete_volume(volume["spec"]["csi"]["volumeHandle"], secrets=secrets)
            await self._kube.delete(VOLUMES, name)
        except (DriverError, ApiError):
            return False
        self._capacity.renew_all()
        current = self._volumes.items.get(name)
        if current is None:
            return True
        try:
            await self._take_off(current)
        except NotFound:
            return True
        except ApiError:
            return False
        return True

    async def _take_off(self, volume: Json) -> None:
        await self._patch_finalizers(volume, {"$deleteFromPrimitiveList/finalizers": [names.VOLUME_FINALIZER]})

    async def _patch_finalizers(self, volume: Json, change: Mapping[str, object]) -> None:
        meta = volume["metadata"]
        await self._kube.patch(VOLUMES, meta["name"], {"metadata": {"uid": meta["uid"], **change}}, content_type=STRATEGIC_MERGE_PATCH)

    async def _succeeds(self, doing: Awaitable[None]) -> bool:
        try:
            await doing
        except ApiError:
            return False
        return True

    # --- look-ups ---------------------------------------------------------------------------------------------------

    def _class_of(self, claim: Json) -> Json | None:
        notes = claim["metadata"].get("annotations") or {}
        return self._classes.items.get(notes.get(names.STORAGE_CLASS_BETA) or claim["spec"].get("storageClassName") or "")

    async def _secrets(self, where: tuple[str, str]) -> Mapping[str, str]:
        namespace, name = where
        return data_of(await self._kube.get(SECRETS, name, namespace=namespace)) if name else {}
