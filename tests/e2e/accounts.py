"""Service accounts with some of the rights of upstream's sample role."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.e2e.conftest import ROLE, Cluster

Rules = list[dict[str, list[str]]]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def upstream_rules() -> Rules:
    """Of the sample role, those for the whole cluster and those for the own namespace in one list."""
    return [rule for item in yaml.safe_load_all(ROLE.read_text()) for rule in item.get("rules", ())]


@contextlib.contextmanager
def account(cluster: Cluster, name: str, rules: Rules) -> Iterator[Path]:
    """A service account with these rights and no others, as a kubeconfig."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    grant(cluster, name, rules)
    cluster.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    cluster.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
    try:
        yield cluster.plane.kubeconfig_for(namespace="default", service_account=name)
    finally:
        cluster.delete(f"{RBAC}/clusterrolebindings", name)
        cluster.delete(f"{RBAC}/clusterroles", name)
        cluster.delete("/api/v1/namespaces/default/serviceaccounts", name)


def grant(cluster: Cluster, name: str, rules: Rules) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    cluster.plane.apply(json.dumps(role))
