"""Objects of other drivers and other nodes, which are in every world and which the sidecars must not touch.

Also other writers of capacity objects. They write their own, which nobody here may touch either, and ours, which must come right again.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Final

from hack.sim.world.node import DRIVER, NAMESPACE, TOPOLOGY_KEY
from hack.sim.world.plan import LATE_CLASSES
from sidecar.frozen import frozen
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NODES, VOLUMES, KubeApi, Resource
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Json

_OTHER = "another.example.com"
NAME = "stranger"
# A deletion is guarded by the uid alone, so one that was decided before its object lost our labels may arrive this much later.
_ON_ITS_WAY: Final = 100.0


async def settle(api: KubeApi) -> None:
    """Creates them. The volumes' claims are gone and their policy is Delete, so only their owner protects them."""
    await api.create(CLASSES, {"metadata": {"name": NAME}, "provisioner": _OTHER, "volumeBindingMode": IMMEDIATE})
    for resource, body in _objects():
        await api.create(resource, body, namespace=NAMESPACE if resource.namespaced else "")


async def missing(api: KubeApi) -> list[str]:
    """Those of them that are gone, are being deleted, or name a node of ours."""
    found = []
    for resource, body in _objects():
        name = body["metadata"]["name"]
        try:
            meta = (await api.get(resource, name, namespace=NAMESPACE if resource.namespaced else ""))["metadata"]
        except NotFound:
            found.append(f"{resource} {name} is gone")
            continue
        if meta.get("deletionTimestamp") or (meta.get("annotations") or {}).get(names.SELECTED_NODE):
            found.append(f"{resource} {name} was touched")
    return found


def is_one(obj: Json) -> bool:
    return str(obj["metadata"]["name"]).startswith(NAME)


@frozen
class _Left:
    """An object as somebody else left it."""

    at: float
    version: str
    was_ours: bool


