"""The one MutatingAdmissionPolicy that this server carries out: that of deploy/components/scoped-watches, which labels claims.

There is no interpreter of CEL here. A policy of that name that is word for word that of the component has the effect of
`names.claim_label`; any other has none.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import yaml

from sidecar.kube.api import Resource
from sidecar.model import names
from sidecar.model.objects import Json, claim_provisioner, selected_node

POLICIES: Final = Resource(names.ADMISSION_GROUP, "v1", "mutatingadmissionpolicies", names.MUTATING_POLICY, False)
BINDINGS: Final = Resource(names.ADMISSION_GROUP, "v1", "mutatingadmissionpolicybindings", names.MUTATING_POLICY_BINDING, False)
COMPONENT: Final = Path("deploy/components/scoped-watches/policy.yaml")
_ROOT: Final = Path(__file__).resolve().parents[3]


class Others(Protocol):
    """The other objects, as far as admission may look at them."""

    def find(self, resource: Resource, name: str, namespace: str = "") -> Json | None: ...
    def all_of(self, resource: Resource) -> Iterable[Json]: ...


def in_force(others: Others) -> bool:
    """Also of a policy that is being deleted, until it is gone."""
    policy = others.find(POLICIES, names.CLAIM_POLICY)
    if policy is None or policy.get("spec") != written()[0]["spec"]:
        return False
    return any(binding.get("spec") == {"policyName": names.CLAIM_POLICY} for binding in others.all_of(BINDINGS))


def label(claim: Json, old: Json | None, others: Others) -> None:
    """Sets the label on a claim that is about to be stored, if the policy is in force."""
    if not in_force(others):
        return
    value = names.claim_label(
        selected_node=selected_node(claim),
        provisioner=claim_provisioner(claim),
        volume_name=claim["spec"].get("volumeName") or "",
        uid=old["metadata"]["uid"] if old else "",
    )
    # The map may be shared with the object as it was.
    claim["metadata"]["labels"] = {**(claim["metadata"].get("labels") or {}), names.CLAIM_LABEL: value}


@cache
def written() -> tuple[Json, Json]:
    """Policy and binding of the component, as they lie in its file."""
    policy, binding = yaml.safe_load_all((_ROOT / COMPONENT).read_text())
    return policy, binding
