"""Takes back, at the start, what an earlier process has said of the node: until this one has judged, both verdicts are Unknown.

It waits for nothing that has to be listed first. An old True must not stand for as long as claims or volumes cannot be read. Nor does it
wait for the driver, which may be dead: whose words these are is remembered beside its socket (`last_served_io`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from sidecar.drain.publish import on_node, report, withdrawn
from sidecar.drain.settings import Settings
from sidecar.engine.backoff import Backoff
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import ApiError, Forbidden
from sidecar.model import names
from sidecar.model.nodes import Node

log = logging.getLogger(__name__)

PATIENCE: Final = 30.0
"""Seconds between two tries at most: however long the API server was away, the old words must not stand for long once it is back."""


class Withdrawal:
    """`run` as a task from the very start; `end` before the first judgement is written."""

    def __init__(self, kube: KubeApi, settings: Settings, *, retry: Backoff, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._settings = settings
        self._retry = retry
        self._wall = wall
        self._said = withdrawn.JUST_STARTED if settings.judges else withdrawn.NOT_JUDGED
        self._writing = asyncio.Lock()
        self._over = settings.dry_run

    async def run(self) -> None:
        """Until it is written, or needless, or this process has judged the node."""
        attempt = 0
        while not self._over:
            try:
                async with self._writing:
                    await self._write()
            except Forbidden as error:
                if not self._settings.judges:
                    return  # who may not even read it has written none of it
                log.info("What was said of the node before could not be taken back", extra={"fields": {"err": str(error)}})
            except ApiError as error:
                log.info("What was said of the node before could not be taken back yet", extra={"fields": {"err": str(error)}})
            if not self._over:
                await asyncio.sleep(min(self._retry.delay(attempt), PATIENCE))
                attempt += 1

    async def end(self) -> None:
        """This process judges the node now, and what it says must not be taken back."""
        self._over = True
        async with self._writing:
            pass

    async def _write(self) -> None:
        if self._over:
            return
        name, driver, at = self._settings.node, self._settings.driver, self._wall()
        obj = await find(self._kube, NODES, name)
        if obj is not None:
            node, stored = Node.of(obj), (obj.get("status") or {}).get("conditions") or ()
            if changed := withdrawn.conditions(stored, driver, self._said, at=at):
                patch = on_node.conditions_patch(changed, node_uid=node.uid, resource_version=obj["metadata"]["resourceVersion"])
                await self._kube.patch(NODES, name, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
            if (marks := on_node.patch(node, withdrawn.summary(node.annotations, driver, self._said))) is not None:
                await self._kube.patch(NODES, name, marks, content_type=MERGE_PATCH)
            await self._write_report(node, at=at)
        self._over = True

    async def _write_report(self, node: Node, *, at: float) -> None:
        name = names.drain_report(node.name, self._settings.driver)
        stored = await find(self._kube, DRAIN_REPORTS, name)
        status = withdrawn.report_status(stored or {}, self._said, node_uid=node.uid, at=at)
        if stored is not None and status is not None:
            patch = report.status_patch({"status": status}, resource_version=stored["metadata"]["resourceVersion"])
            await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")
