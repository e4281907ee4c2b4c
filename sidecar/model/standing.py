"""Standing: may this node take volumes now, and why not. One value that all rooms read and none of them computes."""

from dataclasses import dataclass

from sidecar.model.nodes import Taint


@dataclass(frozen=True, slots=True)
class Standing:
    """Made where drain decisions are made. The default is that of a node nobody wants to empty."""

    closed: bool = False
    """The node takes no new volumes: it does not bid, and gives back claims that were put on it from now on, once each."""
    publishes_zero: bool = False
    """No free capacity is shown, so that the scheduler leaves the node out."""
    why: str = ""
    since: str = ""
    """Which closing this is; another value for each time the node is closed, the same after a restart."""
    taints: tuple[Taint, ...] = ()
    """What keeps pods off while it is closed: a pod that tolerates all of it comes here all the same."""


OPEN = Standing()
