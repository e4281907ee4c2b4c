"""Reads the volumes that claims of this node are bound to and that no list and no watch has shown yet."""

from collections.abc import Iterable

from sidecar.kube.api import VOLUMES, KubeApi
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model.objects import Claim


async def ignorance_of(kube: KubeApi, claims: Iterable[Claim]) -> list[str]:
    """One sentence for each that exists or could not be read. A volume that is gone is not counted: its claim goes on naming it, and
    the node could never be retired."""
    found = []
    for claim in sorted(claims, key=lambda claim: claim.full_name):
        try:
            await kube.get(VOLUMES, claim.volume_name)
        except NotFound:
            continue
        except ApiError as error:
            found.append(f"volume {claim.volume_name}: {error}")
        else:
            found.append(f"claim {claim.full_name} is bound to volume {claim.volume_name}, which exists and has not been seen yet")
    return found
