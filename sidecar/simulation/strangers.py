"""Objects in every world that are none of our business: another driver's, another node's. Nobody here may touch them."""

from sidecar.kube.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES, KubeApi, Resource
from sidecar.kube.errors import NotFound
from sidecar.model import names
from sidecar.model.objects import IMMEDIATE, Json
from sidecar.simulation.node import DRIVER, NAMESPACE, TOPOLOGY_KEY

_OTHER = "another.example.com"
_NAME = "stranger"


async def settle(api: KubeApi) -> None:
    """Make them. The volumes' claims are gone and their policy is Delete: nothing but whose they are protects them."""
    await api.create(CLASSES, {"metadata": {"name": _NAME}, "provisioner": _OTHER, "volumeBindingMode": IMMEDIATE})
    for resource, body in _objects():
        await api.create(resource, body, namespace=NAMESPACE if resource.namespaced else "")


async def missing(api: KubeApi) -> list[str]:
    """Which of them are gone or being deleted, or name a node of ours."""
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
    return str(obj["metadata"]["name"]).startswith(_NAME)


def _objects() -> list[tuple[Resource, Json]]:
    labels = {names.CAPACITY_DRIVER_LABEL: DRIVER, names.CAPACITY_MANAGER_LABEL: names.capacity_manager("elsewhere")}
    capacity = {"metadata": {"name": _NAME, "labels": labels}, "storageClassName": "late", "capacity": "0"}
    claim_spec = {"storageClassName": _NAME, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        (CLAIMS, {"metadata": {"name": _NAME}, "spec": claim_spec}),
        (VOLUMES, _volume(f"{_NAME}-driver", _OTHER, "n0")),
        (VOLUMES, _volume(f"{_NAME}-node", DRIVER, "elsewhere")),
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
