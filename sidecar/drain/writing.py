"""Stores an assessment where others find it: the report, the Node's two conditions, our marks on the Node. What these say is `report`'s.

What is stored is compared, not what was written last: it is read at the start, at every heartbeat and after every refusal.
"""

from collections.abc import Callable
from typing import Final

from sidecar.drain import marks, report, stored
from sidecar.drain.assessment import Assessment
from sidecar.drain.marks import Marks
from sidecar.drain.report import HEARTBEAT, Extra
from sidecar.drain.settings import Settings
from sidecar.drain.words import Reason
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import AlreadyExists, ApiError, NotFound
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

Since = dict[tuple[str, Reason], float]
"""As `Snapshot.since`."""

_MISSING: Final = "NodeDrainReports are not served: install the CustomResourceDefinition of deploy/components/drain"


class Scribe:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._stored: Json | None = None
        self._made: Json | None = None
        self._unsaved = False
        """The last one that was made could not be stored: what is stored is behind it."""
        self._report_read_at: float | None = None
        self._conditions: list[Json] = []
        self._conditions_read_at: float | None = None
        self._conditions_written_at: float | None = None
        self._node_uid = ""
        self._since: Since = {}
        self._complete_since: Since = {}
        self.recalled = False
        """What is stored for this node has been read, or it is known that nothing is. Before, nothing that was told is known."""

    @property
    def previous(self) -> Json | None:
        """The report as it is stored, or as it was made last where none can be stored."""
        return self._made if self._unsaved else self._stored or self._made

    async def recall(self, node: Node) -> None:
        """Read what an earlier process, or anybody, has stored. Raises ApiError when it cannot be read."""
        if node.uid != self._node_uid:
            self._stored = self._made = self._report_read_at = self._conditions_read_at = self._conditions_written_at = None
            self._conditions, self._node_uid, self._unsaved, self.recalled = [], node.uid, False, False
            self._since = self._complete_since = {}
        if self._is_due(self._report_read_at):
            self._stored = await self._read(node)
            self._report_read_at, self.recalled = self._clock(), True

    def since(self, *, now: float) -> Since:
        """Since when what blocks has blocked: as it is stored, and of a long list only the beginning is."""
        found = {key: at for key, at in self._since.items() if at <= now}
        return found | stored.since(self.previous, node_uid=self._node_uid, now=now)

    async def write_report(self, assessment: Assessment, extra: Extra, *, now: float) -> None:
        """Raises ApiError when it could not be stored; what was made is remembered all the same."""
        new = report.body(assessment, previous=self.previous, agent=self._settings.agent, extra=extra)
        self._made = new
        found = {(blocker.key, blocker.reason): blocker.since for blocker in assessment.blockers}
        # What is not seen while something is not known may block all the same.
        self._since = found if assessment.complete else self._complete_since | found
        self._complete_since = found if assessment.complete else self._complete_since
        if self._settings.dry_run:
            return
        if self._stored is not None and not report.differs(self._stored, new) and not report.is_stale(self._stored, now=now):
            return
        old, self._stored, self._unsaved = self._stored, None, True
        try:
            await self._store(old, new)
        except ApiError:
            self._report_read_at = None
            raise
        self._stored, self._unsaved = new, False

    async def write_conditions(self, assessment: Assessment) -> None:
        """Raises ApiError when they could not be stored."""
        if self._is_due(self._conditions_read_at):
            node = await self._kube.get(NODES, assessment.node)
            self._conditions = list((node.get("status") or {}).get("conditions") or ())
            self._conditions_read_at = self._clock()
        wanted = report.conditions(assessment, self._conditions)
        if not report.conditions_differ(self._conditions, wanted) and not self._is_due(self._conditions_written_at):
            return
        if not self._settings.dry_run:
            patch = report.conditions_patch(wanted, node_uid=assessment.node_uid)
            await self._kube.patch(NODES, assessment.node, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        ours = {condition["type"] for condition in wanted}
        self._conditions = [condition for condition in self._conditions if condition.get("type") not in ours] + wanted
        self._conditions_written_at = self._clock()

    async def write_marks(self, node: Node, wanted: Marks, *, protect: bool | None = None) -> Node:
        """The node as it is then. What autoscalers may do is decided on the one that is stored at this moment."""
        driver, version = self._settings.driver, ""
        protection = marks.protection(node, driver, needed=protect)
        if marks.patch(node, protection) is not None:
            fresh = await self._kube.get(NODES, node.name)
            node, version = Node.of(fresh), fresh["metadata"]["resourceVersion"]
            protection = marks.protection(node, driver, needed=protect)
        patch = marks.patch(node, wanted | protection, resource_version=version)
        if patch is None or self._settings.dry_run:
            return node
        return Node.of(await self._kube.patch(NODES, node.name, patch, content_type=MERGE_PATCH))

    async def _store(self, old: Json | None, new: Json) -> None:
        name = new["metadata"]["name"]
        if old is None:
            try:
                await self._kube.create(DRAIN_REPORTS, new)
            except AlreadyExists:
                pass
            except NotFound as error:
                raise NotFound(_MISSING, status=404) from error
        elif report.owner_differs(old, new):
            await self._kube.patch(DRAIN_REPORTS, name, report.owner_patch(new), content_type=MERGE_PATCH)
        await self._kube.patch(DRAIN_REPORTS, name, report.status_patch(new), content_type=JSON_PATCH, subresource="status")

    async def _read(self, node: Node) -> Json | None:
        return await find(self._kube, DRAIN_REPORTS, names.drain_report(node.name, self._settings.driver))

    def _is_due(self, at: float | None) -> bool:
        return at is None or self._clock() - at >= HEARTBEAT
