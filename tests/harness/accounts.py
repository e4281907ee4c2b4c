"""Service accounts with some of the rights of a sample role, and what a program says of a right that it lacks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from sidecar.rights.rights import Right
from tests.harness.cluster import RBAC, ROLE, Cluster

Rules = list[dict[str, list[str]]]


@dataclass(frozen=True)
class Role:
    """`own` holds in the program's own namespace alone: granted everywhere it would hide that the program asks elsewhere."""

    everywhere: Rules
    own: Rules

    def without(self, *rights: Right) -> Role:
        role = self
        for right in rights:
            role = Role(without(right, role.everywhere), without(right, role.own))
        return role

    def without_kinds(self, *plurals: str) -> Role:
        def kept(rules: Rules) -> Rules:
            return [rule for rule in rules if not {*plurals} & {*rule["resources"]}]

        return Role(kept(self.everywhere), kept(self.own))


def role_of(*manifests: Path) -> Role:
    items = [item for manifest in manifests for item in yaml.safe_load_all(manifest.read_text())]
    everywhere, own = ([rule for item in items if item["kind"] == kind for rule in item["rules"]] for kind in ("ClusterRole", "Role"))
    return Role(everywhere, own)


UPSTREAM = role_of(ROLE)
PLACES = {"ClusterRole": RBAC, "Role": f"{RBAC}/namespaces/{{own_namespace}}"}


@contextlib.contextmanager
def account(cluster: Cluster, name: str, role: Role) -> Iterator[Path]:
    """A service account with these rights and no others, as a kubeconfig."""
    full = f"{cluster.namespace}-{name}"
    grant(cluster, name, role)
    cluster.create("/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    for kind, where in PLACES.items():
        subject = {"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": full}
        cluster.create(f"{where}/{kind.lower()}bindings", {"metadata": {"name": full}, "roleRef": reference, "subjects": [subject]})
    try:
        yield cluster.plane.kubeconfig_for(namespace=cluster.namespace, service_account=name)
    finally:
        for kind, where in PLACES.items():
            cluster.delete(f"{where}/{kind.lower()}bindings", full)
            cluster.delete(f"{where}/{kind.lower()}s", full)


def grant(cluster: Cluster, name: str, role: Role) -> None:
    for kind, rules in {"ClusterRole": role.everywhere, "Role": role.own}.items():
        meta = {"name": f"{cluster.namespace}-{name}", "namespace": cluster.own_namespace}  # which a ClusterRole is stored without
        cluster.plane.apply(json.dumps({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": meta, "rules": rules}))


def without(right: Right, rules: Rules) -> Rules:
    """These rules, but for one verb on one kind."""
    plural = right.resource.plural + (f"/{right.subresource}" if right.subresource else "")
    found: Rules = []
    for rule in rules:
        for resource in rule["resources"]:
            is_meant = resource == plural and right.resource.group in rule["apiGroups"]
            verbs = [verb for verb in rule["verbs"] if not (is_meant and verb == right.verb)]
            found.append({**rule, "resources": [resource], "verbs": verbs})
    return [rule for rule in found if rule["verbs"]]


def naming(right: Right, lines: Iterable[str]) -> tuple[str, ...]:
    """Those of these lines that name the right."""
    plural, sub = right.resource.plural, f"/{right.subresource}" if right.subresource else ""
    named = (f"{right.verb} on {plural}{sub}", f'cannot {right.verb} resource "{plural}{sub}"', str(right))
    escaped = named[1].replace('"', '\\"')
    return tuple(line for line in lines if any(text in line for text in (*named, escaped)))
