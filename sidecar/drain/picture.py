"""What one look at the node has found, and the check before everything that cannot be undone: does the Node as it is now still want it?"""

from collections.abc import Callable
from dataclasses import dataclass

from sidecar.drain import marks as node_marks
from sidecar.drain.assess import Assessment
from sidecar.drain.course import is_under_way
from sidecar.drain.empty import keeping_off
from sidecar.drain.marks import Marks
from sidecar.drain.settings import Settings
from sidecar.drain.snapshot import Snapshot
from sidecar.kube.api import NODES, KubeApi
from sidecar.model.nodes import Node


@dataclass(frozen=True, slots=True)
class Picture:
    node: Node
    marks: Marks
    snapshot: Snapshot
    assessment: Assessment

    @property
    def machine(self) -> str:
        """As marks on claims name it."""
        return f"{self.node.name}/{self.node.uid}"


def read_marks(node: Node, settings: Settings, *, now: float, before: Marks | None = None) -> Marks:
    return node_marks.read(node, settings.driver, now=now, policy=settings.policy, before=before)


async def why_undone(kube: KubeApi, settings: Settings, picture: Picture, *, wall: Callable[[], float]) -> str:
    """By the Node itself and not by what a watch has shown; empty: it still wants what it wanted. Raises ApiError.

    The same function reads both, and both have to say the same: whatever has changed, the next look decides anew.
    """
    fresh = Node.of(await kube.get(NODES, picture.node.name))
    if fresh.uid != picture.node.uid:
        return "there is another Node of this name by now"
    marks = read_marks(fresh, settings, now=wall(), before=picture.marks)
    if marks.wish != picture.marks.wish or not is_under_way(marks.record, marks.wish):
        return "the evacuation was undone, or has ended"
    return "" if keeping_off(fresh) == keeping_off(picture.node) else "what keeps pods off the node has changed"
