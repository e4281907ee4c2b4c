"""The smallest objects that an API server accepts."""

from typing import Any

from sidecar.kube.api import KubeApi, Resource

Json = dict[str, Any]

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True)


def config_map(name: str, *, labels: dict[str, str] | None = None, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels or {}}, "data": data}


def claim(name: str, *, storage: str = "1Gi", class_name: str = "fast") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": storage}},
        },
    }


def volume(name: str, *, finalizers: tuple[str, ...] = (), handle: str = "handle") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "finalizers": list(finalizers)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "driver.example", "volumeHandle": handle},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "node", "operator": "In", "values": ["n1"]}]}]}
            },
        },
    }


def storage_class(name: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "driver.example",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def capacity(*, free: str = "10Gi", name: str = "", owner: Json | None = None) -> Json:
    meta: Json = {"name": name} if name else {"generateName": "csisc-"}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": meta | ({"ownerReferences": [owner]} if owner else {}),
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"node": "n1"}},
        "capacity": free,
    }


def pod(name: str, *, labels: dict[str, str] | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    }


def budget(name: str, labels: dict[str, str]) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }


def event(namespace: str, name: str, *, about: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": about,
        "reason": "Provisioning",
        "message": "told once",
        "type": "Normal",
        "source": {"component": "contract"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


async def make_account(api: KubeApi, namespace: str, name: str, *rules: Json) -> None:
    """A service account with a role of these rules."""
    await api.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace=namespace)
    await api.create(ROLES, {"metadata": {"name": name}, "rules": list(rules)}, namespace=namespace)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    await api.create(ROLE_BINDINGS, {"metadata": {"name": name}, "subjects": [subject], "roleRef": role}, namespace=namespace)
