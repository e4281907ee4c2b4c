"""A control plane in the words of the scenarios: what a user, an admin, a node and a provisioner do to it, and what is to be seen."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from sidecar.kube.api import (
    BUDGETS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_DRIVERS,
    EVENTS,
    MERGE_PATCH,
    NAMESPACES,
    NODES,
    PODS,
    STATEFUL_SETS,
    VOLUMES,
    KubeApi,
    Resource,
)
from sidecar.kube.errors import AlreadyExists, ApiError, NotFound, TooManyRequests
from sidecar.model import names
from tests.harness.coroutines import until

Json = dict[str, Any]


class Land:
    """One scenario's own: a namespace, and names that no other scenario has."""

    def __init__(self, api: KubeApi, *, number: int, node_labels: Mapping[str, str] = MappingProxyType({}), limit: float = 0.0) -> None:
        self.api = api
        self.namespace = f"land-{number}"
        self.driver = f"driver-{number}.example.com"
        self.attaching = f"attaching-{number}.example.com"  # another driver, whose volumes are attached
        self.key = f"{self.driver}/node"
        self._node_labels = node_labels
        self._number = number
        self._limit = limit

    # --- who makes things ---------------------------------------------------------------------------------------------

    async def begin(self, *nodes: str, capacity: bool = True, attached: bool = False) -> None:
        self.driver = self.attaching if attached else self.driver
        await self.api.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        spec = {"attachRequired": attached, "storageCapacity": capacity}
        await self.api.create(CSI_DRIVERS, {"metadata": {"name": self.driver}, "spec": spec})
        for node in nodes:
            await self.node(node)

    async def node(self, name: str, *, silent: bool = False) -> None:
        """`silent`: no kubelet speaks for it, so that it is not ready and what runs there stays."""
        labels = {self.key: name, "kubernetes.io/hostname": self.own(name), **({} if silent else self._node_labels)}
        room = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        meta = {"name": self.own(name), "labels": labels}
        await self.api.create(NODES, {"metadata": meta, "status": {"allocatable": room, "capacity": room}})

    async def storage_class(self, name: str, binding: str) -> None:
        body = {"metadata": {"name": self.own(name)}, "provisioner": self.driver, "volumeBindingMode": binding}
        await self.api.create(CLASSES, body)

    async def claim(self, name: str, class_: str, *, size: str = "1Gi") -> Json:
        spec = {"storageClassName": self.own(class_), "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        return await self.api.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, namespace=self.namespace)

    async def pod(self, name: str, *claims: str, **spec: Any) -> Json:
        volumes = [{"name": item, "persistentVolumeClaim": {"claimName": item}} for item in claims]
        body = {"containers": [{"name": "main", "image": "none"}], "volumes": volumes, "terminationGracePeriodSeconds": 1, **spec}
        return await self.api.create(PODS, {"metadata": {"name": name}, "spec": body}, namespace=self.namespace)

    async def volume(self, claim: Json, *, node: str = "", finalizer: str = "", prefix: str = "pvc") -> str:
        """What a provisioner makes for the claim; its name."""
        meta, name = claim["metadata"], f"{prefix}-{claim['metadata']['uid']}"
        ref = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **{key: meta[key] for key in ("namespace", "name", "uid")}}
        term = {"matchExpressions": [{"key": self.key, "operator": "In", "values": [node]}]}
        spec = {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim["spec"]["storageClassName"],
            "claimRef": ref,
            "csi": {"driver": self.driver, "volumeHandle": name},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if node else {}),
        }
        own: Json = {"name": name, "annotations": {names.PROVISIONED_BY: self.driver}, "finalizers": [finalizer] if finalizer else []}
        await self.api.create(VOLUMES, {"metadata": own, "spec": spec})
        return name

    async def capacity(self, node: str, class_: str, size: str) -> None:
        """Publishes it, or changes what is published."""
        name = f"{self.own(node)}-{class_}"
        body = {"metadata": {"name": name}, "storageClassName": self.own(class_), "capacity": size}
        body |= {"nodeTopology": {"matchLabels": {self.key: node}}}
        try:
            await self.api.create(CAPACITIES, body, namespace=self.namespace)
        except AlreadyExists:
            await self.api.patch(CAPACITIES, name, {"capacity": size}, content_type=MERGE_PATCH, namespace=self.namespace)

    async def select(self, claim: str, node: str | None) -> None:
        """A provisioner takes the claim, or gives it back."""
        notes = {names.SELECTED_NODE: node and self.own(node)}
        await self.api.patch(CLAIMS, claim, {"metadata": {"annotations": notes}}, content_type=MERGE_PATCH, namespace=self.namespace)

    async def patch_node(self, node: str, patch: Json) -> None:
        await self.api.patch(NODES, node, patch, content_type=MERGE_PATCH)

    async def stateful_set(self, name: str, *, replicas: int, class_: str = "", pod: Json | None = None, **spec: Any) -> Json:
        """With claims of this class, named `data`."""
        labels, containers = {"app": name}, [{"name": "main", "image": "none"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers, "terminationGracePeriodSeconds": 1} | (pod or {})}
        asked = {"storageClassName": self.own(class_), "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claims = [{"metadata": {"name": "data", "labels": {"of": "template"}}, "spec": asked}] if class_ else []
        wanted = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": name}, "spec": wanted | {"volumeClaimTemplates": claims} | spec}
        return await self.api.create(STATEFUL_SETS, body, namespace=self.namespace)

    async def patch_set(self, name: str, spec: Json) -> None:
        await self.api.patch(STATEFUL_SETS, name, {"spec": spec}, content_type=MERGE_PATCH, namespace=self.namespace)

    async def budget(self, name: str, app: str, **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        await self.api.create(BUDGETS, body, namespace=self.namespace)

    async def evict(self, pod: str) -> str:
        """What a budget said against it, or nothing."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        try:
            await self.api.create_subresource(PODS, pod, "eviction", body, namespace=self.namespace)
        except TooManyRequests as error:
            return str(error)
        return ""

    async def serve(self, class_: str) -> None:
        """Plays the provisioner of this class on all nodes, until it is cancelled."""
        while True:
            for claim in (await self.api.list_page(CLAIMS, namespace=self.namespace, limit=0)).items:
                notes = claim["metadata"].get("annotations") or {}
                node = notes.get(names.SELECTED_NODE, "").removesuffix(f"-{self._number}")
                if claim["spec"].get("storageClassName") == self.own(class_) and node and not claim["spec"].get("volumeName"):
                    with contextlib.suppress(AlreadyExists):
                        await self.volume(claim, node=node)
            await asyncio.sleep(0.2)

    # --- what is to be seen -------------------------------------------------------------------------------------------

    def own(self, name: str) -> str:
        """A name in the cluster, which scenarios share."""
        return f"{name}-{self._number}"

    async def get_claim(self, name: str) -> Json:
        return await self.api.get(CLAIMS, name, namespace=self.namespace)

    async def get_pod(self, name: str) -> Json:
        return await self.api.get(PODS, name, namespace=self.namespace)

    async def get_set(self, name: str) -> Json:
        return await self.api.get(STATEFUL_SETS, name, namespace=self.namespace)

    async def set_status(self, name: str, *keys: str) -> tuple[Any, ...]:
        status = (await self.get_set(name)).get("status") or {}
        return tuple(status.get(key, 0) for key in keys)

    async def allows(self, budget: str) -> tuple[int, int, int, int]:
        """Pods that are expected, ready, and wanted to be ready, and how many may be evicted; by the status of now."""
        found = await self.api.get(BUDGETS, budget, namespace=self.namespace)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return (-1, -1, -1, -1)
        expected, healthy, desired, allowed = (
            int(status[key]) for key in ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        )
        return expected, healthy, desired, allowed

    async def uid(self, resource: Resource, name: str) -> str:
        """Nothing if there is none."""
        try:
            return str((await self.api.get(resource, name, namespace=self.namespace))["metadata"]["uid"])
        except NotFound:
            return ""

    async def there(self, resource: Resource) -> list[str]:
        """The names of all that are there, also of what is being deleted."""
        return sorted(item["metadata"]["name"] for item in (await self.api.list_page(resource, namespace=self.namespace, limit=0)).items)

    async def notes(self, claim: str) -> dict[str, str]:
        return (await self.get_claim(claim))["metadata"].get("annotations") or {}

    async def selected(self, claim: str) -> str:
        return (await self.notes(claim)).get(names.SELECTED_NODE, "")

    async def phase(self, resource: Resource, name: str) -> str:
        namespace = self.namespace if resource.namespaced else ""
        return str((await self.api.get(resource, name, namespace=namespace))["status"].get("phase"))

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.api.get(resource, name, namespace=self.namespace if resource.namespaced else "")
        except NotFound:
            return False
        return True

    async def pods(self) -> list[Json]:
        return (await self.api.list_page(PODS, namespace=self.namespace, limit=0)).items

    async def refused(self, pod: str, text: str) -> bool:
        """By its condition. The scheduler's events may never say so: of two about one version of a pod only the first text is stored."""
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}.items()
        conditions = (await self.get_pod(pod)).get("status", {}).get("conditions") or ()
        return any(said <= item.items() and text in item["message"] for item in conditions)

    async def reasons(self, name: str) -> set[str]:
        """Of the events about an object."""
        events = (await self.api.list_page(EVENTS, namespace=self.namespace, limit=0)).items
        return {event["reason"] for event in events if event["involvedObject"]["name"] == name}

    # --- time ---------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], Awaitable[Any]], what: str) -> None:
        await until(condition, what, limit=self._limit)

    async def always(self, condition: Callable[[], Awaitable[Any]], what: str, *, seconds: float = 1.5) -> None:
        """Long enough for a component that would do otherwise."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            assert await condition(), what
            await asyncio.sleep(0.1)

    async def clear(self) -> None:
        """Nodes and volumes would be in the way of the next scenario; what else is left is not."""
        for resource in (STATEFUL_SETS, PODS):
            for item in (await self.api.list_page(resource, namespace=self.namespace, limit=0)).items:
                await self._drop(resource, item, grace_period_seconds=0)
        for resource in (VOLUMES, NODES):
            for item in (await self.api.list_page(resource, limit=0)).items:
                await self._drop(resource, item)

    async def _drop(self, resource: Resource, item: Json, **options: Any) -> None:
        meta, namespace = item["metadata"], item["metadata"].get("namespace", "")
        try:
            free = {"metadata": {"finalizers": None}}
            await self.api.patch(resource, meta["name"], free, content_type=MERGE_PATCH, namespace=namespace)
            await self.api.delete(resource, meta["name"], namespace=namespace, **options)
        except ApiError:
            pass  # gone meanwhile


LOST = "lost"
"""The node that the node lifecycle controller looks at."""
IMMEDIATE, LATE = "Immediate", "WaitForFirstConsumer"


async def bound(land: Land, name: str = "data", *, finalizer: str = "") -> tuple[Json, str]:
    """A claim that is bound to a volume, which a provisioner made; both."""
    await land.storage_class("now", IMMEDIATE)
    claim = await land.claim(name, "now")
    volume = await land.volume(claim, finalizer=finalizer)
    await land.until(lambda: is_bound(land, name), "the claim is bound")
    return claim, volume


async def is_bound(land: Land, name: str) -> bool:
    return await land.phase(CLAIMS, name) == "Bound"
