"""With `--guest-drain`: drains the Kubernetes node in a virtual machine of this node before the machine is moved. Facts of KubeVirt's API.

A VirtualMachineInstance with the eviction strategy External is left to somebody else when its node is drained: the eviction of its pod is
refused, and `status.evacuationNodeName` says that it has to go. One whose annotation names a Secret with its guest's kubeconfig is ours:
its guest's node is cordoned and drained, for ten minutes at most, then the instance is deleted, and its owner makes it again elsewhere.

What is noted stands where it outlives us: the beginning on the instance, our cordon on the guest's Node.
"""

import asyncio
import binascii
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sidecar.drain.maintenance.objects import Maintenance, Runner, Selector, Stage, effective
from sidecar.drain.maintenance.plan import END, Draining, due, treatments
from sidecar.drain.settings import Settings
from sidecar.drain.words import Intent
from sidecar.errors import Fatal
from sidecar.eviction.attempt_io import LONGEST_PASS, Evictor
from sidecar.eviction.rules import May
from sidecar.kube.api import INSTANCES, MERGE_PATCH, NODES, PODS, SECRETS, KubeApi, find, records
from sidecar.kube.errors import ApiError
from sidecar.kube.events.correlator import ObjectRef
from sidecar.model import names, timestamps
from sidecar.model.objects import Json
from sidecar.tools import Tools

log = logging.getLogger(__name__)

MAY_TAKE: Final = 600.0  # seconds for one guest: nothing in it may keep the node under it from being drained for ever
PASS: Final = 20.0
_NODE: Final = "kubevirt.io/nodeName"
_KEYS: Final = ("value", "kubeconfig")
_MOST: Final = 50
_MOST_PODS: Final = 1000
_AT_ONCE: Final = 8  # a tenant's server that does not answer keeps nobody else's guest waiting for long


class Guest(KubeApi, Protocol):
    """The API server in a virtual machine."""

    async def aclose(self) -> None: ...


OpenGuest = Callable[[bytes], Awaitable[Guest]]  # by a kubeconfig that a tenant has written; raises Fatal for one that must not be used


@dataclass(frozen=True, slots=True)
class Instance:
    namespace: str
    name: str
    uid: str
    version: str
    deleting: bool
    evacuated: bool  # its node is drained, and somebody else than KubeVirt is to move it
    secret: str
    started: str  # when we began to drain its guest

    @classmethod
    def of(cls, obj: Json) -> "Instance":
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        notes = meta.get("annotations") or {}
        external = spec.get("evictionStrategy") == "External" and bool(status.get("evacuationNodeName"))
        secret, started = str(notes.get(names.GUEST_KUBECONFIG) or ""), str(notes.get(names.GUEST_DRAIN_STARTED) or "")
        deleting = bool(meta.get("deletionTimestamp"))
        return cls(meta["namespace"], meta["name"], meta["uid"], meta["resourceVersion"], deleting, external, secret, started)


