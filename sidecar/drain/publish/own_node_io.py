"""The Node that this process runs on: as it is known now, and writing our marks on it (which ones: `on_node`)."""

from collections.abc import Callable
from typing import Final

from sidecar.drain.facts import node_marks
from sidecar.drain.facts.node_marks import Signals
from sidecar.drain.publish import on_node
from sidecar.drain.publish.on_node import Marks
from sidecar.drain.refusals_io import Refusals
from sidecar.drain.settings import Settings
from sidecar.kube.api import MERGE_PATCH, NODES, Change, KubeApi
from sidecar.kube.store import Store
from sidecar.model.nodes import Node

# A watch that lags shows the node as it was before this room's last write; for so long that is not believed.
_LAG: Final = 30.0


class OwnNode:
    """One per process."""

    def __init__(
        self,
        kube: KubeApi,
        settings: Settings,
        nodes: Store[Node],
        refusals: Refusals,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._nodes = nodes
        self._refusals = refusals
        self._clock = clock
        self._wall = wall
        self._read: Signals | None = None
        """What was read last: it knows more of a cordon than the node's marks (`node_marks.read`)."""
        self._written: Node | None = None
        """As it was after this room's last write."""
        self._believed_until = 0.0
        self.marked = False
        """It was changed in this look, of which no watch will tell: the change is in the cache already."""

    def known(self) -> Node | None:
        """As the watch shows it, or as this room has written it since; None: there is none, or nobody has heard of it yet."""
        seen, written = self._nodes.get(self._settings.node), self._written
        if seen is None or written is None or seen.uid != written.uid or self._clock() > self._believed_until:
            return seen
        return written if seen.version < written.version else seen

    def read(self, node: Node) -> Signals:
        settings = self._settings
        self._read = node_marks.read(
            node,
            settings.driver,
            now=self._wall(),
            default_policy=settings.policy,
            cordon_delay=settings.cordon_delay,
            before=self._read,
        )
        return self._read

    async def mark(self, node: Node, marks: Marks, *, protect: bool | None = None) -> Node | None:
        """The node as it is then; None if that was refused. It is known at once: a watch that is down must not have it decided again."""
        after = await self._refusals.attempt("marks on the node", self._write(node, marks, protect=protect))
        if after is not None and after != node:
            held = self._nodes.get(node.name)
            # The watch may have been faster than the answer, and nothing would ever bring back what it has shown since.
            if held is not None and held.uid == after.uid and held.version < after.version:
                self._nodes.apply(Change(node.name, held, after))
            self._written, self._believed_until = after, self._clock() + _LAG
            self.marked = True
        return after

    async def _write(self, node: Node, wanted: Marks, *, protect: bool | None) -> Node:
        """The node as it is afterwards. The autoscalers' annotations are shared with other drivers, so they are decided on a fresh read."""
        driver, version = self._settings.driver, ""
        protection = on_node.protection(node, driver, needed=protect)
        if on_node.patch(node, protection) is not None:
            fresh = await self._kube.get(NODES, node.name)
            node, version = Node.of(fresh), fresh["metadata"]["resourceVersion"]
            protection = on_node.protection(node, driver, needed=protect)
        patch = on_node.patch(node, wanted | protection, resource_version=version)
        if patch is None or self._settings.dry_run:
            return node
        return Node.of(await self._kube.patch(NODES, node.name, patch, content_type=MERGE_PATCH))
