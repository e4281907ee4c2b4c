"""Stores and takes away the reports on nodes that are gone.

The report of the node's own sidecar may be there yet, and garbage collection may delete it meanwhile, because it was the Node's. So its
owner is taken off first, on condition of its version; if it has gone after all, the next look makes it anew.
"""

from sidecar.drain.node_loss import report
from sidecar.drain.node_loss.suspects import Suspect
from sidecar.drain.node_loss.turn import selector
from sidecar.drain.publish.report import status_patch
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, KubeApi, find, records
from sidecar.kube.errors import ApiError
from sidecar.model import names
from sidecar.model.objects import Json


class Reports:
    """Raises ApiError. Conflict means that somebody else has written it: the next look sees what."""

    def __init__(self, kube: KubeApi, *, driver: str) -> None:
        self._kube = kube
        self._driver = driver

    async def stored(self) -> dict[Suspect, Json]:
        """All that a peer has written. Without the type there are none."""
        found = records(self._kube, DRAIN_REPORTS, lambda obj: obj, label_selector=selector(self._driver))
        return {about: obj async for obj in found if (about := report.suspect_of(obj)) is not None and self._is_ours(obj)}

    async def find(self, node: str) -> Json | None:
        """The name may also be that of another node by a driver with a longer or shorter name: that report is its own sidecar's."""
        name = names.drain_report(node, self._driver)
        found = await find(self._kube, DRAIN_REPORTS, name)
        of = report.whose(found) if found is not None else None
        if of is not None and of != (node, self._driver):
            raise ApiError(
                f"the report {name} is that of driver {of[1]} on node {of[0]}, so node {node} has none, and nothing of it is touched"
            )
        return found

    async def write(self, suspect: Suspect, status: Json, stored: Json | None, *, doubt: str = "") -> None:
        """`doubt`: as `evidence.Gone.doubt`."""
        head = report.head(suspect, self._driver, doubt=doubt)
        name = head["metadata"]["name"]
        if stored is None:
            stored = await self._kube.create(DRAIN_REPORTS, head)
        elif (patch := report.head_patch(stored, suspect, self._driver, doubt=doubt)) is not None:
            stored = await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=MERGE_PATCH)
        if report.differs(stored, status):
            version = stored["metadata"]["resourceVersion"]
            body = status_patch({"status": status}, resource_version=version)
            await self._kube.patch(DRAIN_REPORTS, name, body, content_type=JSON_PATCH, subresource="status")

    async def remove(self, stored: Json) -> None:
        """Nothing if its node's own sidecar writes it by now, or anybody else has changed it."""
        meta = stored["metadata"]
        await self._kube.delete(DRAIN_REPORTS, meta["name"], uid=meta["uid"], resource_version=meta["resourceVersion"])

    def _is_ours(self, obj: Json) -> bool:
        return bool((obj.get("spec") or {}).get("driver") == self._driver and not report.has_owner(obj))
