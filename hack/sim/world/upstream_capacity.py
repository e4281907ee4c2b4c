"""How upstream publishes free space: one object for each late-binding class, which it knows by its labels and only through its watch."""

import asyncio
import copy
from typing import Final

from hack.sim.world.upstream_parts import Cache, Queue
from sidecar.csi.api import CapacityQuery, Driver
from sidecar.csi.outcome import DriverError
from sidecar.kube.api import CAPACITIES, KubeApi
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Json
from sidecar.model.quantity import format_bytes, parse_bytes

_POLL: Final = 60.0
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 300.0


class Capacity:
    """An object that it has just created is not its own before the watch shows it, so it may make a second one, and deletes that again."""

    def __init__(self, kube: KubeApi, driver: Driver, classes: Cache, group: asyncio.TaskGroup, *, node: str, namespace: str) -> None:
        self._kube = kube
        self._driver = driver
        self._classes = classes
        self._namespace = namespace
        self._labels = {names.CAPACITY_DRIVER_LABEL: driver.info.name, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(node)}
        self._known: dict[str, Json] = {}
        """By class."""
        self._figures = Queue(self._publish, group, start=_FIRST_RETRY, cap=_LAST_RETRY)
        self._obsolete = Queue(self._remove, group, start=_FIRST_RETRY, cap=_LAST_RETRY)
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        self.objects = Cache(kube, CAPACITIES, self._seen, namespace=namespace, label_selector=selector)

    async def poll(self) -> None:
        while True:
            self.renew_all()
            for obj in list(self.objects.items.values()):
                self._seen(None, obj)
            await asyncio.sleep(_POLL)

    def renew_all(self) -> None:
        for name in list(self._classes.items):
            self.renew(name)

    def renew(self, class_name: str) -> None:
        if self._is_wanted(class_name):
            self._figures.add(class_name)

    def class_seen(self, old: Json | None, new: Json | None) -> None:
        """A class that is gone, or binds at once now, has no figure any more."""
        name = (new or old or {})["metadata"]["name"]
        if self._is_wanted(name):
            self._figures.add(name)
        elif known := self._known.pop(name, None):
            self._obsolete.add(known["metadata"]["name"])

    def _is_wanted(self, class_name: str) -> bool:
        class_ = self._classes.items.get(class_name)
        return class_ is not None and class_["provisioner"] == self._driver.info.name and class_.get("volumeBindingMode") != IMMEDIATE

    def _seen(self, old: Json | None, new: Json | None) -> None:
        """It deletes its own objects that stand for nothing, or for what another one stands for already."""
        if new is None:
            self._gone(old)
            return
        name, known = new["storageClassName"], self._known.get(new["storageClassName"])
        here = (new.get("nodeTopology") or {}).get("matchLabels") == self._driver.info.segment.labels()
        if here and self._is_wanted(name) and (known is None or known["metadata"]["uid"] == new["metadata"]["uid"]):
            self._known[name] = new
        elif self._classes.synced.is_set():
            self._obsolete.add(new["metadata"]["name"])

    def _gone(self, old: Json | None) -> None:
        if old is None:
            return
        name = old["storageClassName"]
        known = self._known.get(name)
        if known is not None and known["metadata"]["uid"] == old["metadata"]["uid"]:
            del self._known[name]
            self.renew(name)

    async def _publish(self, class_name: str) -> bool:
        class_ = self._classes.items.get(class_name)
        if class_ is None or not self._is_wanted(class_name):
            return False
        try:
            answer = await self._driver.get_capacity(CapacityQuery(class_.get("parameters") or {}, self._driver.info.segment))
        except DriverError:
            return True
        figures = {"capacity": format_bytes(answer.available)}
        if answer.maximum is not None:
            figures["maximumVolumeSize"] = format_bytes(answer.maximum)
        try:
            await self._write(class_name, figures)
        except ApiError:
            return True
        return False

    async def _write(self, class_name: str, figures: Json) -> None:
        known = self._known.get(class_name)
        if known is None:
            meta = {"generateName": names.CAPACITY_NAME_PREFIX, "namespace": self._namespace, "labels": self._labels}
            place = {"matchLabels": self._driver.info.segment.labels()}
            body = {"metadata": meta, "storageClassName": class_name, "nodeTopology": place, **figures}
            await self._kube.create(CAPACITIES, body, namespace=self._namespace)
        elif any(parse_bytes(known.get(key, -1)) != parse_bytes(value) for key, value in figures.items()):
            body = {**copy.deepcopy(known), **figures}
            await self._kube.replace(CAPACITIES, body, name=known["metadata"]["name"], namespace=self._namespace)

    async def _remove(self, name: str) -> bool:
        if all(item["metadata"]["name"] != name for item in self.objects.items.values()):
            return False
        try:
            await self._kube.delete(CAPACITIES, name, namespace=self._namespace)
        except NotFound:
            return False
        except ApiError:
            return True
        return False