class Foreign:
    """What other writers do to capacity objects. Theirs say 0, so that they mislead no scheduler."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._left: dict[str, _Left] = {}
        self._made = 0

    @property
    def names(self) -> frozenset[str]:
        """The objects that were never ours."""
        return frozenset(name for name, left in self._left.items() if not left.was_ours)

    async def make(self, node: str, kind: str) -> None:
        """Creates an object for that node and a class of ours, and one of another driver."""
        labels = {
            "other driver": {names.CAPACITY_DRIVER_LABEL: _OTHER, names.CAPACITY_MANAGER_LABEL: names.capacity_manager(node)},
            "other manager": {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: "somebody"},
            "unlabelled": {},
        }[kind]
        self._made += 1
        meta = {"name": f"{NAME}-{self._made}", "labels": labels}
        self._leave(await self._create({**_capacity(LATE_CLASSES[0], node), "metadata": meta}), was_ours=False)

    async def meddle(self, node: str, what: str) -> None:
        """Changes the first of the objects that the node publishes, if there is one."""
        listed = (await self._api.list_page(CAPACITIES, namespace=NAMESPACE)).items
        ours = sorted((item for item in listed if published_by(node, item)), key=lambda item: str(item["metadata"]["name"]))
        if ours:
            await self._meddle(copy.deepcopy(ours[0]), node, what)

    async def _meddle(self, body: Json, node: str, what: str) -> None:
        meta = body["metadata"]
        match what:
            case "delete":
                await self._api.delete(CAPACITIES, meta["name"], namespace=NAMESPACE)
            case "alter":
                await self._replace({**body, "capacity": "3Mi", "maximumVolumeSize": "1Mi"})
            case "mark":
                await self._replace({**body, "metadata": {**meta, "annotations": {names.STALE_SINCE: "long ago"}}})
            case "annotate":
                await self._replace({**body, "metadata": {**meta, "annotations": {"example.com/note": "kept"}}})
            case "strip":
                self._leave(await self._replace({**_zero(body), "metadata": {**meta, "labels": {}}}), was_ours=True)
            case "relabel":
                labels = {**meta["labels"], names.CAPACITY_MANAGER_LABEL: "somebody"}
                self._leave(await self._replace({**_zero(body), "metadata": {**meta, "labels": labels}}), was_ours=True)
            case "recreate":
                await self._api.delete(CAPACITIES, meta["name"], namespace=NAMESPACE)
                await self._create({**body, "capacity": "1", "metadata": {"name": meta["name"], "labels": meta["labels"]}})
            case "duplicate" | "elsewhere" | "unknown class":
                copied = {**_zero(body), "metadata": {"generateName": what.replace(" ", "-") + "-", "labels": meta["labels"]}}
                if what == "elsewhere":
                    copied["nodeTopology"] = {"matchLabels": {TOPOLOGY_KEY: f"{node}-of-old"}}
                if what == "unknown class":
                    copied["storageClassName"] = "unknown"
                await self._create(copied)
            case _:
                raise AssertionError(f"nobody knows how to {what}")

    async def touched(self) -> list[str]:
        """Those of them that somebody has changed."""
        found = []
        for name, left in self._left.items():
            try:
                version = (await self._api.get(CAPACITIES, name, namespace=NAMESPACE))["metadata"]["resourceVersion"]
            except NotFound:
                version = ""
            if version != left.version and not (left.was_ours and not version):
                found.append(f"capacity object {name} of others was {'written' if version else 'deleted'}")
        return found

    def deleted_by_us(self, deletions: Iterable[tuple[float, str]]) -> list[str]:
        """Of these deletions (time and name), those whose object had lost our labels long before."""
        late = [(at, name) for at, name in deletions if name in self._left and at > self._left[name].at + _ON_ITS_WAY]
        return [f"capacity object {name} was deleted at {at:.1f} s, long after it had lost our labels" for at, name in late]

    def _leave(self, obj: Json, *, was_ours: bool) -> None:
        self._left[obj["metadata"]["name"]] = _Left(self._clock(), obj["metadata"]["resourceVersion"], was_ours)

    async def _create(self, body: Json) -> Json:
        return await self._api.create(CAPACITIES, body, namespace=NAMESPACE)

    async def _replace(self, body: Json) -> Json:
        return await self._api.replace(CAPACITIES, body, name=body["metadata"]["name"], namespace=NAMESPACE)


def published_by(node: str, obj: Json) -> bool:
    """Whether it carries the labels of that node's objects."""
    labels = obj["metadata"].get("labels") or {}
    manager = names.capacity_manager(node)
    return (labels.get(names.CAPACITY_DRIVER_LABEL), labels.get(names.CAPACITY_MANAGER_LABEL)) == (DRIVER, manager)


def _zero(body: Json) -> Json:
    return {**{key: value for key, value in body.items() if key != "maximumVolumeSize"}, "capacity": "0"}


def _capacity(class_name: str, node: str) -> Json:
    return {"storageClassName": class_name, "nodeTopology": {"matchLabels": {TOPOLOGY_KEY: node}}, "capacity": "0"}


def _objects() -> list[tuple[Resource, Json]]:
    labels = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: names.capacity_manager("elsewhere")}
    capacity = {"metadata": {"name": NAME, "labels": labels}, "storageClassName": "late", "capacity": "0"}
    claim_spec = {"storageClassName": NAME, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        (CLAIMS, {"metadata": {"name": NAME}, "spec": claim_spec}),
        (VOLUMES, _volume(f"{NAME}-driver", _OTHER, "n0")),
        (VOLUMES, _volume(f"{NAME}-node", DRIVER, "elsewhere")),
        # A node that is there and has a sidecar of which these worlds tell nothing: without it what it publishes would be cleared away.
        (NODES, {"metadata": {"name": "elsewhere", "labels": {TOPOLOGY_KEY: "elsewhere"}}}),
        (CAPACITIES, capacity | {"nodeTopology": {"matchLabels": {TOPOLOGY_KEY: "elsewhere"}}}),
    ]


def _volume(name: str, driver: str, node: str) -> Json:
    term = {"matchExpressions": [{"key": TOPOLOGY_KEY, "operator": "In", "values": [node]}]}
    return {
        "metadata": {"name": name, "annotations": {names.PROVISIONED_BY: driver}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": NAMESPACE, "name": f"{name}-claim", "uid": f"{name}-uid"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": driver, "volumeHandle": f"{name}-handle"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
