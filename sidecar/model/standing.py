"""Standing: may this node take volumes now, and why not. One value that all rooms read and none of them computes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """Made where drain decisions are made. The default is that of a node nobody wants to empty."""

    publishes_zero: bool = False
    """No free capacity is shown, so that the scheduler leaves the node out."""
    why: str = ""


OPEN = Standing()
