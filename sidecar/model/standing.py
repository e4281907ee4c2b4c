"""Standing: whether this node takes volumes now, and if not, why. Drain decisions make it; all other rooms only read it."""

from dataclasses import dataclass

from sidecar.model.nodes import Taint


@dataclass(frozen=True, slots=True)
class Standing:
    """The default is that of a node which nobody drains."""

    closed: bool = False
    """The node takes no new volumes: it does not bid, and hands claims that are put on it from now on back to the scheduler, once each."""
    why: str = ""
    since: str = ""
    """Identifies this closing: another value each time the node is closed, the same one after a restart."""
    taints: tuple[Taint, ...] = ()
    """What keeps pods off while it is closed. A pod that tolerates all of these comes here regardless."""


OPEN = Standing()
