"""Service accounts with some of the rights of upstream's sample role, in the namespace of a test."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.harness.cluster import RBAC, ROLE, Cluster

Rules = list[dict[str, list[str]]]


def upstream_rules() -> Rules:
    """Of the sample role, those for the whole cluster and those for the own namespace in one list."""
    return [rule for item in yaml.safe_load_all(ROLE.read_text()) for rule in item.get("rules", ())]


@contextlib.contextmanager
def account(cluster: Cluster, name: str, rules: Rules) -> Iterator[Path]:
    """A service account with these rights and no others, as a kubeconfig."""
    full = f"{cluster.namespace}-{name}"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full}
    grant(cluster, name, rules)
    cluster.create("/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    cluster.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": full}, "roleRef": reference, "subjects": [subject]})
    try:
        yield cluster.plane.kubeconfig_for(namespace=cluster.namespace, service_account=name)
    finally:
        cluster.delete(f"{RBAC}/clusterrolebindings", full)
        cluster.delete(f"{RBAC}/clusterroles", full)


def grant(cluster: Cluster, name: str, rules: Rules) -> None:
    full = f"{cluster.namespace}-{name}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": full}, "rules": rules}
    cluster.plane.apply(json.dumps(role))
