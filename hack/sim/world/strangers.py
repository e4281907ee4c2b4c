"""Objects of other drivers and other nodes, which are in every world and which the sidecars must not touch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hack.sim.world.node import DRIVER, NAMESPACE, TOPOLOGY_KEY, volume_body
from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, NODES, VOLUMES, KubeApi, Resource
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Json

if TYPE_CHECKING:
    from hack.sim.world.world import World

NAME: Final = "stranger"
ELSEWHERE: Final = "elsewhere"
"""A node that is there and has a sidecar of which worlds tell nothing: without it what it publishes would be cleared away."""
_OTHER: Final = "another.example.com"


async def settle(api: KubeApi) -> None:
    """Creates them. The volumes' claims are gone and their policy is Delete, so only their owner protects them."""
    await api.create(CLASSES, {"metadata": {"name": NAME}, "provisioner": _OTHER, "volumeBindingMode": IMMEDIATE})
    for resource, body in _objects():
        await api.create(resource, body, namespace=NAMESPACE if resource.namespaced else "")


def touched(world: "World") -> Iterator[str]:
    """Those that are gone, are being deleted, were given to a node or say something else than before."""
    for resource, body in _objects():
        name = body["metadata"]["name"]
        found = world.cluster.store.find(resource, name, NAMESPACE if resource.namespaced else "")
        meta = found["metadata"] if found else {"deletionTimestamp": "before"}
        if meta.get("deletionTimestamp") or names.SELECTED_NODE in (meta.get("annotations") or {}):
            yield f"{resource} {name} was touched"
        elif resource == CAPACITIES and found and found["capacity"] != body["capacity"]:
            yield f"{resource} {name} was written"


def is_one(obj: Json) -> bool:
    return str(obj["metadata"]["name"]).startswith(NAME)


def _objects() -> list[tuple[Resource, Json]]:
    claim = {"storageClassName": NAME, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        (CLAIMS, {"metadata": {"name": NAME}, "spec": claim}),
        (VOLUMES, _volume(f"{NAME}-driver", _OTHER, "n0")),
        (VOLUMES, _volume(f"{NAME}-node", DRIVER, ELSEWHERE)),
        (NODES, {"metadata": {"name": ELSEWHERE, "labels": {TOPOLOGY_KEY: ELSEWHERE}}, "spec": {"unschedulable": True}}),
        (CAPACITIES, _capacity(NAME, DRIVER, names.capacity_manager(ELSEWHERE))),
        (CAPACITIES, _capacity(f"{NAME}-driver", _OTHER, names.capacity_manager("n0"))),
        (CAPACITIES, _capacity(f"{NAME}-manager", DRIVER, "somebody")),
    ]


def _capacity(name: str, driver: str, manager: str) -> Json:
    """It says 0, so that it misleads no scheduler."""
    labels = {names.CAPACITY_DRIVER_LABEL: driver, names.CAPACITY_MANAGER_LABEL: manager}
    place = {"matchLabels": {TOPOLOGY_KEY: ELSEWHERE if name == NAME else "n0"}}
    return {"metadata": {"name": name, "labels": labels}, "storageClassName": "late", "capacity": "0", "nodeTopology": place}


def _volume(name: str, driver: str, node: str) -> Json:
    claim = {"name": f"{name}-claim", "uid": f"{name}-uid"}
    body = volume_body(name, claim, [node], driver=driver, handle=f"{name}-handle", policy="Delete")
    body["metadata"]["annotations"] = {names.PROVISIONED_BY: driver}
    return body
