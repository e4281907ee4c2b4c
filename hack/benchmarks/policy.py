"""The admission policy that labels claims, as deploy/components/scoped-watches has it, on a control plane of a measurement."""

from __future__ import annotations

from hack.lib.control_plane import REPOSITORY, ControlPlane, until
from hack.lib.programs import claim
from sidecar.model import names

_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All"
_PATIENT = 180.0


def install_policy(plane: ControlPlane, *, class_name: str) -> None:
    """Returns when it is in force. A claim of the class is tried on it, and not stored."""
    plane.apply((REPOSITORY / "deploy" / "components" / "scoped-watches" / "policy.yaml").read_text())

    def is_in_force() -> bool:
        return names.CLAIM_LABEL in plane.request("POST", _CLAIMS, claim("trial", class_name))["metadata"].get("labels", {})

    until(is_in_force, "claims are labelled", seconds=_PATIENT)
