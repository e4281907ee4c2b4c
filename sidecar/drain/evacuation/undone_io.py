"""Whether a node is still to be emptied, by the Node itself and not by what a watch has shown: asked just before what cannot be undone."""

from dataclasses import dataclass

from sidecar.drain.duty import Picture
from sidecar.drain.evacuation.closing import asked_by_marks
from sidecar.drain.facts import node_marks
from sidecar.drain.facts.announcement import Source
from sidecar.drain.facts.own_notes import State
from sidecar.drain.settings import Settings
from sidecar.drain.vocabulary import Intent
from sidecar.kube.api import NODES, KubeApi
from sidecar.model.nodes import Node


@dataclass(frozen=True, slots=True)
class Undone:
    """The Node as it is now does not ask for its evacuation any more: nothing is done."""

    why: str


async def read(kube: KubeApi, settings: Settings, picture: Picture, *, now: float) -> Node | Undone:
    """The Node as it is now, if it asks for it. Raises ApiError if that cannot be read."""
    node = Node.of(await kube.get(NODES, picture.node.name))
    if node.uid != picture.node.uid:
        return Undone("there is another Node of this name by now")
    signals = node_marks.read(node, settings.driver, now=now, default_policy=settings.policy, cordon_delay=settings.cordon_delay)
    # That a cordon which nobody explains has lasted is known only from what was seen before. Nothing else is: who takes back what was
    # announced often leaves the cordon to the end.
    lasted = signals.cordoned and signals.announced is None and picture.signals.source is Source.CORDON
    asked = asked_by_marks(picture.signals if lasted else signals, settings.policy)
    if not asked or signals.announced is Intent.REBOOT or signals.state is not State.IN_PROGRESS:
        return Undone("the evacuation was undone, or has ended")
    return node
