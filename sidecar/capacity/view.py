"""Everything that `rules` decides by: one class at one moment, what is published for it, and what the driver answered."""

from dataclasses import dataclass

from sidecar.csi.api import CapacityAnswer
from sidecar.csi.outcome import Unmeasured
from sidecar.model.objects import CapacityRecord, Class, Owner
from sidecar.model.topology import Segment


@dataclass(frozen=True, slots=True)
class Publisher:
    """What is the same for every object of this process."""

    driver: str
    manager: str
    owner: Owner | None
    for_immediate: bool
    poll_interval: float
    reserve_pending: bool = False
    stale_after: float = 0.0
    """Seconds; 0: a figure is never withdrawn because it is old."""


@dataclass(frozen=True, slots=True)
class CapacityView:
    """One class at one moment."""

    now: float
    publisher: Publisher
    segment: Segment
    """This node's topology as the driver reports it, even where volumes get none: an object without a segment would speak for all nodes."""
    class_name: str
    class_: Class | None
    records: tuple[CapacityRecord, ...]
    """Objects with this node's labels for this class, whatever their segment."""
    answer: CapacityAnswer | Unmeasured | None = None
    """None: not asked yet in this look."""
    leaving: frozenset[str] = frozenset()
    """UIDs of objects that were deleted a moment ago. One that is still there at the next poll is deleted again."""
    settling_until: float = 0.0
    """Until then an object that was created may not have come back through the watch; creating another one would make a duplicate."""
    promised: int = 0
    """Bytes that claims of this node will take of the same space; the driver may not count them yet."""
    wall: float = 0.0
    failing_since: float | None = None
    """On the wall clock: the first of the driver's failures in a row; None if it answered last time."""
    failing_for: float = 0.0
    """Seconds since then, by a clock that does not jump."""
    has_topology: bool = False
    """The driver says that its volumes are not to be reached from everywhere."""