class GuestDrains:
    """One per process. What it remembers it may forget."""

    def __init__(self, tools: Tools, settings: Settings, open_guest: OpenGuest) -> None:
        self._kube, self._clock, self._wall, self._rng = tools.kube, tools.clock, tools.wall, tools.rng
        self._recorder, self._settings, self._open = tools.recorder, settings, open_guest
        self._settled: set[str] = set()  # uids of instances whose guest was found, or put, as it should be
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.turn()
            await asyncio.sleep(PASS)

    async def turn(self) -> None:
        try:
            found = [one async for one in records(self._kube, INSTANCES, Instance.of, label_selector=f"{_NODE}={self._settings.node}")]
        except ApiError as error:
            log.info("Virtual machines of this node could not be looked at", extra={"fields": {"err": str(error)}})
            return
        self._settled &= {one.uid for one in found}
        ours = [one for one in found if one.secret and not one.deleting and not self._settings.dry_run]
        # Those whose time is over first: no guest of others keeps them waiting. Then those that have to go.
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def go_on(one: Instance) -> None:
            async with at_once:
                await self._go_on(one)

        await asyncio.gather(*map(go_on, sorted(ours, key=lambda one: (not one.evacuated, one.started or "~"))[:_MOST]))

    async def _go_on(self, one: Instance) -> None:
        try:
            if one.evacuated:
                return await self._drain(one)
            if one.started:
                await self._note_beginning(one, None)  # nobody wants it away any more: another evacuation begins anew
            if one.uid not in self._settled:
                await self._with_guest(one, self._uncordon)
                self._settled.add(one.uid)
        except Fatal as error:
            self._tell(one, f"its guest cannot be reached: {error}")
        except (ApiError, TimeoutError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Whatever a tenant's server answers: it is no matter of other guests, and the tenant learns no word of it.
            self._tell(one, f"its guest cannot be reached, or answers what makes no sense: {type(error).__name__}")

    async def _drain(self, one: Instance) -> None:
        """The deadline first: no error of the guest puts it off."""
        now, began = self._wall(), timestamps.to_seconds(one.started)
        if began is None or began > now:
            await self._note_beginning(one, timestamps.to_text(now))
            began = now
        self._settled.discard(one.uid)
        is_late = now - began >= MAY_TAKE
        if not is_late and not await self._with_guest(one, self._is_empty):
            return
        self._tell(one, "its guest has taken longer than ten minutes to be drained" if is_late else "its guest is drained")
        await self._kube.delete(INSTANCES, one.name, namespace=one.namespace, uid=one.uid, propagation="Foreground")

    async def _note_beginning(self, one: Instance, at: str | None) -> None:
        body = _noting({"uid": one.uid, "resourceVersion": one.version}, names.GUEST_DRAIN_STARTED, at)
        await self._kube.patch(INSTANCES, one.name, body, namespace=one.namespace, content_type=MERGE_PATCH)

    async def _with_guest(self, one: Instance, act: Callable[[Guest, Instance], Awaitable[bool]]) -> bool:
        secret = await self._kube.get(SECRETS, one.secret, namespace=one.namespace)
        text = next((data for key in _KEYS if (data := (secret.get("data") or {}).get(key))), "")
        try:
            content = b64decode(text, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise Fatal(f"Secret {one.secret} holds no kubeconfig") from error
        async with asyncio.timeout(LONGEST_PASS + 5):
            guest = await self._open(content)
            try:
                return await act(guest, one)
            finally:
                await guest.aclose()

    async def _is_empty(self, guest: Guest, one: Instance) -> bool:
        """Cordons the guest's node, and evicts for ten seconds at most; whether nothing is left. Where there is no node nothing is."""
        node = await find(guest, NODES, one.name)
        if node is None:
            return True
        notes = node["metadata"].get("annotations") or {}
        if names.GUEST_CORDONED not in notes or not node["spec"].get("unschedulable"):
            prior = notes.get(names.GUEST_CORDONED) or ("was cordoned" if node["spec"].get("unschedulable") else one.uid)
            body = _noting(node["metadata"], names.GUEST_CORDONED, prior)
            await guest.patch(NODES, one.name, body | {"spec": {"unschedulable": True}}, content_type=MERGE_PATCH)
        runners: list[Runner] = []
        async for runner in records(guest, PODS, Runner.of, field_selector=f"spec.nodeName={one.name}"):
            if len(runners) >= _MOST_PODS:
                raise Fatal(f"it says that more than {_MOST_PODS} pods run on its node")
            runners.append(runner)
        plan = Maintenance(one.name, one.uid, Stage.DRAIN, Intent.REBOOT, frozenset(), Selector(), effective(()))
        draining = Draining(plan, len(plan.plan), tuple(treatments(plan, runners, (), {})))
        left = due((draining,), END)
        evictor, ends = Evictor(guest, clock=self._clock, rng=self._rng), self._clock() + LONGEST_PASS
        for each in left:
            pod = each.runner.pod
            await asyncio.sleep(evictor.wait())
            if not pod.deleting_since and self._clock() < ends:
                await evictor.evict(May(pod.namespace, pod.name, pod.uid), why=f"the node under its node {one.name} is drained")
        return not left

    async def _uncordon(self, guest: Guest, one: Instance) -> bool:
        """It runs again, and nobody wants it away: as it was before us."""
        node = await find(guest, NODES, one.name)
        notes: Mapping[str, str] = (node["metadata"].get("annotations") or {}) if node is not None else {}
        if node is None or names.GUEST_CORDONED not in notes:
            return False
        spec = {} if notes[names.GUEST_CORDONED] == "was cordoned" else {"spec": {"unschedulable": None}}
        body = _noting(node["metadata"], names.GUEST_CORDONED, None)
        await guest.patch(NODES, one.name, body | spec, content_type=MERGE_PATCH)
        self._tell(one, "its guest is as it was before it was drained")
        return True

    def _tell(self, one: Instance, message: str) -> None:
        """Once each."""
        if len(self._told) > _MOST * 10:
            self._told.clear()
        if self._told.get(one.uid) != message:
            self._told[one.uid] = message
            ref = ObjectRef(INSTANCES.api_version, INSTANCES.kind, one.namespace, one.name, one.uid)
            self._recorder.record(ref, names.NORMAL, names.GUEST_DRAIN, f"{one.name}: {message}")


def _noting(meta: Mapping[str, object], key: str, value: str | None) -> Json:
    return {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "annotations": {key: value}}}
