"""The one MutatingAdmissionPolicy that this server carries out: that of deploy/components/scoped-watches, which labels claims.

There is no interpreter of CEL here. A policy of that name that is word for word that of the component has the effect of
`names.claim_label`; any other has none.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml

from sidecar.kube.api import Resource
from sidecar.model import names
from sidecar.model.objects import Json, claim_provisioner, selected_node

if TYPE_CHECKING:
    from hack.sim.cluster.store import Store

POLICIES: Final = Resource(names.ADMISSION_GROUP, "v1", "mutatingadmissionpolicies", names.MUTATING_POLICY, False)
BINDINGS: Final = Resource(names.ADMISSION_GROUP, "v1", "mutatingadmissionpolicybindings", names.MUTATING_POLICY_BINDING, False)
_COMPONENT: Final = Path(__file__).resolve().parents[3] / "deploy/components/scoped-watches/policy.yaml"


def label(claim: Json, old: Json | None, others: Store) -> None:
    """Sets the label on a claim that is about to be stored, if the policy is in force, as it is until it is gone."""
    policy = others.find(POLICIES, names.CLAIM_POLICY)
    if policy is None or policy.get("spec") != written()[0]["spec"]:
        return
    if not any(binding.get("spec") == {"policyName": names.CLAIM_POLICY} for binding in others.all_of(BINDINGS)):
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
    policy, binding = yaml.safe_load_all(_COMPONENT.read_text())
    return policy, binding
