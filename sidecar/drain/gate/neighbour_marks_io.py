"""Writes what the neighbour of a silent sidecar may write about its node: that its verdicts do not count any more, and, once the node is
let go, that autoscalers may have it and that its pods may be evicted. The admission policy allows this and nothing else, and not while that
sidecar lives (deploy/components/drain/admission.yaml).

A refusal is told and keeps nobody waiting: the gate of a node that is let go opens all the same.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from sidecar.drain.publish import on_node, report, validity, withdrawn
from sidecar.drain.publish.stored import NOTHING_HELD, held_of, of_this_node, status_of
from sidecar.drain.settings import Settings
from sidecar.kube.api import DRAIN_REPORTS, JSON_PATCH, MERGE_PATCH, NODES, STRATEGIC_MERGE_PATCH, KubeApi, find
from sidecar.kube.errors import ApiError, Conflict
from sidecar.model import names
from sidecar.model.nodes import Node
from sidecar.model.objects import Json

# Other drivers' sidecars write the autoscalers' annotations too: of two that are faster neither is told.
_ATTEMPTS: Final = 3


class NeighbourMarks:
    """One per process."""

    def __init__(self, kube: KubeApi, settings: Settings, *, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._driver = settings.driver
        self._wall = wall

    async def withdraw(self, stored: Json, *, at_once: bool) -> list[str]:
        """What failed. Before their time is over verdicts are withdrawn only `at_once`: as nobody will look at this node again.

        The conditions come first: only once they are withdrawn does the admission policy let through what is about annotations.
        """
        now, node = self._wall(), Node.of(stored)
        conditions = (stored.get("status") or {}).get("conditions") or ()
        summary_ends = validity.of_summary(node.annotations.get(names.of_driver(self._driver, names.DRAIN_SUMMARY)))
        changed = withdrawn.silenced(conditions, self._driver, at=now)
        if changed and not at_once and not validity.overdue(conditions, self._driver, now=now):
            return []
        failures = []
        if changed:
            patch = on_node.conditions_patch(changed, node_uid=node.uid)
            failures += await _attempt(
                self._kube.patch(NODES, node.name, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status"),
                f"conditions of {node.name}",
            )
        if changed or at_once or not validity.counts(summary_ends, now=now):
            marks = on_node.patch(node, withdrawn.summary(node.annotations, self._driver, withdrawn.SILENT))
            if marks is not None:
                patching = self._kube.patch(NODES, node.name, marks, content_type=MERGE_PATCH)
                failures += await _attempt(patching, f"summary of {node.name}")
        return failures

    async def let_pods_go(self, node: Node) -> list[str]:
        """Take back which pods must not be evicted, for whom nobody stands any more. What failed."""
        return await _attempt(self._let_pods_go(node), f"the pods in the report of {node.name} that must not be evicted")

    async def _let_pods_go(self, node: Node) -> None:
        name = names.drain_report(node.name, self._driver)
        stored = await find(self._kube, DRAIN_REPORTS, name)
        if stored is not None and held_of(of_this_node(status_of(stored), node.uid)).because:
            patch = report.held_patch(NOTHING_HELD, resource_version=stored["metadata"]["resourceVersion"])
            await self._kube.patch(DRAIN_REPORTS, name, patch, content_type=JSON_PATCH, subresource="status")

    async def unprotect(self, node: Node) -> list[str]:
        """Take away the autoscalers' annotations of this driver's sidecar. What failed."""
        if on_node.patch(node, on_node.protection(node, self._driver, needed=False)) is None:
            return []
        return await _attempt(self._unprotect(node), f"autoscalers' annotations of {node.name}")

    async def _unprotect(self, node: Node) -> None:
        for attempt in range(_ATTEMPTS):
            fresh = await self._kube.get(NODES, node.name)
            marks = on_node.protection(Node.of(fresh), self._driver, needed=False)
            patch = on_node.patch(Node.of(fresh), marks, resource_version=fresh["metadata"]["resourceVersion"])
            if patch is None or fresh["metadata"]["uid"] != node.uid:
                return
            try:
                await self._kube.patch(NODES, node.name, patch, content_type=MERGE_PATCH)
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return


async def _attempt(effect: Awaitable[object], what: str) -> list[str]:
    try:
        await effect
    except ApiError as error:
        return [f"{what}: {error}"]
    return []
