"""What the watches have brought, by kind: the same for all files of this room."""

from dataclasses import dataclass
from typing import Final

from sidecar.kube.store import Store
from sidecar.model.objects import Attachment, Claim, Class, Volume
from sidecar.provisioning.needs import CLAIM

# While the API server is away nothing is amiss with the claim or the volume, and should this process end the answer is lost:
# it is offered again soon, however long the outage has lasted.
UNSTORED: Final = 15.0


@dataclass(frozen=True, slots=True)
class Caches:
    """What the watches have brought, by kind."""

    claims: Store[Claim]
    classes: Store[Class]
    volumes: Store[Volume]
    attachments: Store[Attachment]


def cloned_from(claim: Claim) -> tuple[str, ...]:
    """For an index of claims, `source`: the full name of the claim that it is to be cloned from."""
    source = claim.source
    return (f"{source.namespace}/{source.name}",) if source is not None and source.kind == CLAIM else ()
