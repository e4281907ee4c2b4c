"""Reads the volumes that claims of this node are bound to and that no list and no watch has shown yet."""

from collections.abc import Iterable, MutableMapping

from sidecar.kube.api import VOLUMES, KubeApi
from sidecar.kube.errors import ApiError, Forbidden, NotFound
from sidecar.model.objects import Claim


async def ignorance_of(kube: KubeApi, claims: Iterable[Claim], *, forbidden: MutableMapping[str, str]) -> list[str]:
    """One sentence for each that exists or could not be read. A volume that is gone is not counted: its claim goes on naming it, and
    the node could never be retired. `forbidden`, as `Asking.forbidden`, gets those that may not be read."""
    found = []
    for claim in sorted(claims, key=lambda claim: claim.full_name):
        try:
            await kube.get(VOLUMES, claim.volume_name)
        except NotFound:
            continue
        except ApiError as error:
            what = f"volume {claim.volume_name}"
            found.append(f"{what}: {error}")
            if isinstance(error, Forbidden):
                forbidden[what] = str(error)
        else:
            found.append(f"claim {claim.full_name} is bound to volume {claim.volume_name}, which exists and has not been seen yet")
    return found
