"""What a control plane does about nodes that say nothing: the node lifecycle controller, the collector of pods on nodes that are out of
service, and the attach-detach controller with an external attacher.

A node whose Lease has not changed for 50 s is not known to be Ready; pods on it are deleted 300 s later, and stay as objects, for their
kubelet does not answer. An attachment is made for a pod that has a node, and deleted once the pod is gone and its kubelet has unmounted; of
a node that is not Ready after six minutes, or at once when it is out of service. One that somebody else deletes is noticed within 60 s. Not
here: zones, rates, other tolerations than that of out-of-service, in-tree volumes.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from hack.sim.cluster import InProcessApi
from hack.sim.stand_ins.stand_in_base import claims_of, leaves
from sidecar.failover.look_io import attachment_name
from sidecar.kube.api import ATTACHMENTS, CLAIMS, LEASES, MERGE_PATCH, NODES, PODS, VOLUMES
from sidecar.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from sidecar.model.objects import Json

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_OURS: Final = (_UNREACHABLE, "node.kubernetes.io/not-ready")
_GRACE: Final = 50.0
_LOOKS: Final = 5.0
_TOLERATED: Final = 300.0
_FORCED: Final = 360.0
_SYNC: Final = 60.0
_FINALIZER: Final = "external-attacher/csi"


def is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def taint(node: Json, key: str) -> Json | None:
    return next((each for each in (node.get("spec") or {}).get("taints") or () if each["key"] == key), None)


class NodeLifecycle:
    """`run` is a task. It looks at the store as it is: no cache of its own is late."""

    def __init__(self, api: InProcessApi, *, clock: Callable[[], float], nodes: Iterable[str]) -> None:
        self._api, self._store, self._clock, self._nodes = api, api.cluster.store, clock, [*nodes]
        self._seen: dict[str, tuple[str, float]] = {}
        self._lost_since: dict[str, float] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOKS)
            for name in self._nodes:
                with suppress(ApiError):
                    await self._look_at(name)

    async def _look_at(self, name: str) -> None:
        node, lease, now = self._store.find(NODES, name), self._store.find(LEASES, name, "kube-node-lease"), self._clock()
        if node is None:
            return
        sign = str(((lease or {}).get("spec") or {}).get("renewTime"))
        if self._seen.get(name, ("", 0.0))[0] != sign:
            self._seen[name] = sign, now
        silent, ready = now - self._seen[name][1] >= _GRACE, is_ready(node)
        if silent and ready:
            others = [each for each in node["status"]["conditions"] if each["type"] != "Ready"]
            unknown = {"type": "Ready", "status": "Unknown", "lastTransitionTime": self._api.cluster.now()}
            status = {"status": {"conditions": [*others, unknown]}}
            await self._api.patch(NODES, name, status, content_type=MERGE_PATCH, subresource="status")
            node = self._store.find(NODES, name) or node
            ready = False
        taints = (node.get("spec") or {}).get("taints") or []
        wanted = [each for each in taints if each["key"] not in _OURS]
        if not ready:
            wanted += [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self._lost_since[name] = now if ready else self._lost_since.get(name, now)
        if wanted != taints:
            await self._api.patch(NODES, name, {"spec": {"taints": wanted}}, content_type=MERGE_PATCH)
        out, goes = taint(node, OUT_OF_SERVICE) is not None, now - self._lost_since[name] >= _TOLERATED
        for pod in [pod for pod in self._store.all_of(PODS) if pod["spec"].get("nodeName") == name and (out or goes)]:
            meta, grace = pod["metadata"], 0 if leaves(pod) else None
            if not leaves(pod) or (out and not ready):
                with suppress(NotFound, Conflict):
                    await self._api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace_period_seconds=grace)


class AttachDetach:
    """`run` is a task. `in_use`: whether a node's kubelet says that it has a volume mounted. `stuck`: nobody detaches meanwhile."""

    def __init__(
        self, api: InProcessApi, driver: str, *, clock: Callable[[], float], dice: random.Random, in_use: Callable[[str, str], bool]
    ) -> None:
        self._api, self._driver, self._store, self._clock, self._dice = api, driver, api.cluster.store, clock, dice
        self._in_use, self.stuck = in_use, False
        self._attached: dict[tuple[str, str], str] = {}  # what it believes: by volume and node, the handle
        self._unwanted: dict[tuple[str, str], float] = {}
        self._ending, self._synced = dict[str, float](), 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            with suppress(ApiError):
                await self._turn()
            with suppress(ApiError):
                await self._attach_and_detach()

    def wanted(self) -> dict[tuple[str, str], str]:
        found = {}
        for pod in self._store.all_of(PODS):
            if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for name in claims_of(pod):
                claim = self._store.find(CLAIMS, name.partition("/")[2], name.partition("/")[0])
                volume = self._store.find(VOLUMES, (claim or {"spec": {}})["spec"].get("volumeName") or "")
                if volume is not None and (volume["spec"].get("csi") or {}).get("driver") == self._driver:
                    found[volume["metadata"]["name"], pod["spec"]["nodeName"]] = volume["spec"]["csi"]["volumeHandle"]
        return found

    async def _turn(self) -> None:
        wanted, now = self.wanted(), self._clock()
        if now - self._synced >= _SYNC:
            self._synced = now
            for key, handle in list(self._attached.items()):
                if self._store.find(ATTACHMENTS, attachment_name(handle, self._driver, key[1])) is None:
                    del self._attached[key]
        self._unwanted = {key: self._unwanted.get(key, now) for key in self._attached if key not in wanted}
        for key, since in list(self._unwanted.items()):
            await self._detach(key, now - since)
        for key, handle in wanted.items():
            if any(volume == key[0] for volume, _ in self._attached):
                continue  # here already, or still elsewhere
            name = attachment_name(handle, self._driver, key[1])
            spec = {"attacher": self._driver, "nodeName": key[1], "source": {"persistentVolumeName": key[0]}}
            with suppress(AlreadyExists):
                await self._api.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
            if not leaves(self._store.find(ATTACHMENTS, name)):
                self._attached[key] = handle

    async def _detach(self, key: tuple[str, str], seconds: float) -> None:
        node, name = self._store.find(NODES, key[1]) or {}, attachment_name(self._attached[key], self._driver, key[1])
        is_lost, out = not is_ready(node), taint(node, OUT_OF_SERVICE) is not None
        if (self._in_use(key[1], self._attached[key]) or is_lost) and not out and not (is_lost and seconds >= _FORCED):
            return
        found = self._store.find(ATTACHMENTS, name)
        if found is None:
            del self._attached[key]
        elif not leaves(found):
            await self._api.delete(ATTACHMENTS, name)

    async def _attach_and_detach(self) -> None:
        """As the external attacher, which takes a moment."""
        for each in list(self._store.all_of(ATTACHMENTS)):
            name, now = each["metadata"]["name"], self._clock()
            if leaves(each):
                if now >= self._ending.setdefault(name, now + self._dice.uniform(0.0, 3.0)) and not self.stuck:
                    del self._ending[name]
                    await self._api.patch(ATTACHMENTS, name, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            elif not (each.get("status") or {}).get("attached"):
                await self._api.patch(ATTACHMENTS, name, {"metadata": {"finalizers": [_FINALIZER]}}, content_type=MERGE_PATCH)
                status = {"status": {"attached": True}}
                await self._api.patch(ATTACHMENTS, name, status, content_type=MERGE_PATCH, subresource="status")
