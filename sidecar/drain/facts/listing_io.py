"""Lists and reads for a look from outside. What cannot be read becomes a sentence, and what can be is kept page by page."""

from collections.abc import Callable
from typing import Final, TypeVar

from sidecar.kube.api import DRAIN_REPORTS, SNAPSHOT_CONTENTS, KubeApi, Resource, records
from sidecar.kube.errors import ApiError, NotFound
from sidecar.model.objects import Json

R = TypeVar("R")

_OPTIONAL: Final = frozenset({SNAPSHOT_CONTENTS, DRAIN_REPORTS})
"""Kinds that a cluster may do without."""


class Lister:
    """One look. `record` makes an object small; None drops it: clusters are large, nodes are not."""

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self.ignorance: list[str] = []
        self.unread: set[str] = set()
        """As `Snapshot.unread`."""
        self.failed: set[Resource] = set()
        """Kinds whose list failed."""

    async def all(
        self, resource: Resource, record: Callable[[Json], R | None], *, namespace: str = "", field_selector: str = ""
    ) -> tuple[R, ...]:
        """Those that could be read before something failed."""
        found: list[R] = []
        try:
            async for made in records(self._kube, resource, record, namespace=namespace, field_selector=field_selector):
                found.append(made)
        except NotFound:
            if resource not in _OPTIONAL:
                self._fails(resource, "the API server does not serve them")
        except ApiError as error:
            self._fails(resource, str(error))
        return tuple(found)

    async def all_or_none(self, resource: Resource, record: Callable[[Json], R | None]) -> tuple[R, ...] | None:
        """None: they could not be read, which is not the same as none of them."""
        found = await self.all(resource, record)
        return None if resource in self.failed else found

    async def one(self, resource: Resource, name: str, *, what: str) -> Json | None:
        """None: there is none, or it could not be read; then `what` is among `unread`."""
        try:
            return await self._kube.get(resource, name)
        except NotFound:
            return None
        except ApiError as error:
            self.ignorance.append(f"{what}: {error}")
            self.unread.add(what)
            return None

    def _fails(self, resource: Resource, why: str) -> None:
        self.ignorance.append(f"{resource}: {why}")
        self.failed.add(resource)
