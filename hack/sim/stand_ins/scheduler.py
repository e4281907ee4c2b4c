"""The scheduler, as far as volumes decide: choose a node for the claims, wait for them, bind the pod; choose again when one is given back.

Published capacity counts for drivers whose CSIDriver says so, as with the real one, and so do taints, but for the one of a new node, which
no stand-in would take away. Not here: resources, affinity, scores.
"""

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Final

from hack.sim.stand_ins.binder import BOUND
from hack.sim.stand_ins.stand_in_base import StandInBase, claims_of, class_name, is_for, sides
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, CSI_DRIVERS, EVENTS, NODES, PODS, VOLUMES, Change
from sidecar.kube.store import by_name
from sidecar.model import names
from sidecar.model.nodes import Node, Pod
from sidecar.model.objects import LATE, Class, Json
from sidecar.model.quantity import parse_bytes
from sidecar.model.topology import Segment, accessible, allows, terms_of

NO_CLASS: Final[Json] = {"metadata": {"name": ""}}
_AFTER_ERROR: Final = Backoff(1.0, 10.0)
_NEW: Final = "node.kubernetes.io/not-ready"
NO_ROOM: Final = "did not have enough free storage"


class Scheduler:
    """`pods` is its loop."""

    def __init__(self, base: StandInBase) -> None:
        self._base = base
        self._pods, self._claims, self._volumes = base.cache(PODS), base.cache(CLAIMS), base.cache(VOLUMES)
        self._classes, self._nodes = base.cache(CLASSES), base.cache(NODES)
        self._capacities, self._drivers = base.cache(CAPACITIES), base.cache(CSI_DRIVERS)
        self._binding: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._errors: Attempts[str] = Attempts()
        self.pods = base.loop("scheduler", self._sync)
        base.wake(self.pods, PODS, lambda change: [change.key])
        base.wake(self.pods, CLAIMS, self._users)
        for resource in (CAPACITIES, NODES, VOLUMES, CLASSES, CSI_DRIVERS):
            base.wake(self.pods, resource, lambda _: self._waiting())

    def _users(self, change: Change[Json]) -> list[str]:
        return [by_name(pod) for claim in sides(change)[:1] for pod in self._pods.by_index("claim", by_name(claim))]

    def _waiting(self) -> list[str]:
        return [by_name(pod) for pod in self._pods.values() if not pod["spec"].get("nodeName")]

    async def _sync(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            self._forget(key)
            return None
        claims = [claim for name in claims_of(pod) if (claim := self._claims.get(name))]
        late = [claim for claim in claims if not _is_bound(claim)]
        if late and all(map(selected, late)) and not self._problem(pod, claims):
            self._binding.add(key)  # the real one also waits for the provisioner in the middle of binding
            return None
        if (until := self._pause(key, failed=bool(late))) is not None:
            return until
        await self._place(pod, claims, late)
        return None

    async def _place(self, pod: Json, claims: list[Json], late: list[Json]) -> None:
        if problem := self._problem(pod, claims):
            await self._report(pod, problem)
        elif node := await self._choose(pod, claims):
            for claim in late:
                await self._select(claim, node)
            if not late:
                await self._bind(pod, node)

    def _pause(self, key: str, *, failed: bool) -> float | None:
        """Seconds before the next attempt: 1, 2, 4, … The real one waits only after errors, such as a claim that was given back."""
        now = self._base.clock()
        if key in self._binding:
            self._binding.discard(key)
            if failed:
                self._not_before[key] = now + _AFTER_ERROR.delay(self._errors.next(key))
        until = self._not_before.get(key, now)
        return until if until > now else None

    def _forget(self, key: str) -> None:
        self._binding.discard(key)
        self._not_before.pop(key, None)
        self._errors.forget(key)

    def _problem(self, pod: Json, claims: list[Json]) -> str:
        """What keeps the pod from every node: something is wrong with its claims."""
        known = {by_name(claim) for claim in claims}
        for name in claims_of(pod):
            if name not in known:
                return f'persistentvolumeclaim "{name.rpartition("/")[2]}" not found'
        for claim in claims:
            if claim["metadata"].get("deletionTimestamp"):
                return f'persistentvolumeclaim "{claim["metadata"]["name"]}" is being deleted'
            if not is_for(pod, claim):
                return f"PVC {by_name(claim)} was not created for pod {by_name(pod)} (pod is not owner)"
            if not _is_bound(claim) and (self._classes.get(class_name(claim)) or {}).get("volumeBindingMode") != LATE:
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    async def _choose(self, pod: Json, claims: list[Json]) -> str:
        """Draws one of the nodes that fit. If none does, the answer is empty and the pod's status says why."""
        judged = {node["metadata"]["name"]: self._obstacle(node, pod, claims) for node in self._nodes.values()}
        fitting = sorted(name for name, obstacle in judged.items() if not obstacle)
        if fitting:
            return str(self._base.rng.choice(fitting))
        reasons = ", ".join(sorted(f"{count} node(s) {why}" for why, count in Counter(judged.values()).items()))
        await self._report(pod, f"0/{len(judged)} nodes are available: {reasons or 'there is none'}.")
        return ""

    def _obstacle(self, node: Json, pod: Json, claims: Iterable[Json]) -> str:
        labels = node["metadata"].get("labels") or {}
        if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
            return "didn't match Pod's node affinity/selector"
        if (node.get("spec") or {}).get("unschedulable"):
            return "were unschedulable"
        taints = [taint for taint in Node.of(node).taints if taint.key != _NEW]
        if not Pod.of(pod).tolerates(taints):
            return "had untolerated taint(s)"
        return next((why for claim in claims if (why := self._obstacle_of(claim, node["metadata"]["name"], labels))), "")

    def _obstacle_of(self, claim: Json, node: str, labels: dict[str, str]) -> str:
        if _is_bound(claim):
            return "" if self._reaches(claim, labels) else "didn't match PersistentVolume's node affinity"
        class_ = Class.of(self._classes.get(class_name(claim)) or NO_CLASS)
        if selected(claim) not in ("", node) or (class_.allowed and not allows(class_.allowed, Segment.of(labels))):
            return "didn't find available persistent volumes to bind"
        return "" if self._has_room(claim, class_, labels) else NO_ROOM

    def _reaches(self, claim: Json, labels: dict[str, str]) -> bool:
        volume = self._volumes.get(claim["spec"]["volumeName"])
        required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
        return volume is not None and (required is None or accessible(terms_of(required), Segment.of(labels)))

    def _has_room(self, claim: Json, class_: Class, labels: dict[str, str]) -> bool:
        driver = self._drivers.get(class_.provisioner)
        if driver is None or not driver["spec"].get("storageCapacity"):
            return True
        needed = parse_bytes(claim["spec"]["resources"]["requests"]["storage"])
        return any(
            item["storageClassName"] == class_.name
            and item.get("nodeTopology") is not None
            and (item["nodeTopology"].get("matchLabels") or {}).items() <= labels.items()
            and parse_bytes(item.get("maximumVolumeSize") or item.get("capacity") or -1) >= needed
            for item in self._capacities.values()
        )

    async def _select(self, claim: Json, node: str) -> None:
        if selected(claim) != node:
            body = copy.deepcopy(claim)
            body["metadata"].setdefault("annotations", {})[names.SELECTED_NODE] = node
            await self._base.api.replace(CLAIMS, body, name=claim["metadata"]["name"], namespace=claim["metadata"]["namespace"])

    async def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": {"kind": "Node", "name": node}}
        await self._base.api.create_subresource(PODS, meta["name"], "binding", body, namespace=meta["namespace"])

    async def _report(self, pod: Json, why: str) -> None:
        """Writes each new reason once; the real scheduler writes it at every attempt."""
        conditions = (pod.get("status") or {}).get("conditions") or []
        others = [item for item in conditions if item["type"] != "PodScheduled"]
        if any(item.get("message") == why for item in conditions):
            return
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        await self._base.patch(PODS, pod, {"status": {"conditions": [*others, condition]}}, subresource="status")
        await self._base.api.create(EVENTS, _failed_scheduling(pod, why), namespace=pod["metadata"]["namespace"])


def selected(claim: Json) -> str:
    return str((claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE, ""))


def _is_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BOUND in (claim["metadata"].get("annotations") or {})


def _failed_scheduling(pod: Json, why: str) -> Json:
    meta = pod["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": why,
        "count": 1,
        "source": {"component": "default-scheduler"},
    }
