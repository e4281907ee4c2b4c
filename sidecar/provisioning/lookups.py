"""Fetches what a decision needs, reads Secrets right before a call of the driver, and puts finalizers on sources and takes them off.

The content of a Secret is returned to the code that calls the driver. It is kept nowhere, so that it cannot reach a log or an event.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from sidecar.csi.api import NOTHING
from sidecar.kube.api import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    PODS,
    REFERENCE_GRANTS,
    SECRETS,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    VOLUMES,
    KubeApi,
    Resource,
    records,
)
from sidecar.kube.errors import ApiError, NotFound, Unavailable
from sidecar.model.objects import Json
from sidecar.provisioning import needs
from sidecar.provisioning.needs import Absent, Ref
from sidecar.provisioning.requests import cloning, consumers, secrets, source_finalizers
from sidecar.provisioning.requests.secrets import SecretRef

log = logging.getLogger(__name__)

_RESOURCES: Final[Mapping[str, Resource]] = {
    needs.SNAPSHOT: SNAPSHOTS,
    needs.CONTENT: SNAPSHOT_CONTENTS,
    needs.GRANTS: REFERENCE_GRANTS,
    needs.CLAIM: CLAIMS,
    needs.VOLUME: VOLUMES,
    needs.ATTRIBUTES_CLASS: ATTRIBUTES_CLASSES,
    needs.PODS: PODS,
    needs.CLAIMS: CLAIMS,
}
# A namespace may hold thousands of these objects, so only the fields that are read are kept of each.
_SLIM: Final[Mapping[str, Callable[[Json], Json]]] = {needs.PODS: consumers.slim, needs.CLAIMS: cloning.slim}
# Clusters from before the VolumeAttributesClass became stable serve it only under its former version.
_FORMER: Final = replace(ATTRIBUTES_CLASSES, version="v1beta1")


class Unreadable(ApiError):
    """A Secret could not be read, or its content cannot be passed to a driver."""


class Lookups:
    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube

    async def fetch(self, refs: Iterable[Ref]) -> dict[Ref, Json | Absent]:
        """Fetches each object, or says why it could not. Raises Unavailable if the API server is away: then nothing is known about the
        objects, and no user must be told that one is missing."""
        return {ref: await self._one(ref) for ref in sorted(refs)}

    async def secret(self, ref: SecretRef | None) -> Mapping[str, str]:
        """The content that is passed to the driver. Raises an ApiError that names the Secret and never its content."""
        if ref is None:
            return NOTHING
        try:
            found = await self._kube.get(SECRETS, ref.name, namespace=ref.namespace)
            return secrets.data_of(found)
        except NotFound as error:
            raise Unreadable(f"Secret {ref.namespace}/{ref.name} does not exist; create it, or name another one in the class") from error
        except ValueError as error:
            raise Unreadable(str(error)) from None

    async def secret_if_any(self, ref: SecretRef | None, *, about: str) -> Mapping[str, str]:
        """The content for a deletion, or nothing if the Secret cannot be read. A deletion must not wait for a Secret that is gone: many
        drivers need none to delete. An API server that is away proves nothing, so then it waits."""
        try:
            return await self.secret(ref)
        except Unavailable:
            raise
        except ApiError as error:
            log.warning("Deleting without a secret", extra={"fields": {"of": about, "err": str(error)}})
            return {}

    async def protect(self, ref: Ref, obj: Json) -> None:
        """Puts our finalizer on a source."""
        body = source_finalizers.with_finalizer(obj, source_finalizers.finalizer_for(ref))
        if body is not None:
            await self._kube.replace(_RESOURCES[ref.kind], body, name=ref.name, namespace=ref.namespace)

    async def release(self, ref: Ref) -> None:
        """Takes our finalizer off again, if it can. After an error it stays, and a later sweep takes it off."""
        try:
            obj = await self._kube.get(_RESOURCES[ref.kind], ref.name, namespace=ref.namespace)
            body = source_finalizers.without_finalizer(obj, source_finalizers.finalizer_for(ref))
            if body is not None:
                await self._kube.replace(_RESOURCES[ref.kind], body, name=ref.name, namespace=ref.namespace)
        except ApiError:
            return

    async def _one(self, ref: Ref) -> Json | Absent:
        resource = _RESOURCES[ref.kind]
        try:
            if not ref.name:
                slim = _SLIM.get(ref.kind, dict)
                return {"items": [item async for item in records(self._kube, resource, slim, namespace=ref.namespace)]}
            try:
                return await self._kube.get(resource, ref.name, namespace=ref.namespace)
            except NotFound:
                if resource != ATTRIBUTES_CLASSES:
                    raise
                return await self._kube.get(_FORMER, ref.name)
        except NotFound as error:
            return Absent(str(error), exists=False)
        except Unavailable:
            raise
        except ApiError as error:
            return Absent(str(error))
