"""The StatefulSet controller of Kubernetes 1.36: pods by ordinal with claims of their own, OrderedReady or Parallel, and rolling updates.

Claims that are missing are made before a pod is made, and again whenever the set is looked at while the pod is Pending. No change of a
claim makes it look: the pod's status does, in which the scheduler writes that the claim is missing. A claim that is being deleted is waited
for. What was deleted with a StatefulSet is the garbage collector's work. Not here: partitions, ControllerRevisions, adoption,
`minReadySeconds`, claims that go with their set.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hack.sim.stand_ins.stand_in_base import StandInBase, owners_of, sides
from sidecar.engine.backoff import Attempts, Backoff
from sidecar.kube.api import CLAIMS, PODS, STATEFUL_SETS
from sidecar.kube.errors import AlreadyExists, NotFound
from sidecar.model.nodes import Pod
from sidecar.model.objects import Json

_OVER: Final = ("Succeeded", "Failed")
_REVISION: Final = "controller-revision-hash"
_AFTER_ERROR: Final = Backoff(0.005, 1000.0)


class _Later(Exception):
    """Something is in the way. The set is looked at again with back-off."""


class StatefulSets:
    """`sets` is its loop."""

    def __init__(self, base: StandInBase, *, delay: Callable[[str], float] = lambda key: 0.0) -> None:
        """`delay`: by full name of a set, seconds for which a pod that is gone is missing. The real controller does not wait."""
        self._base, self._delay = base, delay
        self._sets, self._pods, self._claims = base.cache(STATEFUL_SETS), base.cache(PODS), base.cache(CLAIMS)
        self._missing: dict[str, float] = {}
        """By full name of a pod: when it may be made."""
        self._errors: Attempts[str] = Attempts()
        self.sets = base.loop("stateful sets", self._sync)
        base.wake(self.sets, STATEFUL_SETS, lambda change: [change.key])
        base.wake(self.sets, PODS, lambda change: [key for pod in sides(change) for key in owners_of(pod, "StatefulSet")])

    async def _sync(self, key: str) -> float | None:
        workload = self._sets.get(key)
        if workload is None:
            return None
        uid, pods = workload["metadata"]["uid"], self._pods.by_index("stateful set", key)
        pods = [pod for pod in pods if uid in {ref["uid"] for ref in pod["metadata"]["ownerReferences"]}]
        for pod in pods:
            self._missing.pop(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", None)
        again = None
        try:
            if not workload["metadata"].get("deletionTimestamp"):
                again = await self._reconcile(workload, pods)
            self._errors.forget(key)
        except _Later:
            again = self._base.clock() + _AFTER_ERROR.delay(self._errors.next(key))
        await self._report(workload, pods)
        return again

    async def _reconcile(self, workload: Json, pods: list[Json]) -> float | None:
        """When to look again. An ordered set stops at the first pod that is not as it should be."""
        ordered, wanted = workload["spec"].get("podManagementPolicy") != "Parallel", ordinals(workload)
        found = {ordinal_of(workload, pod): pod for pod in pods}
        later: list[float] = []
        for batch in ([ordinal] for ordinal in wanted) if ordered else _batches(wanted):
            later += await self._attend_all(workload, {ordinal: found.get(ordinal) for ordinal in batch})
            if ordered and not _is_settled(found.get(batch[0])):
                return min(later, default=None)
        condemned = [found[ordinal] for ordinal in sorted(found, reverse=True) if ordinal >= 0 and ordinal not in wanted]
        if await self._scale_down(workload, condemned, ordered=ordered):
            await self._update(workload, [found[ordinal] for ordinal in reversed(wanted) if ordinal in found], len(wanted))
        return min(later, default=None)

    async def _attend_all(self, workload: Json, batch: Mapping[int, Json | None]) -> list[float]:
        """When to look again. What is in the way of one pod is not in the way of the others of the batch."""
        later, in_the_way = [], False
        for ordinal, pod in batch.items():
            try:
                later.append(await self._attend(workload, ordinal, pod))
            except (_Later, AlreadyExists):
                in_the_way = True
        if in_the_way:
            raise _Later
        return [until for until in later if until is not None]

    async def _attend(self, workload: Json, ordinal: int, pod: Json | None) -> float | None:
        """When to look again."""
        if pod is None:
            return await self._make(workload, ordinal)
        if _phase(pod) in _OVER:
            await self._delete(pod)
            return None
        if _phase(pod) == "Pending":
            await self._make_claims(workload, ordinal)
        return None

    async def _make(self, workload: Json, ordinal: int) -> float | None:
        pod, namespace = pod_of(workload, ordinal), workload["metadata"]["namespace"]
        key, now = f"{namespace}/{workload['metadata']['name']}", self._base.clock()
        due = self._missing.setdefault(f"{namespace}/{pod['metadata']['name']}", now + self._delay(key))
        if due > now:
            return due
        await self._make_claims(workload, ordinal)
        await self._base.api.create(PODS, pod, namespace=namespace)
        return None

    async def _scale_down(self, workload: Json, condemned: list[Json], *, ordered: bool) -> bool:
        """From the highest ordinal down; an ordered set takes one at a time. Whether nothing is left to be taken away."""
        unsettled = [pod for pod in condemned if not _is_settled(pod)]
        for pod in condemned:
            if ordered and (_is_leaving(pod) or (pod in unsettled and pod is not unsettled[-1])):
                return False
            await self._delete(pod)
            if ordered:
                return False
        return True

    async def _update(self, workload: Json, descending: list[Json], wanted: int) -> None:
        """One pod of an older revision after the other, the highest ordinal first."""
        if (workload["spec"].get("updateStrategy") or {}).get("type") == "OnDelete" or len(descending) < wanted:
            return
        for pod in descending:
            if _revision(pod) != revision_of(workload) and not _is_leaving(pod):
                await self._delete(pod)
                return
            if not _is_settled(pod):
                return

    async def _delete(self, pod: Json) -> None:
        if not _is_leaving(pod):
            meta = pod["metadata"]
            await self._base.api.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])

    async def _make_claims(self, workload: Json, ordinal: int) -> None:
        namespace, in_the_way = workload["metadata"]["namespace"], False
        for claim in claims_for(workload, ordinal).values():
            there = self._claims.get(f"{namespace}/{claim['metadata']['name']}")
            if there is None:
                await self._base.api.create(CLAIMS, claim, namespace=namespace)
            elif _is_leaving(there):
                in_the_way = True
        if in_the_way:
            raise _Later

    async def _report(self, workload: Json, pods: list[Json]) -> None:
        newest, before = revision_of(workload), workload.get("status") or {}
        current = before.get("currentRevision") or newest
        ready = [pod for pod in pods if Pod.of(pod).ready]
        status = {
            "observedGeneration": workload["metadata"]["generation"],
            "replicas": len(pods),
            "readyReplicas": len(ready),
            "availableReplicas": len(ready),
            "currentReplicas": sum(_revision(pod) == current and not _is_leaving(pod) for pod in pods),
            "updatedReplicas": sum(_revision(pod) == newest and not _is_leaving(pod) for pod in pods),
            "currentRevision": current,
            "updateRevision": newest,
        }
        wanted = workload["spec"].get("replicas", 1)
        on_delete = (workload["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
        if not on_delete and status["updatedReplicas"] == status["readyReplicas"] == status["replicas"] == wanted:
            status |= {"currentRevision": newest, "currentReplicas": status["updatedReplicas"]}
        if {key: before.get(key) for key in status} != status:
            try:
                await self._base.patch(STATEFUL_SETS, workload, {"status": status}, subresource="status")
            except NotFound:
                pass  # it was deleted meanwhile


def _batches(wanted: Sequence[int]) -> Iterator[Sequence[int]]:
    """One, two, four and so on."""
    begun, size = 0, 1
    while begun < len(wanted):
        yield wanted[begun : begun + size]
        begun, size = begun + size, 2 * size


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase"))


def _revision(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_REVISION, ""))


def _is_settled(pod: Json | None) -> bool:
    return pod is not None and not _is_leaving(pod) and Pod.of(pod).ready


def _is_leaving(obj: Json) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


# --- what it makes ----------------------------------------------------------------------------------------------------------


def ordinals(workload: Json) -> range:
    """Those that it wants."""
    first = (workload["spec"].get("ordinals") or {}).get("start", 0)
    return range(first, first + workload["spec"].get("replicas", 1))


def ordinal_of(workload: Json, pod: Json) -> int:
    """-1 for a name that none of its pods has."""
    parent, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if parent == workload["metadata"]["name"] and number.isascii() and number.isdigit() else -1


def revision_of(workload: Json) -> str:
    digest = hashlib.sha256(json.dumps(workload["spec"]["template"], sort_keys=True).encode()).hexdigest()
    return f"{workload['metadata']['name']}-{digest[:10]}"


def pod_of(workload: Json, ordinal: int) -> Json:
    """Of the newest revision: partitions are not here."""
    template, name = copy.deepcopy(workload["spec"]["template"]), f"{workload['metadata']['name']}-{ordinal}"
    labels = (template.get("metadata") or {}).get("labels") or {}
    labels |= {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(ordinal), _REVISION: revision_of(workload)}
    claims = claims_for(workload, ordinal)
    own = [{"name": key, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} for key, claim in claims.items()]
    others = [volume for volume in template["spec"].get("volumes") or () if volume["name"] not in claims]
    spec = template["spec"] | {"hostname": name, "volumes": [*own, *others]}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload["metadata"]["name"], "uid": workload["metadata"]["uid"]}
    owners = [owner | {"controller": True, "blockOwnerDeletion": True}]
    meta = (template.get("metadata") or {}) | {"name": name, "labels": labels, "ownerReferences": owners}
    return {"metadata": meta, "spec": spec}


def claims_for(workload: Json, ordinal: int) -> dict[str, Json]:
    """By name of their template."""
    chosen = workload["spec"]["selector"].get("matchLabels") or {}
    found = {}
    for template in workload["spec"].get("volumeClaimTemplates") or ():
        claim, key = copy.deepcopy(template), template["metadata"]["name"]
        meta = claim["metadata"] | {"name": f"{key}-{workload['metadata']['name']}-{ordinal}"}
        labels = (claim["metadata"].get("labels") or {}) | chosen
        found[key] = {"metadata": meta | {"labels": labels}, "spec": claim["spec"]}
    return found
