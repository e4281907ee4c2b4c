"""Writes a changed claim, guarded by its resourceVersion. Claims are written whole, and a large one is not held: it is read again first."""

from collections.abc import Callable

from sidecar.kube.api import CLAIMS, KubeApi, always
from sidecar.kube.errors import Conflict, NotFound
from sidecar.local.caches import Caches
from sidecar.model.objects import Claim, Json, compact


class ClaimWriter:
    def __init__(self, kube: KubeApi, caches: Caches) -> None:
        self._kube = kube
        self._caches = caches

    async def write(self, claim: Claim, edit: Callable[[bytes], bytes], *, is_current: Callable[[], bool] = always) -> Json:
        """`edit` makes the body of the write from the whole claim as it was when this was decided. Conflict if it is another one by now.

        Returns what the API server has made of it.
        """
        body = edit(claim.whole or await self._read(claim))
        written = await self._kube.replace(CLAIMS, body, name=claim.name, namespace=claim.namespace, is_current=is_current)
        self._caches.write_through(claim, written)
        return written

    async def _read(self, claim: Claim) -> bytes:
        fresh = await self._kube.get(CLAIMS, claim.name, namespace=claim.namespace)
        meta = fresh["metadata"]
        if meta.get("uid") != claim.uid:
            raise NotFound(f"claim {claim.full_name} with uid {claim.uid} is gone", status=404)
        self._caches.write_through(claim, fresh)
        if meta.get("resourceVersion") != claim.resource_version:
            raise Conflict(f"claim {claim.full_name} has changed since it was decided what to write", status=409)
        return compact(fresh)
