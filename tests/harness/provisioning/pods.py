"""Pods that consume claims."""

from typing import Any

from sidecar.model.nodes import Taint

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
Json = dict[str, Any]


def tolerating(*taints: Taint) -> Json:
    return {"tolerations": [{"key": taint.key, "operator": "Exists", "effect": taint.effect} for taint in taints]}


def pod_json(name: str = "db-0", *, claim: str = "fake-pvc", namespace: str = "fake-ns", phase: str = "Pending", **spec: Any) -> Json:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    meta = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}", "labels": {"app": "db"}, "managedFields": [{}]}
    return {"metadata": meta, "spec": {"volumes": volumes, "containers": [{"name": "db"}], **spec}, "status": {"phase": phase}}
