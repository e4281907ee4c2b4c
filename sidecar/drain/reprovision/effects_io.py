"""What is written on claims: the mark of this machine, and their deletion. Each write is guarded by the version that was judged."""

from typing import Final

from sidecar.drain.machine_mark import Machine, text
from sidecar.drain.reprovision.facts import FoundClaim
from sidecar.kube.api import CLAIMS, MERGE_PATCH, KubeApi
from sidecar.kube.errors import ApiError
from sidecar.model import names

_NO_TRIAL: Final = 400


async def mark(kube: KubeApi, found: FoundClaim, machine: Machine) -> FoundClaim:
    """The claim as it is then."""
    return await _note(kube, found, text(machine))


async def unmark(kube: KubeApi, found: FoundClaim) -> FoundClaim:
    return await _note(kube, found, None)


async def delete(kube: KubeApi, found: FoundClaim) -> None:
    """Conflict: it is not as it was judged any more, and is left alone. NotFound: it is gone."""
    claim = found.claim
    await kube.delete(CLAIMS, claim.name, namespace=claim.namespace, uid=claim.uid, resource_version=claim.resource_version)


async def try_delete(kube: KubeApi, found: FoundClaim) -> None:
    """Deletes nothing. Raises what `delete` would be refused with, by whoever may be asked for a trial."""
    claim = found.claim
    try:
        await kube.delete(
            CLAIMS, claim.name, namespace=claim.namespace, uid=claim.uid, resource_version=claim.resource_version, dry_run=True
        )
    except ApiError as error:
        # A webhook with side effects cannot be tried.
        if error.status != _NO_TRIAL:
            raise


async def _note(kube: KubeApi, found: FoundClaim, value: str | None) -> FoundClaim:
    claim = found.claim
    meta = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {names.REPROVISIONED_BY: value}}
    stored = await kube.patch(CLAIMS, claim.name, {"metadata": meta}, namespace=claim.namespace, content_type=MERGE_PATCH)
    return FoundClaim.of(stored, found.volume)
